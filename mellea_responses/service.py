"""The use cases without HTTP, one short function each."""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from mellea_responses import history
from mellea_responses.access import log_access, log_refusal
from mellea_responses.admission import Admission, Place
from mellea_responses.archive import SEALED, Archive, Recorder
from mellea_responses.builder import Builder
from mellea_responses.compaction import Compactor, as_compaction
from mellea_responses.conversations import Conversations
from mellea_responses.drafts import View
from mellea_responses.errors import ApiError, ContextLengthExceeded, Draining, InvalidRequest, ModelNotFound
from mellea_responses.guard import Guard
from mellea_responses.ids import new_response_id
from mellea_responses.live import LiveCalls
from mellea_responses.media.reader import Reader
from mellea_responses.preparation import Preparation, stores
from mellea_responses.program import Program
from mellea_responses.resource import new_response
from mellea_responses.runs import Run, Runs, new_current
from mellea_responses.seal import Sealer
from mellea_responses.settings import Settings
from mellea_responses.store import MemoryStore, Store
from mellea_responses.store.conversations import MemoryConversations
from mellea_responses.stored import Stored
from mellea_responses.telemetry import Levels, Name, observer
from mellea_responses.turn import Facts, Turn
from mellea_responses.unsealing import SealedThoughts
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.response import CompactedResponse, InputTokens, Model, ModelList, Response

logger = logging.getLogger("mellea_responses.service")

_encode = msgspec.json.Encoder().encode
SWEEP_SECONDS = 10.0
"""How often what is over is freed where nobody asks for it."""


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
        own = MemoryStore(settings.store_max_bytes, settings.store_max_entries) if store is None else store
        self.store: Store = own
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
        self.live = LiveCalls(settings.response_ttl, settings.store_max_bytes)
        self.reader = reader or Reader.of(settings, getattr(program, "images", "look"))
        self.stored = Stored(self.runs, self.store)
        self._preparation = Preparation(
            program,
            settings,
            store=self.store,
            stored=self.stored,
            conversations=self.conversations,
            live=self.live,
            reader=self.reader,
            sealer=self._sealer,
        )
        self.ready = False
        self.draining = False
        self._created = int(time.time())
        self._sweeping: asyncio.TimerHandle | None = None
        self.gauges: dict[Name, Callable[[], float]] = {}  # what the shells around can tell
        self.observer = observer(settings, self._levels)

    async def open(self) -> None:
        """Connects the store; from here on the server is ready."""
        await self.store.open()
        self.ready = True
        self._sweep()

    async def close(self) -> None:
        """Ends what still runs and lets go."""
        self.ready = False
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.drain()
        await self.store.close()
        self.program.close()

    def _sweep(self) -> None:
        for kept in (self.live, self.conversation_store, self.reader.cache):
            kept.expire()
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

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
                turn = await self._preparation.turn(request, owner, local)
                turn, program = await self._preparation.plan(turn, owner)
                run = self._start(turn, owner, model, request_id, program, place)
                hold.pop_all()  # the run holds on until its end, and to its place
        except BaseException:
            place.leave()
            raise
        return run

    async def compact(self, request: CreateResponse, owner: str, request_id: str = "") -> CompactedResponse:
        """Folds a conversation into one sealed item.

        Raises:
            ApiError: it cannot be folded.
        """
        if request.model is None:
            raise InvalidRequest("Missing required field `model`.", param="model")
        place = self.admission.enter(owner)
        try:
            turn = as_compaction(await self._preparation.turn(msgspec.structs.replace(request, store=False), owner))
            compactor = Compactor(self.program, self._sealer)
            run = self._start(turn, owner, self._model(request.model), request_id, compactor, place)
        except BaseException:
            place.leave()
            raise
        try:
            response = await run.result()
        finally:
            run.cancel("client left")  # unless it is over
        return CompactedResponse(run.id, response.output, response.created_at, response.usage)

    async def count(self, request: CreateResponse, owner: str) -> InputTokens:
        """How many tokens a request would really feed, or would have to where it is longer than the context.

        Raises:
            InvalidRequest: the program cannot count.
        """
        place = self.admission.enter(owner)
        try:
            turn = await self._preparation.turn(request, owner)
            facts = await self._preparation.check(turn, owner)
        except ContextLengthExceeded as exc:
            if exc.tokens is None:
                raise
            facts = Facts(input_tokens=exc.tokens)
        finally:
            place.leave()
        if facts is None or facts.input_tokens is None:
            raise InvalidRequest("This program cannot count tokens.", code="cannot_count_tokens")
        return InputTokens(facts.input_tokens)

    def _start(self, turn: Turn, owner: str, model: str, request_id: str, program: Program, place: Place) -> Run:
        if self.draining:  # since the request came in
            raise Draining("The server is stopping.")
        response_id = new_response_id(turn.request.previous_response_id)
        base = new_response(turn, response_id, model, int(time.time()), store=stores(turn.request, self.settings))
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

    def refused(self, error: ApiError, owner: str, request_id: str) -> None:
        """Notes that a request was answered with an error, whoever found it."""
        log_refusal(error, owner, request_id)
        if self.observer is not None:
            self.observer.refused(error.status)

    def _levels(self) -> Levels:
        gauges: dict[Name, float] = {
            Name.RUNS: sum(not run.waiting for run in self.runs),
            Name.WAITING: self.admission.waiting,
            Name.LIVE_CALLS: len(self.live),
            **{name: gauge() for name, gauge in self.gauges.items()},
        }
        if not isinstance(self.store, MemoryStore):  # others are shared: no process can say what they hold
            return Levels(gauges, {})
        gauges |= {Name.STORED: len(self.store), Name.STORE_BYTES: self.store.bytes}
        return Levels(gauges, self.store.evicted)

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
