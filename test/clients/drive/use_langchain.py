"""LangChain for Python: `use_langchain.py MODE/FEATURE=URL…` with the modes plain, stream."""

from typing import Any

from common import PIXEL, main
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class City(BaseModel):
    city: str
    degrees: int


@tool
def get_weather(city: str) -> str:
    """How the weather is."""
    return f"{city} is sunny"


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    more: dict[str, Any] = {"use_previous_response_id": True} if feature == "chain" else {}
    if feature == "reasoning":
        more |= {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
    model = ChatOpenAI(model="local", base_url=f"{url}/v1", api_key="unused", use_responses_api=True, **more)
    deltas = 0

    def ask(asked: Any, messages: list[Any]) -> Any:
        nonlocal deltas
        if mode == "plain":
            return asked.invoke(messages)
        whole = None
        for chunk in asked.stream(messages):
            deltas += bool(chunk.text)
            whole = chunk if whole is None else whole + chunk
        return whole

    if feature == "structured":
        city: Any = model.with_structured_output(City, method="json_schema").invoke("Graz?")
        return {"text": f"{city.city} has {city.degrees} degrees."}
    if feature == "images":
        parts = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
        return {"text": ask(model, [HumanMessage(parts)]).text}
    if feature == "conversation":
        where = {"conversation": model.root_client.conversations.create().id}
        ask(model.bind(**where), [HumanMessage("One.")])
        return {"text": ask(model.bind(**where), [HumanMessage("Two.")]).text}
    if feature == "chain":
        messages: list[Any] = [HumanMessage("One.")]
        messages += [ask(model, messages), HumanMessage("Two.")]
        return {"text": ask(model, messages).text}
    messages = [HumanMessage("How is the weather?")]
    caller = model.bind_tools([get_weather]) if feature in ("tools", "parallel", "reasoning") else model
    for _ in range(4):
        answer = ask(caller, messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        messages += [
            ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls
        ]
    return {"text": answer.text} if mode == "plain" else {"text": answer.text, "deltas": deltas}


main(use)
