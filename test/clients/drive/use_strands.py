"""Strands: `use_strands.py stream FEATURE=URL…`."""

from typing import Any

from common import main
from pydantic import BaseModel
from strands import Agent, tool
from strands.models.openai_responses import OpenAIResponsesModel


class City(BaseModel):
    city: str
    degrees: int


@tool
def get_weather(city: str) -> str:
    """How the weather is.

    Args:
        city: Where.
    """
    return f"{city} is sunny"


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    model = OpenAIResponsesModel(client_args={"base_url": f"{url}/v1", "api_key": "unused"}, model_id="local")
    pieces: list[str] = []

    def heard(**event: Any) -> None:
        if "data" in event:
            pieces.append(event["data"])

    agent = Agent(model=model, tools=[get_weather] if feature in ("tools", "parallel") else [], callback_handler=heard)
    answer = agent("How is the weather?")
    return {"text": str(answer).strip(), "deltas": len(pieces)}


main(use)
