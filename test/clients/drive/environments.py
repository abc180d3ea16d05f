"""Installs clients, each into an environment of its own under `.clients/`.

`python test/clients/drive/environments.py [--quick | NAME…]` installs what is missing, all of them without a name;
with `--quick` those whose tests are part of `make test`. One that cannot be installed is named with the reason, and its
tests are skipped with the same words.
"""

import fcntl
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".clients"

NODE_24 = "node@24"  # the npm package that holds the program, for clients that need a newer Node than may be here


@dataclass(frozen=True)
class Environment:
    """Packages that are installed together: from PyPI, or from npm."""

    name: str
    packages: tuple[str, ...]
    npm: bool = False

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def stamp(self) -> Path:
        return self.folder / "installed.json"

    @property
    def installed(self) -> bool:
        return self.stamp.exists() and json.loads(self.stamp.read_text()) == list(self.packages)

    @property
    def failure(self) -> Path:
        return FOLDER / f"{self.name}.failed"

    @property
    def missing(self) -> str:
        """Why it is not there, in one line."""
        if self.failure.exists():
            return f"{self.name} {self.failure.read_text().strip()}"
        return f"{self.name} is not installed: make test-clients"

    def program(self, name: str) -> str:
        """The path of a program that the environment brings."""
        return str(self.folder / ("node_modules/.bin" if self.npm else "bin") / name)

    @property
    def interpreter(self) -> str:
        """What runs a driver: the environment's own Python, or a Node."""
        if not self.npm:
            return self.program("python")
        return self.program("node") if NODE_24 in self.packages else "node"


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("openai-agents", ("openai-agents==0.24.0", "websockets<16")),
        Environment("openai-node-7", ("openai@7.59.0", "ws@8", "zod@4", NODE_24), npm=True),
        Environment("openai-node-6", ("openai@6.49.0", "ws@8", "zod@4"), npm=True),
        Environment("codex", ("@openai/codex@0.171.0",), npm=True),
        Environment("pydantic-ai", ("pydantic-ai-slim[openai]==2.68.0", "websockets<16")),
        Environment("langchain", ("langchain-openai==1.7.4",)),
        Environment("litellm", ("litellm==1.110.2",)),
        Environment(
            "ai-sdk-7",
            ("ai@7.0.173", "@ai-sdk/openai@4.0.118", "@ai-sdk/open-responses@2.0.36", "zod@4", NODE_24),
            npm=True,
        ),
        Environment(
            "ai-sdk-6", ("ai@6.0.326", "@ai-sdk/openai@3.0.141", "@ai-sdk/open-responses@1.0.39", "zod@4"), npm=True
        ),
        Environment("openai-agents-js", ("@openai/agents@0.20.0", "zod@4", NODE_24), npm=True),
        Environment("langchain-js", ("@langchain/openai@1.6.0", "@langchain/core", "zod@4"), npm=True),
        Environment("pi", ("@earendil-works/pi-coding-agent@1.6.0", NODE_24), npm=True),
        Environment("opencode", ("opencode-ai@1.18.33",), npm=True),
        Environment("llm", ("llm==0.36", "llm-openai-plugin==0.7")),
        Environment("chat", ("openai==3.57.0", "requests==2.34.2")),
        Environment("llama-index", ("llama-index-llms-openai==0.8.3",)),
        Environment("instructor", ("instructor==1.17.0",)),
        Environment("strands", ("strands-agents[openai]==1.62.0",)),
        Environment("haystack", ("haystack-ai==3.4.1",)),
        Environment("agent-framework", ("agent-framework-openai==1.17.0",)),
    )
}

QUICK = ("openai-agents", "openai-node-7", "codex")
"""What `make test` drives."""


def install(environment: Environment) -> bool:
    """Whether the environment is there now. Two that ask at once install once: the second waits for the first."""
    if environment.installed:
        return True
    with _locked(environment):
        return environment.installed or _install(environment)


@contextmanager
def _locked(environment: Environment) -> Iterator[None]:
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{environment.name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go of when the file is closed, however this process ends
        yield


def _install(environment: Environment) -> bool:
    environment.failure.unlink(missing_ok=True)
    if environment.npm and not shutil.which("npm"):
        environment.failure.write_text("needs npm, and there is none on this machine\n")
        return False
    environment.folder.mkdir(parents=True, exist_ok=True)
    try:
        for command in _commands(environment):
            subprocess.run(command, cwd=environment.folder, check=True, capture_output=True, text=True, timeout=600)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = error.stderr or ""
        lines = (said.decode() if isinstance(said, bytes) else said).strip().splitlines()
        environment.failure.write_text(f"could not be installed: {lines[-1] if lines else error}\n")
        return False
    environment.stamp.write_text(json.dumps(environment.packages))
    return True


def _commands(environment: Environment) -> list[list[str]]:
    if environment.npm:
        package = environment.folder / "package.json"
        if not package.exists():
            package.write_text('{"private": true, "type": "module"}\n')
        return [["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *environment.packages]]
    if not (environment.folder / "bin" / "python").exists():
        venv.create(environment.folder, with_pip=True)
    pip = [environment.program("python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[*pip, *environment.packages]]


def main() -> None:
    names = sys.argv[1:]
    names = list(QUICK) if names == ["--quick"] else names or list(ENVIRONMENTS)
    with ThreadPoolExecutor(2) as pool:  # one waits for the network while the other unpacks
        for name, there in zip(names, pool.map(lambda name: install(ENVIRONMENTS[name]), names), strict=True):
            print(f"{name}: installed" if there else ENVIRONMENTS[name].missing, flush=True)


if __name__ == "__main__":
    main()
