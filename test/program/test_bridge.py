"""The inside of the installed Mellea is as the bridge knows it, and another release is told once."""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from mellea.core import ModelOutputThunk
from mellea.stdlib.components import Instruction
from mellea.stdlib.context import SimpleContext
from mellea.stdlib.streaming import stream

from mellea_responses.program import bridge
from support.mellea_backend import ScriptedBackend, words


def test_every_private_name_that_is_used_is_there() -> None:
    thunk: Any = ModelOutputThunk(None)

    state = {
        "queue", "chunk_size", "generate", "generate_type", "cancel_hook", "process", "post_process", "start"
    }  # fmt: skip
    assert state <= set(vars(thunk._gen))
    assert {"action", "context", "model_options"} <= set(vars(thunk._call))
    assert {"_underlying_value", "_computed", "_meta", "_generate_log", "_error"} <= set(vars(thunk))


def test_nobody_else_touches_mellea_s_inside() -> None:
    private = re.compile(
        r"\.(_gen|_call|_mot|_pump_task|_underlying_value|_computed|_meta|_generate_log|_error)\b|mellea\.\S*\._"
    )
    package = Path(bridge.__file__).parents[1]
    rooms = [*package.glob("program/*.py"), *package.glob("backends/*.py"), package / "context.py"]

    assert [path.name for path in rooms if path.name not in ("bridge.py", "user.py", "channel.py")
            and private.search(path.read_text("utf-8"))] == []  # fmt: skip


async def test_streams_are_owned_by_the_loop_that_made_them() -> None:
    for events in (False, True):
        streamer: Any = await stream(
            Instruction("x"), ScriptedBackend(words("a b")), SimpleContext(), as_events=events
        )  # fmt: skip
        assert bridge.owner_loop(streamer) is asyncio.get_running_loop()
        await streamer.aclose()


def test_another_release_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mellea_responses.program"):
        bridge.warn_of_another_version("0.8.3")
        assert not caplog.records
        bridge.warn_of_another_version("0.9.0")

    [record] = caplog.records
    assert "0.9.0" in record.getMessage()


async def test_a_generation_that_ends_without_a_word_is_told_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "LAST_WORDS", 0.05)
    thunk = bridge.new_thunk(None, [], {}, lambda: None)

    async def nothing(*_: Any) -> None:
        pass

    bridge.begin(thunk, _silent(), nothing, nothing)
    generate: Any = thunk._gen.generate
    generate.cancel()
    thunk._gen.generate = asyncio.create_task(asyncio.sleep(0.01))
    over = bridge.watch(thunk)

    async with asyncio.timeout(5):
        with pytest.raises(bridge.NeverFinishes, match="without a word"):
            await bridge.next_delta(thunk)
    over()


async def _silent() -> Any:
    await asyncio.sleep(60)
    yield "never"
