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
# What is told of an address that is none.
_SHOWN_CHARS = 300


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
        InvalidRequest: another scheme, no host that could be looked up, no port, or anything after the port but a slash.
    """
    wanted = f"worker url {url[:_SHOWN_CHARS]!r}: expected grpc://host:port or grpcs://host:port"
    # urlsplit drops some of them, so that another address than the one that was given would be used.
    if not url.isprintable():
        raise InvalidRequest(f"{wanted}, got characters that cannot be printed", param="url")
    try:
        parts = urlsplit(url if "://" in url else f"grpc://{url}")
    except ValueError as fault:
        raise InvalidRequest(f"{wanted}, got what is not a url: {fault}", param="url") from None
    if parts.scheme not in SCHEMES:
        raise InvalidRequest(f"{wanted}, got scheme {parts.scheme[:_SHOWN_CHARS]!r}", param="url")
    try:
        port = parts.port
    except ValueError:
        raise InvalidRequest(f"{wanted}, got a port outside 1-65535", param="url") from None
    if port == 0:
        raise InvalidRequest(f"{wanted}, got a port outside 1-65535", param="url")
    if not parts.hostname or port is None:
        raise InvalidRequest(f"{wanted}, got no {'port' if parts.hostname else 'host'}", param="url")
    if not _HOST.fullmatch(parts.hostname) or not _can_be_looked_up(parts.hostname):
        raise InvalidRequest(f"{wanted}, got the host {parts.hostname[:80]!r}", param="url")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidRequest(f"{wanted} and nothing else", param="url")
    return Address(parts.scheme, parts.hostname, port)


def _can_be_looked_up(host: str) -> bool:
    """Whether the system's resolver would take the name: no empty or long labels (RFC 1035, 2.3.4)."""
    if ":" in host:
        return True
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return host != "."
