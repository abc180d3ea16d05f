"""Microsoft's agent-framework: `use_agent_framework.py MODE/FEATURE=URL…` with the modes plain, stream."""

import base64
import json
import urllib.request
from typing import Any

from agent_framework import Agent, Content, Message
from agent_framework_openai import OpenAIChatClient
from common import DOT, main
from pydantic import BaseModel


class City(BaseModel):
    city: str
    degrees: int


def get_weather(city: str) -> str:
    """How the weather is."""
    return f"{city} is sunny"


async def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    client = OpenAIChatClient(model="local", api_key="unused", base_url=f"{url}/v1")
    tools: list[Any] = [get_weather] if feature in ("tools", "parallel", "reasoning") else []
    agent = Agent(client, "Answer shortly.", tools=tools)

    async def ask(what: Any, **more: Any) -> tuple[Any, int]:
        if mode == "plain":
            return await agent.run(what, **more), 9
        stream = agent.run(what, stream=True, **more)
        pieces = [update.text async for update in stream if update.text]
        return await stream.get_final_response(), len(pieces)

    if feature == "chain":
        session = agent.create_session()
        await ask("One.", session=session)
        answer, deltas = await ask("Two.", session=session)
    elif feature == "conversation":
        options = {"conversation_id": new_conversation(url)}
        await ask("One.", options=options)
        answer, deltas = await ask("Two.", options=options)
    elif feature == "structured":
        answer, deltas = await ask("Graz?", options={"response_format": City})
        return {"text": f"{answer.value.city} has {answer.value.degrees} degrees.", "deltas": deltas}
    elif feature == "images":
        parts = [Content.from_text("Look."), Content.from_data(base64.b64decode(DOT), "image/png")]
        answer, deltas = await ask(Message("user", parts))
    elif feature == "reasoning":
        answer, deltas = await ask("How is the weather?", options={"reasoning": {"effort": "low", "summary": "auto"}})
    else:
        answer, deltas = await ask("How is the weather?")
    return {"text": answer.text, "deltas": deltas}


def new_conversation(url: str) -> str:
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(f"{url}/v1/conversations", data=b"{}", headers=headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return str(json.load(answer)["id"])


main(use)
