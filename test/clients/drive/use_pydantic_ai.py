"""pydantic-ai: `use_pydantic_ai.py MODE/FEATURE=URL…` with the modes plain, stream, background, websocket."""

import asyncio
from typing import Any

from common import DOT, main
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    city: str
    degrees: int


async def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="unused")
    name = "gpt-5.5" if feature == "reasoning" else "local"
    model = OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client))
    agent: Agent[None, Any] = Agent(model, output_type=NativeOutput(City) if feature == "structured" else str)
    if feature in ("tools", "parallel", "reasoning"):

        @agent.tool_plain
        def get_weather(city: str) -> str:
            return f"{city} is sunny"

    async def ask(what: Any, **more: Any) -> tuple[Any, str, int]:
        settings = OpenAIResponsesModelSettings(**more)
        if mode == "background":
            settings["openai_background"] = True
        if mode == "websocket":
            settings["openai_transport"] = "websocket"
        if mode != "stream":
            result = await agent.run(what, model_settings=settings)
            return result.output, str(result.response.provider_response_id), 9
        async with agent.run_stream(what, model_settings=settings) as streamed:
            deltas = 0
            if feature != "structured":
                async for _ in streamed.stream_text(delta=True, debounce_by=None):
                    deltas += 1
            output = await streamed.get_output()
            return output, str(streamed.response.provider_response_id), deltas

    if feature == "images":
        import base64

        answer, _, deltas = await ask(["Look.", BinaryContent(base64.b64decode(DOT), media_type="image/png")])
    elif feature == "chain":
        _, first, _ = await ask("One.")
        answer, _, deltas = await ask("Two.", openai_previous_response_id=first)
    elif feature == "conversation":
        conversation = (await client.conversations.create()).id
        await ask("One.", openai_conversation_id=conversation)
        answer, _, deltas = await ask("Two.", openai_conversation_id=conversation)
    else:
        answer, _, deltas = await ask("Hello.")
    if feature == "structured":
        return {"text": f"{answer.city} has {answer.degrees} degrees."}
    await asyncio.sleep(0)
    return {"text": answer, "deltas": deltas}


main(use)
