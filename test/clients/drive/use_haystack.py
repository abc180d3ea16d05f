"""Haystack: `use_haystack.py MODE/FEATURE=URL…` with the modes plain, stream."""

import json
from typing import Any

from common import DOT, main
from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    city: str
    degrees: int


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
    if feature == "structured":
        form = {"type": "json_schema", "name": "City", "schema": City.model_json_schema()}
        more["generation_kwargs"] = {"text": {"format": form}} if mode == "stream" else {"text_format": City}
    key = Secret.from_token("unused")
    generator = OpenAIResponsesChatGenerator(api_key=key, model="local", api_base_url=f"{url}/v1", **more)
    if feature == "conversation":
        kept = {"conversation": OpenAI(base_url=f"{url}/v1", api_key="unused").conversations.create().id}
        generator.run(messages=[ChatMessage.from_user("One.")], generation_kwargs=kept)
        answer = generator.run(messages=[ChatMessage.from_user("Two.")], generation_kwargs=kept)["replies"][0]
        return {"text": answer.text}
    if feature == "chain":
        first = generator.run(messages=[ChatMessage.from_user("One.")])["replies"][0]
        continued = {"previous_response_id": first.meta["id"]}
        answer = generator.run(messages=[ChatMessage.from_user("Two.")], generation_kwargs=continued)["replies"][0]
        return {"text": answer.text}
    messages = [ChatMessage.from_user("How is the weather?")]
    if feature == "images":
        dot = ImageContent(base64_image=DOT, mime_type="image/png")
        messages = [ChatMessage.from_user(content_parts=["Look.", dot])]
    for _ in range(4):
        answer = generator.run(messages=messages)["replies"][0]
        messages.append(answer)
        if not answer.tool_calls:
            break
        calls = answer.tool_calls
        messages += [ChatMessage.from_tool(tool_result=get_weather(**call.arguments), origin=call) for call in calls]
    if feature == "structured":
        city = City(**json.loads(answer.text))
        return {"text": f"{city.city} has {city.degrees} degrees."}
    return {"text": answer.text, "deltas": len(pieces)} if mode == "stream" else {"text": answer.text}


main(use)
