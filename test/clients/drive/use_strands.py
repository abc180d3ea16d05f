"""Strands: `use_strands.py MODE/FEATURE=URL…` with the modes stream, stateful."""

import base64
from typing import Any

from common import DOT, main
from pydantic import BaseModel
from strands import Agent, tool
from strands.models.openai_responses import OpenAIResponsesModel

CALLING = ("tools", "parallel", "reasoning")


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
    stateful = mode == "stateful" or feature == "chain"
    model = OpenAIResponsesModel(
        client_args={"base_url": f"{url}/v1", "api_key": "unused"}, model_id="local", stateful=stateful
    )
    pieces: list[str] = []

    def heard(**event: Any) -> None:
        if "data" in event:
            pieces.append(event["data"])

    agent = Agent(model=model, tools=[get_weather] if feature in CALLING else [], callback_handler=heard)
    if feature == "structured":
        city: Any = agent("Graz?", structured_output_model=City).structured_output
        return {"text": f"{city.city} has {city.degrees} degrees."}
    if feature == "images":
        dot = {"format": "png", "source": {"bytes": base64.b64decode(DOT)}}
        return {"text": str(agent([{"text": "Look."}, {"image": dot}])).strip()}
    if feature in ("chain", "conversation"):
        agent("One.")
        return {"text": str(agent("Two.")).strip()}
    answer = agent("How is the weather?")
    return {"text": str(answer).strip(), "deltas": len(pieces)}


main(use)
