"""Runs the tools that it is asked to run, until an answer has none: the loop of every agent."""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")


def add(a: int, b: int) -> int:
    return a + b


TOOLS = {"add": add}
declared = [
    {
        "type": "function",
        "name": "add",
        "description": "Adds two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "strict": True,
    }
]

response = client.responses.create(model=model, input="What is 17 and 25?", tools=declared)
while calls := [item for item in response.output if item.type == "function_call"]:
    outputs = []
    for call in calls:
        result = TOOLS[call.name](**json.loads(call.arguments))
        print(f"{call.name}({call.arguments}) = {result}")
        outputs.append({"type": "function_call_output", "call_id": call.call_id, "output": str(result)})
    response = client.responses.create(model=model, input=outputs, tools=declared, previous_response_id=response.id)
print(response.output_text)
