"""The use cases without HTTP, one short function each."""

import logging
import time
from collections.abc import Callable

import msgspec

from mellea_responses import history
from mellea_responses.access import log_access
from mellea_responses.admission import Admission, Place
from mellea_responses.archive import SEALED, Archive, Recorder, replay
from mellea_responses.builder import Builder
from mellea_responses.compaction import Compactor, as_compaction
from mellea_responses.conversations import Conversations, conversation_id
from mellea_responses.drafts import View
from mellea_responses.errors import ApiError, Draining, InvalidRequest, ModelNotFound, NotFound
from mellea_responses.guard import Guard
from mellea_responses.ids import new_response_id
from mellea_responses.live import LiveCalls
from mellea_responses.log import EventLog
from mellea_responses.media.parts import check_media
from mellea_responses.media.reader import Reader
from mellea_responses.normalize.request import normalize
from mellea_responses.pages import page
from mellea_responses.program import Program, Silent
from mellea_responses.resource import decode_base, new_response
from mellea_responses.runs import Run, Runs, new_current
from mellea_responses.seal import Sealer
from mellea_responses.settings import Settings
from mellea_responses.store import MemoryStore, Record, Store
from mellea_responses.store.conversations import MemoryConversations
from mellea_responses.telemetry import Levels, Name, observer
from mellea_responses.turn import Facts, Turn
from mellea_responses.unsealing import SealedThoughts, open_compactions, open_reasoning
from mellea_responses.wire.items import Item, Reasoning
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.response import CompactedResponse, InputTokens, ItemList, Model, ModelList, Response

access = logging.getLogger("mellea_responses.access")
logger = logging.getLogger("mellea_responses.service")

_encode = msgspec.json.Encoder().encode


class Service:
    """Everything a client can ask for.

    Args:
        program: What answers.
        settings: Every option.
        store: Where finished responses live; a memory store of the settings' size if left out.
        reader: What reads pictures and files; one as the settings say if left out.
    """

    def __init__(
        self, program: Program, settings: Settings, store: Store | None = None, reader: Reader | None = None
    ) -> None:
        self.program, self.settings = program, settings
        self.store: Store = store or MemoryStore(settings.store_max_bytes, settings.store_max_entries)
        self.runs = Runs(
            step_timeout=settings.step_timeout,
            run_timeout=settings.run_timeout,
            queue_timeout=settings.queue_timeout,
            beat=settings.beat_seconds,
        )
        self.admission = Admission(settings.max_runs, settings.max_queued, getattr(program, "capacity", None))
        if (on_freed := getattr(program, "on_freed", None)) is not None:
            on_freed(self.admission.freed)
        self.conversation_store = MemoryConversations(settings.store_max_bytes, settings.response_ttl)
        self.conversations = Conversations(self.conversation_store)
        self._sealer = Sealer.from_file(settings.seal_key) if settings.seal_key else Sealer()
        self._archive = Archive(self.store, settings.response_ttl)
        self.live = LiveCalls(settings.response_ttl)
        self.reader = reader or Reader.of(settings, getattr(program, "images", "look"))
        self.ready = False
        self.draining = False
        self._created = int(time.time())
        self.gauges: dict[Name, Callable[[], float]] = {}  # what the shells around can tell
        self.observer = observer(settings, self._levels)

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
        place = self.admission.enter(owner)
        try:
            with self.conversations.held(owner, request.conversation) as hold:
                turn = await self.turn(request, owner, local)
                turn, program = await self._plan(turn, owner)
                run = self._start(turn, owner, model, request_id, program, place)
                hold.pop_all()  # the run holds on until its end, and to its place
        except BaseException:
            place.leave()
            raise
        return run

    async def turn(self, request: CreateResponse, owner: str, local: history.Local | None = None) -> Turn:
        """The request in canonical form with everything it stands on."""
        if request.background and not self._stores(request):
            raise InvalidRequest("A background response must be stored: it needs store: true.", param="background")
        normalized = normalize(request, reject_unsupported=self.settings.unsupported_tools == "reject")
        given = normalized.loose
        check_media(given, remote=self.settings.allow_remote_images)
        if any(isinstance(item, Reasoning) for item in normalized.loose):
            loose = open_reasoning(normalized.loose, self._sealer, owner, strict=self.settings.strict_replay)
            normalized = msgspec.structs.replace(normalized, loose=loose)
        past = await self._past(request, owner, local)
        turn = await history.complete(
            normalized, owner, past, self.store, lambda item_id: self._find_item(owner, item_id), self.live
        )
        opened = open_compactions(turn.history + turn.input, self._sealer, owner)
        turn = msgspec.structs.replace(turn, opened=opened) if opened else turn
        media = await self.reader.read(turn, given, owner)
        return msgspec.structs.replace(turn, media=media) if media else turn

    async def _past(self, request: CreateResponse, owner: str, local: history.Local | None) -> history.Past:
        if request.previous_response_id is not None:
            run = self._live_run(owner, request.previous_response_id)
            if run is not None:
                raise history.not_continued(run.id, run.response.status)
            return await history.chain(request.previous_response_id, owner, self.store, local)
        if request.conversation is None:
            return history.Past()
        conversation = await self.conversations.load(owner, conversation_id(request.conversation))
        return history.Past(conversation.items, conversation.leaf, conversation.id)

    async def _find_item(self, owner: str, item_id: str) -> Item | None:
        found = await self.store.find_item(owner, item_id)
        return found if found is not None else await self.conversation_store.find_item(owner, item_id)

    async def _plan(self, turn: Turn, owner: str) -> tuple[Turn, Program]:
        """What will really answer: the program, a compaction, both, or nobody."""
        if turn.request.generate is False:
            return turn, Silent()
        if turn.compact:
            return as_compaction(turn), Compactor(self.program, self._sealer)
        threshold = next((c.compact_threshold for c in turn.request.context_management or ()), None)
        facts = await self._check(turn, owner, may_be_long=threshold is not None)
        tokens = facts.input_tokens if facts else None
        if turn.options.logprobs and not (facts and facts.logprobs):
            raise InvalidRequest("This program gives no log probabilities.", param="include", code="no_logprobs")
        if threshold is not None and tokens is not None and tokens > threshold:
            return turn, Compactor(self.program, self._sealer, then_answer=True)
        if tokens is None and turn.request.truncation == "auto":
            request = msgspec.structs.replace(turn.request, truncation="disabled")  # nobody can count: say what holds
            turn = msgspec.structs.replace(turn, request=request)
        return turn, self.program

    async def compact(self, request: CreateResponse, owner: str, request_id: str = "") -> CompactedResponse:
        """Folds a conversation into one sealed item.

        Raises:
            ApiError: it cannot be folded.
        """
        if request.model is None:
            raise InvalidRequest("Missing required field `model`.", param="model")
        place = self.admission.enter(owner)
        try:
            turn = as_compaction(await self.turn(msgspec.structs.replace(request, store=False), owner))
            compactor = Compactor(self.program, self._sealer)
            run = self._start(turn, owner, self._model(request.model), request_id, compactor, place)
        except BaseException:
            place.leave()
            raise
        response = await run.result()
        return CompactedResponse(run.id, response.output, response.created_at, response.usage)

    async def count(self, request: CreateResponse, owner: str) -> InputTokens:
        """How many tokens a request would really feed.

        Raises:
            InvalidRequest: the program cannot count.
        """
        place = self.admission.enter(owner)
        try:
            facts = await self._check(await self.turn(request, owner), owner, may_be_long=True)
        finally:
            place.leave()
        if facts is None or facts.input_tokens is None:
            raise InvalidRequest("This program cannot count tokens.", code="cannot_count_tokens")
        return InputTokens(facts.input_tokens)

    async def _check(self, turn: Turn, owner: str, *, may_be_long: bool = False) -> Facts | None:
        if may_be_long:
            turn = msgspec.structs.replace(turn, request=msgspec.structs.replace(turn.request, truncation="auto"))
        try:
            return await self.program.check(turn, owner)
        except ApiError:
            raise
        except Exception as exc:
            logger.exception("check() raised %s", type(exc).__name__)
            raise ApiError("The program failed while it checked the request.") from exc

    def _start(self, turn: Turn, owner: str, model: str, request_id: str, program: Program, place: Place) -> Run:
        if self.draining:  # since the request came in
            raise Draining("The server is stopping.")
        response_id = new_response_id(turn.request.previous_response_id)
        base = new_response(turn, response_id, model, int(time.time()), store=self._stores(turn.request))
        recorder = Recorder()
        seal = None
        if SEALED in (turn.request.include or ()):
            seal = recorder.sealing(
                lambda text: self._sealer.seal(owner, "reasoning", SealedThoughts(response_id, model, text))
            )
        builder = Builder(base, mint=recorder.mint, clock=recorder.clock, view=self._view(turn), seal=seal)
        guard = Guard(turn, max_bytes=self.settings.max_output_bytes)
        current = new_current(owner, response_id, turn)

        async def settle(run: Run) -> None:
            await self._settle(run, base, recorder)

        run = Run(turn, current, builder, guard, settle, place, request_id=request_id, background=base.background)
        self.runs.add(run)
        if self.settings.log_bodies:
            logger.info("%s was asked %s", run.id, _encode(turn.request).decode())
        if self.observer is None:
            run.start(program)
        else:
            with self.observer.starting(run):
                run.start(program)
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

    async def _settle(self, run: Run, base: Response, recorder: Recorder) -> None:
        """Keeps the outcome; the store first, so that whoever hears of the end can continue at once."""
        turn, owner, response = run.turn, run.current.owner, run.response
        try:
            kept = base.store and await self._archive.keep(run, base, recorder, self._view(turn))
            if base.store and not kept:
                run.disown()
            if response.status in ("completed", "incomplete"):
                self.live.add(owner, turn.items, run.builder.kept)
                if turn.conversation is not None:
                    added = turn.input + run.builder.kept
                    await self.conversations.append(owner, turn.conversation, added, run.id if kept else None)
        finally:
            if turn.conversation is not None:
                self.conversations.release(owner, turn.conversation)
            self.runs.remove(run)
            if self.settings.log_bodies:
                logger.info("%s answered %s", run.id, _encode(run.response).decode())
            log_access(run)
            if self.observer is not None:
                self.observer.settled(run)

    def _levels(self) -> Levels:
        gauges: dict[Name, float] = {
            Name.RUNS: len(self.runs) - self.admission.waiting,
            Name.WAITING: self.admission.waiting,
            Name.LIVE_CALLS: len(self.live),
            **{name: gauge() for name, gauge in self.gauges.items()},
        }
        if not isinstance(self.store, MemoryStore):  # others are shared: no process can say what they hold
            return Levels(gauges, {})
        gauges |= {Name.STORED: len(self.store), Name.STORE_BYTES: self.store.bytes}
        return Levels(gauges, self.store.evicted)

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


def _no_response(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id[:80]}' not found.", code="response_not_found")


def _foreground() -> InvalidRequest:
    return InvalidRequest("Only a response created with background: true can be cancelled.", param="response_id")
