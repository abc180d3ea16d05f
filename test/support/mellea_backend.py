"""A small Mellea backend that says what a script says, as a backend outside Mellea is written: no bridge of ours."""

import asyncio
import datetime
import functools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mellea.backends import ModelOption
from mellea.backends._options import resolve_model_options
from mellea.backends.backend import FormatterBackend
from mellea.backends.tools import (
    add_tools_from_context_actions,
    add_tools_from_model_options,
    convert_tools_to_json,
    validate_tool_arguments,
)
from mellea.core import GenerateLog, GenerateType, ModelOutputThunk, ModelToolCall
from mellea.formatters import TemplateFormatter
from mellea.helpers import DEFAULT_CHUNK_TIMEOUT, message_to_openai_message, send_to_queue

Word = tuple[str, Any]
"""`("text", …)`, `("think", …)`, `("call", {"name", "arguments", "id"})`, `("pause", seconds)`, `("raise", error)`."""

REMAP = {"max_tokens": ModelOption.MAX_NEW_TOKENS, "stream": ModelOption.STREAM, "system": ModelOption.SYSTEM_PROMPT}


def words(text: str) -> list[Word]:
    return [("text", word) for word in text.replace(" ", " \0").split("\0")]


@dataclass
class Heard:
    """One generation as it was asked."""

    conversation: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    options: dict[str, Any]
    format: Any
    said: int = 0
    closed: bool = False
    images: int = 0
    loops: list[Any] = field(default_factory=list)


class ScriptedBackend(FormatterBackend):
    """`script` is what every generation says, or makes it from what the generation was asked."""

    def __init__(
        self,
        script: Sequence[Word] | Callable[[Heard], Sequence[Word]],
        *,
        model_id: str = "scripted",
        model_options: dict[str, Any] | None = None,
        finish: str | None = None,
        payload: bool = False,
        usage: bool = True,
    ) -> None:
        super().__init__(model_id, TemplateFormatter(model_id=model_id), model_options=model_options)
        self._model_id, self._provider = model_id, "scripted"
        self.script, self.finish, self.payload, self.usage = script, finish, payload, usage
        self.heard: list[Heard] = []

    async def _generate_from_context(
        self, action: Any, ctx: Any, *, format: Any = None, model_options: Any = None, tool_calls: bool = False
    ) -> Any:
        await self.do_generate_walk(action)
        options = resolve_model_options(
            backend_defaults=self.model_options, remap=REMAP, call_options=model_options
        )  # fmt: skip
        tools: dict[str, Any] = {}
        if tool_calls and not format:
            add_tools_from_model_options(tools, options)
            add_tools_from_context_actions(tools, ctx.actions_for_available_tools())
            add_tools_from_context_actions(tools, [action])
        view = ctx.view_for_generation()
        messages = self.formatter.to_chat_messages([*view, action])
        conversation = [message_to_openai_message(m, self.formatter, provider="openai") for m in messages]
        heard = Heard(conversation, convert_tools_to_json(tools), options, format)
        heard.images = sum(len(message.images or ()) for message in messages)
        heard.loops.append(asyncio.get_running_loop())
        self.heard.append(heard)
        mot: Any = ModelOutputThunk(None)
        mot._gen.start = datetime.datetime.now()
        mot._call.action, mot._call.context, mot._call.model_options = action, view, options
        mot.generation.model, mot.generation.provider = self._model_id, self._provider
        mot._gen.process = self._fold
        mot._gen.post_process = functools.partial(self._finish, heard=heard, tools=tools)
        source = self._say(self.script(heard) if callable(self.script) else self.script, heard)
        task = send_to_queue(
            source if options.get(ModelOption.STREAM) else _collected(source),
            mot,
            chunk_timeout=options.get(ModelOption.STREAM_TIMEOUT, DEFAULT_CHUNK_TIMEOUT),
        )
        mot._gen.generate = asyncio.create_task(task)
        mot._gen.generate_type = GenerateType.ASYNC
        return mot, ctx.add(action).add(mot)

    async def _say(self, script: Sequence[Word], heard: Heard) -> AsyncIterator[Word]:
        try:
            for kind, data in script:
                if kind == "pause":
                    await asyncio.sleep(data)
                elif kind == "raise":
                    raise data
                else:
                    await asyncio.sleep(0)
                    heard.said += 1
                    yield kind, data
        finally:
            heard.closed = True

    async def _fold(self, mot: Any, chunk: Any) -> None:
        mot._underlying_value, mot.thinking = mot._underlying_value or "", mot.thinking or ""
        for kind, data in chunk if isinstance(chunk, list) else [chunk]:
            if kind == "text":
                mot._underlying_value += data
            elif kind == "think":
                mot.thinking += data
            elif kind == "delta":  # a chunk of an OpenAI-like stream
                mot.raw.streamed_chunks = [*(mot.raw.streamed_chunks or []), {"delta": {"tool_calls": [data]}}]
            else:
                mot._meta.setdefault("calls", []).append(data)

    async def _finish(self, mot: Any, heard: Heard, tools: dict[str, Any]) -> None:
        calls = mot._meta.get("calls", [])
        mot._underlying_value = mot._underlying_value or ""
        mot.tool_calls = [
            ModelToolCall(
                call["name"],
                tools[call["name"]],
                validate_tool_arguments(tools[call["name"]], json.loads(call["arguments"])),
                tool_call_id=call.get("id"),
            )
            for call in calls
            if call["name"] in tools
        ] or None
        if self.payload:
            shaped = [
                {"id": c.get("id"), "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls
            ]  # fmt: skip
            mot.raw.response = {"choices": [{"message": {"role": "assistant", "tool_calls": shaped}}]}
        if self.usage:
            asked = sum(len(str(message.get("content") or "").split()) for message in heard.conversation)
            mot.generation.usage = {
                "prompt_tokens": asked,
                "completion_tokens": heard.said,
                "total_tokens": asked + heard.said,
                "prompt_tokens_details": {"cached_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            }
        mot.generation.finish_reasons = [self.finish or ("tool_calls" if calls else "stop")]
        mot.raw.provider = self._provider
        mot._generate_log = GenerateLog(
            date=datetime.datetime.now(),
            prompt=heard.conversation,
            backend="scripted",
            model_options=mot._call.model_options,
            model_output=mot._underlying_value,
            action=mot._call.action,
            result=mot,
        )

    async def _generate_from_raw(self, actions: Any, ctx: Any, **_: Any) -> Any:
        return [ModelOutputThunk(value="raw") for _action in actions], None


async def _collected(source: AsyncIterator[Word]) -> list[Word]:
    return [word async for word in source]
