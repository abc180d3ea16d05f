"""The only module that touches Mellea's private attributes. Written for 0.8; `test_bridge.py` checks the installed one.

A thunk belongs to the event loop that made it. Its queue wakes a reader on that loop only: read anywhere else, tokens
arrive late or never.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from importlib.metadata import version
from typing import Any

from mellea.backends._options import resolve_model_options
from mellea.core import GenerateLog, GenerateType, ModelOutputThunk
from mellea.helpers import DEFAULT_CHUNK_TIMEOUT, send_to_queue

logger = logging.getLogger("mellea_responses.program")

WRITTEN_FOR = "0.8"
LAST_WORDS = 30.0
"""Seconds a thunk may take to finish after its generation has ended: hooks and parsing run then."""


class NeverFinishes(RuntimeError):
    """The thunk waits for what nobody will send."""


def warn_of_another_version(installed: str = version("mellea")) -> None:
    """One line in the log where Mellea is not the release whose inside this module knows."""
    if not installed.startswith(f"{WRITTEN_FOR}."):
        logger.warning(
            "Mellea %s is installed; streaming its outputs was written for %s.x.", installed, WRITTEN_FOR
        )  # fmt: skip


warn_of_another_version()


def owner_loop(live: Any) -> asyncio.AbstractEventLoop | None:
    """The loop that a thunk, a `Streamer` or an `EventStreamer` must be read on; None: it has no generation."""
    task = getattr(live, "_pump_task", None)
    if task is None:
        thunk = live if isinstance(live, ModelOutputThunk) else getattr(live, "_mot", None)
        task = thunk._gen.generate if thunk is not None else None
    return task.get_loop() if task is not None else None


def token_by_token(live: Any) -> None:
    """Makes a thunk give what it has at each read; by default it waits for four chunks."""
    thunk = live if isinstance(live, ModelOutputThunk) else getattr(live, "_mot", None)
    if thunk is not None and not thunk.is_computed():
        thunk._gen.chunk_size = 0


def watch(thunk: ModelOutputThunk[Any]) -> Callable[[], None]:
    """Sees to it that a reader of this thunk is told when its generation ends without a word.

    One that is cancelled says nothing at all. Call what is returned when the reading is over.
    """
    generate, queue = thunk._gen.generate, thunk._gen.queue
    if generate is None or generate.done():
        return lambda: None  # `next_delta` sees it
    later: list[asyncio.TimerHandle] = []

    def tell(why: str) -> None:
        if not thunk.is_computed() and queue.empty():
            queue.put_nowait(NeverFinishes(why))

    def ended(task: "asyncio.Task[None]") -> None:
        if task.cancelled() or task.exception() is not None:
            tell("its generation was cancelled")
        else:  # the word may have been read a moment ago, and be worked on
            later.append(task.get_loop().call_later(LAST_WORDS, tell, "its generation has ended without a word"))

    def over() -> None:
        generate.remove_done_callback(ended)
        for handle in later:
            handle.cancel()

    generate.add_done_callback(ended)
    return over


def keep_streamed(thunk: ModelOutputThunk[Any]) -> Callable[[], str]:
    """The text as it was streamed, which the backend's last step may rewrite."""
    finish, kept = thunk._gen.post_process, [""]

    async def note(made: ModelOutputThunk[Any]) -> None:
        kept[0] = made._underlying_value or ""
        if finish is not None:
            await finish(made)

    thunk._gen.post_process = note
    return lambda: kept[0]


async def next_delta(thunk: ModelOutputThunk[Any]) -> str:
    """The next piece of a thunk's text, on its own loop and while it is watched.

    Raises:
        NeverFinishes: its generation has ended without saying so.
    """
    generate = thunk._gen.generate
    if generate is not None and generate.done() and thunk._gen.queue.empty():
        raise NeverFinishes("its generation has ended without a word")
    return await thunk.astream()


def cut_off(live: Any) -> bool:
    """Whether something whose loop is closed is beyond reading: its last word never came."""
    thunk = live if isinstance(live, ModelOutputThunk) else getattr(live, "_mot", None)
    if thunk is None:
        return True
    generate = thunk._gen.generate
    return generate is None or not generate.done() or generate.cancelled() or thunk._gen.queue.empty()


# ---------------------------------------------------------------- for backends of our own


def merged(defaults: dict[str, Any], given: dict[str, Any] | None, names: dict[str, str]) -> dict[str, Any]:
    """A backend's default options under those of one call, all under Mellea's names."""
    return resolve_model_options(backend_defaults=defaults, remap=names, call_options=given)


def new_thunk(
    action: Any, view: list[Any] | None, options: dict[str, Any], cancel: Callable[[], None]
) -> ModelOutputThunk[Any]:
    """A thunk that is about to be generated."""
    thunk: ModelOutputThunk[Any] = ModelOutputThunk(None)
    thunk._gen.start, thunk._gen.chunk_size, thunk._gen.cancel_hook = datetime.now(), 0, cancel
    thunk._call.action, thunk._call.context, thunk._call.model_options = action, view, options
    return thunk


def begin(
    thunk: ModelOutputThunk[Any],
    source: Any,
    fold: Callable[[ModelOutputThunk[Any], Any], Awaitable[None]],
    finish: Callable[[ModelOutputThunk[Any]], Awaitable[None]],
    *,
    timeout: float | None = DEFAULT_CHUNK_TIMEOUT,
    stop: Callable[[], None] | None = None,
) -> None:
    """Starts the generation: `fold` takes each piece of `source`, `finish` is called once after the last."""
    thunk._gen.process, thunk._gen.post_process = fold, finish  # type: ignore[assignment]  # any awaitable does
    thunk._gen.generate_type = GenerateType.ASYNC
    work = send_to_queue(source, thunk, chunk_timeout=timeout, on_timeout=stop)
    thunk._gen.generate = asyncio.get_running_loop().create_task(work)


def add_text(thunk: ModelOutputThunk[Any], text: str) -> None:
    """Appends to a thunk that is being generated; with an empty text, it has a value at least."""
    thunk._underlying_value = (thunk._underlying_value or "") + text


def text_so_far(thunk: ModelOutputThunk[Any]) -> str:
    """What was added, whether the thunk is computed or not."""
    return thunk._underlying_value or ""


def compute(thunk: ModelOutputThunk[Any]) -> None:
    """Marks a thunk that was filled without a queue as finished."""
    thunk._computed = True


def memory(thunk: ModelOutputThunk[Any]) -> dict[str, Any]:
    """A place on the thunk for its backend's own notes."""
    notes: dict[str, Any] = thunk._meta
    return notes


def write_log(thunk: ModelOutputThunk[Any], prompt: list[dict[str, Any]], backend: str) -> None:
    """The generation's log entry; sampling and validation insist on one."""
    thunk._generate_log = GenerateLog(
        date=datetime.now(),
        prompt=prompt,
        backend=backend,
        model_options=thunk._call.model_options,
        model_output=thunk._underlying_value,
        action=thunk._call.action,
        result=thunk,
    )
