"""From tokens to text: whole characters as they become whole, and stop strings that never leave."""

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TokenText:
    """The text of a growing list of tokens, a piece for each token that completes a character.

    Special tokens appear by their names: markers of reasoning and calls are often special tokens, and whoever splits
    the text needs to see them. Bytes that never become a character are left out, so no piece holds U+FFFD.

    Args:
        tokenizer: A transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._stream = DecodeStream([], skip_special_tokens=False) if self._backend is not None else None
        self._pending: list[int] = []

    def push(self, token: int) -> tuple[Sequence[int], str]:
        """Add one token. The answer is the tokens that became text with it, and the text; both empty while waiting."""
        self._pending.append(token)
        piece = self._step(token)
        if piece is None:
            return (), ""
        done, self._pending = self._pending, []
        return done, piece.replace(REPLACEMENT, "")

    def _step(self, token: int) -> str | None:
        if self._stream is None or self._backend is None:
            return self._decode_pending()
        try:
            return self._stream.step(self._backend, token)
        except Exception:
            # The stream gives up for good when a decoder rewrites earlier text; start again from this point.
            self._stream = DecodeStream([], skip_special_tokens=False)
            return self._decode_pending()

    def _decode_pending(self) -> str | None:
        piece: str = self._tokenizer.decode(self._pending, skip_special_tokens=False)
        return None if piece.endswith(REPLACEMENT) else piece


class StopCutter:
    """Ends text before the stop string that is whole first, holding back what could still become one.

    First by its end, not by its beginning: the text stops growing there, so how it was cut into pieces cannot matter.
    Of two that end together the longer one is taken out.

    Args:
        stops: Strings that end the answer; empty ones are ignored.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Add text; the answer is what may leave now."""
        if not self._stops or self.stopped:
            return "" if self.stopped else text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            _, begins = min(found)
            return text[:begins]
        keep = max(_open_match(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, when it turned out to be no stop string."""
        held, self._held = self._held, ""
        return held


def _open_match(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
