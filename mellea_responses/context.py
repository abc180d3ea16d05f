"""For programs: the client's conversation as a Mellea context, with calls, outputs and thoughts in their places.

    from mellea_responses.context import to_context, to_message

    def serve(input, requirements=None, model_options=None):
        session = MelleaSession(backend, to_context(input[:-1]))
        return session.act(to_message(input[-1]), strategy=None, model_options=model_options, tool_calls=True)

Every turn is an explicit `Message`. A thunk in a context would lose its calls with most backends.
"""

from collections.abc import Iterable
from typing import Any

from mellea.core import AudioBlock, AudioUrlBlock
from mellea.serve import ChatMessage
from mellea.stdlib.components.chat import Message
from mellea.stdlib.context import ChatContext


def to_context(input: Iterable[ChatMessage], context: ChatContext | None = None) -> ChatContext:
    """A context that holds these messages.

    Args:
        input: What `serve()` was given, or a part of it.
        context: What they are added to, with its own limits; a new one if left out.

    Raises:
        ValueError: a picture or a sound is none.
    """
    context = context if context is not None else ChatContext()
    for message in input:
        context = context.add(to_message(message))
    return context


def to_message(message: ChatMessage) -> Message:
    """One message as a Mellea component: to add to a context, or to act on.

    Args:
        message: One of what `serve()` was given.

    Raises:
        ValueError: a picture or a sound is none.
    """
    role: Message.Role = "tool" if message.role == "function" else message.role
    calls: list[dict[str, Any]] | None = getattr(message, "tool_calls", None)
    return Message(
        role,
        message.get_text_content(),
        images=message.get_image_blocks() or None,
        audio=list[AudioBlock | AudioUrlBlock](message.get_audio_blocks()) or None,
        tool_calls=calls or None,
        tool_call_id=message.tool_call_id,
        tool_name=message.name if role == "tool" else None,
        thinking=getattr(message, "reasoning", None),
    )
