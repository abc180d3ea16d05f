"""Daemon threads for programs that are plain functions, and one loop for those that are coroutines.

A thread cannot be killed. One whose answer nobody wants any more keeps its slot until its program returns, and the
admission counts it out. Daemon threads do not hold up the end of the process.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from mellea_responses.errors import Busy

logger = logging.getLogger("mellea_responses.program")
BLOCKED_SECONDS = 1.0


class Job:
    """One call on its thread.

    Args:
        work: What the thread does; returns what it tells when its slot is free again.
        pool: Where it runs.
    """

    __slots__ = ("_pool", "abandoned", "done", "work")

    def __init__(self, work: Callable[[], Callable[[], None]], pool: "ThreadPool") -> None:
        self.work, self._pool = work, pool
        self.abandoned = self.done = False

    def abandon(self) -> None:
        """Nobody wants what it makes any more; until it returns its slot is lost."""
        if not self.done:
            self._pool.abandon(self)


class ThreadPool:
    """At most `size` daemon threads, started as they are needed and kept.

    Args:
        size: How many calls may run at the same time.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy = 0
        self._abandoned = 0
        self._threads = 0
        self.freed: Callable[[], None] | None = None
        """Told, on the pool's thread, that an abandoned call has returned."""

    @property
    def busy(self) -> int:
        """Calls that run or wait for a thread, abandoned ones included."""
        return self._busy

    @property
    def abandoned(self) -> int:
        """Calls that nobody waits for and that have not returned."""
        return self._abandoned

    def submit(self, work: Callable[[], Callable[[], None]], *, wait: bool = False) -> Job:
        """Runs `work` on a thread; what it returns is called when its slot is free again.

        Args:
            work: What to do.
            wait: Whether it may wait for a thread.

        Raises:
            Busy: every slot is taken, or with `wait`, abandoned.
        """
        job = Job(work, self)
        with self._lock:
            if (self._abandoned if wait else self._busy) >= self._size:
                raise Busy(f"All {self._size} program threads are busy. Try again shortly.")
            self._busy += 1
            if self._threads < min(self._busy, self._size):
                self._threads += 1
                name = f"program-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put(job)
        return job

    def abandon(self, job: Job) -> None:
        """Counts the job as lost until it returns."""
        with self._lock:
            if not job.done and not job.abandoned:
                job.abandoned = True
                self._abandoned += 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            tell: Callable[[], None] | None = None
            try:
                tell = job.work()
            except BaseException:  # the thread must outlive whatever a job does
                logger.exception("a program's thread failed")
            with self._lock:
                self._busy -= 1
                self._abandoned -= job.abandoned
                job.done = True
            if tell is not None:
                tell()  # only now: who hears of the end may ask again at once
            if job.abandoned and self.freed is not None:
                self.freed()
            del job, tell  # hold nothing while waiting for the next

    def close(self) -> None:
        """Idle threads end; busy ones are left behind."""
        for _ in range(self._threads):
            self._jobs.put(None)


def _new_loop() -> asyncio.AbstractEventLoop:
    """The faster loop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class ProgramLoop:
    """One event loop in a daemon thread.

    Coroutine programs share it, so one that blocks delays the others: the log names it.
    """

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._tick = time.monotonic()
        self._running = 0
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="program-loop", daemon=True).start()
        threading.Thread(target=self._watch, name="program-watch", daemon=True).start()

    def submit(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Callable[[], None]:
        """Starts `work`; returns what cancels it. `name` stands in the log if it blocks the loop."""
        named = self._named(work, name)
        try:
            future = asyncio.run_coroutine_threadsafe(named, self._loop)
        except RuntimeError:  # the loop is closed
            named.close()
            raise

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(future.cancel)

        return cancel

    async def _named(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(name)
        self._running += 1
        try:
            await work()
        finally:
            self._running -= 1

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._beat)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _beat(self) -> None:
        self._tick = time.monotonic()
        self._loop.call_later(BLOCKED_SECONDS / 4, self._beat)

    def _watch(self) -> None:
        named: asyncio.Task[Any] | None = None
        while not self._stopped.wait(BLOCKED_SECONDS / 2):
            late = time.monotonic() - self._tick
            task = asyncio.current_task(self._loop) if self._running and late > BLOCKED_SECONDS else None
            if task is not None and task is not named:
                logger.warning(
                    "%s blocks the program loop for %.1f s; other async programs wait. Run blocking work with "
                    "asyncio.to_thread, or make serve() a plain function.", task.get_name(), late
                )  # fmt: skip
            named = task

    def close(self) -> None:
        """Cancels what still runs and stops the loop; a program that blocks it is left behind."""
        self._stopped.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
