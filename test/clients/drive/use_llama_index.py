"""LlamaIndex: `use_llama_index.py plain|stream FEATURE=URL…`."""

from typing import Any

from common import main
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses


def get_weather(city: str) -> str:
    """How the weather is."""
    return f"{city} is sunny"


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    model = OpenAIResponses(model="gpt-5.5", api_base=f"{url}/v1", api_key="unused", max_retries=0)
    messages = [ChatMessage(role="user", content="How is the weather?")]
    if feature in ("tools", "parallel"):
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
    if mode == "plain":
        return {"text": model.chat(messages).message.content}
    pieces = [chunk.delta for chunk in model.stream_chat(messages) if chunk.delta]
    return {"text": "".join(pieces), "deltas": len(pieces)}


main(use)
