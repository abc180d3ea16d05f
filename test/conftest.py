"""What holds for every test: no network, no settings from the developer's shell, no clock in property tests."""

import os

from hypothesis import settings

# Before any test imports torch or transformers, which read these once. A hub is never asked; and with one test process
# a core, each with a thread for every core, the processes would only take the cores from each other.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

for name in [name for name in os.environ if name.startswith("MELLEA_RESPONSES_")]:
    del os.environ[name]

# Time limits belong to pytest-timeout; a busy machine must not turn a slow example into a failure. What is checked on a
# change takes the same examples for everyone; luck has its own runs, a developer's and `make fuzz`.
settings.register_profile("here", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("deep", deadline=None, max_examples=1000)
settings.load_profile("here")
