"""Watches the tools of the program run, then reads the answer. There is no loop: the program has its own."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")

with client.responses.stream(model=model, input="Which is higher, Dachstein or Triglav?") as stream:
    for event in stream:
        if event.type == "response.output_item.done" and event.item.type == "mcp_call":
            print(f"{event.item.name}({event.item.arguments}) = {event.item.output}")
    response = stream.get_final_response()

print(response.output_text)
