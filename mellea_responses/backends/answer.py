"""Steps of the engine → a thunk: text, thoughts, calls, costs and the reason why it ended."""

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from mellea.backends.tools import validate_tool_arguments
from mellea.core import MelleaLogger, ModelOutputThunk, ModelToolCall

from mellea_responses.errors import InvalidStructuredOutput
from mellea_responses.program import bridge
from mellea_responses.schemas import Schema
from mellea_responses.turn import Call, CallArgs, Format, Step, Stop, Text, Thought, Usage


async def kept_to(source: AsyncIterator[Sequence[Step]], form: Format) -> AsyncIterator[Sequence[Step]]:
    """The same steps; an answer that breaks its schema fails at its end. One that a limit cut says so itself.

    Raises:
        InvalidStructuredOutput: the answer is not what the schema wants.
    """
    schema = Schema(form.schema, "text.format.schema") if form.schema is not None else None
    text: list[str] = []
    async for batch in source:
        for step in batch:
            if isinstance(step, Text):
                text.append(step.text)
            elif schema is not None and step == Stop():
                _judge("".join(text), schema)
        yield batch


def _judge(text: str, schema: Schema) -> None:
    try:
        complaint = schema.complaint(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        complaint = "it is no JSON"
    if complaint is not None:
        raise InvalidStructuredOutput(f"The answer does not fit its schema: {complaint}")


class Answer:
    """How a thunk takes the engine's steps. Stateless: everything is kept on the thunk."""

    @staticmethod
    async def fold(thunk: ModelOutputThunk[Any], steps: Sequence[Step]) -> None:
        """Takes what is ready."""
        bridge.add_text(thunk, "".join(step.text for step in steps if isinstance(step, Text)))
        for step in steps:
            match step:
                case Thought():
                    thunk.thinking = (thunk.thinking or "") + step.text
                case Call():
                    _calls(thunk)[step.key] = {
                        "id": step.call_id or f"call_{uuid4().hex}",
                        "name": step.name,
                        "text": "",
                    }
                    _tell(thunk, step.key, "")
                case CallArgs():
                    _calls(thunk)[step.key]["text"] += step.text
                    _tell(thunk, step.key, step.text)
                case Usage():
                    thunk.generation.usage = _usage(step)
                case Stop():
                    thunk.generation.finish_reasons = [step.reason]

    @staticmethod
    async def finish(
        thunk: ModelOutputThunk[Any], *, tools: dict[str, Any], messages: list[dict[str, Any]], backend: str
    ) -> None:
        """Nothing follows."""
        calls = list(_calls(thunk).values())
        thunk.tool_calls = [made for call in calls if (made := _made(call, tools)) is not None] or None
        if calls and thunk.generation.finish_reasons == ["stop"]:
            thunk.generation.finish_reasons = ["tool_calls"]
        # In the shape of OpenAI's answers, so that the model's own argument texts are found again.
        shaped = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["text"]}}
            for call in calls
        ]
        message = {"role": "assistant", "content": bridge.text_so_far(thunk), "tool_calls": shaped or None}
        thunk.raw.provider, thunk.raw.response = thunk.generation.provider, {"choices": [{"message": message}]}
        bridge.write_log(thunk, messages, backend)


def _calls(thunk: ModelOutputThunk[Any]) -> dict[str, dict[str, str]]:
    calls: dict[str, dict[str, str]] = bridge.memory(thunk).setdefault("calls", {})
    return calls


def _tell(thunk: ModelOutputThunk[Any], key: str, text: str) -> None:
    """Keeps a piece of a call as OpenAI-like backends do, for those who stream it on."""
    calls = _calls(thunk)
    function = {"name": calls[key]["name"], "arguments": text}
    piece = {"index": list(calls).index(key), "id": calls[key]["id"], "function": function}
    thunk.raw.streamed_chunks = thunk.raw.streamed_chunks or []
    thunk.raw.streamed_chunks.append({"delta": {"tool_calls": [piece]}})


def _made(call: dict[str, str], tools: dict[str, Any]) -> ModelToolCall | None:
    tool = tools.get(call["name"])
    try:
        arguments = msgspec.json.decode(call["text"] or "{}")
    except (msgspec.DecodeError, RecursionError):
        arguments = None
    if tool is None or not isinstance(arguments, dict):
        why = "does not exist" if tool is None else "got arguments that are no JSON object"
        MelleaLogger.get_logger().warning("the model called the tool %s, which %s", call["name"], why)
        return None
    return ModelToolCall(call["name"], tool, validate_tool_arguments(tool, arguments), tool_call_id=call["id"])


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def cost(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several generations cost together."""
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {name: sum(usage.get(name, 0) for usage in usages) for name in names}
