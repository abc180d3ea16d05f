"""Mellea's outputs → steps: thunks, sampling results, messages, streams that are still being made.

What was streamed is the truth. A thunk whose final value says something else is logged, never corrected.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import msgspec
from mellea.core import CBlock, ModelOutputThunk, SamplingResult
from mellea.stdlib.components.chat import Message
from mellea.stdlib.streaming import ChunkEvent, ErrorEvent, EventStreamer, Streamer

from mellea_responses.errors import ModelFailed
from mellea_responses.program import bridge
from mellea_responses.program.costs import added, usage_of
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Stop, Text, Thought, Usage

logger = logging.getLogger("mellea_responses.program")

_STOPS: Mapping[str, Stop] = {
    "length": Stop("length"),
    "max_tokens": Stop("length"),
    "content_filter": Stop("content_filter"),
}


def is_live(value: Any) -> bool:
    """Whether it has to be read while it is made, on the loop that makes it."""
    if isinstance(value, ModelOutputThunk):
        return not value.is_computed()
    return isinstance(value, Streamer | EventStreamer)


def finished_steps(value: Any) -> Iterator[Step] | None:
    """The steps of one of Mellea's finished values; None if it is none of those that are an answer."""
    if isinstance(value, SamplingResult):
        return _sampled(value)
    if isinstance(value, ModelOutputThunk):
        return Reading(value).rest()
    if isinstance(value, Message):
        return _message(value)
    if isinstance(value, CBlock):
        return iter([Text(value.value)] if value.value else [])
    return None


def _sampled(result: Any) -> Iterator[Step]:
    """The chosen attempt, and what all of them cost."""
    if not result.success:
        logger.info("sampling found no answer that meets every requirement; the chosen one is given all the same")
    costs = [cost for thunk in result.sample_generations if (cost := usage_of(thunk.generation.usage)) is not None]
    for step in Reading(result.result).rest():
        yield added(costs) if isinstance(step, Usage) else step


def _message(message: Message) -> Iterator[Step]:
    if message.thinking:
        yield Thought(message.thinking)
    if message.content:
        yield Text(message.content)
    for number, call in enumerate(message.tool_calls or ()):
        function = call["function"]
        arguments = function.get("arguments", "")
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        yield from _whole_call(f"message {number}", function["name"], call.get("id"), text)


def _whole_call(key: str, name: str, call_id: str | None, arguments: str) -> Iterator[Step]:
    yield Call(key, name, call_id=call_id)
    yield CallArgs(key, arguments)
    yield CallEnd(key)


class Reading:
    """One thunk and how much of it has been said."""

    def __init__(self, thunk: ModelOutputThunk[Any]) -> None:
        self.thunk = thunk
        self.streamed: Callable[[], str] = lambda: thunk.value or ""
        self._said, self._thought, self._chunks = "", "", 0
        self._open: dict[int, str] = {}  # index of a streamed call → its id
        self._key = uuid4().hex  # several thunks may speak in one answer

    def say(self, text: str) -> None:
        """Notes what somebody else has said of it."""
        self._said += text

    def after(self, delta: str) -> Iterator[Step]:
        """What one read brought: thoughts, words, pieces of calls."""
        yield from self._thoughts()
        if delta:
            self._said += delta
            yield Text(delta)
        chunks = self.thunk.raw.streamed_chunks or []
        for chunk in chunks[self._chunks :]:
            yield from self._pieces(chunk)
        self._chunks = len(chunks)

    def rest(self) -> Iterator[Step]:
        """What is still to be said once the thunk is computed.

        Raises:
            Exception: what the backend recorded as the cause of a placeholder.
        """
        if self.thunk.error is not None:
            raise self.thunk.error
        yield from self._thoughts()
        value = self.thunk.value or ""
        streamed = self.streamed() if self._said else value
        if rest := streamed[len(self._said) :]:
            yield Text(rest)
        if streamed != value:
            logger.warning("a thunk was streamed as %d characters and ended with others", len(streamed))
        yield from self._calls()
        if (usage := usage_of(self.thunk.generation.usage)) is not None:
            yield usage
        yield _STOPS.get(next(iter(self.thunk.generation.finish_reasons or ()), ""), Stop())

    def _thoughts(self) -> Iterator[Step]:
        thinking = self.thunk.thinking or ""
        if thinking == self._thought:
            return
        if thinking.startswith(self._thought):
            yield Thought(thinking[len(self._thought) :])
            self._thought = thinking
        else:
            logger.warning("a thunk's thoughts were streamed and ended with others")

    def _pieces(self, chunk: Any) -> Iterator[Step]:
        """Calls as OpenAI-like backends stream them: a name once, arguments bit by bit."""
        delta = chunk.get("delta") if isinstance(chunk, dict) else None
        for piece in (delta or {}).get("tool_calls") or ():
            index, function = piece.get("index", 0), piece.get("function") or {}
            key = f"{self._key} {index}"
            if index not in self._open:
                if not function.get("name"):
                    continue  # nothing can be said of a call without a name
                self._open[index] = piece.get("id") or f"call_{uuid4().hex}"
                yield Call(key, function["name"], call_id=self._open[index])
            if function.get("arguments"):
                yield CallArgs(key, function["arguments"])

    def _calls(self) -> Iterator[Step]:
        for index in self._open:
            yield CallEnd(f"{self._key} {index}")
        written = _written(self.thunk)
        for number, call in enumerate(self.thunk.tool_calls or ()):
            if self._open:
                break  # they were streamed
            if call.tool_call_id is None:
                call.tool_call_id = f"call_{uuid4().hex}"  # kept: the program's context and the client share it
            arguments = written.get(call.tool_call_id) or written.get(f"{number} {call.name}")
            if arguments is None:
                arguments = msgspec.json.encode(call.args, enc_hook=str).decode()
            yield from _whole_call(f"{self._key} {number}", call.name, call.tool_call_id, arguments)
        if self._open and len(self._open) != len(self.thunk.tool_calls or ()):
            logger.info("%d calls were streamed, %d kept", len(self._open), len(self.thunk.tool_calls or ()))


def _written(thunk: ModelOutputThunk[Any]) -> dict[str, str]:
    """The model's own argument texts where the backend keeps its payload: by id, and by place and name.

    Mellea's `args` are coerced to the schema; the client must get what the model wrote.
    """
    try:
        calls = thunk.raw.response["choices"][0]["message"]["tool_calls"] or []  # type: ignore[index]  # OpenAI-shaped or caught
        functions = [(number, call.get("id"), call["function"]) for number, call in enumerate(calls)]
        texts = [(number, call_id, one["name"], one["arguments"]) for number, call_id, one in functions]
    except (TypeError, KeyError, IndexError, AttributeError):
        return {}
    found = {f"{number} {name}": text for number, _, name, text in texts if isinstance(text, str)}
    return found | {call_id: text for _, call_id, _, text in texts if call_id and isinstance(text, str)}


# ---------------------------------------------------------------- while it is made, on its own loop


async def live_steps(value: Any) -> AsyncGenerator[list[Step], None]:
    """The steps of something that is still being made. Closing the iterator cancels the generation.

    Raises:
        Exception: the first failure of the generation; nothing follows it.
    """
    bridge.token_by_token(value)
    pieces = _thunk(value) if isinstance(value, ModelOutputThunk) else _streamer(value)
    async with aclosing(pieces):
        async for steps in pieces:
            yield steps


async def _thunk(thunk: ModelOutputThunk[Any]) -> AsyncGenerator[list[Step], None]:
    reading, over = Reading(thunk), bridge.watch(thunk)
    reading.streamed = bridge.keep_streamed(thunk)
    try:
        while not thunk.is_computed():
            delta = await bridge.next_delta(thunk)
            # The last delta is cut from a value that may have been rewritten.
            if steps := list(reading.after("" if thunk.is_computed() else delta)):
                yield steps
        yield list(reading.rest())
    finally:
        over()
        await _close(thunk)


async def _streamer(streamer: Any) -> AsyncGenerator[list[Step], None]:
    """Mellea's chunks leave out what parts them, so the text is read where it is whole."""
    said = ""
    try:
        async for chunk in streamer:
            if isinstance(chunk, str | ChunkEvent) and len(streamer.full_text) > len(said):
                yield [Text(streamer.full_text[len(said) :])]
                said = streamer.full_text
            elif isinstance(chunk, ErrorEvent):
                logger.warning("a stream failed: %s", chunk.exception_type)
        if streamer.failed_early:
            logger.warning("a stream was stopped: %s", streamer.failure_reason)
            raise ModelFailed("The answer was stopped, since it did not meet a requirement.")
        if not all(streamer.final_validations):
            logger.warning("a streamed answer did not meet a requirement; it had left already")
        if streamer.mot is not None:
            reading = Reading(streamer.mot)
            reading.say(said)
            yield list(reading.rest())
    finally:
        await _close(streamer)


async def _close(value: Any) -> None:
    """Cancels what is not finished; a failure in it is nobody's answer."""
    try:
        await value.aclose()
    except asyncio.CancelledError:
        raise
    except Exception:
        logger.debug("closing a stream failed", exc_info=True)
