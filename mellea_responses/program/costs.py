"""What generations cost, as Mellea tells it and as the answer says it."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from mellea_responses.turn import Usage


def usage_of(given: Mapping[str, Any] | None) -> Usage | None:
    """Mellea's counts of one generation, in the shape of chat completions; None where the backend counts nothing."""
    if not given:
        return None
    prompt, completion = (given.get(f"{side}_tokens_details") or {} for side in ("prompt", "completion"))
    return Usage(
        input_tokens=given.get("prompt_tokens") or 0,
        output_tokens=given.get("completion_tokens") or 0,
        cached_tokens=prompt.get("cached_tokens") or 0,
        reasoning_tokens=completion.get("reasoning_tokens") or 0,
    )


def added(costs: Sequence[Usage]) -> Usage:
    """What several generations cost together."""
    return Usage(*(sum(column) for column in zip(*map(astuple, costs), strict=True)))
