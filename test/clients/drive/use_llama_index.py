"""LlamaIndex: `use_llama_index.py MODE/FEATURE=URL…` with the modes plain, stream."""

import base64
from typing import Any

from common import DOT, main
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses
from pydantic import BaseModel


class City(BaseModel):
    city: str
    degrees: int


def get_weather(city: str) -> str:
    """How the weather is."""
    return f"{city} is sunny"


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    more: dict[str, Any] = {"track_previous_responses": True} if feature == "chain" else {}
    if feature == "reasoning":
        more = {"reasoning_options": {"effort": "low", "summary": "auto"}, "store": True}
    model = OpenAIResponses(model="gpt-5.5", api_base=f"{url}/v1", api_key="unused", max_retries=0, **more)
    messages = [ChatMessage(role="user", content="How is the weather?")]
    if feature in ("tools", "parallel", "reasoning"):
        tool = FunctionTool.from_defaults(get_weather)
        for _ in range(4):
            answer = model.chat_with_tools([tool], chat_history=messages, allow_parallel_tool_calls=True)
            calls = model.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
            messages.append(answer.message)
            if not calls:
                break
            for call in calls:
                kept = {"call_id": call.tool_id}
                words = get_weather(**call.tool_kwargs)
                messages.append(ChatMessage(role="tool", content=words, additional_kwargs=kept))
        return {"text": answer.message.content}
    if feature == "structured":
        city = model.structured_predict(City, PromptTemplate("Graz?"))
        return {"text": f"{city.city} has {city.degrees} degrees."}
    if feature == "images":
        blocks = [TextBlock(text="Look."), ImageBlock(image=base64.b64decode(DOT), image_mimetype="image/png")]
        return {"text": model.chat([ChatMessage(role="user", blocks=blocks)]).message.content}
    if feature in ("chain", "conversation"):
        messages = [ChatMessage(role="user", content="One.")]
        messages += [model.chat(messages).message, ChatMessage(role="user", content="Two.")]
        return {"text": model.chat(messages).message.content}
    if mode == "plain":
        return {"text": model.chat(messages).message.content}
    pieces = [chunk.delta for chunk in model.stream_chat(messages) if chunk.delta]
    return {"text": "".join(pieces), "deltas": len(pieces)}


main(use)
