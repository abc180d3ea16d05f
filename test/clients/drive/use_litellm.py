"""LiteLLM: `use_litellm.py MODE/FEATURE=URL…`.

The modes are responses, its `responses()`, and bridge, chat calls that it turns into them.
"""

import json
from typing import Any

import litellm
from common import PIXEL, main

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "get_weather", "parameters": PARAMETERS}


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    where: dict[str, Any] = {"api_base": f"{url}/v1", "api_key": "unused"}
    return responses(feature, where) if mode == "responses" else bridge(feature, where)


def responses(feature: str, where: dict[str, Any]) -> dict[str, Any]:
    def ask(what: Any, **more: Any) -> Any:
        return litellm.responses(model="openai/local", input=what, **where, **more)

    if feature in ("stream", "failed", "cut"):
        pieces = []
        for event in ask("Hello.", stream=True):
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            if event.type == "response.failed":
                return {"error": str(event.response.error)}
        return {"text": "".join(pieces), "deltas": len(pieces)}
    if feature == "structured":
        form = {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}
        city = json.loads(text_of(ask("Graz?", text={"format": form})))
        return {"text": f"{city['city']} has {city['degrees']} degrees."}
    if feature == "images":
        parts = [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": PIXEL}]
        return {"text": text_of(ask([{"role": "user", "content": parts}]))}
    if feature == "conversation":
        from openai import OpenAI

        conversation = OpenAI(base_url=where["api_base"], api_key="unused").conversations.create().id
        ask("One.", extra_body={"conversation": conversation})
        return {"text": text_of(ask("Two.", extra_body={"conversation": conversation}))}
    if feature == "chain":
        return {"text": text_of(ask("Two.", previous_response_id=ask("One.").id))}
    items: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    more: dict[str, Any] = {"tools": [TOOL]} if feature in ("tools", "parallel", "reasoning") else {}
    for _ in range(4):
        answer = ask(items, **more)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return {"text": text_of(answer)}
        items += [item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in answer.output]
        for call in calls:
            city = json.loads(call.arguments)["city"]
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": f"{city} is sunny"})
    return {"error": "it never stopped calling"}


def text_of(answer: Any) -> str:
    return "".join(part.text for item in answer.output if item.type == "message" for part in item.content)


def bridge(feature: str, where: dict[str, Any]) -> dict[str, Any]:
    def ask(messages: list[Any], **more: Any) -> Any:
        return litellm.completion(model="openai/responses/local", messages=messages, **where, **more)

    if feature in ("stream", "failed", "cut"):
        chunks = ask([{"role": "user", "content": "Hello."}], stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        pieces = [piece for piece in pieces if piece]
        return {"text": "".join(pieces), "deltas": len(pieces)}
    if feature == "structured":
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
        answer = ask([{"role": "user", "content": "Graz?"}], response_format=form)
        city = json.loads(answer.choices[0].message.content)
        return {"text": f"{city['city']} has {city['degrees']} degrees."}
    if feature == "conversation":
        turns: list[Any] = [{"role": "user", "content": "One."}]
        turns += [ask(turns).choices[0].message, {"role": "user", "content": "Two."}]
        return {"text": ask(turns).choices[0].message.content}
    what: Any = "How is the weather?"
    if feature == "images":
        what = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    messages: list[Any] = [{"role": "user", "content": what}]
    function = {"name": "get_weather", "parameters": PARAMETERS}
    more: dict[str, Any] = {}
    if feature in ("tools", "parallel", "reasoning"):
        more = {"tools": [{"type": "function", "function": function}]}
    if feature == "reasoning":
        more["reasoning_effort"] = {"effort": "low", "summary": "auto"}
    for _ in range(4):
        message = ask(messages, **more).choices[0].message
        if not message.tool_calls:
            return {"text": message.content}
        messages.append(message)
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{city} is sunny"})
    return {"error": "it never stopped calling"}


main(use)
