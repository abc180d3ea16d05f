"""pi and OpenCode: coding agents that run a whole task from one prompt, shell tool included."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from clients.drive.environments import ENVIRONMENTS, Environment

from mellea_responses.errors import InvalidRequest
from mellea_responses.turn import Text, Thought
from support.driving import (
    COUNTS,
    FEATURES,
    Feature,
    Heard,
    Moves,
    Outcome,
    Served,
    Tell,
    call,
    refuse,
    run,
    scripted,
    shown,
)

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]


async def pi(served: Served, folder: Path, prompt: str) -> Outcome:
    """One prompt to pi, with the server in its `models.json`."""
    environment = ENVIRONMENTS["pi"]
    agent = folder / "agent"
    agent.mkdir()
    (agent / "models.json").write_text(shown("pi", served.url))
    env = {"PI_CODING_AGENT_DIR": str(agent), "HOME": str(folder), "PI_OFFLINE": "1"}
    command = [environment.interpreter, environment.program("pi"), "--print", "--no-session", "--model", "mellea/local"]
    return await run([*command, prompt], env=env, cwd=folder)


async def opencode(served: Served, folder: Path, prompt: str) -> Outcome:
    """One prompt to OpenCode, with the server as a provider in its configuration."""
    settings = {"share": "disabled", "autoupdate": False, "permission": "allow"}
    (folder / "opencode.json").write_text(json.dumps(json.loads(shown("opencode", served.url)) | settings))
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE", "STATE")}
    env = {"HOME": str(folder), "OPENCODE_DISABLE_MODELS_FETCH": "1", **homes}
    command = [ENVIRONMENTS["opencode"].program("opencode"), "run", "--title", "task", prompt]
    return await run(command, env=env, cwd=folder, seconds=160)  # it waits longer before every new try


AGENTS: dict[str, tuple[Environment, Callable[..., object]]] = {
    "pi": (ENVIRONMENTS["pi"], pi),
    "OpenCode": (ENVIRONMENTS["opencode"], opencode),
}


def shell(command: str, key: str = "1") -> Moves:
    return call("bash", key, command=command, description="Says a word.")


def tell_outputs(heard: Heard) -> Moves:
    words = [output.strip().splitlines()[-1] for output in heard.outputs()]
    thoughts = "".join(f"I thought: {thought} " for thought in heard.thoughts())
    return [Text(f"{thoughts}I heard: {', '.join(words)}."), COUNTS]


broken = InvalidRequest("Say please, then ask again.", code="rude")
TASKS: dict[str, Feature] = {
    "plain": FEATURES["plain"],
    "tools": Feature(
        ((*shell("echo one"), COUNTS), (*shell("echo two"), COUNTS), tell_outputs), "I heard: one, two.", requests=3
    ),
    "parallel": Feature(
        ((*shell("echo one"), *shell("echo two", "2"), COUNTS), tell_outputs), "I heard: one, two.", requests=2
    ),
    "reasoning": Feature(
        ((Thought("They ask."), *shell("echo one"), COUNTS), tell_outputs),
        "I thought: They ask. I heard: one.",
        requests=2,
    ),
    "error": Feature((FEATURES["plain"].script), "Say please, then ask again.", fails=True, check=refuse),
    "failed": Feature(((Text("Once upon "), broken),), "Say please, then ask again.", requests=8, fails=True),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("agent", AGENTS)
async def test_a_coding_agent_ends_its_task_and_shows_what_was_said(
    agent: str, task: str, tmp_path: Path, tell: Tell
) -> None:
    tell(agent, task, None)
    environment, ask = AGENTS[agent]
    if not environment.installed:
        pytest.skip(environment.missing)
    asked = TASKS[task]
    async with scripted(*asked.script, check=asked.check) as served:
        outcome: Outcome = await ask(served, tmp_path, "Look.")  # type: ignore[misc]  # both are coroutines
        told = f"{served.door.requests}\n{outcome.output[-3000:]}\n{outcome.errors[-3000:]}"
        assert asked.sees in (outcome.output + outcome.errors if asked.fails else outcome.output), told
        assert 0 < served.door.turns <= asked.requests, told
