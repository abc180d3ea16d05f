"""Single tokens as log-probabilities show them: their bytes and a name."""

from typing import Any

from mellea_responses.wire.items import Logprob, TopLogprob


def _byte_alphabet() -> dict[str, int]:
    """The characters that byte-level tokenizers write for each byte: printable ones stand for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()


class Vocabulary:
    """Bytes of tokens, for byte-level and for SentencePiece-like tokenizers.

    Args:
        tokenizer: A transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        spaced = tokenizer.convert_ids_to_tokens(tokenizer.encode("a a", add_special_tokens=False))
        self._byte_level = any("Ġ" in token for token in spaced)

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token stands for."""
        if token in self._tokenizer.added_tokens_decoder:
            return str(self._tokenizer.added_tokens_decoder[token].content).encode()
        written = self._tokenizer.convert_ids_to_tokens(token)
        if written is None:
            return b""  # padding of the output layer beyond the vocabulary
        if self._byte_level:
            return bytes(_BYTES[char] for char in written if char in _BYTES)
        if len(written) == 6 and written.startswith("<0x"):
            return bytes([int(written[3:5], 16)])
        return str(written).replace("▁", " ").encode()

    def described(self, token: int, logprob: float, others: list[tuple[int, float]]) -> Logprob:
        """A token with its log-probability and those of the likeliest ones."""
        top = [TopLogprob(_name(raw), value, list(raw)) for raw, value in ((self.bytes_of(t), v) for t, v in others)]
        raw = self.bytes_of(token)
        return Logprob(_name(raw), logprob, list(raw), top)


def _name(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
