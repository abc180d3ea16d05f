"""A Mellea session over a local model: the client's conversation is its context, the client's tools are its tools.

Serve it with `mellea-responses serve examples/mellea_agent/program.py`.
"""

from mellea import MelleaSession
from mellea.backends import ModelOption

from mellea_responses.backends.transformers import TransformersBackend
from mellea_responses.context import to_context, to_message

backend = TransformersBackend(model_options={ModelOption.MAX_NEW_TOKENS: 256})


async def serve(input, requirements=None, model_options=None):
    session = MelleaSession(backend, to_context(input[:-1]))
    return await session.aact(
        to_message(input[-1]), strategy=None, await_result=False, tool_calls=True, model_options=model_options
    )
