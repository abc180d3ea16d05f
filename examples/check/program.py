"""A refusal before anything is said: `check(turn)` runs before the stream begins, so what it raises is a plain 400.

Serve it with `mellea-responses serve examples/check/program.py`.
"""

from mellea_responses.errors import InvalidRequest

LIMIT = 40


def check(turn):
    length = sum(len(part.text) for item in turn.input for part in item.content if hasattr(part, "text"))
    if length > LIMIT:
        raise InvalidRequest(f"At most {LIMIT} characters, got {length}.", param="input", code="too_long")


def serve(input, requirements=None, model_options=None):
    yield "Short and good."
