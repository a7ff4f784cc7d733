"""Lets pages of some origins call the gateway from a browser: cross-origin resource sharing (fetch.spec.whatwg.org).

A browser asks first (OPTIONS, without a key) what a page may send. Only origins that are configured are let in; what
is said to the others is the same but for their name, and their browser keeps the answer from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.arriving import ArrivingRequest
    from gateway.head import Header
    from gateway.reply import ExchangeReply

ANY = "*"
_METHODS = b"GET,POST,PATCH,DELETE,OPTIONS"
_REQUEST_HEADERS = (
    "content-type", "authorization", "anthropic-version", "anthropic-beta", "traceparent", "tracestate",
)  # fmt: skip
_EXPOSED: Header = (b"access-control-expose-headers", b"x-request-id,traceparent,tracestate")
_MAX_AGE: Header = (b"access-control-max-age", b"3600")
_VARY: Header = (b"vary", b"origin")
# Headers of an application's own that are let through beside the list: as many of one preflight, and how long.
_MOST_OWN_HEADERS = 32
_LONGEST_NAME = 64


class Cors:
    """The origins that are let in."""

    def __init__(self, origins: Iterable[str]) -> None:
        """Args: origins: as browsers name them, scheme://host[:port]; "*" lets all in."""
        self._origins = frozenset(origin.encode() for origin in origins)
        self._lets_all = ANY.encode() in self._origins

    def answer(self, origin: bytes) -> list[Header]:
        """Headers of an answer, whatever it is."""
        return [_EXPOSED, *self._allowed(origin)]

    def preflight(self, origin: bytes, wanted: bytes) -> list[Header]:
        """Headers of the answer to a browser that asks first.

        Args:
            origin: of the page.
            wanted: names of the headers that the page would send, with commas between.
        """
        # Client libraries send headers of their own; nothing here reads them, so nothing speaks against them.
        names = [name.strip().lower() for name in wanted.decode("latin-1").split(",")]
        own = [name for name in names if name.startswith("x-") and _is_name(name)][:_MOST_OWN_HEADERS]
        return [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", ",".join((*_REQUEST_HEADERS, *own)).encode()),
            _MAX_AGE,
            *self._allowed(origin),
        ]

    def answer_preflight(self, request: ArrivingRequest, reply: ExchangeReply, methods: str) -> None:
        """Answer a browser that asks first. Args: methods: those that the path has, with commas between."""
        asked = request.headers
        headers = self.preflight(asked[b"origin"], asked.get(b"access-control-request-headers", b""))
        reply.extra_headers = ()
        reply.start(200, [*headers, (b"allow", methods.encode()), (b"content-length", b"0")])
        reply.end()

    def _allowed(self, origin: bytes) -> list[Header]:
        if self._lets_all:
            return [(b"access-control-allow-origin", ANY.encode())]
        # The answer is not the same for every origin: caches must know.
        if origin in self._origins:
            return [(b"access-control-allow-origin", origin), _VARY]
        return [_VARY]


def is_preflight(request: ArrivingRequest) -> bool:
    """A browser asks what a page may send."""
    return request.method == "OPTIONS" and b"origin" in request.headers


def _is_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and all(
        letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name
    )
