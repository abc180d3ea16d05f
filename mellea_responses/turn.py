"""What goes into a program and what comes out: one `Turn` in, `Step`s out.

A `Turn` is one request in canonical form, whatever spelling the client used. `Step` is the alphabet a program or an
engine can say. It has no words for protocol events, so any order of steps is a legal stream: the builder opens,
closes and numbers everything itself.

`key` in the call steps is the speaker's own name for a call. Arguments of one call may arrive after other text or
between another call's; a call stays open until its `CallEnd` or the `Stop`.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal

import msgspec

from mellea_responses.wire.items import Compaction, Item, Logprob, Part, Phase
from mellea_responses.wire.request import CreateResponse, Effort
from mellea_responses.wire.tools import Tool, ToolChoice


class _Step(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Steps are stored by the thousand: arrays with a tag are their smallest faithful form."""


class Text(_Step, frozen=True):
    """Words for the reader. A change of `phase` starts a new message."""

    text: str
    logprobs: tuple[Logprob, ...] | None = None
    phase: Phase | None = None


class Thought(_Step, frozen=True):
    """Reasoning, shown or hidden as the request and the server say."""

    text: str


class Refusal(_Step, frozen=True):
    """The model declines, in its own words."""

    text: str


class Annotation(_Step, frozen=True):
    """A citation that belongs to the text said last. Offsets count characters of that text."""

    url: str
    title: str
    start_index: int
    end_index: int


class Call(_Step, frozen=True):
    """A tool call begins. `call_id` is minted by the first who knows the call; None leaves it to the builder."""

    key: str
    name: str
    namespace: str | None = None
    call_id: str | None = None
    kind: Literal["function", "custom", "tool_search"] = "function"


class CallArgs(_Step, frozen=True):
    """The next piece of a call's arguments, exactly as written."""

    key: str
    text: str


class CallEnd(_Step, frozen=True):
    """The call is whole."""

    key: str


class ItemOpen(_Step, frozen=True):
    """A tool that the server ran itself has started; `item` is its receipt, in wire form."""

    item: dict[str, Any]


class ItemDone(_Step, frozen=True):
    """The receipt is final. Without an `ItemOpen` before it the item opens and closes here."""

    item: dict[str, Any]


class Usage(_Step, frozen=True):
    """True token counts. Said again, the last one holds."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


class Stop(_Step, frozen=True):
    """The program is done. `length`: a limit cut the answer. Nothing may follow."""

    reason: Literal["stop", "length", "content_filter"] = "stop"


Step = Text | Thought | Refusal | Annotation | Call | CallArgs | CallEnd | ItemOpen | ItemDone | Usage | Stop
"""What a program or an engine can say."""


class Beat(_Step, frozen=True):
    """The run is alive though nothing is said: shown as a numbered `response.in_progress`.

    The first one of a queued response says that it has begun.
    """


class Nothing(_Step, frozen=True):
    """The program ended without a word: an empty message, since an answer is an answer."""


class Compacted(_Step, frozen=True):
    """Older turns were folded into one sealed item."""

    sealed: str


class Fail(_Step, frozen=True):
    """The run ends in failure. Said by the guard and the run, never by a program (which raises)."""

    code: str
    message: str
    error_type: str = "server_error"
    param: str = ""


class Cancel(_Step, frozen=True):
    """The run ends because somebody no longer wants it."""


Said = Step | Beat | Nothing | Compacted | Fail | Cancel
"""What the builder hears: the program's steps after the guard, and the run's own words."""


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to generate. None means that the client said nothing, and the model's own default holds."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    logprobs: bool = False
    effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] = {}


class Format(msgspec.Struct, frozen=True):
    """The form the answer's text must have: free text, any JSON object, or a named JSON Schema."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    schema: dict[str, Any] | None = None
    strict: bool = False
    description: str | None = None


class Turn(msgspec.Struct, frozen=True):
    """One request in canonical form, with everything it stands on.

    Args:
        request: The request as decoded, for fields that are only echoed.
        history: Items of the chain or conversation before this request, oldest first.
        input: Items this request adds, each with its id.
        parent: The stored response whose chain is exactly `history`, None where nothing is.
        conversation: The conversation this turn belongs to.
        instructions: This request's own; never inherited.
        tools: What the program may offer to the model.
        tool_choice: `auto`, `none`, `required`, a named tool or a set of allowed ones.
        unsupported_tools: Types of hosted tools the client declared and nobody here can run.
        compact: Answer with one compaction item instead of an answer.
        opened: What each compaction item of history and input holds, by the item's id.
        media: What was read of its parts: the text of a file, the picture at an address as a data URL.
    """

    request: CreateResponse
    input: tuple[Item, ...]
    history: tuple[Item, ...] = ()
    parent: str | None = None
    conversation: str | None = None
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = None
    format: Format = Format()
    options: Options = Options()
    unsupported_tools: tuple[str, ...] = ()
    compact: bool = False
    opened: dict[str, tuple[Item, ...]] = {}
    media: dict[Part, str] = {}

    @property
    def items(self) -> tuple[Item, ...]:
        """Everything the model should see, oldest first; the instructions stand apart.

        A compaction stands for everything before it.
        """
        items = self.history + self.input
        if not self.opened:
            return items
        last = max(i for i, item in enumerate(items) if isinstance(item, Compaction))
        return self.opened[items[last].id] + items[last + 1 :]  # type: ignore[union-attr]  # a Compaction


class Facts(msgspec.Struct, frozen=True):
    """What a program's `check(turn)` can tell before the headers go out. None: it cannot tell."""

    input_tokens: int | None = None
    context_length: int | None = None
    vision: bool | None = None
    logprobs: bool | None = None
    schemas: bool | None = None


class Flag:
    """Set once, seen from every thread. Nobody waits on it, so it needs no lock."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """For good."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set


class CurrentRun(msgspec.Struct, frozen=True):
    """The run that this code works for; travels by contextvar into threads and other loops.

    Args:
        owner: Whose run it is; caches must never be shared between owners.
        response_id: The response being made.
        turn: What was asked.
        cancelled: Set when nobody wants the answer any more; long work should look at it.
        notes: What the run's access line should say beside the usual, such as `match`: `exact`.
        say: Speaks a step from anywhere, for code that is not the program's own generator.
    """

    owner: str
    response_id: str
    turn: Turn
    cancelled: Flag
    notes: dict[str, str | int | float]
    say: Callable[[Step], None] | None = None


current_run: ContextVar[CurrentRun | None] = ContextVar("mellea_responses_current_run", default=None)

ChatMessage = Mapping[str, Any]
"""A message as chat templates take it: `role`, `content`, `tool_calls`, `tool_call_id`, `reasoning_content`."""
