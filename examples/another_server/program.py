"""The model is at another server, any that speaks chat completions: Ollama, vLLM, LM Studio, a hosted one.

Streams, tools and the whole conversation pass through; state, ids and the Responses API are added here. `UPSTREAM_URL`,
`UPSTREAM_KEY` and `UPSTREAM_MODEL` say where it is. One of the other examples can stand in for it:
`mellea-responses serve examples/tool_calling/program.py --port 8081`.

Serve it with `mellea-responses serve examples/another_server/program.py`.
"""

import os

from mellea import MelleaSession
from mellea.backends.openai import OpenAIBackend

from mellea_responses.context import to_context, to_message

backend = OpenAIBackend(
    os.environ.get("UPSTREAM_MODEL", "local"),
    base_url=os.environ.get("UPSTREAM_URL", "http://127.0.0.1:8081/v1"),
    api_key=os.environ.get("UPSTREAM_KEY", "unused"),
)


async def serve(input, requirements=None, model_options=None):
    session = MelleaSession(backend, to_context(input[:-1]))
    return await session.aact(
        to_message(input[-1]), strategy=None, await_result=False, tool_calls=True, model_options=model_options
    )
