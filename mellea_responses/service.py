"""The use cases without HTTP, one short function each."""

import logging
import time

import msgspec

from mellea_responses import history
from mellea_responses.builder import Builder
from mellea_responses.drafts import View
from mellea_responses.errors import ApiError, Busy, Draining, InvalidRequest, ModelNotFound, NotFound
from mellea_responses.guard import Guard
from mellea_responses.ids import new_id, new_item_id, new_response_id
from mellea_responses.live import LiveCalls
from mellea_responses.log import EventLog
from mellea_responses.normalize.media import check_media
from mellea_responses.normalize.request import normalize
from mellea_responses.program import Program, Silent
from mellea_responses.resource import decode_base, new_response
from mellea_responses.runs import Run, Runs, new_current
from mellea_responses.settings import Settings
from mellea_responses.store import MemoryStore, ParentMissing, Record, Segment, Store, StoreFull
from mellea_responses.turn import Said, Turn
from mellea_responses.wire.items import Item, item_id
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.response import ItemList, Model, ModelList, Response

access = logging.getLogger("mellea_responses.access")
logger = logging.getLogger("mellea_responses.service")

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_unpack_said = msgspec.msgpack.Decoder(list[Said])


class Service:
    """Everything a client can ask for.

    Args:
        program: What answers.
        settings: Every option.
        store: Where finished responses live; a memory store of the settings' size if left out.
    """

    def __init__(self, program: Program, settings: Settings, store: Store | None = None) -> None:
        self.program, self.settings = program, settings
        self.store: Store = store or MemoryStore(settings.store_max_bytes, settings.store_max_entries)
        self.runs = Runs(
            step_timeout=settings.step_timeout, run_timeout=settings.run_timeout, beat=settings.beat_seconds
        )
        self.live = LiveCalls(settings.response_ttl)
        self.ready = False
        self.draining = False
        self._created = int(time.time())

    async def open(self) -> None:
        """Connects the store; from here on the server is ready."""
        await self.store.open()
        self.ready = True

    async def close(self) -> None:
        """Ends what still runs and lets go."""
        self.ready = False
        self.drain()
        await self.store.close()
        self.program.close()

    def drain(self) -> None:
        """No new answers; the open ones end now, each with its terminal event."""
        self.draining = True
        for run in self.runs:
            run.cancel("shutdown", Draining("The server is stopping."))

    async def create(
        self, request: CreateResponse, owner: str, request_id: str = "", *, local: history.Local | None = None
    ) -> Run:
        """Checks a request as far as it can be checked and starts its run.

        Args:
            request: What the client asks.
            owner: Whose request it is.
            request_id: Ties the log's lines to the answer.
            local: Responses that only the caller's connection knows, by id.

        Raises:
            ApiError: it cannot be answered; nothing was generated or stored.
        """
        if self.draining:
            raise Draining("The server is stopping.")
        model = self._model(request.model)
        turn = await self.turn(request, owner, local)
        if request.generate is not False:
            await self._check(turn, owner)
        if len(self.runs) >= self.settings.max_runs:
            raise Busy("The server is busy. Try again shortly.")
        return self._start(turn, owner, model, request_id)

    async def turn(self, request: CreateResponse, owner: str, local: history.Local | None = None) -> Turn:
        """The request in canonical form with everything it stands on."""
        if request.background and not self._stores(request):
            raise InvalidRequest("A background response must be stored: it needs store: true.", param="background")
        if request.conversation is not None:
            raise InvalidRequest("This server keeps no conversations; use previous_response_id.", param="conversation")
        normalized = normalize(request, reject_unsupported=self.settings.unsupported_tools == "reject")
        check_media(normalized.loose)
        return await history.complete(normalized, owner, self.store, self.live, local)

    async def _check(self, turn: Turn, owner: str) -> None:
        try:
            await self.program.check(turn, owner)
        except ApiError:
            raise
        except Exception as exc:
            logger.exception("check() raised %s", type(exc).__name__)
            raise ApiError("The program failed while it checked the request.") from exc

    def _start(self, turn: Turn, owner: str, model: str, request_id: str) -> Run:
        response_id = new_response_id(turn.request.previous_response_id)
        base = new_response(turn, response_id, model, int(time.time()), store=self._stores(turn.request))
        recorder = _Recorder()
        builder = Builder(base, mint=recorder.mint, clock=recorder.clock, view=self._view(turn))
        guard = Guard(turn, max_bytes=self.settings.max_output_bytes)
        current = new_current(owner, response_id, turn)

        async def settle(run: Run) -> None:
            await self._settle(run, base, recorder)

        run = Run(turn, current, builder, guard, settle, request_id=request_id, background=base.background)
        self.runs.add(run)
        run.start(self.program if turn.request.generate is not False else Silent())
        return run

    def _stores(self, request: CreateResponse) -> bool:
        return request.store is not False and self.settings.response_ttl > 0

    def _view(self, turn: Turn) -> View:
        if self.settings.reasoning == "hidden":
            return "hidden"
        asked = turn.request.reasoning
        return "summary" if asked and (asked.summary or asked.generate_summary) else "content"

    def _model(self, asked: str | None) -> str:
        """The name in the answer."""
        names = self.settings.model_names
        if names and asked is not None and asked not in names:
            raise ModelNotFound(
                f"The model `{asked[:80]}` does not exist here. Served: {', '.join(names)}.", param="model"
            )
        return (asked or names[0]) if names else self.program.name

    # The end of a run.

    async def _settle(self, run: Run, base: Response, recorder: "_Recorder") -> None:
        response = run.response
        if response.status in ("completed", "incomplete"):
            self.live.add(run.current.owner, run.turn.items, run.builder.kept)
        if base.store:
            await self._keep(run, base, recorder)
        self.runs.remove(run)
        _log_access(run)

    async def _keep(self, run: Run, base: Response, recorder: "_Recorder") -> None:
        turn, owner, response = run.turn, run.current.owner, run.response
        record = Record(
            id=run.id,
            owner=owner,
            status=response.status,
            body=_encode(response),
            inputs=len(turn.input),
            base=_encode(base),
            said=_pack(run.said),
            ids=tuple(recorder.ids),
            times=tuple(recorder.times),
            view=self._view(turn),
        )
        own = turn.input + run.builder.kept
        parent = turn.request.previous_response_id
        try:
            if parent is not None or not turn.history:
                try:
                    return await self.store.put(record, Segment(run.id, parent, own), self.settings.response_ttl)
                except ParentMissing:
                    pass  # the chain went away while this turn ran; its items are still in hand
            record = msgspec.structs.replace(record, skip=len(turn.history))
            await self.store.put(record, Segment(run.id, None, turn.history + own), self.settings.response_ttl)
        except StoreFull as exc:
            logger.warning("%s is larger than the whole store (%s) and was not kept", run.id, exc)

    # What is stored.

    async def retrieve(self, owner: str, response_id: str) -> bytes:
        """The response object as JSON, live or stored.

        Raises:
            NotFound: unknown, expired, deleted, never stored, or another owner's.
        """
        run = self._live_run(owner, response_id)
        if run is not None:
            return _encode(run.response)
        return (await self._record(owner, response_id)).body

    async def events(self, owner: str, response_id: str) -> EventLog:
        """The response's events, live or replayed from what was stored: the same events with the same numbers.

        Raises:
            NotFound: as for `retrieve`.
        """
        run = self._live_run(owner, response_id)
        return run.log if run is not None else replay(await self._record(owner, response_id))

    async def cancel(self, owner: str, response_id: str) -> bytes:
        """Ends a background response; one that is over already is given as it ended.

        Raises:
            NotFound: as for `retrieve`.
            InvalidRequest: it does not run in the background.
        """
        run = self._live_run(owner, response_id)
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
        run = self._live_run(owner, response_id)
        if run is not None:
            run.cancel("deleted")
            await run.log.wait_closed()
        if not await self.store.delete(owner, response_id):
            raise _no_response(response_id)

    async def input_items(
        self, owner: str, response_id: str, *, after: str | None, before: str | None, limit: int, order: str
    ) -> ItemList:
        """One page of the items a response was asked with.

        Raises:
            NotFound: as for `retrieve`, or there is no item `after` or `before`.
        """
        run = self._live_run(owner, response_id)
        if run is not None:
            return page(list(run.turn.input), after=after, before=before, limit=limit, order=order)
        record = await self._record(owner, response_id)
        segment = await self.store.segment(owner, response_id)
        if segment is None:
            raise _no_response(response_id)
        items = list(segment.items[record.skip : record.skip + record.inputs])
        return page(items, after=after, before=before, limit=limit, order=order)

    def _live_run(self, owner: str, response_id: str) -> Run | None:
        run = self.runs.get(owner, response_id)
        return run if run is not None and run.response.store else None

    async def _record(self, owner: str, response_id: str) -> Record:
        record = await self.store.get(owner, response_id)
        if record is None:
            raise _no_response(response_id)
        return record

    # Models.

    def models(self) -> ModelList:
        """Every name the server answers to."""
        names = self.settings.model_names or (self.program.name,)
        return ModelList([Model(name, self._created) for name in names])

    def model(self, name: str) -> Model:
        """One of them.

        Raises:
            ModelNotFound: it is none of them.
        """
        for model in self.models().data:
            if model.id == name:
                return model
        raise ModelNotFound(f"The model `{name[:80]}` does not exist here.", param="model")


class _Recorder:
    """Mints ids and tells the time, and remembers both for the replay."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.times: list[int] = []

    def mint(self, kind: str) -> str:
        made = new_id("call") if kind == "call" else new_item_id(kind)
        self.ids.append(made)
        return made

    def clock(self) -> int:
        self.times.append(int(time.time()))
        return self.times[-1]


def replay(record: Record) -> EventLog:
    """The events of a stored response, made again by the same builder."""
    ids, times = iter(record.ids), iter(record.times)
    view: View = record.view  # type: ignore[assignment]  # written from a View
    builder = Builder(decode_base(record.base), mint=lambda _kind: next(ids), clock=lambda: next(times), view=view)
    log = EventLog()
    log.append(builder.start())
    for said in _unpack_said.decode(record.said):
        log.append(builder.hear(said))
    log.close()
    return log


def page(items: list[Item], *, after: str | None, before: str | None, limit: int, order: str) -> ItemList:
    """Cuts one page; `desc`, the default of the API, gives the newest first."""
    if order == "desc":
        items = items[::-1]
    if after is not None:
        items = items[_place(items, after, "after") + 1 :]
    if before is not None:
        items = items[: _place(items, before, "before")]
    cut = items[:limit]
    first, last = (item_id(cut[0]) or "", item_id(cut[-1]) or "") if cut else ("", "")
    return ItemList(data=cut, first_id=first, last_id=last, has_more=len(items) > limit)


def _place(items: list[Item], wanted: str, param: str) -> int:
    for i, item in enumerate(items):
        if item_id(item) == wanted:
            return i
    raise InvalidRequest(f"There is no item '{wanted[:80]}' in this list.", param=param)


def _no_response(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id[:80]}' not found.", code="response_not_found")


def _foreground() -> InvalidRequest:
    return InvalidRequest("Only a response created with background: true can be cancelled.", param="response_id")


def _log_access(run: Run) -> None:
    """One line per response: no content, no client metadata."""
    if not access.isEnabledFor(logging.INFO):
        return
    usage, notes = run.response.usage, run.current.notes
    fields = {
        "owner": run.current.owner or "-",
        "end": run.cause,
        "match": notes.get("match", "-"),
        "usage": notes.get("usage", "true"),
        "input": usage.input_tokens if usage else 0,
        "cached": usage.input_tokens_details.cached_tokens if usage else 0,
        "output": usage.output_tokens if usage else 0,
        "first": f"{run.first:.3f}" if run.first is not None else "-",
        "total": f"{time.monotonic() - run.started:.3f}",
        "request": run.request_id or "-",
    }
    access.info("%s %s", run.id, " ".join(f"{key}={value}" for key, value in fields.items()))
