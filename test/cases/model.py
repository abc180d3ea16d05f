"""The stand-in for the model under a program: the real engine over a tiny network with a template of the case's rule.

What the template made of a conversation is read where it ends, in the tokens that the network is fed.
"""

import re
from collections.abc import Sequence
from typing import Any

from engine.tiny import Readable, make_network, make_tokenizer

from mellea_responses.engine.engine import Engine
from mellea_responses.program.builtin import ModelProgram
from support.stand_in import Json

KEYS = frozenset({"model", "template", "patch"})
WINDOW = 2048
BEGIN = "(begin)"
BODY = (
    BEGIN + "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    "{% for c in m.get('tool_calls') or [] %}{% for k, v in c['function']['arguments'].items() %}({{ k }}={{ v }})"
    "{% endfor %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ONE_SYSTEM_FIRST = (
    "{% for m in messages %}{% if m['role'] == 'system' and not loop.first %}"
    "{{ raise_exception('a system message must come first, once') }}{% endif %}"
    "{% if m['role'] not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('unknown role') }}{% endif %}"
    "{% endfor %}"
)
KNOWS_TOOLS = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
RAISES = (
    "{%% for m in messages %%}{%% if '%s' in m['content'] %%}{{ raise_exception('no such beast') }}{%% endif %%}"
    "{%% endfor %%}"
)


def is_model(script: Json) -> bool:
    """Whether a case's program is a model rather than a `serve()`."""
    return bool(script.keys() & KEYS)


def template_for(rule: str) -> str:
    """A chat template that keeps one rule of real ones."""
    if rule == "one-system-first":
        return ONE_SYSTEM_FIRST + BODY
    if rule.startswith("raises-on-word:"):
        return RAISES % rule.partition(":")[2] + BODY
    if rule == "mapping-arguments":
        return KNOWS_TOOLS + BODY
    if rule == "any":
        return BODY
    raise NotImplementedError(f"no template has the rule {rule}")


class Listening(Readable):
    """Keeps all it is fed, says a few words to each prompt, and fails once at the step it is told."""

    fed: list[int]
    said = 0
    fails_at: int | None = None

    def forward(self, tokens: Sequence[int], cache: Any) -> Any:
        self.fed.extend(tokens)
        self.said = 1 if len(tokens) > 1 else self.said + 1
        if self.said == self.fails_at:
            self.fails_at = None
            raise RuntimeError("the device is on fire at /secret/path")
        logits = super().forward(tokens, cache)
        if self.said > 8:
            logits[self.tokenizer.convert_tokens_to_ids(list('"]}'))] = 1e3  # where it may not end, it comes to an end
            logits[0] = 1e4  # the end
        return logits


class ModelStandIn:
    """A case's model behind the built-in program.

    Attributes:
        received: Always empty: there is no `serve()` to be called.
    """

    def __init__(self, script: Json) -> None:
        tokenizer = make_tokenizer(template_for(script.get("template", "any")))
        self.network = Listening(make_network(WINDOW), tokenizer, "tiny")
        self.network.fed = []
        self.engine = Engine(self.network, kv_cache=False, chunk=WINDOW)
        self.engine.ready()
        self.network.fed.clear()
        failure = re.search(r"raise in its thread at token (\d+)", script.get("patch", ""))
        self.network.fails_at = int(failure[1]) if failure else None
        self.serve = ModelProgram(self.engine)
        self.received: list[Any] = []

    @property
    def prompts(self) -> list[str]:
        """What the template made of each conversation that reached the network."""
        text = self.network.tokenizer.decode(self.network.fed, skip_special_tokens=False)
        return [prompt.rpartition("<|im_start|>assistant\n")[0] for prompt in text.split(BEGIN)[1:]]
