"""A user's `serve()` behind the one face of programs.

Plain functions and generators run in daemon threads, coroutines and async generators on the program loop; neither is
the loop that serves HTTP.
"""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Literal

from mellea_responses.errors import ApiError
from mellea_responses.program.call import Signature
from mellea_responses.program.channel import Channel, Gone, as_failure
from mellea_responses.program.pool import ProgramLoop, ThreadPool
from mellea_responses.program.speak import speak, speak_async
from mellea_responses.settings import Settings
from mellea_responses.turn import CurrentRun, Facts, Step, Turn, current_run


class UserProgram:
    """A program made of functions.

    Args:
        serve: The user's function; see docs/programs.md for its forms.
        check: An optional last look at a turn before the headers; raises, or returns `Facts`.
        compact: An optional summary of a turn's conversation, as text.
        name: The name it is served under.
        settings: Threads, limits and times.
    """

    def __init__(
        self,
        serve: Callable[..., Any],
        *,
        check: Callable[[Turn], Any] | None = None,
        compact: Callable[[Turn], Any] | None = None,
        name: str = "program",
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        self.name = name
        self._signature = Signature(serve)
        self._check, self._compact = check, compact
        self.can_compact = compact is not None
        self.images: Literal["look", "pass"] = "look" if self._signature.reads_messages else "pass"
        self._timeout = settings.check_timeout
        self._threads = settings.threads
        self._pool = ThreadPool(settings.threads)
        self._checks = ThreadPool(settings.threads)
        self._loop: ProgramLoop | None = None
        self._one = threading.Lock() if settings.exclusive else None
        self._turnstile: asyncio.Lock | None = None
        self._exclusive = settings.exclusive
        self._async = inspect.iscoroutinefunction(_function(serve)) or inspect.isasyncgenfunction(_function(serve))

    def capacity(self) -> int | None:
        """How many runs it can take at the same time; None for any number."""
        if self._async:
            return 1 if self._exclusive else None
        return max(0, (1 if self._exclusive else self._threads) - self._pool.abandoned)

    def on_freed(self, tell: Callable[[], None]) -> None:
        """Has `tell` called, on any thread, when it can take more runs again than it could."""
        self._pool.freed = tell

    def warm(self) -> None:
        """Loads what the first call would load: Mellea takes a second or more, which no client should wait for."""
        if self._signature.reads_messages:
            import mellea_responses.program.inputs  # noqa: F401  # for what it loads

    async def check(self, turn: Turn, owner: str) -> Facts | None:
        """The program's own `check(turn)`, in a thread and bounded in time; a program without one cannot tell."""
        if self._check is None:
            return None
        try:
            async with asyncio.timeout(self._timeout):
                facts = await self._aside(self._check, turn)
        except TimeoutError:
            raise ApiError("The program took too long to check the request.", code="timeout") from None
        return facts if isinstance(facts, Facts) else None

    async def compact(self, turn: Turn) -> str:
        """The program's own summary of a conversation."""
        assert self._compact is not None
        return str(await self._aside(self._compact, turn))

    async def _aside(self, function: Callable[[Turn], Any], turn: Turn) -> Any:
        """Calls one of the program's side functions in a thread of its own pool."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        job = self._checks.submit(lambda: _report(function, turn, loop, answer), wait=True)
        try:
            return await answer
        finally:
            job.abandon()

    async def run(self, current: CurrentRun) -> AsyncIterator[Sequence[Step]]:
        """Calls `serve()` and hands on what it says."""
        channel = Channel()
        context = copy_context()
        context.run(current_run.set, current)
        cancel = self._start(current, channel, context)
        try:
            async for batch in channel.batches():
                yield batch
        finally:
            channel.leave()
            cancel()

    def _start(self, current: CurrentRun, channel: Channel, context: Any) -> Callable[[], None]:
        if not self._async:
            return self._pool.submit(lambda: context.run(self._in_thread, current, channel)).abandon
        if self._loop is None:
            self._loop = ProgramLoop()
        return self._loop.submit(lambda: self._in_loop(current, channel), f"serve() for {current.response_id}")

    # In a thread.

    def _in_thread(self, current: CurrentRun, channel: Channel) -> Callable[[], None]:
        """Speaks; returns what is said when the thread is free again."""
        try:
            if self._one is None:
                self._speak_in_thread(current, channel)
            else:
                with self._one:
                    self._speak_in_thread(current, channel)
        except Gone:
            pass
        except BaseException as exc:  # the program's failure is the listener's to tell
            return partial(channel.end, exc)
        return channel.end

    def _speak_in_thread(self, current: CurrentRun, channel: Channel) -> None:
        if channel.gone:
            return
        speak(self._signature.call(current.turn), channel)

    # On the program loop.

    async def _in_loop(self, current: CurrentRun, channel: Channel) -> None:
        current_run.set(current)
        try:
            if not self._exclusive:
                await speak_async(self._signature.call(current.turn), channel)
            else:
                self._turnstile = self._turnstile or asyncio.Lock()
                async with self._turnstile:
                    await speak_async(self._signature.call(current.turn), channel)
            channel.end()
        except Gone:
            channel.end()
        except BaseException as exc:  # as in a thread; a cancellation, too, unless it is ours
            channel.end(exc)

    def close(self) -> None:
        """Ends idle threads and the loop."""
        self._pool.close()
        self._checks.close()
        if self._loop is not None:
            self._loop.close()


def _function(serve: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind an object with `__call__`, which `inspect` would take for a plain one."""
    return serve if inspect.isfunction(serve) or inspect.ismethod(serve) else type(serve).__call__


def _report(
    check: Any, turn: Turn, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]"
) -> Callable[[], None]:
    """Calls one of the side functions; returns what tells the request that waits."""

    def settle(value: Any, error: BaseException | None) -> None:
        if not answer.done():
            answer.set_exception(error) if error is not None else answer.set_result(value)

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(settle, *result)

    result: tuple[Any, BaseException | None] = (None, None)
    if answer.done():  # given up before a thread was free
        return tell
    try:
        facts = check(turn)
        if inspect.isawaitable(facts):
            facts = asyncio.run(_await(facts))
    except BaseException as exc:  # told to the request that waits
        result = (None, as_failure(exc))
    else:
        result = (facts, None)
    return tell


async def _await(value: Any) -> Any:
    return await value
