"""Agents on the embedded model: poor answers, and no crash, no loop and no error."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.drive.common import shown
from clients.drive.environments import ENVIRONMENTS

from support.coders import CODERS, Codex, told_to_call
from support.driving import Outcome, Tell, run

pytestmark = [pytest.mark.clients, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]
CODEX = {"Codex CLI, custom provider": "custom provider", "Codex CLI, custom provider, WebSocket": "WebSocket"}
SECONDS = 500  # a small machine that has other things to do reads 50 tokens a second


class Server:
    """`mellea-responses serve` as its user starts it; what it logs is kept.

    Args:
        process: What was started, with a pipe for its log.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._log: list[str] = []
        self._listens = threading.Event()
        self.url = ""
        threading.Thread(target=self._read, args=(process.stderr,), daemon=True).start()
        self._listens.wait(300)
        assert self.url, self._log

    def _read(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._log.append(line)
            if found := re.search(r"listening on (http://[^/\s]+)", line):
                self.url = found[1]
                self._listens.set()
        self._listens.set()

    @property
    def ends(self) -> list[str]:
        """How each answer ended."""
        return re.findall(r" end=(\S+)", "".join(self._log))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    command = [sys.executable, "-m", "mellea_responses", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


async def ask(agent: str, url: str, folder: Path, *, calls: bool) -> tuple[Outcome, Path]:
    """One turn, with the settings that the page has for small models, and where the agent worked."""
    environment = Codex.environment if agent in CODEX else CODERS[agent].environment
    if not environment.installed:
        pytest.skip(environment.missing)
    if agent in CODEX:
        codex = Codex(folder, CODEX[agent])
        prompt = told_to_call("exec_command", cmd="mkdir made") if calls else "Say hello."
        return await codex.ask(url, prompt, small=True, seconds=SECONDS), codex.work
    coder = CODERS[agent]
    prompt = told_to_call(coder.shell, command="mkdir made") if calls else "Say hello."
    return await coder.ask(url, folder, prompt, small=True, seconds=SECONDS), folder


@pytest.mark.parametrize("agent", [*CODEX, *CODERS])
async def test_a_plain_turn_ends_with_an_answer(agent: str, server: Server, tmp_path: Path, tell: Tell) -> None:
    tell(agent, "embedded model", None)
    before = len(server.ends)

    outcome, _ = await ask(agent, server.url, tmp_path, calls=False)

    ends = server.ends[before:]
    assert (outcome.code, set(ends) <= {"completed", "max_output_tokens"}) == (0, True), (ends, outcome)
    assert outcome.output.strip()
    assert 1 <= len(ends) <= 2


@pytest.mark.parametrize("agent", [*CODEX, *CODERS])
async def test_a_call_of_the_model_is_run_and_the_turn_ends(
    agent: str, server: Server, tmp_path: Path, tell: Tell
) -> None:
    tell(agent, "its tools", None)
    before = len(server.ends)

    outcome, folder = await ask(agent, server.url, tmp_path, calls=True)

    ends = server.ends[before:]
    assert (outcome.code, set(ends) <= {"completed", "max_output_tokens"}) == (0, True), (ends, outcome)
    assert (folder / "made").is_dir(), outcome
    assert 2 <= len(ends) <= 6


async def test_a_stranger_who_follows_the_page_for_the_agents_sdk_sees_a_whole_tool_turn(
    server: Server, tmp_path: Path
) -> None:
    environment = ENVIRONMENTS["openai-agents"]
    if not environment.installed:
        pytest.skip(environment.missing)
    before = len(server.ends)
    program = shown("agent.py", server.url).rpartition("print(")[0] + shown("embedded_agent.py", server.url)
    (tmp_path / "agent.py").write_text(program)

    outcome = await run([environment.interpreter, "agent.py"], cwd=tmp_path, seconds=SECONDS)

    assert (outcome.code, server.ends[before:]) == (0, ["completed"] * 2), outcome
    assert outcome.output.strip()
