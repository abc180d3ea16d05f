"""API keys and the owners behind them."""

import hashlib
import hmac
import secrets

from mellea_responses.errors import Unauthorized

NO_OWNER = ""


class Keys:
    """The keys that may use this server.

    An owner is an HMAC of the key's name (or of the key, where it has none), so that stores and logs never hold a key
    and another process with the same secret names the same owner.

    Args:
        keys: Each `KEY` or `NAME=KEY`.
        secret: Ties owners to this server; a random one if left out.
    """

    def __init__(self, keys: tuple[str, ...], secret: bytes | None = None) -> None:
        secret = secret or secrets.token_bytes(32)
        self._owners: list[tuple[bytes, str]] = []
        for entry in keys:
            name, separator, key = entry.partition("=")
            if not separator:
                name, key = entry, entry
            owner = hmac.new(secret, name.encode(), hashlib.sha256).hexdigest()[:32]
            self._owners.append((key.encode(), owner))

    def __bool__(self) -> bool:
        return bool(self._owners)

    def owner(self, authorization: str | None) -> str:
        """The owner whose key the request carries.

        Raises:
            Unauthorized: it carries none, or a wrong one. Every key is compared, in constant time each.
        """
        if not self._owners:
            return NO_OWNER
        scheme, _, given = (authorization or "").partition(" ")
        found: str | None = None
        for key, owner in self._owners:
            if hmac.compare_digest(key, given.strip().encode("utf-8", "surrogateescape")):
                found = owner
        if scheme.lower() != "bearer" or found is None:
            raise Unauthorized("A valid API key is needed: send `Authorization: Bearer KEY`.")
        return found
