"""What is kept of a response, and how its events are made again from it.

Kept are the steps, the minted ids and the times: the same builder turns them into the same events and numbers.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from mellea_responses.builder import Builder
from mellea_responses.drafts import View
from mellea_responses.ids import new_id, new_item_id
from mellea_responses.log import EventLog
from mellea_responses.resource import decode_base
from mellea_responses.runs import Run
from mellea_responses.store import ParentMissing, Record, Segment, Store, StoreFull
from mellea_responses.turn import Said
from mellea_responses.wire.response import Response

SEALED = "reasoning.encrypted_content"
"""The `include` value that asks for sealed reasoning."""

logger = logging.getLogger("mellea_responses.archive")
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_unpack_said = msgspec.msgpack.Decoder(list[Said])


class Recorder:
    """Mints ids and tells the time, and remembers both for the replay."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.times: list[int] = []

    def mint(self, kind: str) -> str:
        """A fresh id."""
        made = new_id("call") if kind == "call" else new_item_id(kind)
        self.ids.append(made)
        return made

    def sealing(self, seal: Callable[[str], str]) -> Callable[[str], str]:
        """`seal`, remembered like an id: sealing again would give another text."""

        def remembered(text: str) -> str:
            self.ids.append(seal(text))
            return self.ids[-1]

        return remembered

    def clock(self) -> int:
        """Whole Unix seconds."""
        self.times.append(int(time.time()))
        return self.times[-1]


class Archive:
    """Puts finished responses into the store.

    Args:
        store: Where they live.
        ttl: Seconds they live.
    """

    def __init__(self, store: Store, ttl: float) -> None:
        self._store, self._ttl = store, ttl

    async def keep(self, run: Run, base: Response, recorder: Recorder, view: View) -> bool:
        """Keeps a run's outcome; False when it is larger than the whole store."""
        turn = run.turn
        record = Record(
            id=run.id,
            owner=run.current.owner,
            status=run.response.status,
            body=_encode(run.response),
            inputs=len(turn.input),
            base=_encode(base),
            said=_pack(run.said),
            ids=tuple(recorder.ids),
            times=tuple(recorder.times),
            view=view,
            sealed=SEALED in (turn.request.include or ()),
        )
        own = turn.input + run.builder.kept
        try:
            if turn.parent is not None or not turn.history:
                try:
                    await self._store.put(record, Segment(run.id, turn.parent, own), self._ttl)
                    return True
                except ParentMissing:
                    pass  # the chain went away while this turn ran; its items are still in hand
            record = msgspec.structs.replace(record, skip=len(turn.history))
            await self._store.put(record, Segment(run.id, None, turn.history + own), self._ttl)
        except StoreFull as exc:
            logger.warning("%s is larger than the whole store (%s) and was not kept", run.id, exc)
            return False
        return True


def replay(record: Record) -> EventLog:
    """The events of a stored response, made again by the same builder."""
    ids, times = iter(record.ids), iter(record.times)
    view: View = record.view  # type: ignore[assignment]  # written from a View
    builder = Builder(
        decode_base(record.base),
        mint=lambda _kind: next(ids),
        clock=lambda: next(times),
        view=view,
        seal=(lambda _text: next(ids)) if record.sealed else None,
    )
    log = EventLog()
    log.append(builder.start())
    for said in _unpack_said.decode(record.said):
        log.append(builder.hear(said))
    log.close()
    return log
