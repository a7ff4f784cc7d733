"""Builds the router's object graph by hand, runs it, and stops it in order.

The order of stopping: readiness off, no new requests, running ones end within the grace period, then sessions to
workers close (which makes engines drop whatever is left).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gateway.admin import AdminHandlers
from gateway.app import GatewayApp, Limits
from gateway.cors import Cors
from gateway.decisions.cards import model_list
from gateway.decisions.handlers import DecisionHandlers
from gateway.edge.service import SERVICE as EDGE_SERVICE
from gateway.edge.service import HttpEdgeService
from gateway.encode.bundle import BundleHandler
from gateway.encode.handlers import EncodeHandlers
from gateway.listener import HttpListener, bind
from gateway.openai.handlers import OpenAIHandlers
from gateway.probe_listener import ProbeListener
from gateway.responses.conversations import ConversationHandlers
from gateway.responses.handlers import ResponseHandlers
from gateway.routes import ROUTE_NAMES, Route, RouteTable, build_routes
from gateway.sse import KeepAlive
from gateway.status import StatusHandlers
from smg.callers.audit import AuditLog
from smg.callers.directory import caller_directory
from smg.draining import Drain, stop_on_signals
from smg.mcp.open import make_sessions, read_servers
from smg.media.open import make_preparer
from smg.observation import Observation
from smg.pipelines.background import BackgroundResponses
from smg.pipelines.cache_feed import CacheFeed
from smg.pipelines.catalog import ModelCatalog
from smg.pipelines.chat import ChatPipeline
from smg.pipelines.completion import CompletionPipeline
from smg.pipelines.conversations import Conversations
from smg.pipelines.decide.pipeline import DecisionPipeline
from smg.pipelines.decide.score_call import ScoreCall
from smg.pipelines.decide.surface import DecisionSurfaces
from smg.pipelines.encode.classify import ClassifyPipeline
from smg.pipelines.encode.embed import EmbeddingPipeline
from smg.pipelines.encode.encoding import Encoding
from smg.pipelines.encode.job_call import JobCall
from smg.pipelines.encode.rerank import RerankPipeline
from smg.pipelines.engine_call import EngineCall
from smg.pipelines.formats import FormatSettings
from smg.pipelines.placed_job import PlacedJobs
from smg.pipelines.response_history import ResponseHistory
from smg.pipelines.response_parts import ResponseParts
from smg.pipelines.responses import ResponsesPipeline
from smg.pipelines.retry_budget import RetryBudget
from smg.pipelines.stored_responses import StoredResponses
from smg.policies import cache_aware_of, make_policy
from smg.services.chat import StreamLimits
from smg.services.embeddings import EmbeddingService
from smg.services.methods import EMBEDDING_SERVICE, ENDPOINT_SERVICE, RESPONSES_SERVICE, ROUTES
from smg.services.responses import ResponsesService
from smg.services.server import GrpcParts, GrpcServer
from smg.settings import environment
from smg.storage.open import make_store
from smg.storage.upkeep import look_after
from smg.telemetry.exposition import exposition
from smg.tls.listening import listening_tls
from smg.tls.reloading import LOOK_S
from smg.tls.worker import WorkerTls
from smg.wiring import (
    admission_of,
    breaker_options,
    cache_dir,
    load_builder,
    overload_limits,
    retry_options,
    settle_memory,
    tokenizer_dir,
    worker_options,
)
from smg.workers.discovery import make_sources
from smg.workers.discovery.reconciler import Discovery
from smg.workers.registered import SETTINGS
from smg.workers.registry import WorkerRegistry
from smg.workers.tokenizers import TokenizerStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.services.endpoints.service import EndpointDiscovery
    from smg.settings import RouterSettings
    from smg.telemetry.siblings import Siblings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RouterAddresses:
    """Where a running router listens.

    Attributes:
        host: address, as configured.
        port: HTTP port.
        grpc_port: gRPC port.
        metrics_port: port of the metrics listener; None when there is none of its own.
        is_tls: HTTP and gRPC are encrypted.
    """

    host: str
    port: int
    grpc_port: int
    metrics_port: int | None = None
    is_tls: bool = False


class Router:
    """Everything between the clients' sockets and the workers' sessions."""

    def __init__(self, settings: RouterSettings, siblings: Siblings | None = None) -> None:
        """Build everything.

        Args:
            settings: of this process.
            siblings: the processes that share its ports; None when it is alone.

        Raises:
            BadTlsFile: a certificate, key or authority cannot be used.
        """
        self._settings = settings
        self._siblings = siblings
        self._tls = listening_tls(settings.tls)
        self._worker_tls = WorkerTls(settings.tls)
        self.is_draining = False
        self.registry = WorkerRegistry(
            worker_options(settings, self._worker_tls),
            breaker_options(settings.breaker),
            overload=overload_limits(settings),
        )
        self.registry.is_one_of_several = siblings is not None
        for url in settings.workers.worker_urls:
            self.registry.add(url, origin=SETTINGS)
        self._callers = caller_directory(settings.callers)
        self._audit = AuditLog() if settings.callers.control_plane_audit_enabled else None
        self._tokenizers = TokenizerStore(
            self.registry, tokenizer_dir(settings.models), cache_dir(settings.models)
        )
        self.catalog = ModelCatalog(
            self.registry,
            self._tokenizers,
            settings.models.model_alias,
            load_builder(settings.models),
            FormatSettings(
                settings.models.tool_call_parser,
                settings.models.reasoning_parser,
                settings.models.tool_call_constraint == "native",
            ),
        )
        self.history = make_store(settings.history)
        self.endpoints = self._endpoints()
        self._keep_alive = KeepAlive(settings.listener.sse_keepalive_secs)
        self.probe_port: int | None = None
        status = self._status = StatusHandlers(
            self.registry,
            lambda: self.is_draining,
            lambda: self.catalog.is_prepared,
            self._exposition,
        )
        routes = self._build(status)
        listener = settings.listener
        limits = Limits(
            # Images inline are text in JSON, and cost as much to read.
            max_body_bytes=min(listener.max_payload_size, listener.max_text_payload_size),
            max_held_bytes=listener.slow_reader_bytes,
            max_stall_s=listener.slow_reader_secs,
            id_headers=tuple(name.encode() for name in settings.telemetry.request_id_headers),
            access_log=settings.telemetry.access_log,
            key_headers=tuple(name.encode() for name in settings.routing.routing_key_headers),
            tells_timing=settings.telemetry.server_timing,
        )
        self.app = GatewayApp(
            RouteTable(routes),
            self._callers,
            self._keep_alive,
            limits,
            self._metrics,
            self._audit,
            Cors(listener.cors_allowed_origins) if listener.cors_allowed_origins else None,
            self.admission,
        )

    def _build(self, status: StatusHandlers) -> list[Route]:
        """The pipelines and the route table; the metrics need the table's names, the handlers need the metrics."""
        settings = self._settings
        policy = self.policy = make_policy(settings.routing)
        if (cache_aware := cache_aware_of(policy)) is not None:
            self.registry.watch_caches(CacheFeed(cache_aware))
        timeout_s = settings.listener.request_timeout_secs
        self.admission = admission_of(settings.admission, timeout_s)
        self.observation = Observation(
            settings.telemetry,
            (*ROUTE_NAMES, *ROUTES),
            self.registry,
            self.admission,
            settings.admission.queue_size,
            settings.listener.host,
            self._siblings,
        )
        self._metrics = self.observation.metrics
        retries = retry_options(settings.retries)
        budget = RetryBudget(settings.retries.retry_budget_ratio, self._metrics.retry_refused)
        engine_call = EngineCall(
            self.registry,
            policy,
            retries,
            timeout_s,
            self._metrics.retried,
            pins_by_rid=settings.routing.routing_key_override,
            budget=budget,
        )
        jobs = PlacedJobs(self.registry, policy, retries, self._metrics.retried, budget=budget)
        self._decide = DecisionPipeline(
            self.catalog,
            DecisionSurfaces(settings.decisions.decision_readout),
            ScoreCall(jobs),
            settings.decisions,
        )
        encoding = Encoding(self.catalog, JobCall(jobs), settings.encoding)
        self._embed = EmbeddingPipeline(encoding)
        self._rerank = RerankPipeline(encoding, self._decide)
        self._classify = ClassifyPipeline(encoding)
        self._media = make_preparer(settings.media, self._tokenizers)
        self._chat = ChatPipeline(self.catalog, engine_call, self._media)
        self._completion = CompletionPipeline(self.catalog, engine_call)
        handlers = OpenAIHandlers(
            self._chat,
            self._completion,
            self.catalog,
            self.observation.meters,
            self._keep_alive,
            partial(model_list, self._decide, settings.encoding.bundle_max_tasks),
            tells_timing=settings.telemetry.server_timing,
        )
        self._drain = Drain(
            self.admission,
            engine_call,
            delay_s=settings.listener.shutdown_delay_secs,
            grace_s=settings.listener.shutdown_grace_period_secs,
        )
        self._conversations = Conversations(self.history)
        self.mcp_sessions = make_sessions(
            settings.mcp,
            has_tenants=bool(settings.callers.tenant_api_key) or settings.callers.trust_tenant_header,
        )
        self._responses = ResponsesPipeline(self._response_parts())
        history = settings.history
        self.background = BackgroundResponses(
            self._responses,
            history.max_background_responses,
            history.background_max_event_bytes,
            self.history,
            history.background_lease_secs,
        )
        self._stored = StoredResponses(self.history, self.background)
        admin = AdminHandlers(self.registry, self.catalog.formats_of)
        decide = DecisionHandlers(self._decide, self.observation.meters, settings.encoding.bundle_max_tasks)
        encode = EncodeHandlers(
            self._embed,
            self._rerank,
            self._classify,
            self.observation.meters,
            settings.decisions.decision_max_body_bytes,
        )
        bundle = BundleHandler(encode, decide, self.observation.meters, settings.encoding.bundle_max_tasks)
        responses = ResponseHandlers(
            self._responses, self._stored, self.background, self.observation.meters, self._keep_alive
        )
        conversations = ConversationHandlers(self._conversations)
        return build_routes(handlers, decide, encode, bundle, status, admin, conversations, responses)

    def _response_parts(self) -> ResponseParts:
        history = self._settings.history
        return ResponseParts(
            turns=self._chat,
            admission=self.admission,
            catalog=self.catalog,
            history=ResponseHistory(self.history, history.history_max_chain, history.history_max_items),
            store=self.history,
            sessions=self.mcp_sessions,
            servers=read_servers(self._settings.mcp),
            lease_s=history.background_lease_secs,
            on_write=self.observation.metrics.history_written,
        )

    async def run(self, on_ready: Callable[[RouterAddresses], None], stop: asyncio.Event) -> None:
        """Serve until `stop` is set or the task is cancelled, then drain.

        Raises:
            PortTaken: an address cannot be listened on.
        """
        settings = self._settings
        host = settings.listener.host
        with contextlib.ExitStack() as stack:
            is_shared = self._siblings is not None
            bound = bind(host, settings.listener.port, is_shared=is_shared)
            stack.callback(bound.close)
            port: int = bound.getsockname()[1]
            http = HttpListener(
                self.app,
                bound,
                settings.listener.idle_connection_timeout_secs,
                self._tls,
                settings.tls.tls_handshake_timeout_secs,
            )
            grpc = GrpcServer(self._grpc_parts())
            grpc_port = await grpc.start(host, settings.listener.grpc_port, is_shared=is_shared)
            metrics_port = self.observation.start(stack)
            self.registry.start()
            try:
                async with asyncio.TaskGroup() as group:
                    background = [
                        group.create_task(self._keep_alive.run()),
                        group.create_task(self._preload()),
                        group.create_task(look_after(self.history, settings.history.history_retention_days)),
                        group.create_task(self.background.vouch()),
                        group.create_task(grpc.follow(self.registry)),
                        group.create_task(self._keep_certificates()),
                        *self._discover(group),
                        *self._tell_endpoints(group),
                        *self._start_probes(group, stack),
                        group.create_task(self.observation.runtime.lag.watch()),
                    ]
                    serving = group.create_task(http.run())
                    await http.wait_started()
                    settle_memory()
                    on_ready(
                        RouterAddresses(host, port, grpc_port, metrics_port, is_tls=self._tls is not None)
                    )
                    try:
                        await stop.wait()
                    finally:
                        self.is_draining = True
                        await self._drain.run(http, grpc, serving)
                        for task in background:
                            task.cancel()
            finally:
                # While their workers are there, so that they end as cancelled.
                await self.background.close()
                await self.registry.close()
                await self._media.close()
                await self._tokenizers.close()
                await self.mcp_sessions.close()
                await self.history.close()

    async def _exposition(self) -> bytes:
        # Other processes are waited for, and a large fleet's take a tenth of a second.
        return await asyncio.to_thread(exposition, self.observation.told)

    async def _preload(self) -> None:
        """Load tokenizers as models appear, so that a first request does not wait for them."""
        changed = asyncio.Event()
        changed.set()
        forget = self.registry.on_change(changed.set)
        try:
            while True:
                await changed.wait()
                changed.clear()
                await self.catalog.preload()
                await self._decide.surfaces.preload(self.catalog)
        finally:
            forget()

    async def _keep_certificates(self) -> None:
        """Look whether the files of TLS have changed, for as long as the router runs."""
        while True:
            await asyncio.sleep(LOOK_S)
            for files in (self._tls, self._worker_tls.files):
                if files is not None:
                    await asyncio.to_thread(files.refresh)

    def _discover(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Look for workers, where the settings name a way to."""
        settings = self._settings
        sources = make_sources(settings.discovery, environment(), settings.fleet.max_workers)
        return [group.create_task(Discovery(self.registry, sources).run())] if sources else []

    def _start_probes(
        self, group: asyncio.TaskGroup, stack: contextlib.ExitStack
    ) -> list[asyncio.Task[None]]:
        port = self._settings.fleet.health_check_port
        if port is None:
            return []
        listener = stack.enter_context(ProbeListener(self._status.probes, self._settings.listener.host, port))
        self.probe_port = listener.port
        logger.info("probes are answered on port %d, too", listener.port)
        return [group.create_task(listener.follow())]

    def _endpoints(self) -> EndpointDiscovery | None:
        mesh = self._settings.mesh
        if not mesh.endpoint_discovery:
            return None
        # Read here: most routers do without.
        from smg.services.endpoints.service import EndpointDiscovery

        return EndpointDiscovery(self.registry, mesh.endpoint_streams)

    def _tell_endpoints(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Watch the other routers and keep Envoy informed, where the settings want it."""
        endpoints = self.endpoints
        if endpoints is None:
            return []
        from smg.services.endpoints.peers import Peers

        urls = self._settings.mesh.endpoint_routers
        peers = Peers(urls, worker_options(self._settings, self._worker_tls), endpoints.change)
        return [group.create_task(endpoints.run(peers))]

    def _responses_service(self) -> ResponsesService:
        listener = self._settings.listener
        limits = StreamLimits(listener.slow_reader_bytes, listener.slow_reader_secs)
        return ResponsesService(
            self._responses, self._stored, self.background, self.observation.meters, limits
        )

    def _embedding_service(self) -> EmbeddingService:
        return EmbeddingService(self._embed, self._rerank, self._classify, self.observation.meters)

    def _grpc_parts(self) -> GrpcParts:
        endpoints = self.endpoints
        return GrpcParts(
            chat=self._chat,
            completion=self._completion,
            decide=self._decide,
            catalog=self.catalog,
            registry=self.registry,
            callers=self._callers,
            meters=self.observation.meters,
            listener=self._settings.listener,
            observer=self._metrics,
            id_keys=self._settings.telemetry.request_id_headers,
            admission=self.admission,
            routing_keys=self._settings.routing.routing_key_headers,
            conversations=self._conversations,
            audit=self._audit,
            tls=self._tls,
            handshake_s=self._settings.tls.tls_handshake_timeout_secs,
            access_log=self._settings.telemetry.access_log,
            others={
                EDGE_SERVICE: HttpEdgeService(self.app).add_to,
                RESPONSES_SERVICE: self._responses_service().add_to,
                EMBEDDING_SERVICE: self._embedding_service().add_to,
                **({} if endpoints is None else {ENDPOINT_SERVICE: endpoints.add_to}),
            },
            on_stop=(lambda: None) if endpoints is None else endpoints.stop,
        )


async def serve_router(
    settings: RouterSettings,
    *,
    on_ready: Callable[[RouterAddresses], None],
    stop: asyncio.Event | None = None,
    siblings: Siblings | None = None,
    life: int | None = None,
) -> None:
    """Run a router until it is told to stop: by `stop`, SIGTERM, SIGINT, SIGHUP, or cancellation. Drains in each
    case.

    Without `stop` the signals are handled here: the first drains, a second one ends the process at once.

    Args:
        settings: of this process.
        on_ready: told when everything listens.
        stop: set when it is to stop.
        siblings: the processes that share its ports; None when it is alone.
        life: a file that ends when this process is to stop; None for none.

    Raises:
        PortTaken: an address cannot be listened on.
        BadTlsFile: a certificate, key or authority cannot be used.
    """
    own_stop = stop is None
    stop = stop or asyncio.Event()
    if own_stop:
        stop_on_signals(stop)
    if life is not None:
        asyncio.get_running_loop().add_reader(life, stop.set)
    try:
        await Router(settings, siblings).run(on_ready, stop)
    finally:
        if life is not None:
            asyncio.get_running_loop().remove_reader(life)
