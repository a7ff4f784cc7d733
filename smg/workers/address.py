"""Turns a worker's URL into where to connect to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from smg.errors import InvalidRequest

TLS_SCHEMES = ("grpcs",)
SCHEMES = ("grpc", *TLS_SCHEMES, "http")

# Names and addresses, an IPv6 one with its zone.
_HOST = re.compile(r"[\w.:%-]{1,255}")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed worker URL.

    Attributes:
        scheme: "grpc", "grpcs" (over TLS) or "http".
        host: name or address, an IPv6 one without brackets.
        port: TCP port.
    """

    scheme: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        """The connection is encrypted."""
        return self.scheme in TLS_SCHEMES

    @property
    def target(self) -> str:
        """Host and port, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address in its one form: scheme://host:port."""
        return f"{self.scheme}://{self.target}"


def parse_url(url: str) -> Address:
    """Check a worker URL. Without a scheme it is grpc://.

    Raises:
        InvalidRequest: another scheme, no host, no port, or anything after the port but a slash.
    """
    wanted = f"worker url {url!r}: expected grpc://host:port or grpcs://host:port"
    try:
        parts = urlsplit(url if "://" in url else f"grpc://{url}")
    except ValueError as fault:
        raise InvalidRequest(f"{wanted}, got what is not a url: {fault}", param="url") from None
    if parts.scheme not in SCHEMES:
        raise InvalidRequest(f"{wanted}, got scheme {parts.scheme!r}", param="url")
    try:
        port = parts.port
    except ValueError:
        raise InvalidRequest(f"{wanted}, got a port outside 0-65535", param="url") from None
    if not parts.hostname or port is None:
        raise InvalidRequest(f"{wanted}, got no {'port' if parts.hostname else 'host'}", param="url")
    if not _HOST.fullmatch(parts.hostname):
        raise InvalidRequest(f"{wanted}, got the host {parts.hostname[:80]!r}", param="url")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidRequest(f"{wanted} and nothing else", param="url")
    return Address(parts.scheme, parts.hostname, port)
