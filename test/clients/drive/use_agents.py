"""The OpenAI Agents SDK: `use_agents.py MODE/FEATURE=URL…` with the modes plain, stream, websocket."""

from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.models.openai_responses import OpenAIResponsesModel, OpenAIResponsesWSModel
from common import PIXEL, main
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel


class City(BaseModel):
    city: str
    degrees: int


@function_tool
def get_weather(city: str) -> str:
    """How the weather is."""
    return f"{city} is sunny"


async def ask(mode: str, agent: Agent[Any], what: Any, **more: Any) -> dict[str, Any]:
    config = RunConfig(tracing_disabled=True)
    if mode != "stream":
        result: Any = await Runner.run(agent, what, run_config=config, max_turns=5, **more)
        return {"text": result.final_output, "last": result.last_response_id}
    streamed = Runner.run_streamed(agent, what, run_config=config, max_turns=5, **more)
    deltas = 0
    async for event in streamed.stream_events():
        deltas += event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    return {"text": streamed.final_output, "deltas": deltas, "last": streamed.last_response_id}


async def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="unused")
    kind = OpenAIResponsesWSModel if mode == "websocket" else OpenAIResponsesModel
    settings = ModelSettings()
    if feature == "reasoning":
        settings = ModelSettings(reasoning=Reasoning(effort="low", summary="auto"))
    agent = Agent(
        name="Asker",
        instructions="Answer shortly.",
        model=kind(model="local", openai_client=client),
        model_settings=settings,
        tools=[get_weather] if feature in ("tools", "parallel", "reasoning") else [],
        output_type=City if feature == "structured" else None,
    )
    if feature == "chain":
        first = await ask(mode, agent, "One.")
        return await ask(mode, agent, "Two.", previous_response_id=first["last"])
    if feature == "conversation":
        session = OpenAIConversationsSession(openai_client=client)
        await ask(mode, agent, "One.", session=session)
        seen = await ask(mode, agent, "Two.", session=session)
        assert len(await session.get_items()) == 4
        return seen
    if feature == "images":
        parts = [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": PIXEL, "detail": "auto"}]
        return await ask(mode, agent, [{"role": "user", "content": parts}])
    seen = await ask(mode, agent, "How is the weather?")
    if feature == "structured":
        seen["text"] = f"{seen['text'].city} has {seen['text'].degrees} degrees."
    return seen


set_tracing_disabled(True)
main(use)
