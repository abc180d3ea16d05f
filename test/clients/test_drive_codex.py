"""Codex CLI: whole turns of `codex exec` over every way that it has to a server."""

import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from clients.drive.common import DOT

from mellea_responses.errors import InvalidRequest
from mellea_responses.turn import Text, Usage
from mellea_responses.wire.items import FunctionCallOutput
from support.coders import WAYS, Codex, shell_tasks, tell_outputs
from support.driving import (
    CITY,
    COUNTS,
    DRIVERS,
    Answer,
    Feature,
    Heard,
    Moves,
    Served,
    Tell,
    call,
    custom_call,
    refuse,
    scripted,
)

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not Codex.environment.installed, reason=Codex.environment.missing),
]
SOCKETS = ("custom provider, WebSocket", "built-in provider")


@pytest.fixture
def codex(way: str, tmp_path: Path) -> Codex:
    return Codex(tmp_path, way)


def is_quick(way: str, task: str) -> bool:
    """Whether `make test` drives it."""
    return way == "custom provider" and task in ("plain", "stream", "tools", "error")


def ways(*tasks: str) -> pytest.MarkDecorator:
    """Every way, for each of the tasks where there are several."""
    names = ("way", "task")[: len(tasks)]
    every = [(way, task) for way in WAYS for task in tasks]
    marked = [pytest.param(*pair[: len(names)], marks=[pytest.mark.quick] * is_quick(*pair)) for pair in every]
    return pytest.mark.parametrize(names, marked)


def extra(codex: Codex) -> int:
    """Turns that a way costs beside those of the task: a warm-up of the socket, or a probe."""
    return 0 if codex.way == "custom provider" else 1


def shell(command: str, key: str = "1") -> Moves:
    return call("exec_command", key, cmd=command)


TASKS: dict[str, Feature] = {
    **shell_tasks(shell),
    "structured": Feature(
        ((Text(CITY), COUNTS),), CITY, wants=lambda heard: heard[0].turn.format.kind == "json_schema"
    ),
}


@asynccontextmanager
async def serving(codex: Codex, *answers: Answer, **more: Any) -> AsyncIterator[Served]:
    """A server that lists the names Codex asks for; its mode for LM Studio sends a probe first and drops the answer."""
    probe = [[Text("Ready.")]] if codex.way == "LM Studio" else []
    async with scripted(*probe, *answers, model_names=("local", "gpt-5.5"), **more) as served:
        yield served
        assert (codex.way in SOCKETS) == bool(served.door.sockets), served.door.requests


@ways(*TASKS)
async def test_codex_shows_its_user_what_the_program_said(codex: Codex, task: str, tell: Tell) -> None:
    tell(f"Codex CLI, {codex.way}", task, None)
    asked = TASKS[task]
    options: tuple[str, ...] = ()
    if task == "images":
        (codex.work / "dot.png").write_bytes(base64.b64decode(DOT))
        options = ("--image=dot.png",)
    if task == "structured":
        schema = {"type": "object", "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}}}
        schema |= {"required": ["city", "degrees"], "additionalProperties": False}
        (codex.work / "schema.json").write_text(json.dumps(schema))
        options = ("--output-schema=schema.json",)
    async with serving(codex, *asked.script) as served:
        outcome = await codex.ask(served.url, "Look.", *options)
        assert outcome.output.strip() == asked.sees, outcome.errors
        assert served.door.turns <= asked.requests + extra(codex), served.door.requests
        heard = served.program.heard
        assert asked.wants(heard[1:] if codex.way == "LM Studio" else heard)


@ways("chain")
async def test_over_a_socket_only_what_is_new_is_sent(codex: Codex, tell: Tell) -> None:
    socket = codex.way in SOCKETS
    tell(f"Codex CLI, {codex.way}", "chain", None if socket else "over HTTP it sends the whole conversation every time")
    if not socket:
        return
    async with serving(codex, (*shell("echo one"), COUNTS), tell_outputs) as served:
        outcome = await codex.ask(served.url, "Look.")
        assert outcome.output.strip() == "I heard: one.", outcome.errors
        last = served.program.heard[-1].turn
        assert last.request.previous_response_id
        assert [type(item) for item in last.input] == [FunctionCallOutput]


@ways("conversation")
async def test_a_resumed_session_knows_what_was_said(codex: Codex, tell: Tell) -> None:
    one_shot = codex.way == "LM Studio"
    reason = "the command that resumes a session has no option for its mode for LM Studio" if one_shot else None
    tell(f"Codex CLI, {codex.way}", "conversation", reason)
    if one_shot:
        return

    def told(heard: Heard) -> Moves:
        return [Text(" ".join(word for word in heard.said() if word in ("One.", "Two."))), COUNTS]

    async with serving(codex, told) as served:
        outcome = await codex.ask(served.url, "One.")
        assert outcome.output.strip() == "One.", outcome.errors
        before = served.door.turns
        outcome = await codex.resume("Two.")
        assert outcome.output.strip() == "One. Two.", outcome.errors
        assert served.door.turns - before <= 1 + extra(codex)


@ways("error")
async def test_a_refusal_is_shown_and_not_tried_again(codex: Codex, tell: Tell) -> None:
    tell(f"Codex CLI, {codex.way}", "error", None)
    async with serving(codex, [Text("Unheard.")], check=refuse) as served:
        outcome = await codex.ask(served.url, "Look.")
        assert "Say please, then ask again." in outcome.errors
        assert served.door.turns <= 1 + 2 * extra(codex), served.door.requests


@ways("failed")
async def test_a_failure_in_the_middle_is_shown_after_the_retries_that_codex_is_set_to(
    codex: Codex, tell: Tell
) -> None:
    tell(f"Codex CLI, {codex.way}", "failed", None)
    broken = [Text("Once upon "), InvalidRequest("Say please, then ask again.", code="rude")]
    async with serving(codex, broken) as served:
        outcome = await codex.ask(served.url, "Look.")
        assert "Say please, then ask again." in outcome.errors
        assert served.door.turns <= 14, served.door.requests


@ways("blamed")
async def test_a_failure_that_the_request_is_to_blame_for_is_shown_at_once(codex: Codex) -> None:
    async with serving(codex, [Text("Once upon "), InvalidRequest("Say please, then ask again.")]) as served:
        outcome = await codex.ask(served.url, "Look.")
        assert "Say please, then ask again." in outcome.errors
        assert served.door.turns <= 1 + extra(codex), served.door.requests


@ways("cut")
async def test_a_cut_stream_is_no_answer(codex: Codex, tell: Tell) -> None:
    tell(f"Codex CLI, {codex.way}", "cut", None)
    async with serving(codex, [Text("Hello "), Text("from "), Text("the program.")], cut=True) as served:
        outcome = await codex.ask(served.url, "Look.")
        assert outcome.output.strip() == ""
        assert "stream disconnected" in outcome.errors or "stream closed" in outcome.errors
        assert served.door.turns <= 14, served.door.requests


@ways("MCP")
async def test_a_tool_of_an_mcp_server_is_called_in_its_namespace(codex: Codex, tell: Tell) -> None:
    tell(f"Codex CLI, {codex.way}", "MCP", None)
    program, script = json.dumps(sys.executable), json.dumps(str(DRIVERS / "echo_mcp.py"))
    tables = f"[mcp_servers.echo]\ncommand = {program}\nargs = [{script}]\n"
    first = (*call("echo", namespace="mcp__echo", text="hi"), COUNTS)
    async with serving(codex, first, tell_outputs) as served:
        outcome = await codex.ask(served.url, "Look.", tables=tables)
        assert "echo of hi" in outcome.output, outcome.errors
        assert served.door.turns <= 2 + extra(codex), served.door.requests


@pytest.mark.parametrize("way", WAYS[:2])
async def test_a_second_agent_is_told_its_task_and_answers_the_first(codex: Codex) -> None:
    def answer(heard: Heard) -> Moves:
        told = heard.said()
        if any("Type: NEW_TASK" in words and "Look behind." in words for words in told):
            return [Text("Nothing there."), COUNTS]
        if any("Nothing there." in words for words in told):
            return [Text("Done."), COUNTS]
        if heard.outputs():
            return [*call("wait_agent", namespace="collaboration", timeout_ms=10_000), COUNTS]
        task = {"task_name": "kid", "message": "Look behind.", "fork_turns": "none"}
        return [*call("spawn_agent", namespace="collaboration", **task), COUNTS]

    async with serving(codex, answer) as served:
        outcome = await codex.ask(served.url, "Look.", tables="[features]\nmulti_agent_v2 = true\n")
        assert outcome.output.strip() == "Done.", outcome.errors
        assert served.door.turns <= 8, served.door.requests


@ways("patch")
async def test_a_patch_comes_as_free_text_and_is_applied(codex: Codex, tell: Tell) -> None:
    tell(f"Codex CLI, {codex.way}", "patch", None)
    patch = "*** Begin Patch\n*** Add File: made.txt\n+made by a patch\n*** End Patch\n"
    script = ((*custom_call("apply_patch", patch), COUNTS), [Text("Patched."), COUNTS])
    async with serving(codex, *script) as served:
        outcome = await codex.ask(served.url, "Look.", model="gpt-5.5")
        assert outcome.output.strip() == "Patched.", outcome.errors
        assert (codex.work / "made.txt").read_text() == "made by a patch\n"
        assert served.door.turns <= 2 + extra(codex), served.door.requests


@ways("compaction")
async def test_a_long_session_is_compacted_once_and_goes_on(codex: Codex, tell: Tell) -> None:
    tell(f"Codex CLI, {codex.way}", "compaction", None)

    def answer(heard: Heard) -> Moves:
        if not heard.turn.tools:
            return [Text("They asked to look."), COUNTS]
        if any("They asked to look." in word for word in heard.said()) or heard.turn.opened:
            return [Text("Done."), COUNTS]
        return [*shell("echo one"), Usage(50_000, 5)]

    async with serving(codex, answer) as served:
        outcome = await codex.ask(served.url, "Look.", config="model_auto_compact_token_limit = 10000")
        assert outcome.output.strip() == "Done.", outcome.errors
        assert served.door.turns <= 3 + 2 * extra(codex), served.door.requests
