"""What a client can do with a response that is stored, or being made and stored at its end."""

import msgspec

from mellea_responses.archive import replay
from mellea_responses.errors import InvalidRequest, NotFound
from mellea_responses.log import EventLog
from mellea_responses.pages import page
from mellea_responses.resource import decode_base
from mellea_responses.runs import Run, Runs
from mellea_responses.store import Record, Store
from mellea_responses.wire.response import ItemList

_encode = msgspec.json.Encoder().encode


class Stored:
    """Responses by id, each for its owner alone.

    Args:
        runs: Those that are being made.
        store: Those that are finished.
    """

    def __init__(self, runs: Runs, store: Store) -> None:
        self._runs, self._store = runs, store

    async def retrieve(self, owner: str, response_id: str) -> bytes:
        """The response object as JSON, live or stored.

        Raises:
            NotFound: unknown, expired, deleted, never stored, or another owner's.
        """
        run = self.live_run(owner, response_id)
        if run is not None:
            return _encode(run.response)
        return (await self._record(owner, response_id)).body

    async def events(self, owner: str, response_id: str) -> EventLog:
        """The response's events, live or replayed from what was stored: the same events with the same numbers.

        Raises:
            NotFound: as for `retrieve`.
        """
        run = self.live_run(owner, response_id)
        return run.log if run is not None else replay(await self._record(owner, response_id))

    async def cancel(self, owner: str, response_id: str) -> bytes:
        """Ends a background response; one that is over already is given as it ended.

        Raises:
            NotFound: as for `retrieve`.
            InvalidRequest: it does not run in the background.
        """
        run = self.live_run(owner, response_id)
        if run is None:
            record = await self._record(owner, response_id)
            if not decode_base(record.base).background:
                raise _foreground()
            return record.body
        if not run.background:
            raise _foreground()
        run.cancel("cancelled")
        await run.log.wait_closed()
        return _encode(run.response)

    async def delete(self, owner: str, response_id: str) -> None:
        """Forgets a response. One that is being made is ended first.

        Raises:
            NotFound: as for `retrieve`.
        """
        run = self.live_run(owner, response_id)
        if run is not None:
            run.cancel("deleted")
            await run.log.wait_closed()
        if not await self._store.delete(owner, response_id):
            raise _no_response(response_id)

    async def input_items(
        self, owner: str, response_id: str, *, after: str | None, before: str | None, limit: int, order: str
    ) -> ItemList:
        """One page of the items a response was asked with.

        Raises:
            NotFound: as for `retrieve`, or there is no item `after` or `before`.
        """
        run = self.live_run(owner, response_id)
        if run is not None:
            return page(list(run.turn.input), after=after, before=before, limit=limit, order=order)
        record = await self._record(owner, response_id)
        segment = await self._store.segment(owner, response_id)
        if segment is None:
            raise _no_response(response_id)
        items = list(segment.items[record.skip : record.skip + record.inputs])
        return page(items, after=after, before=before, limit=limit, order=order)

    def live_run(self, owner: str, response_id: str) -> Run | None:
        """The run that makes a response which will be stored."""
        run = self._runs.get(owner, response_id)
        return run if run is not None and run.response.store else None

    async def _record(self, owner: str, response_id: str) -> Record:
        record = await self._store.get(owner, response_id)
        if record is None:
            raise _no_response(response_id)
        return record


def _no_response(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id[:80]}' not found.", code="response_not_found")


def _foreground() -> InvalidRequest:
    return InvalidRequest("Only a response created with background: true can be cancelled.", param="response_id")
