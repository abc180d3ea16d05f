"""From what `serve()` gives to the channel: said at once, piece by piece, or read on the loop that makes it."""

import asyncio
import inspect
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextlib import aclosing
from typing import Any

from mellea_responses.program.channel import Channel, Gone
from mellea_responses.program.costs import added
from mellea_responses.program.returns import is_mellea, to_steps
from mellea_responses.turn import Step, Stop, Usage

LOOK = 0.1
"""Seconds between looks at whether anybody still listens, while a generation is silent."""


def speak(result: Any, channel: Channel) -> None:
    """Says what `serve()` returned, from the program's own thread."""
    speech = Speech(channel)
    if _is_live(result):
        _hear_in_thread(result, speech)
    elif inspect.isawaitable(result) or _is_async(result):
        asyncio.run(speak_async(result, channel))
        return
    elif inspect.isgenerator(result) or _is_iterator(result):
        try:
            for piece in result:
                if _is_live(piece):
                    _hear_in_thread(piece, speech)
                elif speech.say(piece):
                    return
                channel.wait_for_room()
        finally:
            if inspect.isgenerator(result):
                result.close()
    else:
        speech.say(result)
    speech.end()


async def speak_async(result: Any, channel: Channel) -> None:
    """Says what `serve()` returned, on a loop."""
    speech = Speech(channel)
    if inspect.isawaitable(result):
        result = await result
    if _is_live(result):
        await _hear(result, speech)
    elif not _is_async(result):
        speech.say(result)
    else:
        try:
            async for piece in result:
                if _is_live(piece):
                    await _hear(piece, speech)
                elif speech.say(piece):
                    return
                await channel.room()
        finally:
            if hasattr(result, "aclose"):
                await result.aclose()
    speech.end()


class Speech:
    """What one answer has said so far."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._spent: list[Usage] = []
        self._stop: Stop | None = None

    def say(self, value: Any) -> bool:
        """Says what one value means; True after the program's own `Stop`, since nothing may follow it."""
        own = not is_mellea(value)
        for step in to_steps(value):
            if not own:
                self.hear([step])
                continue
            self._stop = None
            self.channel.put(step)
            if isinstance(step, Stop):
                return True
        if self.channel.gone:
            raise Gone
        return False

    def hear(self, steps: list[Step]) -> None:
        """Says steps of one model output. Others may follow: their costs add up, and the last one's end is the end."""
        for step in steps:
            if isinstance(step, Stop):
                self._stop = step
                continue
            self._stop = None
            if isinstance(step, Usage):
                self._spent.append(step)
                step = added(self._spent)
            self.channel.put(step)

    def end(self) -> None:
        """Nothing follows."""
        if self._stop is not None:
            self.channel.put(self._stop)


def _is_live(value: Any) -> bool:
    if not is_mellea(value):
        return False
    from mellea_responses.program.thunks import is_live

    return is_live(value)


def _is_async(value: Any) -> bool:
    """A finished thunk can be iterated, too, but has nothing left to wait for."""
    return hasattr(value, "__aiter__") and not is_mellea(value)


def _is_iterator(value: Any) -> bool:
    return hasattr(value, "__next__") and not isinstance(value, str | bytes)


# ---------------------------------------------------------------- on the loop that makes it


async def _pump(live: Any, speech: Speech) -> None:
    from mellea_responses.program.thunks import live_steps

    async with aclosing(live_steps(live)) as batches:
        async for steps in batches:
            speech.hear(steps)
            await speech.channel.room()


def _hear_in_thread(live: Any, speech: Speech) -> None:
    """Reads on the loop that owns it, which may be running elsewhere, or be the program's own and stand still.

    Raises:
        NeverFinishes: its loop was closed, or stopped while it was read.
    """
    from mellea_responses.program.bridge import NeverFinishes, owner_loop

    owner = owner_loop(live)
    if owner is None or owner.is_closed():
        asyncio.run(_pump(_checked(live, owner), speech))
    elif not owner.is_running():
        owner.run_until_complete(_pump(live, speech))
    else:
        future = _start(_pump(live, speech), owner)
        try:
            while not wait([future], LOOK).done:
                if speech.channel.gone:
                    raise Gone
                if not owner.is_running():
                    raise NeverFinishes("its event loop has stopped")
            _finish(future)
        finally:
            future.cancel()


async def _hear(live: Any, speech: Speech) -> None:
    """The same from a loop.

    Raises:
        NeverFinishes: its loop was closed, or stopped while it was read.
    """
    from mellea_responses.program.bridge import NeverFinishes, owner_loop

    owner = owner_loop(live)
    if owner is None or owner.is_closed():
        await _pump(_checked(live, owner), speech)
    elif owner is asyncio.get_running_loop():
        await _pump(live, speech)
    elif not owner.is_running():
        await asyncio.to_thread(_run_idle, owner, live, speech)
    else:
        future = _start(_pump(live, speech), owner)
        try:
            while not (await asyncio.wait({asyncio.wrap_future(future)}, timeout=LOOK))[0]:
                if not owner.is_running():
                    raise NeverFinishes("its event loop has stopped")
            _finish(future)
        finally:
            future.cancel()


def _run_idle(owner: asyncio.AbstractEventLoop, live: Any, speech: Speech) -> None:
    owner.run_until_complete(_pump(live, speech))


def _start(work: Coroutine[Any, Any, None], owner: asyncio.AbstractEventLoop) -> "Future[None]":
    return asyncio.run_coroutine_threadsafe(work, owner)


def _finish(future: "Future[None]") -> None:
    from mellea_responses.program.bridge import NeverFinishes

    if future.cancelled():
        raise NeverFinishes("its event loop was closed while it was read")
    future.result()


def _checked(live: Any, owner: asyncio.AbstractEventLoop | None) -> Any:
    """What a closed loop has left can be read anywhere, if it is whole."""
    from mellea_responses.program.bridge import NeverFinishes, cut_off

    if owner is not None and cut_off(live):
        raise NeverFinishes(
            "its event loop is closed. Await the output before `asyncio.run()` ends, or make serve() a coroutine"
        )
    return live
