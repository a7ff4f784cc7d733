"""Knows how the routers are: asks each to tell its health, and hears of every change at once.

Every router is told the same list and watches all of it, itself too: any of them can then tell Envoy about all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from smg.services.endpoints.picture import DRAINING, HEALTHY, UNHEALTHY, UNKNOWN, Endpoint, is_address
from smg.workers.address import Address, parse_url
from smg.workers.backoff import Backoff
from smg.workers.http2.connecting import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from smg.workers.http2.calls import Call
    from smg.workers.http2.connection import Connection
    from smg.workers.http2.headers import Status
    from smg.workers.options import WorkerOptions
    from smg_proto.xds.v1 import endpoint_pb2 as xds

_WATCH = "/grpc.health.v1.Health/Watch"
_QUESTION = health_pb2.HealthCheckRequest().SerializeToString()
_SERVING = health_pb2.HealthCheckResponse.SERVING

# Between looks at the addresses of names. New replicas are to be found soon, and there are few routers.
LOOK_S = 1.0
# Addresses of one name; a fleet has fewer routers.
_MAX_ADDRESSES = 1000

_log = logging.getLogger(__name__)


class Peers:
    """The routers of a list."""

    def __init__(
        self,
        urls: Iterable[str],
        options: WorkerOptions,
        on_change: Callable[[], None],
        look_s: float = LOOK_S,
    ) -> None:
        """Set up.

        Args:
            urls: their addresses.
            options: how they are connected to.
            on_change: called when one has come, gone or changed.
            look_s: pause between looks at the addresses of names.
        """
        self._names = [parse_url(url) for url in urls]
        # Routers are few and near: who has lost one looks for it often.
        self._options = replace(options, backoff_min_s=0.1, backoff_max_s=0.5, connect_timeout_s=2.0)
        self._on_change = on_change
        self._look_s = look_s
        self._health: dict[Address, xds.HealthStatus.ValueType] = {}
        self._tasks: dict[Address, asyncio.Task[None]] = {}

    def endpoints(self) -> list[Endpoint]:
        """All that are known."""
        return [Endpoint(address.host, address.port, health) for address, health in self._health.items()]

    async def run(self) -> None:
        """Watch them until cancelled."""
        found: dict[Address, list[Address]] = {}
        try:
            while True:
                for name, addresses in zip(
                    self._names, await asyncio.gather(*map(_each_address, self._names)), strict=True
                ):
                    # A name that cannot be looked up now keeps its addresses.
                    found[name] = addresses or found.get(name, [])
                self._take({address: name for name, addresses in found.items() for address in addresses})
                if all(is_address(name.host) for name in self._names):
                    await asyncio.get_running_loop().create_future()
                await asyncio.sleep(self._look_s)
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _take(self, wanted: Mapping[Address, Address]) -> None:
        """Args: wanted: addresses, and the name of each."""
        gone = self._tasks.keys() - wanted.keys()
        for address in gone:
            self._tasks.pop(address).cancel()
            del self._health[address]
        for address, name in wanted.items():
            if address not in self._tasks:
                self._health[address] = UNKNOWN
                self._tasks[address] = asyncio.create_task(self._keep(address, name.host))
        if gone:
            self._on_change()

    async def _keep(self, address: Address, name: str) -> None:
        """Watch one router until cancelled. Its certificate must bear the name."""
        options = self._options
        if options.tls is not None:
            options = replace(options, tls=options.tls.named(name))
        backoff = Backoff(options)
        while True:
            try:
                connection = await connect(address, options)
            except (OSError, TimeoutError) as fault:
                self._set(address, UNHEALTHY, str(fault) or "no answer in time")
            else:
                watch = _Watch(connection, lambda health: self._set(address, health, "it says so"))
                try:
                    why = await watch.ended
                finally:
                    watch.cancel()
                    connection.close()
                if watch.has_answered:
                    backoff.reset()
                # One that is to end says so, and closes then: that it is gone is no news.
                if self._health[address] != DRAINING or not watch.has_answered:
                    self._set(address, UNHEALTHY, why)
            await asyncio.sleep(backoff.next_s())

    def _set(self, address: Address, health: xds.HealthStatus.ValueType, why: str) -> None:
        if address in self._health and self._health[address] != health:
            self._health[address] = health
            level = logging.WARNING if health == UNHEALTHY else logging.INFO
            word = {HEALTHY: "well", DRAINING: "not serving"}.get(health, "lost")
            _log.log(level, "router %s is %s: %s", address.target, word, why)
            self._on_change()


class _Watch:
    """One watch of a router's health.

    Attributes:
        ended: done when it has ended; its result says why.
        has_answered: the router has told something.
    """

    def __init__(self, connection: Connection, tell: Callable[[xds.HealthStatus.ValueType], None]) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.has_answered = False
        self._connection = connection
        self._tell = tell
        self._call: Call = connection.call(_WATCH, _QUESTION, self)

    def on_messages(self, messages: Sequence[bytes]) -> None:
        """The newest counts."""
        try:
            status = health_pb2.HealthCheckResponse.FromString(messages[-1]).status
        except DecodeError as fault:
            self._end(f"it sent a malformed answer: {fault}")
            return
        self.has_answered = True
        self._tell(HEALTHY if status == _SERVING else DRAINING)

    def on_end(self, status: Status) -> None:
        """The router, or the network, has ended the watch."""
        self._end(status.message or f"the watch has ended with status {status.code}")

    def cancel(self) -> None:
        """Hear no more."""
        self._connection.cancel(self._call)

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)


async def _each_address(address: Address) -> list[Address]:
    """The addresses behind a name; none while it cannot be looked up."""
    if is_address(address.host):
        return [address]
    with contextlib.suppress(OSError):
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
        hosts = dict.fromkeys(str(each[4][0]) for each in found)
        return [replace(address, host=host) for host in hosts][:_MAX_ADDRESSES]
    return []
