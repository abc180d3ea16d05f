"""An independent judge of streams: which event may follow which, and what the events must agree on.

It knows nothing of the builder. A stream is one life of a response, in it the lives of its items, in these the lives of
their parts. `MOVES` is the whole grammar of what happens inside an item: each event names the kinds of item it belongs
to, the state in which it finds the open part and the state in which it leaves it. `none`: no part is open; `open`:
pieces may come; `told`: the whole has been said once more and the part only has to be closed.

Around that table stand four rules.

- `created`, perhaps `queued`, then `in_progress`, which may come again at any time; one terminal event, nothing after.
- Whoever speaks (a message, reasoning) has said all when another item is added. A call may stay open beside it.
- Items keep the id and the index they were added with. They are done in the order in which they were added, so a client
  that keeps items as they finish gets the final list; all of them are done before the end.
- What was said in pieces, said whole, closed and listed in the final object is the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from support.sse import Frame

Event = dict[str, Any]


class IllegalStream(AssertionError):
    """An event that may not come here, or that contradicts what came before."""


@dataclass(frozen=True)
class Move:
    items: frozenset[str]
    part: str
    before: str
    after: str
    whole: str = ""  # the field of a `done` event that repeats the joined pieces


def _moves(stem: str, item: str, part: str, whole: str) -> dict[str, Move]:
    items = frozenset({item})
    return {
        f"{stem}.delta": Move(items, part, "open", "open"),
        f"{stem}.done": Move(items, part, "open", "told", whole),
    }


SPEAKERS = frozenset({"message", "reasoning"})
MOVES: dict[str, Move] = {
    "response.content_part.added": Move(SPEAKERS, "", "none", "open"),
    **_moves("response.output_text", "message", "output_text", "text"),
    "response.output_text.annotation.added": Move(frozenset({"message"}), "output_text", "open", "open"),
    **_moves("response.refusal", "message", "refusal", "refusal"),
    **_moves("response.reasoning_text", "reasoning", "reasoning_text", "text"),
    "response.content_part.done": Move(SPEAKERS, "", "told", "none"),
    "response.reasoning_summary_part.added": Move(frozenset({"reasoning"}), "", "none", "open"),
    **_moves("response.reasoning_summary_text", "reasoning", "summary_text", "text"),
    "response.reasoning_summary_part.done": Move(frozenset({"reasoning"}), "", "told", "none"),
    **_moves("response.function_call_arguments", "function_call", "arguments", "arguments"),
    **_moves("response.custom_tool_call_input", "custom_tool_call", "input", "input"),
}
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
PART_TEXT = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
FINISHED = {
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete", "cancelled"},
    "response.failed": {"failed", "cancelled"},
}


@dataclass
class _Item:
    """The life of one item."""

    index: int
    first: dict[str, Any]
    state: str = "none"
    part: dict[str, Any] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    annotations: list[Any] = field(default_factory=list)
    whole: str = ""
    content: list[dict[str, Any]] = field(default_factory=list)
    summary: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        return str(self.first["type"])


class Recogniser:
    """Feed it events in order; it raises at the first that may not come. `finish()` at the end of the stream."""

    def __init__(self) -> None:
        self.count = 0
        self.lifecycle: list[str] = []
        self.items: list[_Item] = []
        self.response: dict[str, Any] | None = None
        self.failing = False

    def feed(self, event: Event) -> None:
        try:
            self._feed(event)
        except IllegalStream as exc:
            raise IllegalStream(f"event {self.count}, {event.get('type')}: {exc}") from None
        self.count += 1

    def finish(self) -> dict[str, Any]:
        """The final response object."""
        _must(self.response is not None, "the stream ended without a terminal event")
        assert self.response is not None
        return self.response

    def _feed(self, event: Event) -> None:
        kind = event["type"]
        number = event.get("sequence_number")
        _must(type(number) is int and number == self.count, f"sequence_number is {number!r}")
        _must(self.response is None, "nothing may follow the terminal event")
        _must(not self.failing or kind == "response.failed", "only response.failed may follow an error")
        if kind in MOVES:
            self._in_progress()
            self._move(self._item(event), MOVES[kind], event)
        elif kind in _PLAIN:
            _PLAIN[kind](self, event)
        else:
            raise IllegalStream("not a published event")

    # ---------------------------------------------------------------- the response

    def _created(self, event: Event) -> None:
        _must(not self.lifecycle, "only the first event may be this")
        self._same_response(event)
        response = event["response"]
        _must(response["output"] == [] and response["usage"] is None, "a new response has said nothing yet")
        _must(response["status"] in {"queued", "in_progress"}, f"status {response['status']}")

    def _queued(self, event: Event) -> None:
        _must(self.lifecycle == ["response.created"], "only right after response.created")
        self._same_response(event)

    def _beat(self, event: Event) -> None:
        _must("response.created" in self.lifecycle, "the first event is response.created")
        first = "response.in_progress" not in self.lifecycle
        _must(not first or not self.items, "items before response.in_progress")
        self._same_response(event)
        response = event["response"]
        _must(response["status"] == "in_progress", f"status {response['status']}")
        seen = [(item["type"], item.get("id")) for item in response["output"]]
        _must(seen == [(item.kind, item.first.get("id")) for item in self.items], "its output is not what was added")

    def _error(self, event: Event) -> None:
        self._in_progress()
        nested = event["error"]
        _must(isinstance(nested, dict), "no nested error")
        for name in ("type", "code", "message", "param"):
            _must(isinstance(nested.get(name), str), f"error.{name} is {nested.get(name)!r}")
        for name in ("code", "message", "param"):
            _must(event.get(name) == nested[name], f"{name} differs from error.{name}")
        self._all_done()
        self.failing = True

    def _end(self, event: Event) -> None:
        self._in_progress()
        self._same_response(event)
        response = event["response"]
        status = response["status"]
        _must(status in FINISHED[event["type"]], f"status {status}")
        self._all_done()
        finals = [item.final for item in self.items]
        _must(response["output"] == finals, f"output {response['output']} is not what was done: {finals}")
        _must(isinstance(response["usage"], dict), "no usage")
        _must((response["completed_at"] is not None) == (status == "completed"), "completed_at and status disagree")
        _must((response["error"] is not None) == (status == "failed"), "error and status disagree")
        _must((response["incomplete_details"] is not None) == (status == "incomplete"), "incomplete_details is wrong")
        self.response = response

    def _same_response(self, event: Event) -> None:
        response = event["response"]
        self.identity = getattr(self, "identity", (response["id"], response["created_at"], response["model"]))
        _must(self.identity == (response["id"], response["created_at"], response["model"]), "another response")
        self.lifecycle.append(event["type"])

    def _in_progress(self) -> None:
        _must("response.in_progress" in self.lifecycle, "nothing may come before response.in_progress")

    def _all_done(self) -> None:
        left = [item.first.get("id") for item in self.items if item.final is None]
        _must(not left, f"items still open: {left}")

    # ---------------------------------------------------------------- items

    def _added(self, event: Event) -> None:
        self._in_progress()
        item = event["item"]
        kind = item["type"]
        _must(event["output_index"] == len(self.items), f"output_index {event['output_index']}, not {len(self.items)}")
        self._hush()
        self._fresh(item)
        if kind == "message":
            _must(item["content"] == [] and item["role"] == "assistant", "a new message is the assistant's and empty")
        if kind == "reasoning":
            _must(item["summary"] == [] and not item.get("content"), "new reasoning is empty")
        if kind in CALLS:
            _must(item[CALLS[kind]] == "", "a new call has no arguments")
        _must(item.get("status", "in_progress") == "in_progress", f"status {item.get('status')}")
        self.items.append(_Item(len(self.items), item, "open" if kind in CALLS else "none"))

    def _hush(self) -> None:
        """Whoever spoke before is done, or has said all and only waits for an open call before it."""
        for one in self.items:
            if one.kind in SPEAKERS and one.final is None and one.state != "silent":
                _must(one.state == "none", f"{one.first['id']} still speaks")
                _must(one.index > self._next_done(), f"{one.first['id']} has said all but is not done")
                one.state = "silent"

    def _next_done(self) -> int:
        return next((one.index for one in self.items if one.final is None), len(self.items))

    def _fresh(self, item: dict[str, Any]) -> None:
        known = [one.first for one in self.items]
        _must(bool(item.get("id")), "the item has no id")
        _must(item["id"] not in [one["id"] for one in known], "the id was used before")
        if "call_id" in item:
            _must(bool(item["call_id"]), "the call has no call_id")
            _must(item["call_id"] not in [one.get("call_id") for one in known], "the call_id was used before")

    def _done(self, event: Event) -> None:
        self._in_progress()
        final = event["item"]
        item = self._at(event["output_index"])
        _must(final["id"] == item.first["id"] and final["type"] == item.kind, "not the item that was added here")
        _must(item.index == self._next_done(), "an earlier item is not done yet")
        status = final.get("status", "completed")
        _must(status in {"completed", "incomplete", "failed"}, f"status {status}")
        if item.kind in CALLS:
            self._call_done(item, final, status)
        else:
            _must(item.state in {"none", "silent"}, "a part is still open")
        if item.kind == "message":
            _must(final["content"] == item.content, f"content is not what was closed: {item.content}")
        if item.kind == "reasoning":
            _must(final["summary"] == item.summary, f"summary is not what was closed: {item.summary}")
            _must((final.get("content") or []) == item.content, f"content is not what was closed: {item.content}")
        item.final = final

    def _call_done(self, item: _Item, final: dict[str, Any], status: str) -> None:
        for name in ("call_id", "name", "namespace"):
            _must(final.get(name) == item.first.get(name), f"{name} has changed")
        _must(item.state == "told" or status == "incomplete", "its arguments were not told whole")
        _must(final[CALLS[item.kind]] == "".join(item.pieces), "its arguments are not the joined pieces")

    def _item(self, event: Event) -> _Item:
        item = self._at(event["output_index"])
        _must(event["item_id"] == item.first["id"], f"item_id {event['item_id']}, not {item.first['id']}")
        return item

    def _at(self, index: int) -> _Item:
        _must(0 <= index < len(self.items), f"no item was added at output_index {index}")
        item = self.items[index]
        _must(item.final is None, "the item is done already")
        return item

    # ---------------------------------------------------------------- parts

    def _move(self, item: _Item, move: Move, event: Event) -> None:
        _must(item.kind in move.items, f"not for a {item.kind}")
        _must(item.state == move.before, f"its part is {item.state}, not {move.before}")
        self._part_index(item, event)
        kind = event["type"]
        if kind.endswith("_part.added"):
            self._open_part(item, event["part"])
        elif kind.endswith("_part.done"):
            self._close_part(item, event)
        else:
            _must(move.part in CALLS.values() or item.part["type"] == move.part, f"the part is {item.part}")
            self._say(item, move, event)
        item.state = move.after

    def _part_index(self, item: _Item, event: Event) -> None:
        for name, parts in (("content_index", item.content), ("summary_index", item.summary)):
            if name in event:
                _must(event[name] == len(parts), f"{name} {event[name]}, not {len(parts)}")

    def _open_part(self, item: _Item, part: dict[str, Any]) -> None:
        _must(part[PART_TEXT[part["type"]]] == "", "a new part is empty")
        item.part, item.pieces, item.annotations = part, [], []

    def _say(self, item: _Item, move: Move, event: Event) -> None:
        if move.whole:
            item.whole = event[move.whole]
            _must(item.whole == "".join(item.pieces), f"{item.whole!r} is not the joined {item.pieces}")
        elif "annotation" in event:
            _must(event["annotation_index"] == len(item.annotations), "annotation_index")
            item.annotations.append(event["annotation"])
        else:
            _must(event["delta"] != "" or bool(event.get("logprobs")), "an empty delta")
            item.pieces.append(event["delta"])

    def _close_part(self, item: _Item, event: Event) -> None:
        part = event["part"]
        _must(part["type"] == item.part["type"], "another type of part")
        _must(part[PART_TEXT[part["type"]]] == item.whole, "its text is not what was told")
        _must(part.get("annotations", []) == item.annotations, "its annotations are not those that were added")
        (item.summary if "summary_index" in event else item.content).append(part)


_PLAIN = {
    "response.created": Recogniser._created,
    "response.queued": Recogniser._queued,
    "response.in_progress": Recogniser._beat,
    "response.output_item.added": Recogniser._added,
    "response.output_item.done": Recogniser._done,
    "error": Recogniser._error,
    **dict.fromkeys(FINISHED, Recogniser._end),
}


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise IllegalStream(otherwise)


def recognise(events: Iterable[Event]) -> dict[str, Any]:
    """The final response of a legal and whole stream.

    Raises:
        IllegalStream: at the first event that may not come, or when the terminal event is missing.
    """
    judge = Recogniser()
    for event in events:
        judge.feed(event)
    return judge.finish()


def recognise_frames(frames: Sequence[Frame]) -> dict[str, Any]:
    """The same for what stands on the wire: one `event:` line equal to the type, no ids, `[DONE]` last and once."""
    for frame in frames:
        if frame.is_event:
            _must(frame.names == ["event", "data"], f"lines {frame.names}")
            _must(frame.event == frame.json["type"], f"event line {frame.event}, type {frame.json['type']}")
    ends = [index for index, frame in enumerate(frames) if frame.is_done]
    _must(ends == [len(frames) - 1], f"[DONE] at {ends} of {len(frames)} frames")
    return recognise(frame.json for frame in frames if frame.is_event)


# ---------------------------------------------------------------- the response from the stream alone


def rebuild(events: Sequence[Event]) -> dict[str, Any]:
    """The response as a client puts it together that keeps pieces and never reads the output of the final object."""
    output: dict[int, dict[str, Any]] = {}
    response: dict[str, Any] = {}
    for event in events:
        if "response" in event:
            response = event["response"]
        else:
            _apply(output, event)
    return {**response, "output": [output[index] for index in sorted(output)]}


def _apply(output: dict[int, dict[str, Any]], event: Event) -> None:
    kind = event["type"]
    if kind == "response.output_item.added":
        output[event["output_index"]] = deepcopy(event["item"])
    elif kind == "response.output_item.done":
        _settle(output[event["output_index"]], event["item"])
    elif kind in MOVES:
        _grow(output[event["output_index"]], event)


def _settle(item: dict[str, Any], final: dict[str, Any]) -> None:
    """An item's `done` brings its status and what no piece carries; words stay as they were heard."""
    for name, value in final.items():
        if name not in {"content", "summary", *CALLS.values()} or item["type"] not in {*SPEAKERS, *CALLS}:
            item[name] = value
    for name in ("content", "summary"):
        for heard, told in zip(item.get(name) or [], final.get(name) or [], strict=True):
            for extra in told.keys() - {PART_TEXT[told["type"]]}:
                heard[extra] = told[extra]


def _grow(item: dict[str, Any], event: Event) -> None:
    kind = event["type"]
    if kind.endswith("_part.added"):
        _parts(item, event).append(deepcopy(event["part"]))
    elif kind.endswith(".delta") and item["type"] in CALLS:
        item[CALLS[item["type"]]] += event["delta"]
    elif kind.endswith(".delta"):
        part = _parts(item, event)[-1]
        part[PART_TEXT[part["type"]]] += event["delta"]


def _parts(item: dict[str, Any], event: Event) -> list[dict[str, Any]]:
    name = "summary" if "summary_index" in event else "content"
    parts: list[dict[str, Any]] = item.setdefault(name, [])
    return parts


def texts(events: Iterable[Event]) -> Iterator[str]:
    """The text deltas."""
    return (event["delta"] for event in events if event["type"] == "response.output_text.delta")
