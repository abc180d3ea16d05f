"""instructor: `use_instructor.py MODE/FEATURE=URL…` with the mode plain."""

from typing import Any

import instructor
from common import main
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    city: str
    degrees: int


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    client = instructor.from_openai(
        OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0), mode=instructor.Mode.RESPONSES_TOOLS
    )
    city = client.responses.create(model="local", input="Graz?", response_model=City, max_retries=0)
    return {"text": f"{city.city} has {city.degrees} degrees."}


main(use)
