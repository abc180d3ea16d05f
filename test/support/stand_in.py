"""A scripted program: says what a case's `program` tells it to, and writes down what reached it.

It stands behind the same door as every user's program: `serve(input, requirements, model_options, turn)`. What it
records comes from these arguments alone, never from the request, so a test that reads the records sees what an author
would have seen.
"""

import asyncio
import builtins
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec

from mellea_responses.engine.text import StopCutter, TokenText
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Stop, Text, Thought, Turn, Usage

Json = dict[str, Any]
Shape = Literal["async generator", "generator", "coroutine", "function"]
TOOLS = "@@@tools@@@"  # Mellea's `ModelOption.TOOLS`
PLAYED = frozenset(
    {
        "say",
        "chunks",
        "delay_ms",
        "sleep_s",
        "thinking",
        "calls",
        "raw",
        "raw_chunks",
        "token_bytes",
        "script",
        "script_by_turn",
        "finish",
        "usage",
        "raise",
        "echo",
        "echo_chunks",
        "computed",
        "note",
        "options_note",
    }
)
WORDLESS = frozenset({"note", "options_note", "delay_ms", "sleep_s", "computed", "finish", "usage", "raise"})


@dataclass
class Received:
    """One call of the program: its arguments as plain JSON, and how far its answer was pulled."""

    messages: list[Json]
    options: Json
    tools: list[Json]
    requirements: Any
    items: list[Json]
    instructions: str | None
    pulled: int = 0  # steps handed over
    pulled_at: list[float] = field(default_factory=list)
    ended: str = ""  # `whole`, or `left` when nobody pulled to the end


@dataclass(frozen=True)
class Pause:
    seconds: float
    blocking: bool = False


@dataclass(frozen=True)
class Fault:
    error: Exception


Move = Step | Pause | Fault


class StandIn:
    """Plays a case's `program`.

    Args:
        script: The `program` of a case, markers already expanded.
        shape: What kind of function `serve` is; a finished result can only be returned by a function or a coroutine.
    """

    def __init__(self, script: Json, shape: Shape = "async generator") -> None:
        unknown = script.keys() - PLAYED
        if unknown:
            raise NotImplementedError(f"the stand-in cannot play {sorted(unknown)}")
        self.script = script
        self.received: list[Received] = []
        self.serve = _SHAPES[shape](self)

    def begin(self, arguments: Mapping[str, Any]) -> tuple[Received, Iterator[Move]]:
        """Records a call and gives the moves that answer it."""
        received = _record(arguments)
        self.received.append(received)
        scripts = self.script.get("script_by_turn")
        script = self.script if scripts is None else scripts[min(len(self.received), len(scripts)) - 1]
        return received, moves(script, received)


def _async_generator(stand_in: StandIn) -> Callable[..., Any]:
    async def serve(
        input: Any, requirements: Any = None, model_options: Any = None, turn: Any = None
    ) -> AsyncIterator[Step]:
        received, answer = stand_in.begin(locals())
        try:
            for move in answer:
                match move:
                    case Pause(seconds, blocking=True):
                        time.sleep(seconds)  # noqa: ASYNC251  # a program that blocks its loop is the case
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
                    case Fault(error):
                        raise error
                    case _:
                        _pull(received)
                        yield move
            received.ended = "whole"
        finally:
            received.ended = received.ended or "left"

    return serve


def _generator(stand_in: StandIn) -> Callable[..., Any]:
    def serve(input: Any, requirements: Any = None, model_options: Any = None, turn: Any = None) -> Iterator[Step]:
        received, answer = stand_in.begin(locals())
        try:
            for move in answer:
                match move:
                    case Pause(seconds):
                        time.sleep(seconds)
                    case Fault(error):
                        raise error
                    case _:
                        _pull(received)
                        yield move
            received.ended = "whole"
        finally:
            received.ended = received.ended or "left"

    return serve


def _function(stand_in: StandIn) -> Callable[..., Any]:
    def serve(input: Any, requirements: Any = None, model_options: Any = None, turn: Any = None) -> str:
        received, answer = stand_in.begin(locals())
        return _whole(received, answer)

    return serve


def _coroutine(stand_in: StandIn) -> Callable[..., Any]:
    async def serve(input: Any, requirements: Any = None, model_options: Any = None, turn: Any = None) -> str:
        received, answer = stand_in.begin(locals())
        return _whole(received, answer)

    return serve


_SHAPES: dict[str, Callable[[StandIn], Callable[..., Any]]] = {
    "async generator": _async_generator,
    "generator": _generator,
    "coroutine": _coroutine,
    "function": _function,
}


def _pull(received: Received) -> None:
    received.pulled += 1
    received.pulled_at.append(time.monotonic())


def _whole(received: Received, answer: Iterator[Move]) -> str:
    """The text of all moves at once: what a program returns that has finished before anybody listens."""
    pieces = []
    for move in answer:
        match move:
            case Pause(seconds):
                time.sleep(seconds)
            case Fault(error):
                raise error
            case Text(text=text):
                _pull(received)
                pieces.append(text)
            case _:
                raise NotImplementedError(f"a finished text cannot hold {move}")
    return "".join(pieces)


def shapes(script: Json) -> list[Shape]:
    """The kinds of `serve` that can play a script. A blocking program is a plain one: an async one has no excuse."""
    if script.get("computed"):
        return ["function", "coroutine"]
    if "sleep_s" in json.dumps(script):
        return ["generator"]
    return ["async generator", "generator"]


# ---------------------------------------------------------------- what it says


def moves(script: Json, received: Received) -> Iterator[Move]:
    """The answer, step by step: sleep, think, speak, call, count, stop."""
    if "sleep_s" in script:
        yield Pause(script["sleep_s"], blocking=True)
    yield from map(Thought, script.get("thinking", []))
    yield from _spoken(script, received)
    for number, call in enumerate(script.get("calls", [])):
        yield from _call(f"call {number}", call["name"], call["arguments"])
    yield from _scripted(script.get("script", []))
    if counts := script.get("usage"):
        yield Usage(counts["input"], counts["output"], counts.get("cached", 0), counts.get("reasoning", 0))
    if script.get("finish") == "length":
        yield Stop("length")


def _spoken(script: Json, received: Received) -> Iterator[Move]:
    fault, after = script.get("raise"), (script.get("raise") or {}).get("after", 0)
    for number, move in enumerate(_words(script, received)):
        if fault and number == after:
            break
        if isinstance(move, Pause):
            yield move
            continue
        if "delay_ms" in script:
            yield Pause(script["delay_ms"] / 1000)
        yield move
    if fault:
        yield Fault(_error(fault))


def _words(script: Json, received: Received) -> Iterator[Move]:
    if "say" in script:
        yield Text(script["say"])
    if "echo" in script:
        yield Text(json.dumps(getattr(received, script["echo"]), ensure_ascii=False))
    yield from _echoed(script, received)
    yield from _stopped(script.get("chunks", []), _stop_text(script))
    yield from _decoded(script.get("token_bytes", []))
    raw = [script["raw"]] if "raw" in script else script.get("raw_chunks", [])
    if raw:
        yield from _split(raw, received.tools)
    if not script.keys() - WORDLESS and "raise" not in script:
        yield Text("Any reply will do.")


def _echoed(script: Json, received: Received) -> Iterator[Move]:
    """The last user message back, a word at a time or in pieces of the length given."""
    wanted = script.get("echo_chunks")
    if not wanted:
        return
    said = [text_of(message) for message in received.messages if message["role"] == "user"]
    text = said[-1] if said else ""
    size = wanted if type(wanted) is int else wanted.get("size") if isinstance(wanted, dict) else None
    pieces = (
        re.findall(r"\S+\s*|\s+", text) if size is None else [text[i : i + size] for i in range(0, len(text), size)]
    )
    yield from map(Text, pieces)


def _stop_text(script: Json) -> str:
    asked = re.search(r"asks for stop text (\S+)", script.get("options_note", ""))
    return asked[1] if asked else ""


def _stopped(pieces: Sequence[Any], stop: str) -> Iterator[Move]:
    """Pieces as the model under a program would give them: cut at the stop text by the engine."""
    cutter = StopCutter([stop])
    for piece in pieces:
        if isinstance(piece, dict):
            yield Pause(piece["$pause_s"])
        elif text := cutter.feed(piece):
            yield Text(text)
    if text := cutter.flush():
        yield Text(text)


class _ByteTokenizer:
    """A tokenizer whose tokens are the given bytes, so that one character may need several of them."""

    def __init__(self, table: Sequence[Sequence[int]]) -> None:
        self._table = [bytes(entry) for entry in table]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return b"".join(self._table[i] for i in ids).decode("utf-8", "replace")


def _decoded(table: Sequence[Sequence[int]]) -> Iterator[Move]:
    """Bytes to text by the engine's own decoding."""
    text = TokenText(_ByteTokenizer(table))
    for token in range(len(table)):
        _, piece = text.push(token)
        if piece:
            yield Text(piece)


class _MarkupTokenizer:
    """A vocabulary without markers, and a chat template that shows the markup that this model writes."""

    added_tokens_decoder: ClassVar[dict[int, Any]] = {}

    def __init__(self, written: str) -> None:
        thinks = "<think></think>" if "</think>" in written else ""
        self.chat_template = written + thinks

    def __len__(self) -> int:
        return 0


def _split(pieces: Sequence[Any], tools: Sequence[Json]) -> Iterator[Move]:
    """Markup to steps by the engine's own splitter."""
    from mellea_responses.engine.parse import make_splitter

    written = "".join(piece for piece in pieces if isinstance(piece, str))
    splitter = make_splitter(_MarkupTokenizer(written), "", tools)
    for piece in pieces:
        if isinstance(piece, dict):
            yield Pause(piece["$pause_s"])
        else:
            yield from splitter.feed((), piece)
    yield from splitter.finish("stop")


def _call(key: str, name: str, arguments: str) -> Iterator[Move]:
    yield Call(key, name)
    yield CallArgs(key, arguments)
    yield CallEnd(key)


def _scripted(script: Sequence[Any]) -> Iterator[Move]:
    """A script in its own order; an opened call stays open until the next opens or the answer ends."""
    key = ""
    for number, entry in enumerate(script):
        match entry:
            case ["say", text]:
                yield Text(text)
            case ["think", text]:
                yield Thought(text)
            case ["call", name, arguments]:
                yield from _call(f"step {number}", name, arguments)
            case ["call_open", name]:
                key = f"step {number}"
                yield Call(key, name)
            case ["call_args", text]:
                yield CallArgs(key, text)
            case {"$pause_s": seconds}:
                yield Pause(seconds)
            case _:
                raise NotImplementedError(f"the stand-in cannot play the step {entry}")


def _error(fault: Json) -> Exception:
    kind = getattr(builtins, fault["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = type(fault["type"], (Exception,), {})
    return kind(fault["message"])


# ---------------------------------------------------------------- what it heard


def _record(arguments: Mapping[str, Any]) -> Received:
    turn: Turn | None = arguments["turn"]
    options = dict(arguments["model_options"] or {})
    tools = options.pop(TOOLS, None)
    return Received(
        messages=[plain_message(message) for message in arguments["input"]],
        options=json.loads(json.dumps(options, default=repr)),
        tools=_plain_tools(tools, turn),
        requirements=arguments["requirements"],
        items=msgspec.to_builtins(turn.items) if turn is not None else [],
        instructions=turn.instructions if turn is not None else None,
    )


def _plain_tools(tools: Any, turn: Turn | None) -> list[Json]:
    """Chat-shaped tools as a program finds them among its options, or else the turn's."""
    if tools is None:
        found: list[Json] = msgspec.to_builtins(turn.tools) if turn is not None else []
        return found
    listed = tools.values() if isinstance(tools, Mapping) else tools
    return [json.loads(json.dumps(dict(tool))) for tool in listed]


def plain_message(message: Any) -> Json:
    """A chat message of any class as plain JSON, without the keys that say nothing."""
    raw = message.model_dump(mode="json") if hasattr(message, "model_dump") else dict(message)
    kept = {key: value for key, value in raw.items() if value is not None and value != []}
    if "reasoning_content" in kept:
        kept.setdefault("reasoning", kept.pop("reasoning_content"))
    return {"role": raw["role"], "content": raw.get("content"), **kept}


def text_of(message: Json) -> str:
    """The words of a message, whether its content is a string, parts or nothing."""
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text", "") for part in content)


def calls_of(message: Json) -> list[tuple[str, Any, str]]:
    """Name, arguments (decoded when they are JSON) and call id of a message's calls, flat or chat-shaped."""
    found = []
    for call in message.get("tool_calls") or []:
        body = call.get("function", call)
        found.append((body["name"], _loads(body["arguments"]), call.get("id") or call.get("call_id")))
    return found


def _loads(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
