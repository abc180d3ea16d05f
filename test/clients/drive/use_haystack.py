"""Haystack: `use_haystack.py plain|stream FEATURE=URL…`."""

from typing import Any

from common import main
from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret


def get_weather(city: str) -> str:
    """How the weather is."""
    return f"{city} is sunny"


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    pieces: list[str] = []
    more: dict[str, Any] = {}
    if mode == "stream":
        more["streaming_callback"] = lambda chunk: pieces.append(chunk.content) if chunk.content else None
    if feature in ("tools", "parallel", "reasoning"):
        more["tools"] = [create_tool_from_function(get_weather)]
    if feature == "reasoning":
        more["generation_kwargs"] = {"reasoning": {"effort": "low", "summary": "auto"}}
    key = Secret.from_token("unused")
    generator = OpenAIResponsesChatGenerator(api_key=key, model="local", api_base_url=f"{url}/v1", **more)
    messages = [ChatMessage.from_user("How is the weather?")]
    for _ in range(4):
        answer = generator.run(messages=messages)["replies"][0]
        messages.append(answer)
        if not answer.tool_calls:
            break
        calls = answer.tool_calls
        messages += [ChatMessage.from_tool(tool_result=get_weather(**call.arguments), origin=call) for call in calls]
    return {"text": answer.text, "deltas": len(pieces)} if mode == "stream" else {"text": answer.text}


main(use)
