"""Finds who a key belongs to, among any number of keys, in a time that tells nothing about them.

Only digests are kept, made with a secret of this process: nobody outside can choose a token by its digest, so the time
that looking one up takes is no hint. Digests have one length, whatever the keys have.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.types.context import Caller


class KeyTable:
    """Keys and whose they are. An Authenticator."""

    def __init__(self, keys: Iterable[tuple[str, Caller]]) -> None:
        self._secret = secrets.token_bytes(32)
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        for key, caller in keys:
            digest = self._digest(key.encode())
            self._callers[digest] = (digest, caller)

    def caller(self, token: bytes) -> Caller | None:
        """Whose key it is."""
        given = self._digest(token)
        known, caller = self._callers.get(given, (b"", None))
        return caller if hmac.compare_digest(given, known) else None

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, key=self._secret, digest_size=32).digest()
