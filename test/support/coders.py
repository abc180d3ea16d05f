"""Coding agents for the command line: one prompt, run to its end, in a home and a folder of their own."""

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clients.drive.common import shown
from clients.drive.environments import ENVIRONMENTS, Environment

from mellea_responses.turn import Text, Thought
from support.driving import COUNTS, FEATURES, Feature, Heard, Moves, Outcome, run

WAYS = ("custom provider", "custom provider, WebSocket", "built-in provider", "LM Studio")


class Codex:
    """Codex.

    Args:
        folder: Where it may write.
        way: How it reaches the server, one of `WAYS`.
    """

    environment = ENVIRONMENTS["codex"]

    def __init__(self, folder: Path, way: str = WAYS[0]) -> None:
        self.way = way
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()

    async def ask(
        self,
        url: str,
        prompt: str,
        *options: str,
        model: str = "local",
        config: str = "",
        tables: str = "",
        small: bool = False,
        seconds: float = 120,
    ) -> Outcome:
        """What is on the output is what the user reads in the end; the rest is in the errors."""
        env = {"CODEX_HOME": str(self.home), "HOME": str(self.home)}
        before: Sequence[str] = ()
        if small:
            (self.home / "small.md").write_text(shown("small.md", url))
        if small or self.way.startswith("custom"):
            text = shown("codex-small" if small else "codex", url)
            text += "supports_websockets = true\n" if "WebSocket" in self.way else ""
        elif self.way == "built-in provider":
            text = shown("codex-built-in", url)
            env["CODEX_API_KEY"] = "unused"
        else:
            text = 'model = "local"\n'
            before = ("--oss", "--local-provider", "lmstudio", "--model", model)
            env["CODEX_OSS_BASE_URL"] = f"{url}/v1"
        text = config + "\n" + text.replace('model = "local"', f'model = "{model}"') + "\n"
        (self.home / "config.toml").write_text(text + tables)
        exact = ("exec", *before, "--skip-git-repo-check", "--sandbox", "danger-full-access", *options, prompt)
        return await run([self.environment.program("codex"), *exact], env=env, cwd=self.work, seconds=seconds)

    async def resume(self, prompt: str) -> Outcome:
        """The next turn of the last session."""
        command = (self.environment.program("codex"), "exec", "resume", "--last", "--skip-git-repo-check", prompt)
        env = {"CODEX_HOME": str(self.home), "HOME": str(self.home), "CODEX_API_KEY": "unused"}
        return await run(command, env=env, cwd=self.work, seconds=120)


async def pi(url: str, folder: Path, prompt: str, *options: str, small: bool = False, seconds: float = 90) -> Outcome:
    """One prompt to pi, with the server in its `models.json`."""
    environment = ENVIRONMENTS["pi"]
    agent = folder / "agent"
    agent.mkdir(exist_ok=True)
    (agent / "models.json").write_text(shown("pi", url))
    if small:
        options = (*options, "--tools", "bash", "--system-prompt", shown("small.md", url).strip())
    env = {"PI_CODING_AGENT_DIR": str(agent), "HOME": str(folder), "PI_OFFLINE": "1"}
    command = [environment.interpreter, environment.program("pi"), "--print", "--model", "mellea/local"]
    return await run([*command, *options, prompt], env=env, cwd=folder, seconds=seconds)


async def opencode(
    url: str, folder: Path, prompt: str, *options: str, small: bool = False, seconds: float = 160
) -> Outcome:
    """One prompt to OpenCode, with the server as a provider in its configuration."""
    settings = {"share": "disabled", "autoupdate": False, "permission": "allow"}
    chosen = json.loads(shown("opencode-small" if small else "opencode", url))
    (folder / "opencode.json").write_text(json.dumps(settings | chosen))
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE", "STATE")}
    env = {"HOME": str(folder), "OPENCODE_DISABLE_MODELS_FETCH": "1", **homes}
    command = [ENVIRONMENTS["opencode"].program("opencode"), "run", "--title", "task"]
    words = prompt.split(" ")  # an argument with blanks would reach the model in quotes
    return await run([*command, *options, *words], env=env, cwd=folder, seconds=seconds)


def tell_outputs(heard: Heard) -> Moves:
    """The thoughts and the last line of each output."""
    words = [output.strip().splitlines()[-1] for output in heard.outputs()]
    thoughts = "".join(f"I thought: {thought} " for thought in heard.thoughts())
    return [Text(f"{thoughts}I heard: {', '.join(words)}."), COUNTS]


def shell_tasks(shell: Callable[..., Moves]) -> dict[str, Feature]:
    """What every coding agent is given to do.

    Args:
        shell: `shell(command, key)` calls its tool that runs commands.
    """
    one, two = shell("echo one"), shell("echo two", "2")
    return {
        "plain": FEATURES["plain"],
        "stream": replace(FEATURES["stream"], wants=lambda heard: heard[0].turn.request.stream is True),
        "tools": Feature(((*one, COUNTS), (*two, COUNTS), tell_outputs), "I heard: one, two.", requests=3),
        "parallel": Feature(((*one, *two, COUNTS), tell_outputs), "I heard: one, two.", requests=2),
        "reasoning": Feature(
            ((Thought("They ask."), *one, COUNTS), tell_outputs), "I thought: They ask. I heard: one.", requests=2
        ),
        "images": FEATURES["images"],
    }


def told_to_call(name: str, **arguments: str) -> str:
    """A prompt at which even the embedded model calls a tool."""
    return f"Repeat this exactly: <tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@dataclass(frozen=True)
class Coder:
    """One of those that differ only in what is typed.

    Args:
        environment: What `environments.py` installs for it.
        ask: Runs one prompt: `ask(url, folder, prompt, *options)`.
        shell: The name of its tool that runs commands.
        resumed: The options with which it goes on with its last session.
        picture: The options that send `dot.png` along.
    """

    environment: Environment
    ask: Callable[..., Coroutine[Any, Any, Outcome]]
    shell: str
    resumed: tuple[str, ...]
    picture: tuple[str, ...]


CODERS = {
    "pi": Coder(ENVIRONMENTS["pi"], pi, "bash", ("--continue",), ("@dot.png",)),
    "OpenCode": Coder(ENVIRONMENTS["opencode"], opencode, "bash", ("--continue",), ("--file=dot.png", "--")),
}
