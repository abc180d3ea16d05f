"""Folding older turns into one sealed item.

In this order: the program's own `compact(turn)`; the local engine with the prompt below; else the newest items that
fit, verbatim and without a model. Beside a summary the last user messages that fit are kept. A result that is not
smaller than what it replaces is thrown away for the original.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec.structs import replace

from mellea_responses.ids import new_item_id
from mellea_responses.normalize.items import user_text
from mellea_responses.program import Program
from mellea_responses.seal import Sealer
from mellea_responses.turn import Compacted, CurrentRun, Facts, Format, Step, Text, Turn, Usage
from mellea_responses.wire import items as w

PROMPT = (
    "Summarise our conversation so far for yourself, so that you can go on without it. Keep what was asked, what was "
    "decided, names, numbers, file paths, results of tools and what is still open. Leave out small talk. Write only "
    "the summary."
)
SUMMARY = "Summary of the conversation so far:\n\n{}"
KEPT_BYTES = 16 * 1024
"""Bytes of the last user messages kept beside a summary."""
VERBATIM_BYTES = 64 * 1024
"""Bytes of the newest items kept where nobody can summarise."""
SUMMARY_TOKENS = 1024

_encode = msgspec.json.Encoder().encode


def as_compaction(turn: Turn) -> Turn:
    """The turn as a summary needs it: nothing to call, no form to keep."""
    return replace(turn, tools=(), tool_choice="auto", format=Format(), max_tool_calls=None)


class Compactor:
    """Answers a turn with exactly one compaction item.

    Args:
        program: What would answer it otherwise; asked for a summary if it can give one.
        sealer: Seals the result for the owner.
        then_answer: Goes on with the program's answer over the folded turns.
    """

    def __init__(self, program: Program, sealer: Sealer, *, then_answer: bool = False) -> None:
        self._program, self._sealer, self._then_answer = program, sealer, then_answer
        self.name = program.name

    async def check(self, turn: Turn, owner: str) -> Facts | None:
        """Whatever is too long is what is to be folded."""
        return None

    async def run(self, current: CurrentRun) -> AsyncIterator[Sequence[Step]]:
        """Folds, and answers if that is asked too."""
        items = current.turn.items
        kept = _last_question(items) if self._then_answer else ()
        before = items[: len(items) - len(kept)]
        older = replace(current.turn, history=before, input=(), opened={})
        folded, usage = await self._fold(replace(current, turn=older))
        sealed = [msgspec.Raw(_encode(item)) for item in folded + kept]
        said = Compacted(self._sealer.seal(current.owner, "compaction", sealed))
        yield [said]  # type: ignore[list-item]  # the run's own word, which no program has
        if not self._then_answer:
            yield [usage] if usage else []
            return
        turn = replace(current.turn, history=folded, input=kept, opened={})
        async for batch in self._program.run(replace(current, turn=turn)):
            yield batch

    def close(self) -> None:
        """The program is not ours to close."""

    async def _fold(self, current: CurrentRun) -> tuple[tuple[w.Item, ...], Usage | None]:
        """The turns in fewer bytes, and what the summary cost."""
        items = current.turn.history
        if not getattr(self._program, "can_compact", False):
            return _newest(items, VERBATIM_BYTES), None
        summary, usage = await self._summary(current)
        if not summary.strip():
            return _newest(items, VERBATIM_BYTES), usage
        message = w.Message(new_item_id("message"), "completed", "user", [w.InputText(SUMMARY.format(summary.strip()))])
        folded = (*_last_user_messages(items), message)
        return (folded if _size(folded) < _size(items) else items), usage

    async def _summary(self, current: CurrentRun) -> tuple[str, Usage | None]:
        own = getattr(self._program, "compact", None)
        if own is not None:
            return str(await own(current.turn)), None
        request = replace(current.turn.request, truncation="auto")  # of what is longer than the context, what fits
        turn = as_compaction(replace(current.turn, request=request, input=(user_text(PROMPT),)))
        limit = min(turn.options.max_output_tokens or SUMMARY_TOKENS, SUMMARY_TOKENS)
        turn = replace(turn, options=replace(turn.options, max_output_tokens=limit, stop=()))
        pieces, usage = [], None
        async for batch in self._program.run(replace(current, turn=turn)):
            pieces += [step.text for step in batch if isinstance(step, Text)]
            usage = next((step for step in batch if isinstance(step, Usage)), usage)
        return "".join(pieces), usage


def _last_question(items: tuple[w.Item, ...]) -> tuple[w.Item, ...]:
    """From the last user message on: what is to be answered now."""
    for i in range(len(items) - 1, -1, -1):
        item = items[i]
        if isinstance(item, w.Message) and item.role == "user":
            return items[i:]
    return items[-1:]


def _last_user_messages(items: tuple[w.Item, ...]) -> tuple[w.Item, ...]:
    asked = tuple(item for item in items if isinstance(item, w.Message) and item.role != "assistant")
    return _newest(asked, KEPT_BYTES)


def _newest(items: tuple[w.Item, ...], budget: int) -> tuple[w.Item, ...]:
    """The newest items that fit; outputs whose calls do not fit are left out with them."""
    kept: list[w.Item] = []
    for item in reversed(items):
        budget -= len(_encode(item))
        if budget < 0:
            break
        kept.append(item)
    kept.reverse()
    calls = {w.item_call_id(item) for item in kept if w.is_call(item)}
    return tuple(item for item in kept if not w.is_call_output(item) or w.item_call_id(item) in calls)


def _size(items: tuple[w.Item, ...]) -> int:
    return sum(len(_encode(item)) for item in items)
