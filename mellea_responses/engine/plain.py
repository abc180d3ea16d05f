"""Splitting what the model writes into Steps: the face of a splitter, and the one for models that only write text."""

from collections.abc import Sequence
from typing import Literal, Protocol

from mellea_responses.turn import Step, Text

Reason = Literal["stop", "length"]


class Splitter(Protocol):
    """Turns generated tokens into Steps while they come."""

    def feed(self, token_ids: Sequence[int], text: str) -> list[Step]:
        """Take the next tokens and the text they add; special tokens appear in the text by their names."""

    def finish(self, reason: Reason) -> list[Step]:
        """The last Steps; a call that the limit cut stays open."""


class PlainSplitter:
    """Everything is text for the reader, except the special tokens, which are the model talking to its runtime."""

    def __init__(self, special: dict[int, str]) -> None:
        self._special = special

    def feed(self, token_ids: Sequence[int], text: str) -> list[Step]:
        for token in token_ids:
            if token in self._special:
                text = text.replace(self._special[token], "", 1)
        return [Text(text)] if text else []

    def finish(self, reason: Reason) -> list[Step]:
        return []
