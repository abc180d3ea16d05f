"""How each model family marks its reasoning and its tool calls.

A family is a `response_template` of transformers (field name, opening literals, closing literals) plus a word on how
the inside of a call is written. Only literals, never patterns: a literal is decided the moment its last character is
there, so the split does not depend on how the text was cut into pieces.

Fields by name: `reasoning_content`, `content` (whatever stands in no other field), `tool_calls`, `answer` (words for
the reader inside tags), `header` (where a message says what it is). Fields that are only a point in the text: `lone`
(reasoning closes that was never opened), `end` (a message ends), `stray` (a tag that means nothing by itself).
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

Body = Literal["tagged", "glm", "mistral", "deepseek", "json", "gemma", "gemma-function", "pythonic"]

Spans = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]

TAUGHT = ("<tool_call>", "</tool_call>")
"""The tags of a call, for models whose chat template has no place for tools: `messages.tools_block` says so to them."""

POINTS = frozenset({"lone", "end", "stray"})


@dataclass(frozen=True)
class Family:
    """One way of writing an answer.

    Args:
        name: For log lines and tests.
        signs: Any of these in the chat template, or else in the vocabulary, tells the family.
        spans: Field name to its opening and closing literals.
        body: How the inside of `tool_calls` is written.
        inner: Literals that mean something inside a call only.
        bare: Calls may lack their marker: JSON or a name on a line of its own at the start of the answer, or the tag of
            a function anywhere.
        waits: Text before a closing think tag that nothing opened is reasoning, so the start of an answer waits.
        anchor: Where the message being written starts in the prompt; without one, after the last special token.
    """

    name: str
    signs: tuple[str, ...]
    spans: Spans
    body: Body = "tagged"
    inner: tuple[str, ...] = ()
    bare: Literal["json", "line", "tag"] | None = None
    waits: bool = False
    anchor: str | None = None
    literals: tuple[str, ...] = field(init=False)

    def shown_in(self, template: str) -> bool:
        """Whether the chat template gives a sign of it."""
        return any(sign in template for sign in self.signs)

    def __post_init__(self) -> None:
        edges = (literal for opens, closes in self.spans.values() for literal in (*opens, *closes))
        object.__setattr__(self, "literals", tuple(dict.fromkeys((*edges, *self.inner))))


_THINK: Spans = {"reasoning_content": (("<think>",), ("</think>",)), "lone": (("</think>",), ())}
_TOOL_CALL: Spans = {"tool_calls": (("<tool_call>",), ("</tool_call>",)), "stray": (("</tool_call>",), ())}

HARMONY = Family(
    "harmony",
    ("<|channel|>",),
    # The recipient stands before or after the channel; a header is everything up to `<|message|>`, read as a whole.
    {
        "header": (("<|start|>", "<|channel|>"), ("<|message|>",)),
        "end": (("<|end|>", "<|call|>", "<|return|>"), ()),
    },
    inner=("<|constrain|>",),
    anchor="<|start|>",
)
DEEPSEEK = Family(
    "deepseek",
    ("<｜tool▁calls▁begin｜>",),
    {
        **_THINK,
        "tool_calls": (("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"), ("<｜tool▁calls▁end｜>",)),
        "stray": (("<｜tool▁calls▁end｜>",), ()),
    },
    body="deepseek",
    inner=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    waits=True,
)
MISTRAL = Family(
    "mistral",
    ("[TOOL_CALLS]",),
    {
        "reasoning_content": (("[THINK]", "<think>"), ("[/THINK]", "</think>")),
        "lone": (("[/THINK]", "</think>"), ()),
        "tool_calls": (("[TOOL_CALLS]",), ()),
    },
    body="mistral",
    inner=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
)
GEMMA = Family(
    "gemma",
    ("<|tool_call>",),
    {
        "reasoning_content": (("<|channel>thought\n",), ("<channel|>",)),
        "tool_calls": (("<|tool_call>",), ("<tool_call|>",)),
        "stray": (("<tool_call|>", "<channel|>"), ()),
    },
    body="gemma",
    inner=('<|"|>',),
)
GEMMA_FUNCTION = Family(
    "gemma-function",
    ("<start_function_call>",),
    {
        "tool_calls": (("<start_function_call>",), ("<end_function_call>",)),
        "stray": (("<end_function_call>",), ()),
    },
    body="gemma-function",
    inner=("<escape>",),
)
GLM = Family(
    "glm",
    ("<arg_key>",),
    {**_THINK, **_TOOL_CALL},
    body="glm",
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    waits=True,
)
GRANITE = Family(
    "granite",
    ("<|tool_call|>",),
    {
        **_THINK,
        # Granite 3.2 thinks in sentences, 3.3 in tags.
        "reasoning_content": (("<think>", "Here is my thought process:"), ("</think>", "Here is my response:")),
        "answer": (("<response>",), ("</response>",)),
        "tool_calls": (("<|tool_call|>", "<tool_call>"), ("</tool_call>",)),
        "stray": (("</tool_call>", "</response>"), ()),
    },
    body="json",
)
LFM = Family(
    "lfm",
    ("<|tool_call_start|>",),
    {
        **_THINK,
        "tool_calls": (("<|tool_call_start|>",), ("<|tool_call_end|>",)),
        "stray": (("<|tool_call_end|>",), ()),
    },
    body="pythonic",
)
HERMES = Family("hermes", ("<tool_call>", "<function="), {**_THINK, **_TOOL_CALL}, bare="tag", waits=True)
LLAMA = Family(
    "llama",
    ("<|python_tag|>", "<|start_header_id|>"),
    {**_THINK, "tool_calls": (("<|python_tag|>",), ())},
    body="json",
    bare="json",
)
GLM_4 = Family("glm-4", ("<|observation|>",), _THINK, bare="line")

FAMILIES = (HARMONY, DEEPSEEK, MISTRAL, GEMMA, GEMMA_FUNCTION, GLM, GRANITE, LFM, HERMES, LLAMA, GLM_4)
"""In this order: what is particular to one family stands before what several share."""


def choose(template: str, vocabulary: frozenset[str]) -> Family:
    """The family this chat template speaks; the vocabulary decides when the template says nothing about calls.

    A model that gives no sign at all gets the tags that most templates and prompts teach: `<think>`, `<tool_call>`.
    """
    by_template = (family for family in FAMILIES if family.shown_in(template))
    by_vocabulary = (family for family in FAMILIES if vocabulary.intersection(family.signs))
    found = next(by_template, None) or next(by_vocabulary, HERMES)
    # Only who was taught the tag of a function means it.
    return replace(found, bare=None) if found.bare == "tag" and "<function=" not in template else found


def with_taught_calls(family: Family) -> Family:
    """The family of a model that was told in words to write calls as JSON in tags; its own way counts as well."""
    opens, closes = family.spans.get("tool_calls", ((), ()))
    if TAUGHT[0] in opens:
        return family
    strays, _ = family.spans.get("stray", ((), ()))
    calls = ((*opens, TAUGHT[0]), (*closes, TAUGHT[1]))
    return replace(family, spans={**family.spans, "tool_calls": calls, "stray": ((*strays, TAUGHT[1]), ())})


def response_template(spans: Spans) -> dict[str, Any]:
    """The `response_template` of a family, with `content` for everything that stands in no other field."""
    fields: dict[str, dict[str, Any]] = {"content": {"content": "text"}}
    for name, (opens, closes) in spans.items():
        fields[name] = {"open": list(opens), "content": "text", "repeats": True}
        if closes:
            fields[name]["close"] = list(closes)
    # The prompt is read by the splitter, from the last turn on; the anchor is required by the format only.
    return {"defaults": {"role": "assistant"}, "start_anchor": "\x00", "fields": fields}
