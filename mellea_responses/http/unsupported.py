"""The header that names hosted tools which nobody here can run."""

import re

from mellea_responses.turn import Turn

UNSUPPORTED = "x-mellea-unsupported-tools"
_NOT_IN_A_HEADER = re.compile(r"[^\w.:/-]", re.ASCII)  # a tool's type is whatever the client wrote


def unsupported(turn: Turn) -> dict[str, str]:
    """The header, if there is something to name."""
    names = [_NOT_IN_A_HEADER.sub("?", name[:64]) for name in turn.unsupported_tools[:32]]
    return {UNSUPPORTED: ", ".join(names)} if names else {}
