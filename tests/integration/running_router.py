"""A whole router in the test's own process, on ports of its own, over the workers that a test has started."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import httpx
from grpc_status import rpc_status

from smg.server import Router
from smg.settings import RouterSettings
from smg_proto.admin.v1 import admin_pb2_grpc
from smg_proto.chat.v1 import chat_pb2_grpc
from smg_proto.decision.v1 import decision_pb2_grpc
from smg_proto.errors.v1 import errors_pb2
from smg_proto.model.v1 import model_pb2_grpc


@asynccontextmanager
async def running_router(
    *urls,
    callers=None,
    routing=None,
    workers=None,
    admission=None,
    discovery=None,
    fleet=None,
    breaker=None,
    retries=None,
    decisions=None,
    models=None,
    history=None,
    mcp=None,
    media=None,
    telemetry=None,
    overload=None,
    encoding=None,
    mesh=None,
    tls=None,
    http_tls=False,
    client_tls=None,
    **listener,
):
    """`.router`, `.http` and the stubs of the gRPC services; stopped at the end.

    With `tls`, its settings, the stubs are of no use, and `http_tls` is the context of `.http`. `client_tls` are the
    settings of TLS towards others. Cancelling `.task` ends a drain.
    """
    ports = {"host": "127.0.0.1", "port": 0, "grpc_port": 0, "shutdown_grace_period_secs": 5}
    settings = RouterSettings.model_validate(
        {
            "listener": {**ports, **listener},
            "workers": {"worker_urls": urls, **(workers or {})},
            "admission": admission or {},
            "callers": callers or {},
            "routing": routing or {},
            "discovery": discovery or {},
            "fleet": fleet or {},
            "breaker": breaker or {},
            "retries": retries or {},
            "decisions": decisions or {},
            "models": models or {},
            "history": history or {},
            "mcp": mcp or {},
            "media": media or {},
            "telemetry": telemetry or {},
            "overload": overload or {},
            "encoding": encoding or {},
            "mesh": mesh or {},
            "tls": {**(tls or {}), **(client_tls or {})},
        }
    )
    router, stop = Router(settings), asyncio.Event()
    ready = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(router.run(ready.set_result, stop))
        addresses = await ready
        if urls:
            assert await router.registry.wait_ready(20)
            while not router.catalog.is_prepared:  # noqa: ASYNC110 - a state, for which there is no event
                await asyncio.sleep(0.005)
        async with (
            grpc.aio.insecure_channel(f"127.0.0.1:{addresses.grpc_port}") as channel,
            # The system's certificates take 30 ms to load, and nobody shows any.
            httpx.AsyncClient(
                base_url=f"{'https' if tls else 'http'}://127.0.0.1:{addresses.port}",
                timeout=30,
                verify=http_tls,
            ) as http,
        ):
            try:
                yield SimpleNamespace(
                    router=router,
                    stop=stop,
                    task=task,
                    target=f"127.0.0.1:{addresses.grpc_port}",
                    addresses=addresses,
                    channel=channel,
                    http=http,
                    chats=chat_pb2_grpc.ChatServiceStub(channel),
                    decisions=decision_pb2_grpc.DecisionServiceStub(channel),
                    models=model_pb2_grpc.ModelServiceStub(channel),
                    admin=admin_pb2_grpc.AdminServiceStub(channel),
                )
            finally:
                stop.set()


async def outcome(call):
    """Code, message and ApiError of a call; the error is None where there is no detail."""
    try:
        if hasattr(call, "read"):
            while await call.read() is not grpc.aio.EOF:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        status = rpc_status.from_call(error)
        detail = errors_pb2.ApiError()
        if status is None or not status.details[0].Unpack(detail):
            return error.code().name, error.details(), None
        return error.code().name, error.details(), detail
    return "OK", "", None


async def until(condition):
    """Let everything else run until a condition holds. The test's timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - the conditions are states of an engine, which has no event for them
        await asyncio.sleep(0)
