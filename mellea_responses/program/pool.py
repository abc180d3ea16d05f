"""Daemon threads for programs that are plain functions, and one loop for those that are coroutines.

A thread cannot be killed. One whose answer nobody wants any more keeps its slot until its program returns; with no
slot free the answer is 429. Daemon threads do not hold up the end of the process.
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


class ThreadPool:
    """At most `size` daemon threads, started as they are needed and kept.

    Args:
        size: How many calls may run at the same time.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy = 0
        self._threads = 0

    @property
    def busy(self) -> int:
        """Slots in use, abandoned ones included."""
        return self._busy

    def check(self) -> None:
        """Raises what `submit` would raise now.

        Raises:
            Busy: every slot is taken.
        """
        if self._busy >= self._size:
            raise Busy(f"All {self._size} program threads are busy. Try again shortly.")

    def submit(self, job: Callable[[], None]) -> None:
        """Runs `job` on a thread.

        Raises:
            Busy: every slot is taken.
        """
        with self._lock:
            self.check()
            self._busy += 1
            if self._busy > self._threads:
                self._threads += 1
                name = f"program-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException:  # the thread must outlive whatever a job does
                logger.exception("a program's thread failed")
            finally:
                with self._lock:
                    self._busy -= 1
            del job  # hold nothing while waiting for the next

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
