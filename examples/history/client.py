"""Continues an answer twice from the same place, then forgets where it began: the branches live on."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")


def say(text: str, previous: str | None = None) -> str:
    response = client.responses.create(model=model, input=text, previous_response_id=previous)
    print(f"{text} -> {response.output_text}")
    return response.id


root = say("One")
left = say("Two", root)
right = say("Three", root)
client.responses.delete(root)
say("Four", right)
print("Asked with:", [item.content[0].text for item in client.responses.input_items.list(left)])
