"""The gRPC listener: the typed services with health and reflection on one port.

Over HTTP the same pipelines answer in the same process; this is their other front, not a hop in between.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from grpc_reflection.v1alpha import reflection

from smg.errors import PortTaken
from smg.services.admin import AdminService
from smg.services.call import REQUEST_ID
from smg.services.chat import ChatService, StreamLimits
from smg.services.conversations import ConversationsService
from smg.services.decisions import DecisionService
from smg.services.health import SERVICE as HEALTH_SERVICE
from smg.services.health import HealthService
from smg.services.interceptors import CallInterceptor, StatusInterceptor, Uncounted
from smg.services.methods import (
    ADMIN_SERVICE,
    CHAT_SERVICE,
    CONVERSATIONS_SERVICE,
    DECISION_SERVICE,
    MODEL_SERVICE,
)
from smg.services.models import ModelService
from smg.services.rpc import new_server
from smg.services.tls import server_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import grpc.aio

    from smg.callers.audit import AuditLog
    from smg.callers.directory import CallerDirectory
    from smg.pipelines.admission import Admission
    from smg.pipelines.catalog import ModelCatalog
    from smg.pipelines.chat import ChatPipeline
    from smg.pipelines.completion import CompletionPipeline
    from smg.pipelines.conversations import Conversations
    from smg.pipelines.decide.pipeline import DecisionPipeline
    from smg.pipelines.meter import Meters
    from smg.services.interceptors import Observer
    from smg.settings import ListenerSettings
    from smg.tls.listening import ListeningTls
    from smg.tls.reloading import Reloading
    from smg.workers.registry import WorkerRegistry

# The longest that gRPC's options can say.
_HIGHEST_INT32 = 2**31 - 1
# A message has this around a body of the longest length, or has as much of one that is refused in words.
_AROUND_BODY_BYTES = 4096
_KEEPALIVE_MS = 30_000
_KEEPALIVE_TIMEOUT_MS = 20_000
# Clients may ping a silent connection as often as this; more is an abuse.
_SHORTEST_PING_MS = 5_000
_NO_OTHERS: Mapping[str, Callable[[grpc.aio.Server], None]] = MappingProxyType({})


def _nothing() -> None:
    """There is nothing to end."""


@dataclass(frozen=True, slots=True)
class GrpcParts:
    """What the services are made of.

    Attributes:
        chat: answers chats.
        completion: answers text completions.
        decide: answers questions.
        catalog: knows the models.
        registry: knows the workers.
        callers: knows the keys.
        meters: measure requests for a model.
        conversations: keeps conversations.
        listener: bounds that hold for clients, over HTTP as well.
        observer: counts calls.
        id_keys: metadata keys that may carry a request id, in lower case; the first usable one wins.
        audit: told of every call of an operator's method; None tells nobody.
        tls: None for no encryption.
        handshake_s: longest time that a client may take to agree on encryption.
        access_log: log a line per call.
        others: services of other packages on the same port, by name: what registers each.
        admission: who may run and who waits, over HTTP as well; everybody runs when None.
        routing_keys: metadata keys that may carry a routing key, in lower case; the first usable one wins.
        on_stop: ends what would last as long as the server: nobody waits for it.
    """

    chat: ChatPipeline
    completion: CompletionPipeline
    decide: DecisionPipeline
    catalog: ModelCatalog
    registry: WorkerRegistry
    callers: CallerDirectory
    meters: Meters
    conversations: Conversations
    listener: ListenerSettings
    observer: Observer = field(default_factory=Uncounted)
    id_keys: tuple[str, ...] = (REQUEST_ID,)
    audit: AuditLog | None = None
    tls: Reloading[ListeningTls] | None = None
    handshake_s: float = 10.0
    access_log: bool = False
    others: Mapping[str, Callable[[grpc.aio.Server], None]] = field(default_factory=lambda: _NO_OTHERS)
    admission: Admission | None = None
    routing_keys: tuple[str, ...] = ("x-smg-routing-key",)
    on_stop: Callable[[], None] = _nothing


class GrpcServer:
    """The listener. Start it once, stop it once."""

    def __init__(self, parts: GrpcParts) -> None:
        self._parts = parts
        self._server: grpc.aio.Server | None = None
        self._health = HealthService(
            lambda: any(worker.is_ready for worker in parts.registry.workers()),
            ready=(CHAT_SERVICE, DECISION_SERVICE, MODEL_SERVICE, *parts.others),
            always=(ADMIN_SERVICE, CONVERSATIONS_SERVICE),
        )

    async def start(self, host: str, port: int, *, is_shared: bool = False) -> int:
        """Listen and serve. Returns the port; port 0 takes a free one.

        Args:
            host: address.
            port: port.
            is_shared: other processes listen there, too.

        Raises:
            PortTaken: the address cannot be listened on.
        """
        server = build_grpc_server(self._parts, self._health, is_shared=is_shared)
        bound_port = _bind(server, host, port, self._parts.tls)
        await server.start()
        self._server = server
        return bound_port

    async def follow(self, registry: WorkerRegistry) -> None:
        """Tell those who watch the health whenever a worker comes, goes or changes. Runs until cancelled."""
        forget = registry.on_change(self._health.refresh)
        try:
            self._health.refresh()
            await asyncio.get_running_loop().create_future()
        finally:
            forget()

    def say_not_serving(self) -> None:
        """Tell those who ask or watch that nothing new is wanted; what comes is still served."""
        self._health.stop()

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, let running calls end, and cut those that are left after the grace period."""
        self.say_not_serving()
        self._parts.on_stop()
        if self._server is not None:
            await self._server.stop(grace_s)


def build_grpc_server(parts: GrpcParts, health: HealthService, *, is_shared: bool = False) -> grpc.aio.Server:
    """A server with all services, on no port yet."""
    listener = parts.listener
    interceptors = (
        StatusInterceptor(parts.observer, parts.audit, parts.admission, access_log=parts.access_log),
        CallInterceptor(parts.callers, tuple(key.lower() for key in parts.id_keys), parts.routing_keys),
    )
    server = new_server(interceptors, _options(listener, parts.handshake_s, is_shared=is_shared))
    limits = StreamLimits(listener.slow_reader_bytes, listener.slow_reader_secs)
    ChatService(parts.chat, parts.completion, parts.meters, limits).add_to(server)
    DecisionService(parts.decide, parts.meters).add_to(server)
    ModelService(parts.catalog, parts.registry).add_to(server)
    AdminService(parts.registry).add_to(server)
    ConversationsService(parts.conversations).add_to(server)
    health.add_to(server)
    for add_to in parts.others.values():
        add_to(server)
    names = (
        *(CHAT_SERVICE, DECISION_SERVICE, MODEL_SERVICE, ADMIN_SERVICE, CONVERSATIONS_SERVICE),
        *parts.others,
        *(HEALTH_SERVICE, reflection.SERVICE_NAME),
    )
    reflection.enable_server_reflection(names, server)
    return server


def _bind(server: grpc.aio.Server, host: str, port: int, tls: Reloading[ListeningTls] | None) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if tls is None:
            bound_port = server.add_insecure_port(address)
        else:
            bound_port = server.add_secure_port(address, server_credentials(tls))
    except RuntimeError as error:
        raise PortTaken(f"cannot listen on {address} for gRPC: {_why_not(host, port) or error}") from error
    if not bound_port:
        raise PortTaken(f"cannot listen on {address} for gRPC: {_why_not(host, port)}")
    return bound_port


def _why_not(host: str, port: int) -> str:
    """What the system says to the address; gRPC does not tell."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, port))
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ""


def _options(listener: ListenerSettings, handshake_s: float, *, is_shared: bool) -> list[tuple[str, int]]:
    most_bytes = min(listener.max_payload_size, listener.max_text_payload_size)
    idle_ms = round(listener.idle_connection_timeout_secs * 1000)
    return [
        ("grpc.max_receive_message_length", min(most_bytes + _AROUND_BODY_BYTES, _HIGHEST_INT32)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_connection_idle_ms", min(max(idle_ms, 1), _HIGHEST_INT32)),
        ("grpc.server_handshake_timeout_ms", min(max(round(handshake_s * 1000), 1), _HIGHEST_INT32)),
        # A second router on the same port must fail, not take half of the connections, unless it is of ours.
        ("grpc.so_reuseport", int(is_shared)),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _SHORTEST_PING_MS),
        ("grpc.http2.max_pings_without_data", 0),
    ]
