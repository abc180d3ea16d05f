"""Microsoft's agent-framework: `use_agent_framework.py plain|stream FEATURE=URL…`."""

from typing import Any

from agent_framework import Agent
from agent_framework_openai import OpenAIChatClient
from common import main


def get_weather(city: str) -> str:
    """How the weather is."""
    return f"{city} is sunny"


async def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    client = OpenAIChatClient(model="local", api_key="unused", base_url=f"{url}/v1")
    tools: list[Any] = [get_weather] if feature in ("tools", "parallel", "reasoning") else []
    agent = Agent(client, "Answer shortly.", tools=tools)
    if feature == "conversation":
        session = agent.create_session()
        await agent.run("One.", session=session)
        return {"text": (await agent.run("Two.", session=session)).text}
    if mode == "plain":
        return {"text": (await agent.run("How is the weather?")).text}
    stream = agent.run("How is the weather?", stream=True)
    pieces = [update.text async for update in stream if update.text]
    return {"text": (await stream.get_final_response()).text, "deltas": len(pieces)}


main(use)
