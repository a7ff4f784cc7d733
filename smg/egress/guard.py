"""Decides whether the gateway may connect to an address that a client has named.

A name is looked up here, every address that it has must be allowed, and the connection goes to an address that was
checked: a name that changes its mind between check and connection gains nothing. Addresses of the link (cloud
metadata among them), multicast and unspecified ones are refused always; private ones as the operator decides.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Lookup = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}


class Target(NamedTuple):
    """Where a URL leads.

    Attributes:
        scheme: in lower case.
        host: in lower case, without brackets.
        port: the scheme's own where the URL names none.
    """

    scheme: str
    host: str
    port: int


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a name.

    Raises:
        OSError: it has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


@dataclass(frozen=True, slots=True)
class EgressGuard:
    """The rules for one purpose.

    Attributes:
        what: the purpose, for messages: "server_url".
        allows_private: addresses that are not of the public internet may be connected to.
        allowed_hosts: names that alone may be connected to; one that begins with a dot allows what ends with it.
            Empty for any.
        schemes: of URLs.
        lookup: finds the addresses of a name.
    """

    what: str
    allows_private: bool
    allowed_hosts: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ("http", "https")
    lookup: Lookup = look_up

    def check_url(self, url: str) -> Target:
        """What can be said of a URL without the network.

        Raises:
            InvalidRequest: it is none, or leads where nobody may go.
        """
        try:
            parts = urlsplit(url)
            scheme, host, port = parts.scheme.lower(), (parts.hostname or "").lower(), parts.port
        except ValueError as error:
            raise self._refused(url, f"is no URL: {error}") from error
        if scheme not in self.schemes:
            raise self._refused(url, f"must begin with {' or '.join(f'{each}://' for each in self.schemes)}")
        if not host:
            raise self._refused(url, "names no host")
        if parts.username is not None or parts.password is not None:
            raise self._refused(url, "must not hold a user or password")
        if self.allowed_hosts and not any(_allows(each, host) for each in self.allowed_hosts):
            raise self._refused(
                url, f"names the host {host[:80]!r}, which is not on the list of allowed ones"
            )
        literal = _address(host)
        if literal is not None and not self._may_reach(literal):
            raise self._refused(url, f"leads to {host}, which is not an address that clients may name")
        return Target(scheme, host, port or _PORTS.get(scheme, 443))

    async def resolve(self, url: str) -> list[str]:
        """The addresses that a connection for a URL may go to.

        Raises:
            InvalidRequest: one of them is not allowed.
            OSError: the name has none.
        """
        target = self.check_url(url)
        if _address(target.host) is not None:
            return [target.host]
        found = await self.lookup(target.host, target.port)
        for each in found:
            address = _address(each)
            if address is None or not self._may_reach(address):
                raise self._refused(url, f"leads to {each}, which is not an address that clients may name")
        return found

    def _may_reach(self, address: Address) -> bool:
        if isinstance(address, ipaddress.IPv6Address):
            inner = address.ipv4_mapped or address.sixtofour
            if inner is None and address in _NAT64:
                inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
            if inner is not None:
                return self._may_reach(inner)
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return False
        return address.is_global or self.allows_private

    def _refused(self, url: str, why: str) -> InvalidRequest:
        return InvalidRequest(f"{self.what}: {url[:120]!r} {why}", param=self.what)


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # Forms that connect() understands and that name no host: 2130706433, 0x7f.1, 127.1.
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _allows(pattern: str, host: str) -> bool:
    pattern = pattern.lower()
    return host.endswith(pattern) if pattern.startswith(".") else host == pattern
