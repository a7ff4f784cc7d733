"""What an authenticator is: it tells who is behind the token of an Authorization header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from smg.types.context import Caller

_SCHEME = b"bearer "


class Authenticator(Protocol):
    """One way to tell callers. Made once, at the start; asked for every request, on the event loop.

    It must answer at once: what it has to fetch (the keys of an identity provider) is fetched in the background.
    What it compares must not tell by its time how much of a token was right.
    """

    def caller(self, token: bytes) -> Caller | None:
        """Who shows the token, which is not empty; None when this way does not know it."""
        ...


def bearer_token(authorization: bytes) -> bytes:
    """The token of an Authorization header, b"" when there is none. The scheme's case does not matter (RFC 9110)."""
    if authorization[: len(_SCHEME)].lower() == _SCHEME:
        return authorization[len(_SCHEME) :].strip(b" ")
    return b""
