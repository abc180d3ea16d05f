"""Asks through two servers: the call comes back here, its output goes all the way there, by the id of the response."""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")

whole = {"type": "integer"}
schema = {"type": "object", "properties": {"a": whole, "b": whole}, "required": ["a", "b"]}
tools = [{"type": "function", "name": "add", "description": "Adds two whole numbers.", "parameters": schema}]

first = client.responses.create(model=model, input="What is 17 and 25?", tools=tools)
call = first.output[-1]
print(f"{call.name}({call.arguments})")
total = sum(json.loads(call.arguments).values())
with client.responses.stream(
    model=model,
    input=[{"type": "function_call_output", "call_id": call.call_id, "output": str(total)}],
    tools=tools,
    previous_response_id=first.id,
) as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
print()
