"""A `Run` is one response being made: it drives the program, and tells log and store.

One task per run. Nothing here knows HTTP: shells attach to `log`, wait for `done`, or `cancel`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from mellea_responses.admission import Place
from mellea_responses.builder import Builder
from mellea_responses.errors import ApiError, Busy, ProgramTimeout
from mellea_responses.guard import Guard, ProgramError, failure
from mellea_responses.log import EventLog
from mellea_responses.program import Program
from mellea_responses.turn import Beat, Cancel, CurrentRun, Fail, Flag, Nothing, Said, Step, Stop, Turn
from mellea_responses.usage import estimate
from mellea_responses.wire.events import Event
from mellea_responses.wire.response import Response

logger = logging.getLogger("mellea_responses.run")

Settle = Callable[["Run"], Awaitable[None]]
"""Called when the outcome is known and before anybody hears of it: the store's write comes first."""


class Run:
    """One response in the making.

    Args:
        turn: What is asked.
        current: What the program's code can know of this run.
        builder: Makes the events.
        guard: Judges the steps.
        settle: Keeps the outcome.
        place: Where it waits for its turn; the run leaves it at its end.
        request_id: Ties the log's lines to the answer.
        background: Whether it goes on when the client leaves.
    """

    def __init__(
        self,
        turn: Turn,
        current: CurrentRun,
        builder: Builder,
        guard: Guard,
        settle: Settle,
        place: Place,
        *,
        request_id: str = "",
        background: bool = False,
    ) -> None:
        self.turn, self.current, self.builder = turn, current, builder
        self.request_id, self.background = request_id, background
        self.log = EventLog()
        self.queued = builder.response  # what a background request is answered with
        self.said: list[Said] = []
        self.error: ApiError | None = None
        self.cause = ""
        self.started = time.monotonic()
        self.admitted = self.heard = self.spoke = self.started
        self.first: float | None = None  # seconds until the first step
        self._guard, self._settle, self._place = guard, settle, place
        self._last_word: Said | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._pending: list[Event] = []

    @property
    def id(self) -> str:
        """The response's id."""
        return self.current.response_id

    @property
    def waiting(self) -> bool:
        """Whether its turn has not come yet."""
        return self._place.waiting

    @property
    def response(self) -> Response:
        """The response as it stands."""
        return self.builder.response

    def start(self, program: Program) -> None:
        """Begins; the opening events are there at once."""
        self.log.append(self.builder.start())
        if self.background and not self.waiting:
            self.log.append(self._hear([Beat()]))
        self._task = asyncio.create_task(self._work(program), name=self.id)

    async def result(self) -> Response:
        """The response at its end.

        Raises:
            ApiError: it failed.
        """
        assert self._task is not None
        await self._task
        if self.error is not None:
            raise self.error
        return self.builder.response

    @property
    def done(self) -> bool:
        """Whether the last event is out."""
        return self.log.closed

    def cancel(self, cause: str, last_word: ApiError | None = None) -> None:
        """Ends the run: as cancelled, or as failed with `last_word`. A run that is ending already is left alone."""
        if self._last_word is not None or self.builder.ended or self._task is None or self._task.done():
            return
        self.cause = cause
        self.error = last_word
        self._last_word = failure(last_word) if last_word else Cancel()
        self.current.cancelled.set()
        if self._begun:  # a task that has not begun would end without a word
            self._task.cancel()

    def beat(self) -> None:
        """Tells the readers that the run is alive. A queued one stays so until its turn."""
        if self.background and self.waiting:
            return
        if not self.builder.ended and not self._pending:
            self.log.append(self._hear([Beat()]))
            self.spoke = time.monotonic()

    async def _work(self, program: Program) -> None:
        self._begun = True
        try:
            if self._place.waiting and self._last_word is None:
                await self._place.turn()
                self.admitted = self.heard = time.monotonic()
                if self.background:
                    self.log.append(self._hear([Beat()]))
            last = self._last_word or await self._listen(program)
        except asyncio.CancelledError:
            last = self._last_word or Cancel()
        except ApiError as error:
            last = self._failed(error)
        except Exception as exc:  # the program's, whatever it is: the client learns only that it failed
            logger.exception(
                "%s failed: the program raised %s (request %s)", self.id, type(exc).__name__, self.request_id
            )
            last = self._failed(ApiError("The program failed. The server's log has the cause."))
        self._place.leave()
        await self._end(last)

    def _failed(self, error: ApiError) -> Said:
        if isinstance(error, ProgramError):
            logger.error("%s failed: %s (request %s)", self.id, error.cause, self.request_id)
        self.error = error
        return failure(error)

    async def _listen(self, program: Program) -> Said:
        """Hears the program out; returns the last word."""
        steps = program.run(self.current)
        try:
            async for batch in steps:
                last = self._hear_batch(batch)
                if last is not None:
                    return last
            return self._last_of(self._guard.hear(Stop()))
        finally:
            self.current.cancelled.set()
            await steps.aclose()  # type: ignore[attr-defined]  # programs' runs are async generators

    def _hear_batch(self, batch: Sequence[Step]) -> Said | None:
        self.heard = self.spoke = time.monotonic()
        if self.first is None:
            self.first = self.heard - self.started
        guard, builder, pending = self._guard, self.builder, self._pending
        for step in batch:
            said = guard.hear(step)
            if guard.ended:
                return self._last_of(said)
            self.said += said
            for one in said:
                pending += builder.hear(one)  # kept at once: what follows may raise, and these have their numbers
        self.log.append(self._pending)
        self._pending = []
        return None

    def _last_of(self, said: list[Said]) -> Said:
        self._pending += self._hear(said[:-1])
        return said[-1]

    def _hear(self, said: Sequence[Said]) -> list[Event]:
        self.said += said
        return [event for one in said for event in self.builder.hear(one)]

    def _closing(self, last: Said) -> Iterator[Said]:
        """What is added before the last word: an empty message for an empty answer, an estimate for missing counts."""
        if self.builder.empty and last == Stop() and self.turn.request.generate is not False:
            yield Nothing()
        if not self.builder.counted:
            self.current.notes["usage"] = "estimated"
            yield estimate(self.turn, self.builder.kept)

    def disown(self) -> None:
        """The outcome could not be kept: the last event must not say that it was."""
        self._pending[-1] = self.builder.amend(store=False)

    async def _end(self, last: Said) -> None:
        """The store first, then the last events: who has seen the end may continue a millisecond later."""
        if isinstance(last, Fail) and self.error is None:
            self.error = _as_error(last)
        self._pending += self._hear([*self._closing(last), last])
        self._last_word = last
        self.cause = self.cause or _cause(last)
        try:
            await self._settle(self)
        except Exception:
            logger.exception("%s could not be stored (request %s)", self.id, self.request_id)
            if self.response.store:
                self.disown()
        self.log.append(self._pending)
        self.log.close()


def _as_error(last: Fail) -> ApiError:
    from mellea_responses import errors

    kinds = (errors.InvalidRequest, errors.ModelFailed)
    kind = next((kind for kind in kinds if kind.type == last.error_type), ApiError)
    return kind(last.message, code=last.code)


def _cause(last: Said) -> str:
    match last:
        case Stop(reason=reason):
            return {"stop": "completed", "length": "max_output_tokens"}.get(reason, reason)
        case Fail(code=code):
            return code
        case _:
            return "cancelled"


class Runs:
    """Every run of this process, and the one clock that watches them.

    Args:
        step_timeout: Seconds without a step after which a run fails; 0 never.
        run_timeout: Seconds in all after which a run fails; 0 never.
        queue_timeout: Seconds after which a run fails whose turn has not come.
        beat: Seconds without an event after which the readers are told that the run is alive; 0 never.
    """

    def __init__(self, *, step_timeout: float, run_timeout: float, queue_timeout: float, beat: float) -> None:
        self._step_timeout, self._run_timeout, self._beat = step_timeout, run_timeout, beat
        self._queue_timeout = queue_timeout
        self._runs: dict[tuple[str, str], Run] = {}
        self._timer: asyncio.TimerHandle | None = None
        waits = [seconds for seconds in (step_timeout, run_timeout, queue_timeout, beat) if seconds > 0]
        self._interval = max(0.02, min(1.0, *(seconds / 8 for seconds in waits)))

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    def get(self, owner: str, response_id: str) -> Run | None:
        """The owner's run of this response, while it is being made."""
        return self._runs.get((owner, response_id))

    def add(self, run: Run) -> None:
        """Watches a run from now on."""
        self._runs[run.current.owner, run.id] = run
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def remove(self, run: Run) -> None:
        """The run is over."""
        self._runs.pop((run.current.owner, run.id), None)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for run in list(self._runs.values()):
            if (error := self._overdue(run, now)) is not None:
                run.cancel(error.code, error)
            elif self._beat and now - run.spoke > self._beat:
                run.beat()
        if self._runs:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _overdue(self, run: Run, now: float) -> ApiError | None:
        if run.waiting:
            late = now - run.started > self._queue_timeout
            return Busy(f"The server was busy for {self._queue_timeout:g} s. Try again later.") if late else None
        if self._step_timeout and now - run.heard > self._step_timeout:
            return ProgramTimeout(f"The program said nothing for {self._step_timeout:g} s.")
        if self._run_timeout and now - run.admitted > self._run_timeout:
            return ProgramTimeout(f"The answer took longer than {self._run_timeout:g} s.")
        return None


def new_current(owner: str, response_id: str, turn: Turn) -> CurrentRun:
    """What the program's code can know of a run."""
    return CurrentRun(owner=owner, response_id=response_id, turn=turn, cancelled=Flag(), notes={})
