"""The SDKs and frameworks that are driven: each in all of its ways, and what it cannot do itself, in words."""

from support.driving import FEATURES, Client

WHOLE = {"stream": "-", "cut": "-"}  # nothing is streamed
FAKED = {"cut": "for models it does not know it fetches the whole answer and streams that itself"}
OPEN = {"chain": "it never sends previous_response_id", "conversation": "it never sends a conversation"}
QUIET = {"failed": "this version of its provider ends with the finish reason error and keeps the message to itself"}
UNTOLD = "over a WebSocket it says that the answer failed and keeps the message to itself"
MUTE = {"error": UNTOLD, "failed": UNTOLD}
TURNED = {"parallel": "it gives the calls of a stream back in another order, each with its own output"}
FORGETS = {"reasoning": "it leaves earlier reasoning out"}
CHAT = {"chain": "in chat completions every turn sends the whole conversation"}
WORDS = {"reasoning": "they keep the words of an answer and its calls, nothing else"}
FORMS = dict.fromkeys(FEATURES.keys() - {"structured", "error", "failed"}, "it is for structured answers alone")
STATELESS = {"chain": "it sends the whole conversation every time"}
PLUGIN = {"conversation": "under this version of llm it continues a conversation without what was said before"}
CLIENTS = (
    Client("openai-python", "openai-agents", "use_openai.py", "plain", WHOLE),
    Client("openai-python, stream", "openai-agents", "use_openai.py", "stream"),
    Client("openai-python, async", "openai-agents", "use_openai.py", "async", WHOLE),
    Client("openai-python, async, stream", "openai-agents", "use_openai.py", "async-stream"),
    Client("openai-python, WebSocket", "openai-agents", "use_openai.py", "websocket"),
    Client("Agents SDK Python", "openai-agents", "use_agents.py", "plain", WHOLE),
    Client("Agents SDK Python, stream", "openai-agents", "use_agents.py", "stream"),
    Client("Agents SDK Python, WebSocket", "openai-agents", "use_agents.py", "websocket"),
    Client("openai-node 7", "openai-node-7", "use_openai.mjs", "plain", WHOLE),
    Client("openai-node 7, stream", "openai-node-7", "use_openai.mjs", "stream"),
    Client("openai-node 7, WebSocket", "openai-node-7", "use_openai.mjs", "websocket"),
    Client("openai-node 6", "openai-node-6", "use_openai.mjs", "plain", WHOLE),
    Client("openai-node 6, stream", "openai-node-6", "use_openai.mjs", "stream"),
    Client("openai-node 6, WebSocket", "openai-node-6", "use_openai.mjs", "websocket"),
    Client("pydantic-ai", "pydantic-ai", "use_pydantic_ai.py", "plain", WHOLE),
    Client("pydantic-ai, stream", "pydantic-ai", "use_pydantic_ai.py", "stream"),
    Client("pydantic-ai, background", "pydantic-ai", "use_pydantic_ai.py", "background", WHOLE),
    Client("pydantic-ai, WebSocket", "pydantic-ai", "use_pydantic_ai.py", "websocket"),
    Client("LangChain Python", "langchain", "use_langchain.py", "plain", WHOLE),
    Client("LangChain Python, stream", "langchain", "use_langchain.py", "stream"),
    Client("LiteLLM", "litellm", "use_litellm.py", "responses", FAKED),
    Client("LiteLLM, chat bridge", "litellm", "use_litellm.py", "bridge", FAKED | CHAT),
    Client("AI SDK 7, openai", "ai-sdk-7", "use_ai_sdk.mjs", "openai", WHOLE),
    Client("AI SDK 7, openai, stream", "ai-sdk-7", "use_ai_sdk.mjs", "openai-stream"),
    Client("AI SDK 7, open-responses", "ai-sdk-7", "use_ai_sdk.mjs", "open-responses", OPEN | WHOLE),
    Client("AI SDK 7, open-responses, stream", "ai-sdk-7", "use_ai_sdk.mjs", "open-responses-stream", OPEN),
    Client("AI SDK 6, openai", "ai-sdk-6", "use_ai_sdk.mjs", "openai", WHOLE),
    Client("AI SDK 6, openai, stream", "ai-sdk-6", "use_ai_sdk.mjs", "openai-stream"),
    Client("AI SDK 6, open-responses", "ai-sdk-6", "use_ai_sdk.mjs", "open-responses", OPEN | WHOLE),
    Client("AI SDK 6, open-responses, stream", "ai-sdk-6", "use_ai_sdk.mjs", "open-responses-stream", OPEN | QUIET),
    Client("Agents SDK JS", "openai-agents-js", "use_agents.mjs", "plain", WHOLE),
    Client("Agents SDK JS, stream", "openai-agents-js", "use_agents.mjs", "stream"),
    Client("Agents SDK JS, WebSocket", "openai-agents-js", "use_agents.mjs", "websocket", MUTE),
    Client("LangChain JS", "langchain-js", "use_langchain.mjs", "plain", WHOLE),
    Client("LangChain JS, stream", "langchain-js", "use_langchain.mjs", "stream"),
    Client("instructor", "instructor", "use_instructor.py", "plain", FORMS),
    Client("Strands", "strands", "use_strands.py", "stream", FORGETS),
    Client("Strands, stateful", "strands", "use_strands.py", "stateful"),
    Client("Haystack", "haystack", "use_haystack.py", "plain", WHOLE),
    Client("Haystack, stream", "haystack", "use_haystack.py", "stream", TURNED),
    Client("LlamaIndex", "llama-index", "use_llama_index.py", "stream"),
    Client("llm", "llm", "use_llm.py", "plain", WHOLE | STATELESS),
    Client("llm, stream", "llm", "use_llm.py", "stream", STATELESS),
    Client("llm, llm-openai-plugin", "llm", "use_llm.py", "plugin", STATELESS | PLUGIN),
    Client("Chat as Mellea's clients", "chat", "use_chat.py", "sdk", WHOLE | CHAT | WORDS),
    Client("Chat as Mellea's clients, stream", "chat", "use_chat.py", "stream", CHAT | WORDS),
    Client("Chat as Mellea's clients, by hand", "chat", "use_chat.py", "requests", CHAT | WORDS),
    Client("agent-framework", "agent-framework", "use_agent_framework.py", "plain", WHOLE),
    Client("agent-framework, stream", "agent-framework", "use_agent_framework.py", "stream"),
)
