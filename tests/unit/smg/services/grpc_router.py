"""The real gRPC listener on a real port, over the real registry, with scripted pipelines and workers behind it."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry

from smg.callers.directory import caller_directory
from smg.errors import EngineError
from smg.parsers.events import Content
from smg.pipelines.catalog import ModelCatalog
from smg.pipelines.conversations import Conversations
from smg.pipelines.formats import FormatSettings
from smg.pipelines.meter import Meters
from smg.pipelines.sinks import AnswerHead, ChoiceFinish, UsageCounter
from smg.services.server import GrpcParts, GrpcServer
from smg.settings import CallerSettings, ListenerSettings
from smg.storage.none import NoStore
from smg.telemetry.metrics import RouterMetrics
from smg.workers.base import Worker
from smg.workers.options import WorkerOptions
from smg.workers.probe import ProbeFailed
from smg.workers.registry import WorkerRegistry
from smg_proto.admin.v1 import admin_pb2_grpc
from smg_proto.chat.v1 import chat_pb2_grpc
from smg_proto.engine.v1 import card_pb2
from smg_proto.errors.v1 import errors_pb2
from smg_proto.model.v1 import model_pb2_grpc


def head(model="m"):
    return AnswerHead(
        "id-1", 1_700_000_000, model, "grpc://w:1", UsageCounter(prompt_tokens=5, completion_tokens=2)
    )


async def say_hello(request, context, sink):
    """An answer of two pieces."""
    sink.open(head(request.model))
    sink.pieces(0, [Content("Hello, ")], ())
    sink.pieces(0, [Content("world")], ())
    sink.finish(0, ChoiceFinish("stop", 2))
    sink.close()
    sink.flush()


class ScriptedPipeline:
    """Answers with a script; keeps what it was asked."""

    def __init__(self, script=say_hello):
        self.script = script
        self.requests = []
        self.contexts = []

    async def run(self, request, context, sink, meter):
        self.requests.append(request)
        self.contexts.append(context)
        await self.script(request, context, sink)


class ScriptedWorker(Worker):
    """A worker that is what it is told to be."""

    protocol = "session"

    def __init__(self, worker_id, url):
        super().__init__(worker_id, url)
        self.is_up = True
        self.inflight = 0
        self.flush_error = None
        self.flush_is_lost = False
        self.flushes = 0

    is_ready = property(lambda self: self.is_up)
    is_connected = property(lambda self: self.is_up)
    reason = property(lambda self: "" if self.is_up else "lost")
    load = property(lambda self: card_pb2.Load(running=self.inflight, kv_capacity_tokens=100))
    inflight_requests = property(lambda self: self.inflight)

    @property
    def description(self):
        capabilities = card_pb2.Capabilities(generate=True, score=True)
        card = card_pb2.ModelCard(id="m", context_length=4096, capabilities=capabilities)
        return card_pb2.DescribeResponse(models=[card], engine="echo", engine_version="1.0")

    async def run(self):
        await asyncio.get_running_loop().create_future()

    def set_up(self, is_up):
        self.is_up = is_up
        self.on_state_change()

    def generate(self, request, listener):
        raise NotImplementedError

    score = embed = classify = generate

    def abort(self, sequence):
        raise NotImplementedError

    async def fetch_tokenizer(self, model, target):
        raise NotImplementedError

    async def flush_cache(self):
        self.flushes += 1
        if self.flush_is_lost:
            # As grpc.aio does when a channel closes under a call.
            raise asyncio.CancelledError
        if self.flush_error is not None:
            raise EngineError(self.flush_error, engine_code=13)


SILENT_URL = "grpc://127.0.0.1:404"
"""A worker of this address is never connected."""


class Counts:
    """Counts calls as the router's metrics do."""

    def __init__(self):
        self.calls = Counter()
        self.errors = Counter()
        self.slow_readers = 0

    def grpc_response(self, route, code):
        self.calls[route, code] += 1

    def error_answered(self, route, code):
        self.errors[route, code] += 1

    def slow_reader_aborted(self):
        self.slow_readers += 1


def listener_settings(**values):
    return ListenerSettings(host="127.0.0.1", port=0, grpc_port=0, **values)


async def all_ready(registry):
    """Wait until every worker is ready."""
    changed = asyncio.Event()
    forget = registry.on_change(changed.set)
    while not all(worker.is_ready for worker in registry.workers()):
        changed.clear()
        await changed.wait()
    forget()


@asynccontextmanager
async def router(*, script=say_hello, workers=1, api_key="", tenants=(), aliases=None, **listener):
    """A running listener: `.chat`, `.completion` are the pipelines, `.stubs…` the clients."""
    opened = {}

    async def open_worker(worker_id, url, _options):
        if url == SILENT_URL:
            raise ProbeFailed("nobody answers")
        opened[worker_id] = ScriptedWorker(worker_id, url)
        return opened[worker_id]

    registry = WorkerRegistry(WorkerOptions(), open_worker=open_worker)
    for number in range(workers):
        registry.add(f"grpc://127.0.0.1:{number + 1}")
    registry.start()
    chat, completion, counts = ScriptedPipeline(script), ScriptedPipeline(script), Counts()
    parts = GrpcParts(
        chat=chat,
        completion=completion,
        decide=None,
        catalog=ModelCatalog(registry, None, aliases or {}, None, FormatSettings()),
        registry=registry,
        callers=caller_directory(
            CallerSettings(
                api_key=api_key or None, tenant_api_key=tuple(f"{tenant}:{key}" for tenant, key in tenants)
            )
        ),
        meters=Meters(RouterMetrics(CollectorRegistry())),
        conversations=Conversations(NoStore()),
        listener=listener_settings(**listener),
        observer=counts,
    )
    server = GrpcServer(parts)
    port = await server.start("127.0.0.1", 0)
    await all_ready(registry)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield SimpleNamespace(
                chat=chat,
                completion=completion,
                counts=counts,
                registry=registry,
                opened=opened,
                server=server,
                port=port,
                channel=channel,
                chats=chat_pb2_grpc.ChatServiceStub(channel),
                models=model_pb2_grpc.ModelServiceStub(channel),
                admin=admin_pb2_grpc.AdminServiceStub(channel),
            )
    finally:
        await server.stop(0)
        await registry.close()


async def refusal(call):
    """Code, message and detail of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    detail = errors_pb2.ApiError()
    status = rpc_status.from_call(caught.value)
    assert status is not None, caught.value
    assert status.details[0].Unpack(detail)
    return caught.value.code().name, caught.value.details(), detail
