"""Steps in; numbered events and the `Response` out.

The builder opens and closes items itself. At most one message or reasoning item is open at a time (the *flow*);
calls and receipts stay open beside it. `output_item.done` follows the order of the items, so a client that appends
items as they finish gets the same list as the final object: an item that ends early waits for those before it.

Two forms of the output are kept: `response.output`, what the client sees, and `kept`, what the next turn stands on.
They differ only in reasoning that is hidden or shown as a summary.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Any, assert_never

from msgspec.structs import replace

from mellea_responses.drafts import CallDraft, CompactionDraft, Draft, MessageDraft, ReasoningDraft, ReceiptDraft, View
from mellea_responses.turn import (
    Annotation,
    Beat,
    Call,
    CallArgs,
    CallEnd,
    Cancel,
    Compacted,
    Fail,
    ItemDone,
    ItemOpen,
    Nothing,
    Refusal,
    Said,
    Stop,
    Text,
    Thought,
    Usage,
)
from mellea_responses.wire import events as e
from mellea_responses.wire import items as w
from mellea_responses.wire.response import (
    ErrorBody,
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseError,
    UsageBody,
)

Mint = Callable[[str], str]
"""Makes an id for an item of this wire type, or for a `call`."""

# A 400 by its status says that asking again is in vain. In a stream only this code of OpenAI's list says so: coding
# agents that know it show the message at once, and ask again several times at any other.
PUBLISHED_CODES = {"invalid_request": "invalid_prompt"}


class Builder:
    """One response in the making.

    Args:
        base: The response as it starts: `in_progress` or `queued`, without output.
        mint: Where ids come from; a replay hands out the recorded ones.
        clock: The time in whole Unix seconds; asked once, when the response completes.
        view: How reasoning is shown.
        seal: Seals reasoning for clients that asked for it; a replay hands out the recorded seals.
    """

    def __init__(
        self,
        base: Response,
        *,
        mint: Mint,
        clock: Callable[[], int],
        view: View = "content",
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self._response, self._seal = base, seal
        self._mint, self._clock, self._view = mint, clock, view
        self._count = 0
        self._drafts: list[Draft] = []
        self._shown = 0  # drafts the client sees; the next one's output_index
        self._done = 0  # drafts before this one have had their output_item.done
        self._flow: MessageDraft | ReasoningDraft | None = None
        self._calls: dict[str, CallDraft] = {}
        self._usage: UsageBody | None = None
        self.ended = False

    @property
    def response(self) -> Response:
        """The response as it stands, with open items as far as they have come."""
        return self._response if self.ended else replace(self._response, output=self._output())

    @property
    def empty(self) -> bool:
        """Whether nothing has been said yet."""
        return not self._drafts

    @property
    def counted(self) -> bool:
        """Whether token counts were said."""
        return self._usage is not None

    @property
    def kept(self) -> tuple[w.Item, ...]:
        """The output as the next turn stands on it."""
        return tuple(draft.kept() for draft in self._drafts)

    def amend(self, **changes: Any) -> e.Event:
        """The terminal event again, with changes that were learned after it was made."""
        self._response = replace(self._response, **changes)
        return self._terminal(self._count - 1)

    def start(self) -> list[e.Event]:
        """The events that open every stream."""
        second = e.Queued if self._response.status == "queued" else e.InProgress
        return [e.Created(self._number(), self._response), second(self._number(), self._response)]

    def hear(self, said: Said) -> list[e.Event]:
        """The events that follow from one step. After the end nothing follows."""
        if self.ended:
            return []
        flow = self._flow
        if type(said) is Text and type(flow) is MessageDraft and flow.goes_on(said):
            return [flow.delta(said.text, self._number())]  # the most frequent step by far
        return list(self._hear(said))

    def _hear(self, said: Said) -> Iterator[e.Event]:  # noqa: C901  # one case per step is the whole of it
        match said:
            case Text():
                yield from self._text(said)
            case Thought():
                yield from self._thought(said)
            case CallArgs(key=key, text=text):
                yield from self._calls[key].write(text)
            case Call():
                yield from self._call(said)
            case CallEnd(key=key):
                yield from self._close(self._calls.pop(key), "completed")
            case Refusal():
                yield from self._refusal(said)
            case Annotation():
                message = yield from self._message(self._phase)
                yield from message.annotate(said)
            case ItemOpen(item=item):
                yield from self._enter(ReceiptDraft(self._number, item))
            case ItemDone(item=item):
                yield from self._receipt(item)
            case Usage():
                self._usage = _usage(said)
            case Beat():
                yield from self._beat()
            case Compacted(sealed=sealed):
                compaction = CompactionDraft(self._number, sealed)
                yield from self._enter(compaction)
                yield from self._close(compaction, "completed")
            case Nothing():
                message = yield from self._message(None)
                yield from message.write("", None)
            case Stop():
                yield from self._stop(said)
            case Fail():
                yield from self._fail(said)
            case Cancel():
                yield from self._end("cancelled", "incomplete")
            case _:
                assert_never(said)

    def _text(self, step: Text) -> Iterator[e.Event]:
        if step.text or step.logprobs:
            message = yield from self._message(step.phase)
            yield from message.write(step.text, step.logprobs)

    def _refusal(self, step: Refusal) -> Iterator[e.Event]:
        if step.text:
            message = yield from self._message(self._phase)
            yield from message.refuse(step.text)

    def _thought(self, step: Thought) -> Iterator[e.Event]:
        if step.text:
            flow = self._flow
            if not isinstance(flow, ReasoningDraft):
                flow = ReasoningDraft(self._number, self._view, self._seal)
                yield from self._enter(flow)
                self._flow = flow
            yield from flow.write(step.text)

    @property
    def _phase(self) -> w.Phase | None:
        return self._flow.phase if isinstance(self._flow, MessageDraft) else None

    def _message(self, phase: w.Phase | None) -> Generator[e.Event, None, MessageDraft]:
        """The open message of this phase, opened if need be."""
        flow = self._flow
        if not isinstance(flow, MessageDraft) or flow.phase != phase:
            flow = MessageDraft(self._number, phase)
            yield from self._enter(flow)
            self._flow = flow
        return flow

    def _call(self, step: Call) -> Iterator[e.Event]:
        call = CallDraft(self._number, step)
        yield from self._enter(call)
        self._calls[step.key] = call

    def _receipt(self, item: w.Receipt) -> Iterator[e.Event]:
        opened = [draft for draft in self._drafts if isinstance(draft, ReceiptDraft) and draft.opened_as(item)]
        if not opened:
            opened = [ReceiptDraft(self._number, item)]
            yield from self._enter(opened[0])
        opened[0].fill(item)
        yield from self._close(opened[0], "completed")

    def _enter(self, draft: Draft) -> Iterator[e.Event]:
        """Closes the flow and gives the new item its place and ids."""
        if self._flow is not None:
            flow, self._flow = self._flow, None
            yield from self._close(flow, "completed")
        draft.id, draft.index = self._mint(draft.type), self._shown
        if isinstance(draft, CallDraft):
            draft.call_id = draft.step.call_id or self._mint("call")
        self._drafts.append(draft)
        if draft.visible:
            self._shown += 1
            yield e.ItemAdded(self._number(), draft.index, draft.item())

    def _close(self, draft: Draft, status: w.Status) -> Iterator[e.Event]:
        yield from draft.close(status)
        while self._done < len(self._drafts) and self._drafts[self._done].closed:
            ready = self._drafts[self._done]
            self._done += 1
            if ready.visible:
                yield e.ItemDone(self._number(), ready.index, ready.item())

    def _beat(self) -> Iterator[e.Event]:
        if self._response.status == "queued":
            self._response = replace(self._response, status="in_progress")
        yield e.InProgress(self._number(), self.response)

    def _stop(self, step: Stop) -> Iterator[e.Event]:
        if step.reason != "stop":
            reason = "content_filter" if step.reason == "content_filter" else "max_output_tokens"
            yield from self._end("incomplete", "incomplete", incomplete_details=IncompleteDetails(reason))
            return
        yield from self._end("completed", "completed", completed_at=self._clock())

    def _fail(self, said: Fail) -> Iterator[e.Event]:
        yield from self._close_all("incomplete")
        code = PUBLISHED_CODES.get(said.code, said.code)
        body = ErrorBody(message=said.message, type=said.error_type, param=said.param, code=code)
        yield e.Error(self._number(), body, code=code, message=said.message, param=said.param)
        yield from self._end("failed", "incomplete", error=ResponseError(code, said.message))

    def _close_all(self, status: w.Status) -> Iterator[e.Event]:
        self._flow = None
        self._calls.clear()
        for draft in self._drafts:
            if not draft.closed:
                yield from self._close(draft, status)

    def _end(self, status: Any, items: w.Status, **changes: Any) -> Iterator[e.Event]:
        yield from self._close_all(items)
        self._response = replace(self._response, status=status, output=self._output(), usage=self._usage, **changes)
        self.ended = True
        yield self._terminal(self._number())

    def _terminal(self, number: int) -> e.Event:
        status = self._response.status
        terminal = e.Completed if status == "completed" else e.Incomplete if status == "incomplete" else e.Failed
        return terminal(number, self._response)

    def _output(self) -> list[w.Item]:
        return [draft.item() for draft in self._drafts if draft.visible]

    def _number(self) -> int:
        number = self._count
        self._count += 1
        return number


def _usage(step: Usage) -> UsageBody:
    """The counts as a client may add them up: none below zero, no share above its whole."""
    read, written = max(step.input_tokens, 0), max(step.output_tokens, 0)
    return UsageBody(
        input_tokens=read,
        input_tokens_details=InputTokensDetails(
            _share(step.cached_tokens, read), _share(step.cache_write_tokens, read)
        ),
        output_tokens=written,
        output_tokens_details=OutputTokensDetails(_share(step.reasoning_tokens, written)),
        total_tokens=read + written,
    )


def _share(part: int, whole: int) -> int:
    return min(max(part, 0), whole)
