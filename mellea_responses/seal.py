"""Sealing: what a client keeps for us without reading it.

AES-256-GCM. The associated data binds a seal to its owner, kind and format; response id, model and call ids travel
inside. What cannot be opened (forged, cut, another owner's, an old key's) is None, never an error that tells why.
"""

import base64
import binascii
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION = b"mr1"
KEY_BYTES = 32
_NONCE_BYTES = 12

Kind = Literal["reasoning", "compaction"]


class Sealer:
    """Seals and opens values of one server.

    Args:
        key: 32 bytes; a fresh one if left out, so seals do not outlive the process.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(KEY_BYTES)

    @cached_property
    def _aead(self) -> "AESGCM":
        # Seven megabytes that most servers never need: loaded with the first seal.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)

    @classmethod
    def from_file(cls, path: str) -> "Sealer":
        """A sealer whose key is in a file: 64 hex digits, or 32 raw bytes.

        Raises:
            ValueError: the file holds neither.
        """
        raw = Path(path).read_bytes()
        text = raw.strip()
        key = bytes.fromhex(text.decode()) if len(text) == 2 * KEY_BYTES else raw
        if len(key) != KEY_BYTES:
            raise ValueError(f"{path} must hold 64 hex digits or {KEY_BYTES} bytes.")
        return cls(key)

    def seal(self, owner: str, kind: Kind, value: Any) -> str:
        """The value as text that only this owner's requests can bring back."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._aead.encrypt(nonce, msgspec.json.encode(value), _bound(owner, kind))
        return base64.urlsafe_b64encode(VERSION + nonce + sealed).decode()

    def open(self, owner: str, kind: Kind, text: str, as_type: Any = Any) -> Any | None:
        """The value, or None if this is no seal of ours for this owner."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.urlsafe_b64decode(text.encode())
            if not raw.startswith(VERSION):
                return None
            nonce, sealed = raw[len(VERSION) :][:_NONCE_BYTES], raw[len(VERSION) + _NONCE_BYTES :]
            return msgspec.json.decode(self._aead.decrypt(nonce, sealed, _bound(owner, kind)), type=as_type)
        except (binascii.Error, ValueError, InvalidTag, msgspec.DecodeError):
            return None


def _bound(owner: str, kind: Kind) -> bytes:
    return msgspec.json.encode([VERSION.decode(), kind, owner])
