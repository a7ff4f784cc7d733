"""Examines a worker: everything that a router needs of it, in the order in which the router needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2

from smg.cli.doctor.findings import Finding, note, ok, problem, warning
from smg.cli.doctor.grpc_calls import CallFailed, Calls
from smg.cli.doctor.router_grpc import WORKERS_METHOD, examine_grpc_router
from smg.cli.doctor.tokenizers import server_tokenizer, session_tokenizer
from smg.cli.doctor.transport import grpc_transport
from smg.cli.doctor.wire import unreachable
from smg_proto.engine.v1 import card_pb2, engine_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from smg.cli.doctor.wire import Target

_SERVICE = "smg.engine.v1.EngineService"
_DESCRIBE = f"/{_SERVICE}/Describe"
_SESSION = f"/{_SERVICE}/Session"
_LOAD = f"/{_SERVICE}/GetLoad"
_SGLANG = "/sglang.grpc.scheduler.SglangScheduler/"
_VLLM = "/vllm.grpc.engine.VllmEngine/"
_HEALTH = "/grpc.health.v1.Health/Check"
# Engines that come with this very product.
_OWN_ENGINES = ("echo", "local")
_FULL = 0.95


async def examine_worker(target: Target, model: str, key: str, version: str) -> AsyncIterator[Finding]:
    """Look at a gRPC address.

    Args:
        target: the address.
        model: a model that it should serve; empty for any.
        key: an API key, for a gateway's own gRPC port; empty for none.
        version: of this build.
    """
    fault = await unreachable(target, "the worker")
    if fault is not None:
        yield fault
        return
    yield ok("connection", f"{target.authority} can be reached")
    transport = await grpc_transport(target)
    yield transport
    if transport.level == "problem":
        return
    async with Calls(target) as calls:
        try:
            async for finding in _examine(calls, target, model, key, version):
                yield finding
        except CallFailed as failed:
            yield _silent(target, failed)


def _silent(target: Target, failed: CallFailed) -> Finding:
    advice = "look at its logs; it may be starting, overloaded or hung"
    if target.is_tls and target.client_cert is None:
        advice += "\nor it wants a certificate of its clients: --client-cert FILE --client-key FILE"
    return problem("protocol", f"the server does not answer: {failed}", advice)


async def _examine(
    calls: Calls, target: Target, model: str, key: str, version: str
) -> AsyncIterator[Finding]:
    if await calls.has(_DESCRIBE):
        async for finding in _examine_session_worker(calls, target, model, version):
            yield finding
    elif await calls.has(f"{_SGLANG}GetModelInfo"):
        yield ok("protocol", "it speaks SGLang's gRPC protocol")
        from smg_grpc_proto.generated import sglang_scheduler_pb2

        async for finding in _examine_server(calls, _SGLANG, sglang_scheduler_pb2, model):
            yield finding
    elif await calls.has(WORKERS_METHOD):
        yield ok("protocol", "this is the gRPC port of a gateway, no worker")
        async for finding in examine_grpc_router(target, key):
            yield finding
    elif await calls.has(f"{_VLLM}GetModelInfo"):
        yield ok("protocol", "it speaks vLLM's gRPC protocol")
        from smg_grpc_proto.generated import vllm_engine_pb2

        async for finding in _examine_server(calls, _VLLM, vllm_engine_pb2, model):
            yield finding
    else:
        yield problem(
            "protocol",
            "the gRPC server there speaks no protocol of an engine",
            "give the port of an engine that speaks smg.engine.v1 (smg worker), or SGLang's or vLLM's gRPC protocol",
        )


async def _examine_session_worker(
    calls: Calls, target: Target, model: str, version: str
) -> AsyncIterator[Finding]:
    yield ok("protocol", "it speaks smg.engine.v1")
    yield await _health(calls)
    try:
        told = card_pb2.DescribeResponse.FromString(await calls.ask(_DESCRIBE))
    except CallFailed as failed:
        yield problem(
            "description",
            f"it cannot be described: {failed}",
            "look at the worker's logs; its model may not have loaded",
        )
        return
    for finding in _description(told, model, version):
        yield finding
    for card in told.models:
        async for finding in session_tokenizer(calls, card, target):
            yield finding
    yield await _session(calls)
    yield await _load(calls, told)


async def _health(calls: Calls) -> Finding:
    question = health_pb2.HealthCheckRequest(service=_SERVICE).SerializeToString()
    try:
        answer = health_pb2.HealthCheckResponse.FromString(await calls.ask(_HEALTH, question))
    except CallFailed as failed:
        if failed.code is grpc.StatusCode.UNIMPLEMENTED:
            return note("health", "it has no health service; its session is taken for a sign of life")
        return problem("health", f"the health check failed: {failed}", "look at the worker's logs")
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return ok("health", "serving")
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return problem(
        "health",
        f"its health service says {name}",
        "it is starting, draining, or its engine has failed: look at its logs; a router sends it no work meanwhile",
    )


def _description(told: card_pb2.DescribeResponse, model: str, version: str) -> Iterable[Finding]:
    engine = f"{told.engine} {told.engine_version}".strip() or "an engine that does not name itself"
    if told.engine in _OWN_ENGINES and told.engine_version and told.engine_version != version:
        yield warning(
            "version",
            f"the worker is {engine}, this command is {version}",
            "run the same version on routers and workers; the contract is compatible, the behaviour may differ",
        )
    else:
        yield ok("version", engine)
    served = [card.id for card in told.models]
    yield from model_findings(served, model)
    for card in told.models:
        if not card.capabilities.generate:
            yield note("model", f"{card.id} does not generate text; chats with it are refused")


def model_findings(served: list[str], model: str) -> Iterable[Finding]:
    """Whether the wanted model is among those that are served."""
    if not served:
        yield problem(
            "model", "it serves no model", "look at the worker's logs; its model may not have loaded"
        )
    elif model and model not in served:
        yield problem(
            "model",
            f"it does not serve {model!r}; it serves {', '.join(served)}",
            f"ask for one of these, start the worker with --model-id {model}, or give the router "
            f"--model-alias {model}={served[0]}",
        )
    else:
        yield ok("model", ", ".join(served))


async def _session(calls: Calls) -> Finding:
    try:
        first = await calls.first_of_session(_SESSION)
    except CallFailed as failed:
        if failed.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return problem(
                "session",
                "a session was not opened in time",
                "the engine is busy loading or hung: look at its logs; "
                "a proxy in between must let bidirectional streams through",
            )
        return problem("session", f"a session was refused: {failed}", "the worker's logs say why")
    if first is None or not engine_pb2.SessionEvent.FromString(first).HasField("ready"):
        return problem(
            "session", "the session does not begin with Ready", "run the same version on routers and workers"
        )
    return ok("session", "a session was opened and closed")


async def _load(calls: Calls, told: card_pb2.DescribeResponse) -> Finding:
    try:
        load = card_pb2.GetLoadResponse.FromString(await calls.ask(_LOAD)).load
    except CallFailed as failed:
        return warning("load", f"it does not tell its load: {failed}", "look at the worker's logs")
    text = f"{load.running} running, {load.waiting} waiting, {load.tokens_per_second:.0f} tokens/s"
    if load.kv_capacity_tokens:
        used = load.kv_used_tokens / load.kv_capacity_tokens
        text += f", cache {used:.0%} used"
        if used > _FULL and load.waiting:
            return warning(
                "load", text, "its key-value cache is full: add workers, or give this one more memory"
            )
    if load.waiting > max(told.max_running, 1):
        return warning("load", text, "more wait than can run: add workers, or limit what routers let in")
    return ok("load", text)


async def _examine_server(calls: Calls, service: str, messages: Any, model: str) -> AsyncIterator[Finding]:
    """An SGLang or vLLM server. Args: service: path of its service. messages: module of its messages."""
    try:
        healthy = messages.HealthCheckResponse.FromString(await calls.ask(f"{service}HealthCheck"))
        if healthy.healthy:
            yield ok("health", "healthy")
        else:
            yield problem(
                "health",
                f"it says {healthy.message or 'that it is not healthy'}",
                "look at the server's logs; a router sends it no work meanwhile",
            )
        told = messages.GetModelInfoResponse.FromString(await calls.ask(f"{service}GetModelInfo"))
    except CallFailed as failed:
        yield problem("description", f"it cannot be described: {failed}", "look at the server's logs")
        return
    for finding in model_findings([told.served_model_name or told.model_path], model):
        yield finding
    async for finding in server_tokenizer(calls, service):
        yield finding
