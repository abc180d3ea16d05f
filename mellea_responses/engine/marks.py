"""Telling a marker the model meant from one it only typed.

A marker that is a token of the vocabulary counts only as that token. Inside the splitter each such token becomes one
lone surrogate, a character that no decoded text can hold, and every literal of the family is rewritten the same way.
So a typed `<tool_call>` is simply not the marker any more. A marker the vocabulary lacks stays the text it is.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

FIRST = 0xD800
LAST = 0xDFFF


class Marks:
    """The markers of one vocabulary.

    Args:
        tokenizer: A transformers tokenizer.
        literals: Every marker the family knows.
    """

    def __init__(self, tokenizer: Any, literals: Iterable[str]) -> None:
        tokens = added_tokens(tokenizer)
        texts = tuple(literals)
        special = {token for token, (_, is_special) in tokens.items() if is_special}
        self._tokenizer = tokenizer
        # Longest first: a literal may be a marker and some words (`<|channel>thought`).
        wanted = [token for token in sorted(tokens, key=len, reverse=True) if _is_part(token, texts)]
        self._char = {token: chr(FIRST + n) for n, token in enumerate(wanted[: LAST - FIRST])}
        self._text = {ord(char): token for token, char in self._char.items()}
        self.chars = "".join(self._char.values())
        # Specials that mark nothing here (end of turn, padding) are the model talking to its runtime.
        self._known = {tokens[token][0]: (token, self._char.get(token, "")) for token in special | set(self._char)}
        self.boundaries = tuple(token for token in special if token not in self._char)

    def encode(self, text: str) -> str:
        """`text` with every marker token as its character; for text known to be tokens: literals and prompts."""
        for token, char in self._char.items():
            text = text.replace(token, char)
        return text

    def encode_pattern(self, pattern: str) -> str:
        """Likewise for a regular expression, where a marker may be written escaped."""
        for token, char in self._char.items():
            pattern = pattern.replace(re.escape(token), char).replace(token, char)
        return pattern

    def decode(self, text: str) -> str:
        """Markers back as they read."""
        return text if text.isascii() else text.translate(self._text)

    def drop(self, text: str) -> str:
        """Markers left out: one that has no meaning where it stands is no word for the reader."""
        return text if text.isascii() else text.translate(dict.fromkeys(self._text))

    def pieces(self, ids: Sequence[int], text: str) -> list[str]:
        """Cut newly generated text at its marker tokens; each is replaced by its character, or left out."""
        known = self._known
        marks = [at for at, token in enumerate(ids) if token in known]
        if not marks:
            return [text] if text else []
        out: list[str] = []
        start = 0
        for at in marks:
            literal, char = known[ids[at]]
            where = self._find(ids[start:at], literal, text)
            out += (text if where < 0 else text[:where], char)
            text = "" if where < 0 else text[where + len(literal) :]
            start = at + 1
        return [piece for piece in (*out, text) if piece]

    def _find(self, before: Sequence[int], literal: str, text: str) -> int:
        """Where the token stands in `text`; the same letters may have been typed `before` it."""
        where = text.find(literal)
        if before and text.find(literal, where + 1) >= 0:
            for _ in range(str(self._tokenizer.decode(list(before), skip_special_tokens=False)).count(literal)):
                where = text.find(literal, where + 1)
        return where


def _is_part(token: str, texts: Sequence[str]) -> bool:
    """Whether a literal or pattern names this token. Some vocabularies add runs of blanks and words: those never."""
    if len(token) < 3 or token.isalnum() or token != token.strip():
        return False
    escaped = re.escape(token)
    return any(token in text or escaped in text for text in texts)


def added_tokens(tokenizer: Any) -> dict[str, tuple[int, bool]]:
    """Text to id and whether it is special, for every token that is matched as a whole."""
    decoder = getattr(tokenizer, "added_tokens_decoder", None) or {}
    tokens = {str(token.content): (int(number), bool(token.special)) for number, token in decoder.items()}
    names = getattr(tokenizer, "all_special_tokens", None) or []
    numbers = getattr(tokenizer, "all_special_ids", None) or []
    tokens.update((str(name), (int(number), True)) for name, number in zip(names, numbers, strict=False))
    return tokens
