"""Workers that DNS lists: every address of a name is one.

HOST:PORT asks for A records, and for AAAA where there are none: an engine with an address of each kind is one engine. A
name such as _grpc._tcp.engines.example asks for SRV records, which tell hosts and ports. Names are asked for now and then,
and soon after a worker was lost. An answer that fails, or is empty, changes nothing: resolvers stumble more often than a
whole fleet disappears, and workers that are gone are noticed by their connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from smg.workers.address import Address
from smg.workers.discovery.base import Complaints, Found, SourceFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dns.asyncresolver import Resolver

SCHEME = "grpc"

# Between looks when a worker was lost.
_SOON_S = 1.0
# Longest wait for one answer, all servers and retries together.
_LIFETIME_S = 10.0
# Targets of one SRV name.
_MAX_TARGETS = 1024


class DnsSource:
    """The workers behind some names."""

    kind = "dns"

    def __init__(
        self,
        names: Sequence[str],
        interval_s: float,
        complain: Callable[[str], None],
        *,
        resolver: Resolver | None = None,
        soon_s: float = _SOON_S,
    ) -> None:
        """Set up.

        Args:
            names: HOST:PORT, or names of services.
            interval_s: pause between looks.
            complain: takes what is wrong.
            resolver: whom to ask; None for the system's name servers.
            soon_s: pause between looks while a worker is lost.
        """
        self._names = names
        self._interval_s = interval_s
        self._soon_s = min(soon_s, interval_s)
        self._complain = complain
        self._resolver = resolver

    async def watch(self, tell: Callable[[Sequence[Found]], None], hurry: asyncio.Event) -> None:
        """Look now and then."""
        # Read here: it costs tens of milliseconds, and nobody else needs it.
        from dns.asyncresolver import Resolver
        from dns.exception import DNSException

        try:
            resolver = self._resolver or await asyncio.to_thread(Resolver)
        except DNSException as fault:
            raise SourceFailed(f"the system names no name servers: {fault}") from fault
        complaints = {name: Complaints(self._complain) for name in self._names}
        known: dict[str, list[Found]] = {}
        while True:
            hurry.clear()
            answers = await asyncio.gather(*(_look_up(resolver, name) for name in self._names))
            for name, answer in zip(self._names, answers, strict=True):
                if isinstance(answer, SourceFailed):
                    complaints[name].wrong(str(answer))
                else:
                    complaints[name].right()
                    known[name] = answer
            tell([found for name in self._names for found in known.get(name, ())])
            await asyncio.sleep(self._soon_s)
            try:
                async with asyncio.timeout(self._interval_s - self._soon_s):
                    await hurry.wait()
            except TimeoutError:
                continue


async def _look_up(resolver: Resolver, name: str) -> list[Found] | SourceFailed:
    try:
        places = await _service(resolver, name) if name.startswith("_") else await _hosts(resolver, name)
    except SourceFailed as fault:
        return fault
    return [Found(Address(SCHEME, host, port).url) for host, port in sorted(places)]


async def _hosts(resolver: Resolver, name: str) -> list[tuple[str, int]]:
    host, _, port = name.rpartition(":")
    return [(address, int(port)) for address in await _addresses(resolver, host.strip("[]"))]


async def _service(resolver: Resolver, name: str) -> list[tuple[str, int]]:
    records = await _ask(resolver, name, "SRV")
    if len(records) > _MAX_TARGETS:
        raise SourceFailed(f"{name} has {len(records)} SRV records; at most {_MAX_TARGETS} are used")
    targets = [(record.target.to_text(), int(record.port)) for record in records]
    addresses = await asyncio.gather(*(_addresses(resolver, target) for target, _ in targets))
    return [(address, port) for (_, port), found in zip(targets, addresses, strict=True) for address in found]


async def _addresses(resolver: Resolver, host: str) -> list[str]:
    from dns import inet

    if inet.is_address(host):
        return [host]
    try:
        return [record.address for record in await _ask(resolver, host, "A")]
    except _NoRecords:
        return [record.address for record in await _ask(resolver, host, "AAAA")]


class _NoRecords(SourceFailed):
    """The name has no records of the kind."""


async def _ask(resolver: Resolver, name: str, kind: str) -> list[Any]:
    from dns import exception
    from dns import resolver as answers

    try:
        # An empty search list in the resolver's settings is respected; a final dot leaves the list alone.
        answer = await resolver.resolve(name, kind, lifetime=_LIFETIME_S, search=True)
    except answers.NoAnswer as fault:
        raise _NoRecords(f"{name} has no {kind} records") from fault
    except answers.NXDOMAIN as fault:
        raise SourceFailed(f"{name} does not exist") from fault
    except exception.DNSException as fault:
        raise SourceFailed(f"{name} cannot be resolved: {str(fault) or type(fault).__name__}") from fault
    return list(answer)
