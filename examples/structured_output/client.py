"""Asks for an object of a class of its own and gets one."""

import os

from openai import OpenAI
from pydantic import BaseModel

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")


class Event(BaseModel):
    name: str
    people: list[str]


response = client.responses.parse(model=model, input="Lunch with Ada and Grace.", text_format=Event)
event = response.output_parsed
print(event.name, "with", " and ".join(event.people))
