"""Items in the making, one class per kind; the builder decides when each opens and closes.

A draft's methods yield the events inside its item. `output_item.added` and `output_item.done` are the builder's.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from mellea_responses.turn import Annotation, Call, Text
from mellea_responses.wire import events as e
from mellea_responses.wire import items as w

View = Literal["content", "summary", "hidden"]
"""How reasoning is shown: as raw text, as one summary part, or not at all."""

Number = Callable[[], int]
"""Gives the next sequence number."""

RUNNING = frozenset({"in_progress", "searching", "generating", "interpreting", "calling"})
"""What a receipt says of itself before it is final; one that ends so was cut off."""

CALL_TYPES = {"function": "function_call", "custom": "custom_tool_call", "tool_search": "tool_search_call"}


class Draft:
    """What all items in the making share. `id` and `index` are given when the item enters the output."""

    type: str
    id: str
    index: int
    visible = True
    closed: w.Status | None = None

    def __init__(self, number: Number) -> None:
        self._number = number

    @property
    def status(self) -> w.Status:
        """The item's status on the wire."""
        return self.closed or "in_progress"

    def item(self) -> w.Item:
        """The item as the client sees it now."""
        raise NotImplementedError

    def kept(self) -> w.Item:
        """The item as the next turn stands on it."""
        return self.item()

    def close(self, status: w.Status) -> Iterator[e.Event]:
        """The events that end the inside of the item."""
        raise NotImplementedError


class MessageDraft(Draft):
    """A message; its last part may be open."""

    type = "message"

    def __init__(self, number: Number, phase: w.Phase | None) -> None:
        super().__init__(number)
        self.phase = phase
        self._parts: list[w.Part] = []
        self._pieces: list[str] | None = None  # of the open part
        self._refusing = False
        self._logprobs: list[w.Logprob] = []
        self._notes: list[w.UrlCitation] = []

    def item(self) -> w.Message:
        """The message with the open part as far as it has come."""
        parts = [*self._parts, self._part()] if self._pieces is not None else list(self._parts)
        return w.Message(self.id, self.status, "assistant", parts, UNSET if self.phase is None else self.phase)

    def goes_on(self, step: Text) -> bool:
        """Whether the step is just more of the open text."""
        if self._pieces is None or self._refusing or step.phase != self.phase:
            return False
        return step.logprobs is None and step.text != ""

    def delta(self, text: str, number: int) -> e.Event:
        """More of the open text."""
        self._pieces.append(text)  # type: ignore[union-attr]  # see `goes_on`
        return e.TextDelta(number, self.id, self.index, len(self._parts), text)

    def write(self, text: str, logprobs: tuple[w.Logprob, ...] | None) -> Iterator[e.Event]:
        """Text goes on; an empty one only opens its part."""
        if self._pieces is None or self._refusing:
            yield from self._open(refusing=False)
        if text or logprobs:
            self._pieces.append(text)  # type: ignore[union-attr]  # just opened
            self._logprobs.extend(logprobs or ())
            yield e.TextDelta(self._number(), self.id, self.index, len(self._parts), text, list(logprobs or ()))

    def refuse(self, text: str) -> Iterator[e.Event]:
        """A refusal goes on."""
        if self._pieces is None or not self._refusing:
            yield from self._open(refusing=True)
        self._pieces.append(text)  # type: ignore[union-attr]  # just opened
        yield e.RefusalDelta(self._number(), self.id, self.index, len(self._parts), text)

    def annotate(self, step: Annotation) -> Iterator[e.Event]:
        """A citation for the open text."""
        yield from self.write("", None)
        note = w.UrlCitation(step.url, step.title, step.start_index, step.end_index)
        self._notes.append(note)
        place = (self.id, self.index, len(self._parts), len(self._notes) - 1)
        yield e.AnnotationAdded(self._number(), *place, note)

    def close(self, status: w.Status) -> Iterator[e.Event]:
        """Ends the open part."""
        yield from self._close_part()
        self.closed = status

    def _open(self, *, refusing: bool) -> Iterator[e.Event]:
        yield from self._close_part()
        self._pieces, self._refusing, self._logprobs, self._notes = [], refusing, [], []
        yield e.PartAdded(self._number(), self.id, self.index, len(self._parts), self._part())

    def _part(self) -> w.RefusalPart | w.OutputText:
        text = "".join(self._pieces or ())
        return w.RefusalPart(text) if self._refusing else w.OutputText(text, list(self._notes), list(self._logprobs))

    def _close_part(self) -> Iterator[e.Event]:
        if self._pieces is None:
            return
        part, place = self._part(), (self.id, self.index, len(self._parts))
        if isinstance(part, w.RefusalPart):
            yield e.RefusalDone(self._number(), *place, part.refusal)
        else:
            yield e.TextDone(self._number(), *place, part.text, part.logprobs)
        yield e.PartDone(self._number(), *place, part)
        self._parts.append(part)
        self._pieces = None


class ReasoningDraft(Draft):
    """Thoughts: shown as the view says, kept as content always."""

    type = "reasoning"

    def __init__(self, number: Number, view: View, seal: Callable[[str], str] | None) -> None:
        super().__init__(number)
        self._view, self._pieces, self._seal = view, list[str](), seal
        self._sealed: str | UnsetType = UNSET
        self.visible = view != "hidden" or seal is not None

    def item(self) -> w.Reasoning:
        """The thoughts in the client's view; text appears once, sealed thoughts beside it if asked for."""
        text = "".join(self._pieces) if self._view != "hidden" else ""
        summary = [w.SummaryText(text)] if text and self._view == "summary" else []
        content: list[w.ReasoningText] | UnsetType = UNSET
        if self._view == "content":
            content = [w.ReasoningText(text)] if text else []
        return w.Reasoning(self.id, summary, content, self._sealed, self.status)

    def kept(self) -> w.Reasoning:
        """The thoughts as raw text."""
        return w.Reasoning(self.id, content=[w.ReasoningText("".join(self._pieces))], status=self.status)

    def write(self, text: str) -> Iterator[e.Event]:
        """A thought goes on."""
        first, place = not self._pieces, (self.id, self.index, 0)
        self._pieces.append(text)
        if self._view == "content":
            if first:
                yield e.PartAdded(self._number(), *place, w.ReasoningText(""))
            yield e.ReasoningDelta(self._number(), *place, text)
        elif self._view == "summary":
            if first:
                yield e.SummaryPartAdded(self._number(), *place, w.SummaryText(""))
            yield e.SummaryDelta(self._number(), *place, text)

    def close(self, status: w.Status) -> Iterator[e.Event]:
        """Ends the one part."""
        self.closed = status
        text, place = "".join(self._pieces), (self.id, self.index, 0)
        if self._seal is not None:
            self._sealed = self._seal(text)
        if self._view == "content":
            yield e.ReasoningDone(self._number(), *place, text)
            yield e.PartDone(self._number(), *place, w.ReasoningText(text))
        elif self._view == "summary":
            yield e.SummaryDone(self._number(), *place, text)
            yield e.SummaryPartDone(self._number(), *place, w.SummaryText(text))


class CallDraft(Draft):
    """A call of a client's tool."""

    call_id: str

    def __init__(self, number: Number, step: Call) -> None:
        super().__init__(number)
        self.step, self._pieces = step, list[str]()
        self.type = CALL_TYPES[step.kind]

    def item(self) -> w.Item:
        """The call with its arguments as far as they have come."""
        step, text = self.step, "".join(self._pieces)
        space: str | UnsetType = UNSET if step.namespace is None else step.namespace
        if step.kind == "function":
            return w.FunctionCall(self.id, self.call_id, step.name, text, self.status, space)
        if step.kind == "custom":
            return w.CustomToolCall(self.id, self.call_id, step.name, text, self.status, space)
        return w.ToolSearchCall(self.id, self.call_id, _as_object(text) if self.closed else {}, self.status)

    def write(self, text: str) -> Iterator[e.Event]:
        """Arguments go on; a search's arguments have no events of their own."""
        if not text:
            return
        self._pieces.append(text)
        if self.step.kind == "function":
            yield e.ArgumentsDelta(self._number(), self.id, self.index, text)
        elif self.step.kind == "custom":
            yield e.InputDelta(self._number(), self.id, self.index, text)

    def close(self, status: w.Status) -> Iterator[e.Event]:
        """Tells the whole of the arguments."""
        self.closed = status
        text = "".join(self._pieces)
        if self.step.kind == "function":
            yield e.ArgumentsDone(self._number(), self.id, self.index, self.step.name, text)
        elif self.step.kind == "custom":
            yield e.InputDone(self._number(), self.id, self.index, text)


class ReceiptDraft(Draft):
    """What a tool that the server ran itself leaves behind, as the program gives it, under an id of ours."""

    def __init__(self, number: Number, item: w.Receipt) -> None:
        super().__init__(number)
        self.type = str(item["type"])
        self._item, self._given = item, item.get("id")

    def opened_as(self, item: w.Receipt) -> bool:
        """Whether `item` completes this open receipt: by the program's id where it gives one, else by type."""
        return not self.closed and self.type == item["type"] and item.get("id") in (None, self._given)

    def fill(self, item: w.Receipt) -> None:
        """Takes the final form."""
        self._item = item

    def item(self) -> w.Receipt:
        """The receipt; its status, where its type has one, follows what the client has been told of it."""
        item = {**self._item, "id": self.id}
        if "status" in item and not self.closed:
            item["status"] = "in_progress"
        elif item.get("status") in RUNNING:
            item["status"] = "failed" if self.type == "image_generation_call" else "incomplete"
        return item

    def close(self, status: w.Status) -> Iterator[e.Event]:
        """A receipt has no events of its own."""
        self.closed = status
        return iter(())


class CompactionDraft(Draft):
    """Older turns, folded and sealed; whole from the start."""

    type = "compaction"

    def __init__(self, number: Number, sealed: str) -> None:
        super().__init__(number)
        self._sealed = sealed

    def item(self) -> w.Compaction:
        """The sealed item."""
        return w.Compaction(self.id, self._sealed)

    def close(self, status: w.Status) -> Iterator[e.Event]:
        """It has no events of its own."""
        self.closed = status
        return iter(())


def _as_object(text: str) -> Any:
    """A search's arguments; the guard has judged them, so only a cut call can be anything but an object."""
    try:
        return msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {}
