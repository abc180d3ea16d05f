"""What a program sees of a conversation: `turn.history` is the chain, `turn.input` what this request adds.

The client sends only what is new; the server puts the chain in front of it.

Serve it with `mellea-responses serve examples/history/program.py --response-ttl 600`.
"""

from mellea_responses.wire.items import Message


def serve(turn):
    said = [item.content[0].text for item in turn.history if isinstance(item, Message) and item.role == "user"]
    return f"Before this you said: {', '.join(said) or 'nothing'}."
