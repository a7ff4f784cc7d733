"""Tells who is behind a key, in constant time."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

from smg.errors import Unauthenticated
from smg.types.context import ANONYMOUS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterable

_SCHEME = "bearer "


class CallerDirectory:
    """The keys that are configured.

    Args:
        api_key: the shared key; empty for none.
        tenant_keys: (tenant, key) pairs.
    """

    def __init__(self, api_key: str = "", tenant_keys: Iterable[tuple[str, str]] = ()) -> None:
        # Digests have one length, so that comparing them tells nothing about the keys' lengths.
        self._shared = _digest(api_key) if api_key else b""
        self._tenants = [(tenant, _digest(key)) for tenant, key in tenant_keys]

    @property
    def is_open(self) -> bool:
        """No key is configured: anybody may call, and administer."""
        return not self._shared and not self._tenants

    def identify(self, authorization: str) -> Caller:
        """The caller behind an Authorization header of a serving endpoint.

        Raises:
            Unauthenticated: no key, or one that is not configured.
        """
        if self.is_open:
            return ANONYMOUS
        given = _digest(_token(authorization))
        found: Caller | None = None
        # Every key is compared, whether or not one has matched already.
        for tenant, key in self._tenants:
            if hmac.compare_digest(given, key) and found is None:
                found = Caller(tenant=tenant)
        if self._shared and hmac.compare_digest(given, self._shared):
            found = Caller(is_admin=True)
        if found is None:
            raise Unauthenticated("the API key is missing or not known; send it as Authorization: Bearer KEY")
        return found

    def identify_admin(self, authorization: str) -> Caller:
        """The caller behind an Authorization header of an administrative endpoint.

        Tenant keys do not open it; with only tenant keys configured nothing does.

        Raises:
            Unauthenticated: not the shared key, though some key is configured.
        """
        if self.is_open:
            return Caller(is_admin=True)
        if self._shared and hmac.compare_digest(_digest(_token(authorization)), self._shared):
            return Caller(is_admin=True)
        raise Unauthenticated("this needs the gateway's own API key; send it as Authorization: Bearer KEY")


def _token(authorization: str) -> str:
    if authorization[: len(_SCHEME)].lower() == _SCHEME:
        return authorization[len(_SCHEME) :].strip()
    return ""


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
