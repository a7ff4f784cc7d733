"""envoy.service.endpoint.v3.EndpointDiscoveryService: the stream on which Envoy asks, and hears of every change.

What Envoy has been told it keeps while no router answers. So nothing is told that would only be the ignorance of a
router which has just started: a cluster is held back until everyone in it is known, or has had its time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from smg.errors import InvalidRequest, Overloaded, WorkerUnavailable
from smg.services.endpoints.picture import (
    CLUSTER_TYPE,
    ROUTERS,
    assignment,
    engine_clusters,
    fair,
    is_address,
    is_settled,
)
from smg.services.methods import ENDPOINT_SERVICE
from smg.services.rpc import add_service, duplex_method
from smg_proto.xds.v1 import endpoint_pb2 as xds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    import grpc.aio

    from smg.services.endpoints.peers import Peers
    from smg.services.endpoints.picture import Endpoint
    from smg.services.rpc import Context
    from smg.workers.registry import WorkerRegistry

# Names that one Envoy may ask for.
MAX_NAMES = 1000
# How long a router that has just started looks around before it tells of those that it does not see.
SETTLE_S = 2.0
# Changes that come together are told together: a fleet of hundreds connects within a moment.
_GATHER_S = 0.01
# A resolver that is away must not hold up what needs none.
_LOOK_UP_S = 1.0

_log = logging.getLogger(__name__)


class EndpointDiscovery:
    """The service, and what it tells."""

    def __init__(self, registry: WorkerRegistry, max_streams: int, *, settle_s: float = SETTLE_S) -> None:
        """Set up.

        Args:
            registry: knows the engines.
            max_streams: Envoys that may be told at a time.
            settle_s: how long to look around at first.
        """
        self._registry = registry
        self._max_streams = max_streams
        self._settle_s = settle_s
        self._peers: Peers | None = None
        # Serialized clusters by name: what may be told.
        self._clusters: dict[str, bytes] = {}
        self._streams: set[_Stream] = set()
        self._addresses: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._is_stopped = False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the method."""
        add_service(
            server, ENDPOINT_SERVICE, {"StreamEndpoints": duplex_method(self.stream, xds.DiscoveryRequest)}
        )

    def change(self) -> None:
        """Something may have changed: look again soon."""
        self._changed.set()

    async def run(self, peers: Peers) -> None:
        """Keep what is told true, until cancelled."""
        self._peers = peers
        forget = self._registry.on_change(self.change)
        loop = asyncio.get_running_loop()
        settled = loop.call_later(self._settle_s, self.change)
        until = loop.time() + self._settle_s
        watching = asyncio.create_task(peers.run())
        try:
            while True:
                self._changed.clear()
                began = loop.time()
                await self._look(has_settled=began >= until)
                took_s = loop.time() - began
                await self._changed.wait()
                # Of a large fleet that comes and goes this is at most a fifth of the time.
                await asyncio.sleep(max(_GATHER_S, 4 * took_s))
        finally:
            forget()
            settled.cancel()
            watching.cancel()
            await asyncio.wait([watching])

    def stop(self) -> None:
        """Let every Envoy go: it keeps what it knows and asks another router."""
        self._is_stopped = True
        for stream in self._streams:
            stream.wake.set()

    async def stream(self, requests: AsyncIterator[xds.DiscoveryRequest], context: Context) -> None:
        """Answer one Envoy until it leaves or the router stops.

        Raises:
            WorkerUnavailable: the router stops.
            Overloaded: there are as many streams as may be.
            InvalidRequest: it asks for something else than endpoints, or for too much.
        """
        if self._is_stopped:
            raise WorkerUnavailable("this router stops; ask another one", code="shutting_down")
        if len(self._streams) >= self._max_streams:
            raise Overloaded(f"{self._max_streams} streams are open, as many as --endpoint-streams allows")
        stream = _Stream()
        self._streams.add(stream)
        reading = asyncio.create_task(stream.read(requests, context.peer()))
        try:
            while not self._is_stopped and not reading.done():
                stream.wake.clear()
                answer = stream.answer(self._clusters)
                if answer is not None:
                    await context.write(answer)
                else:
                    await stream.wake.wait()
            if reading.done():
                await reading
        finally:
            self._streams.discard(stream)
            reading.cancel()

    async def _look(self, *, has_settled: bool) -> None:
        """See how everybody is, and tell those who have asked."""
        clusters = engine_clusters(self._registry.workers())
        if self._peers is not None:
            clusters[ROUTERS] = self._peers.endpoints()
        # A cluster that has lost its last endpoint is told as empty; one that never had any is not told of.
        empty = [name for name in self._clusters if name not in clusters]
        for name in empty[:-MAX_NAMES]:
            del self._clusters[name]
        clusters |= {key: [] for key in empty[-MAX_NAMES:]}
        known = {
            name: found
            for name, found in clusters.items()
            if name in self._clusters or (found and (has_settled or is_settled(found)))
        }
        hosts = dict.fromkeys(each.host for found in known.values() for each in found)
        self._addresses = await _looked_up(hosts, self._addresses)
        # In a thread: a thousand engines take milliseconds.
        self._clusters |= await asyncio.to_thread(_assignments, known, self._addresses)
        for stream in self._streams:
            stream.wake.set()


class _Stream:
    """What one Envoy has asked for and been told.

    Attributes:
        wake: set when there may be something to tell.
    """

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._names: tuple[str, ...] = ()
        self._told: dict[str, bytes] = {}
        self._answers = 0

    async def read(self, requests: AsyncIterator[xds.DiscoveryRequest], peer: str) -> None:
        """Take what Envoy says until it says no more.

        Raises:
            InvalidRequest: it asks for something else than endpoints, or for too much.
        """
        try:
            async for request in requests:
                if request.type_url not in ("", CLUSTER_TYPE):
                    raise InvalidRequest(
                        f"type_url is {request.type_url[:200]!r}; served: {CLUSTER_TYPE}", param="type_url"
                    )
                if len(request.resource_names) > MAX_NAMES:
                    raise InvalidRequest(
                        f"{len(request.resource_names)} resource_names; at most {MAX_NAMES} are allowed",
                        param="resource_names",
                    )
                if request.HasField("error_detail"):
                    _log.warning(
                        "Envoy at %s refuses endpoints: %s", peer, request.error_detail.message[:500]
                    )
                self._want(tuple(request.resource_names))
        finally:
            self.wake.set()

    def _want(self, names: tuple[str, ...]) -> None:
        if names != self._names:
            self._names = names
            # Who asks anew, after it has stopped, has forgotten.
            self._told = {name: told for name, told in self._told.items() if name in names}
            self.wake.set()

    def answer(self, clusters: Mapping[str, bytes]) -> xds.DiscoveryResponse | None:
        """The clusters that have changed since they were told; None when none has."""
        changed = {
            name: clusters[name]
            for name in self._names
            if name in clusters and clusters[name] != self._told.get(name)
        }
        if not changed:
            return None
        self._told |= changed
        self._answers += 1
        answer = xds.DiscoveryResponse(
            version_info=str(self._answers), type_url=CLUSTER_TYPE, nonce=str(self._answers)
        )
        for value in changed.values():
            answer.resources.add(type_url=CLUSTER_TYPE, value=value)
        return answer


def _assignments(
    clusters: Mapping[str, Sequence[Endpoint]], addresses: Mapping[str, str]
) -> dict[str, bytes]:
    """Clusters as they are told.

    Args:
        clusters: endpoints by name.
        addresses: by host; who has none is left out.
    """
    return {
        name: assignment(
            name, fair([each._replace(host=addresses[each.host]) for each in found if each.host in addresses])
        )
        for name, found in clusters.items()
    }


async def _looked_up(hosts: Iterable[str], former: Mapping[str, str]) -> dict[str, str]:
    """An IP address for each host, which Envoy wants. A name that cannot be looked up now keeps its former one, or is
    left out.
    """
    loop = asyncio.get_running_loop()

    async def look_up(host: str) -> tuple[str, str]:
        if is_address(host):
            return host, host
        try:
            async with asyncio.timeout(_LOOK_UP_S):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError) as fault:
            if host not in former:
                why = str(fault) or "no answer in time"
                _log.warning("endpoint %s cannot be looked up, and is not told: %s", host, why)
            return host, former.get(host, "")
        return host, str(found[0][4][0])

    return {host: address for host, address in await asyncio.gather(*map(look_up, hosts)) if address}
