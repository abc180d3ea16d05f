"""Prints each piece of text the moment it arrives, then what the whole answer cost."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")

with client.responses.stream(model=model, input="Count down from three.") as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, flush=True)
    response = stream.get_final_response()

print(response.status, "after", response.usage.output_tokens, "tokens")
