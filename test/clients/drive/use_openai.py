"""The OpenAI SDK for Python: `use_openai.py MODE/FEATURE=URL…`.

The modes are plain, stream, async, async-stream and websocket.
"""

import asyncio
import json
from typing import Any

from common import PIXEL, main
from openai import AsyncOpenAI, OpenAI, pydantic_function_tool
from pydantic import BaseModel


class City(BaseModel):
    city: str
    degrees: int


class GetWeather(BaseModel):
    city: str


function = pydantic_function_tool(GetWeather, name="get_weather")["function"]
TOOLS: list[Any] = [{"type": "function", **function}]


class Asker:
    """Asks in one of five ways and gives the final response."""

    def __init__(self, mode: str, client: OpenAI) -> None:
        self.mode, self.client, self.deltas = mode, client, 0
        self.runner = asyncio.Runner()
        self.socket = client.responses.connect().enter() if mode == "websocket" else None

    def ask(self, what: Any, **more: Any) -> Any:
        if self.socket is not None:
            return self.over_socket(what, **more)
        if self.mode == "plain":
            return self.client.responses.parse(model="local", input=what, **more)
        if self.mode.startswith("async"):
            return self.runner.run(self.in_a_loop(what, **more))
        with self.client.responses.stream(model="local", input=what, **more) as stream:
            for event in stream:
                self.note(event)
            return stream.get_final_response()

    async def in_a_loop(self, what: Any, **more: Any) -> Any:
        async with AsyncOpenAI(base_url=self.client.base_url, api_key="unused") as client:
            if self.mode == "async":
                return await client.responses.parse(model="local", input=what, **more)
            async with client.responses.stream(model="local", input=what, **more) as stream:
                async for event in stream:
                    self.note(event)
                return await stream.get_final_response()

    def note(self, event: Any) -> None:
        self.deltas += event.type == "response.output_text.delta"
        if event.type == "response.failed" and event.response.error:
            raise RuntimeError(event.response.error.message)

    def over_socket(self, what: Any, **more: Any) -> Any:
        assert self.socket is not None
        self.socket.response.create(model="local", input=what, **more)
        for event in self.socket:
            self.note(event)
            if event.type == "response.completed":
                return event.response
            if event.type == "error":
                raise RuntimeError(str(event))
        raise RuntimeError("the socket was closed before the answer was whole")


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    client = OpenAI(base_url=f"{url}/v1", api_key="unused")
    asker = Asker(mode, client)
    if feature in ("tools", "parallel", "reasoning"):
        answer = use_tools(asker, feature)
    elif feature == "structured":
        return structured(asker)
    elif feature == "images":
        parts = [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": PIXEL}]
        answer = asker.ask([{"role": "user", "content": parts}])
    elif feature == "chain":
        answer = asker.ask("Two.", previous_response_id=asker.ask("One.").id)
    elif feature == "conversation":
        conversation = client.conversations.create().id
        asker.ask("One.", conversation=conversation)
        answer = asker.ask("Two.", conversation=conversation)
    else:
        answer = asker.ask("Hello.")
    seen: dict[str, Any] = {"text": answer.output_text}
    if mode not in ("plain", "async"):
        seen["deltas"] = asker.deltas
    return seen


def use_tools(asker: Asker, feature: str) -> Any:
    more: dict[str, Any] = {"tools": TOOLS}
    if feature == "reasoning":
        more |= {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    items: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    for _ in range(4):
        answer = asker.ask(items, **more)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer
        items += answer.output
        for call in calls:
            city = json.loads(call.arguments)["city"]
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": f"{city} is sunny"})
    raise RuntimeError("it never stopped calling")


def structured(asker: Asker) -> dict[str, Any]:
    if asker.mode == "websocket":
        schema = {**City.model_json_schema(), "additionalProperties": False}
        answer = asker.ask(
            "Graz?", text={"format": {"type": "json_schema", "name": "city", "schema": schema, "strict": True}}
        )
        city = City.model_validate_json(answer.output_text)
    else:
        city = asker.ask("Graz?", text_format=City).output_parsed
    return {"text": f"{city.city} has {city.degrees} degrees."}


main(use)
