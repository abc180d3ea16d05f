"""Each sentence of `expect.checks`, bound by its exact words to the assertion that it means.

A check gets the `Played` case while its server still runs, so it may ask again. `judge` finds the check of a sentence;
a sentence that nobody has bound is a failure.
"""

import inspect
from collections.abc import Awaitable, Callable

from cases.play import Played

Check = Callable[[Played], Awaitable[None] | None]
CHECKS: dict[str, Check] = {}


def check(sentence: str) -> Callable[[Check], Check]:
    """Binds an assertion to a sentence."""

    def bind(assertion: Check) -> Check:
        assert sentence not in CHECKS, f"bound twice: {sentence}"
        CHECKS[sentence] = assertion
        return assertion

    return bind


async def judge(sentence: str, played: Played) -> None:
    """Raises when the sentence does not hold, or when nobody has bound it."""
    assert sentence in CHECKS, f"no assertion is bound to: {sentence}"
    result = CHECKS[sentence](played)
    if inspect.isawaitable(result):
        await result
