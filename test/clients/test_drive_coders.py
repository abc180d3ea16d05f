"""pi and OpenCode: coding agents that run a whole task from one prompt, shell tool included."""

import base64
from pathlib import Path

import pytest
from clients.drive.common import DOT

from mellea_responses.errors import InvalidRequest
from mellea_responses.turn import Text
from support.coders import CODERS, shell_tasks
from support.driving import (
    COUNTS,
    FEATURES,
    Feature,
    Heard,
    Moves,
    Tell,
    call,
    refuse,
    scripted,
)

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]


def shell(command: str, key: str = "1") -> Moves:
    return call("bash", key, command=command, description="Says a word.")


broken = InvalidRequest("Say please, then ask again.")
TASKS: dict[str, Feature] = {
    **shell_tasks(shell),
    "error": Feature(FEATURES["plain"].script, "Say please, then ask again.", fails=True, check=refuse),
    "failed": Feature(((Text("Once upon "), broken),), "Say please, then ask again.", requests=8, fails=True),
    "cut": Feature(FEATURES["plain"].script, "", requests=8, fails=True, cut=True),
}
NO_OPTION = {
    "structured": "its command line asks for no form of the answer",
    "chain": "it sends the whole conversation every time",
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("agent", CODERS)
async def test_a_coding_agent_ends_its_task_and_shows_what_was_said(
    agent: str, task: str, tmp_path: Path, tell: Tell
) -> None:
    tell(agent, task, None)
    coder = CODERS[agent]
    if not coder.environment.installed:
        pytest.skip(coder.environment.missing)
    asked = TASKS[task]
    (tmp_path / "dot.png").write_bytes(base64.b64decode(DOT))
    options = coder.picture if task == "images" else ()
    async with scripted(*asked.script, check=asked.check, cut=asked.cut) as served:
        outcome = await coder.ask(served.url, tmp_path, "Look.", *options)
        told = f"{served.door.requests}\n{outcome.output[-3000:]}\n{outcome.errors[-3000:]}"
        assert asked.sees in (outcome.output + outcome.errors if asked.fails else outcome.output), told
        assert not asked.cut or "from the program." not in outcome.output, told
        assert 0 < served.door.turns <= asked.requests, told
        assert asked.fails or asked.wants(served.program.heard), told


@pytest.mark.parametrize("agent", CODERS)
async def test_a_resumed_session_knows_what_was_said(agent: str, tmp_path: Path, tell: Tell) -> None:
    tell(agent, "conversation", None)
    coder = CODERS[agent]
    if not coder.environment.installed:
        pytest.skip(coder.environment.missing)

    def told(heard: Heard) -> Moves:
        return [Text("You said: " + " ".join(word.strip(' "\n') for word in heard.said()[-2:])), COUNTS]

    async with scripted(told) as served:
        await coder.ask(served.url, tmp_path, "One.")
        outcome = await coder.ask(served.url, tmp_path, "Two.", *coder.resumed)
        assert "You said: One. Two." in outcome.output, outcome
        assert served.door.turns == 2


@pytest.mark.parametrize("agent", CODERS)
async def test_a_program_that_breaks_is_asked_some_times_and_no_more(agent: str, tmp_path: Path) -> None:
    coder = CODERS[agent]
    if not coder.environment.installed:
        pytest.skip(coder.environment.missing)

    async with scripted([Text("Once upon "), RuntimeError("not for the client")]) as served:
        outcome = await coder.ask(served.url, tmp_path, "Look.")

        assert "The program failed." in outcome.output + outcome.errors
        assert "not for the client" not in outcome.output + outcome.errors
        assert 1 <= served.door.turns <= 8, served.door.requests


@pytest.mark.parametrize("feature", NO_OPTION)
@pytest.mark.parametrize("agent", CODERS)
def test_what_a_coding_agent_has_no_option_for_is_named(agent: str, feature: str, tell: Tell) -> None:
    tell(agent, feature, NO_OPTION[feature])
