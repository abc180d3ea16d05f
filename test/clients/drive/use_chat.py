"""Chat completions as Mellea's own clients of `m serve` ask for them: `use_chat.py MODE/FEATURE=URL…`.

`sdk` and `stream` go through the OpenAI SDK. `requests` writes its bodies by hand, forces the tool it wants, and of a
stream keeps the calls of the last chunk that has any.
"""

import json
from typing import Any

import requests
from common import PIXEL, main
from openai import OpenAI

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": CITY}}
FORCED = {"type": "function", "function": {"name": "get_weather"}}
FORM = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
FORMATS: dict[str, Any] = {
    "structured": {"type": "json_schema", "json_schema": {"name": "city", "schema": FORM, "strict": True}}
}
Said = tuple[str, list[Any], int]


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    messages: list[Any] = [{"role": "user", "content": parts if feature == "images" else "How is the weather?"}]
    if feature == "conversation":
        messages = [{"role": "user", "content": "One."}]
    body: dict[str, Any] = {"model": "granite4.1:3b"}
    if feature in FORMATS:
        body["response_format"] = FORMATS[feature]
    ask = {"sdk": whole, "stream": streamed, "requests": by_hand}[mode]
    asks = {"tools": 2, "parallel": 1}.get(feature, 0)
    deltas = 0
    for _ in range(asks):
        more = {"tools": [TOOL], "tool_choice": FORCED, "temperature": 0.7}
        text, calls, _ = ask(url, {**body, **more, "messages": messages})
        messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
        for call in calls:
            city = json.loads(call["function"]["arguments"])["city"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{city} is sunny"})
    if feature == "conversation":
        text, _, _ = ask(url, {**body, "messages": messages})
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Two."}]
    if asks:
        messages.append({"role": "user", "content": "Answer with what the tools said."})
    text, _, deltas = ask(url, {**body, "messages": messages})
    if feature == "structured":
        city = json.loads(text)
        text = f"{city['city']} has {city['degrees']} degrees."
    return {"text": text, "deltas": deltas} if mode != "sdk" else {"text": text}


def whole(url: str, body: dict[str, Any]) -> Said:
    with OpenAI(api_key="na", base_url=f"{url}/v1") as client:
        message = client.chat.completions.create(**body).choices[0].message
    return message.content or "", [call.model_dump() for call in message.tool_calls or []], 1


def streamed(url: str, body: dict[str, Any]) -> Said:
    pieces: list[str] = []
    calls: dict[int, Any] = {}
    with OpenAI(api_key="na", base_url=f"{url}/v1") as client:
        for chunk in client.chat.completions.create(**body, stream=True):
            delta = chunk.choices[0].delta
            if delta.content:
                pieces.append(delta.content)
            for call in delta.tool_calls or []:
                kept = calls.setdefault(call.index, call.model_dump())
                if kept["id"] != call.id and call.function:
                    kept["function"]["arguments"] += call.function.arguments or ""
    return "".join(pieces), list(calls.values()), len(pieces)


def by_hand(url: str, body: dict[str, Any]) -> Said:
    answer = requests.post(f"{url}/v1/chat/completions", json={**body, "stream": True}, stream=True, timeout=30)
    if answer.status_code >= 400:
        raise requests.HTTPError(f"{answer.status_code} Server Error: {answer.json()['error']['message']}")
    pieces, calls = [], []
    for line in answer.iter_lines():
        data = line.decode().removeprefix("data: ")
        if not data or data == "[DONE]":
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise RuntimeError(chunk["error"]["message"])
        delta = chunk["choices"][0].get("delta", {})
        if delta.get("content"):
            pieces.append(delta["content"])
        calls = delta.get("tool_calls") or calls
    return "".join(pieces), calls, len(pieces)


main(use)
