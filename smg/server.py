"""Builds the router's object graph by hand, runs it, and stops it in order.

The order of stopping: readiness off, no new requests, running ones end within the grace period, then sessions to
workers close (which makes engines drop whatever is left).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import math
import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.admin import AdminHandlers
from gateway.app import GatewayApp, Limits
from gateway.cors import Cors
from gateway.decisions.cards import model_list
from gateway.decisions.handlers import DecisionHandlers
from gateway.edge.service import SERVICE as EDGE_SERVICE
from gateway.edge.service import HttpEdgeService
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
from smg.draining import Drain
from smg.mcp.open import make_sessions, read_servers
from smg.media.open import make_preparer
from smg.observation import Observation
from smg.pipelines.admission import Admission, RateLimit
from smg.pipelines.background import BackgroundResponses
from smg.pipelines.cache_feed import CacheFeed
from smg.pipelines.catalog import ModelCatalog
from smg.pipelines.chat import ChatPipeline
from smg.pipelines.completion import CompletionPipeline
from smg.pipelines.conversations import Conversations
from smg.pipelines.decide.pipeline import DecisionPipeline
from smg.pipelines.decide.score_call import ScoreCall
from smg.pipelines.decide.surface import DecisionSurfaces
from smg.pipelines.engine_call import EngineCall, RetryOptions
from smg.pipelines.formats import FormatSettings
from smg.pipelines.response_history import ResponseHistory
from smg.pipelines.response_run import ResponseParts
from smg.pipelines.responses import ResponsesPipeline
from smg.pipelines.stored_responses import StoredResponses
from smg.policies import cache_aware_of, make_policy
from smg.prompt.builder import PromptBuilder
from smg.services.chat import StreamLimits
from smg.services.methods import RESPONSES_SERVICE, ROUTES
from smg.services.responses import ResponsesService
from smg.services.server import GrpcParts, GrpcServer
from smg.settings import environment
from smg.storage.open import make_store
from smg.storage.upkeep import look_after
from smg.telemetry.exporter import exposition
from smg.tls.listening import listening_tls
from smg.tls.reloading import LOOK_S
from smg.tls.worker import WorkerTls
from smg.workers.breaker import BreakerOptions
from smg.workers.discovery import make_sources
from smg.workers.discovery.reconciler import Discovery
from smg.workers.options import WorkerOptions
from smg.workers.overload import OverloadLimits
from smg.workers.registered import SETTINGS
from smg.workers.registry import WorkerRegistry
from smg.workers.tokenizers import TokenizerStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.settings import (
        AdmissionSettings,
        BreakerSettings,
        ModelSettings,
        RetrySettings,
        RouterSettings,
    )

logger = logging.getLogger(__name__)

# Objects between two looks of the cycle collector. Python's 700 makes it look several times per request and find nothing.
YOUNG_OBJECTS = 50_000
# Policies that go by the loads of workers.
LOAD_POLICIES = ("bucket", "cache_aware", "least_load", "power_of_two", "prefix_hash")
REQUESTS_PER_CORE = 1024
LEAST_REQUESTS = 4096


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

    def __init__(self, settings: RouterSettings) -> None:
        """Build everything.

        Raises:
            BadTlsFile: a certificate, key or authority cannot be used.
        """
        self._settings = settings
        self._tls = listening_tls(settings.tls)
        self._worker_tls = WorkerTls(settings.tls)
        self.is_draining = False
        self.registry = WorkerRegistry(
            worker_options(settings, self._worker_tls),
            breaker_options(settings.breaker),
            overload=overload_limits(settings),
        )
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
        self._keep_alive = KeepAlive(settings.listener.sse_keepalive_secs)
        self.probe_port: int | None = None
        status = self._status = StatusHandlers(
            self.registry,
            lambda: self.is_draining,
            lambda: self.catalog.is_prepared,
            lambda: exposition(self.observation.registry),
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
        )
        self._metrics = self.observation.metrics
        retries = retry_options(settings.retries)
        engine_call = EngineCall(
            self.registry,
            policy,
            retries,
            timeout_s,
            self._metrics.retried,
            pins_by_rid=settings.routing.routing_key_override,
        )
        self._decide = DecisionPipeline(
            self.catalog,
            DecisionSurfaces(settings.decisions.decision_readout),
            ScoreCall(self.registry, policy, retries, self._metrics.retried),
            settings.decisions,
        )
        self._media = make_preparer(settings.media, self._tokenizers)
        self._chat = ChatPipeline(self.catalog, engine_call, self._media)
        self._completion = CompletionPipeline(self.catalog, engine_call)
        handlers = OpenAIHandlers(
            self._chat,
            self._completion,
            self.catalog,
            self.observation.meters,
            self._keep_alive,
            partial(model_list, self._decide),
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
            self._responses, history.max_background_responses, history.background_max_event_bytes
        )
        self._stored = StoredResponses(self.history, self.background)
        admin = AdminHandlers(self.registry, self.catalog.formats_of)
        decide = DecisionHandlers(self._decide, self.observation.meters)
        responses = ResponseHandlers(
            self._responses, self._stored, self.background, self.observation.meters, self._keep_alive
        )
        conversations = ConversationHandlers(self._conversations)
        return build_routes(handlers, decide, status, admin, conversations, responses)

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
        )

    async def run(self, on_ready: Callable[[RouterAddresses], None], stop: asyncio.Event) -> None:
        """Serve until `stop` is set or the task is cancelled, then drain.

        Raises:
            PortTaken: an address cannot be listened on.
        """
        settings = self._settings
        host = settings.listener.host
        with contextlib.ExitStack() as stack:
            bound = bind(host, settings.listener.port)
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
            grpc_port = await grpc.start(host, settings.listener.grpc_port)
            metrics_port = self.observation.start(stack)
            self.registry.start()
            try:
                async with asyncio.TaskGroup() as group:
                    background = [
                        group.create_task(self._keep_alive.run()),
                        group.create_task(self._preload()),
                        group.create_task(look_after(self.history, settings.history.history_retention_days)),
                        group.create_task(grpc.follow(self.registry)),
                        group.create_task(self._keep_certificates()),
                        *self._discover(group),
                        *self._start_probes(group, stack),
                        group.create_task(self.observation.runtime.lag.watch()),
                    ]
                    serving = group.create_task(http.run())
                    await http.wait_started()
                    # What lives now lives as long as the process: the collector need not look at it again.
                    gc.collect()
                    return_freed_memory()
                    gc.freeze()
                    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
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
                await self.registry.close()
                await self._media.close()
                await self._tokenizers.close()
                await self.background.close()
                await self.mcp_sessions.close()
                await self.history.close()

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

    def _responses_service(self) -> ResponsesService:
        listener = self._settings.listener
        limits = StreamLimits(listener.slow_reader_bytes, listener.slow_reader_secs)
        return ResponsesService(
            self._responses, self._stored, self.background, self.observation.meters, limits
        )

    def _grpc_parts(self) -> GrpcParts:
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
            },
        )


async def serve_router(
    settings: RouterSettings,
    *,
    on_ready: Callable[[RouterAddresses], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Run a router until it is told to stop: by `stop`, SIGTERM, SIGINT, SIGHUP, or cancellation. Drains in each
    case.

    Without `stop` the signals are handled here: the first drains, a second one ends the process at once.

    Raises:
        PortTaken: an address cannot be listened on.
        BadTlsFile: a certificate, key or authority cannot be used.
    """
    own_stop = stop is None
    stop = stop or asyncio.Event()
    if own_stop:
        _stop_on_signals(stop)
    await Router(settings).run(on_ready, stop)


def _stop_on_signals(stop: asyncio.Event) -> None:
    def asked(number: int) -> None:
        if stop.is_set():
            # The operator has asked twice: nothing is waited for any more.
            os._exit(128 + number)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup has a hang-up ignored, and that is to stay so.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, asked, number)


def worker_options(settings: RouterSettings, tls: WorkerTls | None = None) -> WorkerOptions:
    """How workers are connected to and watched."""
    workers, fleet = settings.workers, settings.fleet
    polls_loads = not fleet.disable_load_monitoring or settings.routing.policy in LOAD_POLICIES
    return WorkerOptions(
        connect_timeout_s=workers.worker_connect_timeout_secs,
        health_interval_s=workers.health_check_interval_secs,
        health_timeout_s=workers.health_check_timeout_secs,
        health_failures=workers.health_failure_threshold,
        health_successes=workers.health_success_threshold,
        wedge_s=workers.worker_wedge_secs,
        silence_s=workers.worker_silence_secs,
        load_interval_s=fleet.load_monitor_interval if polls_loads else 0,
        is_health_checked=not fleet.disable_health_check,
        is_dp_aware=fleet.dp_aware,
        max_workers=fleet.max_workers,
        drain_s=fleet.worker_drain_timeout_secs,
        tls=tls,
    )


def overload_limits(settings: RouterSettings) -> OverloadLimits:
    """When a worker gets no more."""
    overload = settings.overload
    if overload.disable_worker_overload_protection:
        return OverloadLimits()
    return OverloadLimits(
        overload.worker_overload_waiting_requests,
        overload.worker_overload_token_usage,
        overload.worker_overload_shed,
        math.ceil(settings.fleet.load_monitor_interval),
    )


def breaker_options(settings: BreakerSettings) -> BreakerOptions:
    """When workers that fail are left alone."""
    return BreakerOptions(
        failures=0 if settings.disable_circuit_breaker else settings.cb_failure_threshold,
        successes=settings.cb_success_threshold,
        open_s=settings.cb_timeout_duration_secs,
        window_s=settings.cb_window_duration_secs,
    )


def retry_options(settings: RetrySettings) -> RetryOptions:
    """How requests are tried again."""
    return RetryOptions(
        max_attempts=1 if settings.disable_retries else settings.retry_max_retries,
        initial_backoff_s=settings.retry_initial_backoff_ms / 1000,
        max_backoff_s=settings.retry_max_backoff_ms / 1000,
        multiplier=settings.retry_backoff_multiplier,
        jitter=settings.retry_jitter_factor,
    )


def admission_of(settings: AdmissionSettings, request_timeout_s: float) -> Admission:
    """How many requests run and wait."""
    limit = settings.max_concurrent_requests
    if limit < 0:
        limit = max(LEAST_REQUESTS, REQUESTS_PER_CORE * (os.cpu_count() or 1))
    per_s = settings.rate_limit_tokens_per_second
    rate = RateLimit(per_s, limit or per_s) if per_s else None
    return Admission(limit, settings.queue_size, settings.queue_timeout_secs, rate, request_timeout_s)


def tokenizer_dir(settings: ModelSettings) -> Path | None:
    """The operator's own tokenizer directory, if one is named."""
    path = settings.tokenizer_path or settings.model_path
    if path is None:
        return None
    directory = Path(path)
    return directory.parent if directory.is_file() else directory


def cache_dir(settings: ModelSettings) -> Path | None:
    """Where tokenizers from workers are kept; None for a temporary directory."""
    return Path(settings.tokenizer_cache_dir) if settings.tokenizer_cache_dir else None


def load_builder(settings: ModelSettings) -> Callable[[Path], PromptBuilder]:
    """How a prompt builder is made from a tokenizer directory."""
    template = Path(settings.chat_template).read_text(encoding="utf-8") if settings.chat_template else None

    def load(directory: Path) -> PromptBuilder:
        builder = PromptBuilder.load(
            directory, chat_template=template, cache_bytes=settings.tokenizer_cache_bytes
        )
        # Made on first use; here, so that no request waits for it on the event loop.
        _ = builder.tokenizer.fragments
        return_freed_memory()
        return builder

    return load


def return_freed_memory() -> None:
    """Give what reading a tokenizer has left behind back to the system: about 30 MB for 50,000 tokens.

    glibc keeps it otherwise. Other C libraries have no such call, and need none.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
