"""Probing an address: the protocol is found, or the reason says what is there instead."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from smg.errors import InvalidRequest, Unsupported
from smg.workers.options import WorkerOptions
from smg.workers.probe import ProbeFailed, open_worker
from tests.contract.workers.session_double import SessionDouble
from tests.contract.workers.sglang_double import SglangDouble
from tests.contract.workers.vllm_double import VllmDouble

QUICK = WorkerOptions(connect_timeout_s=5)


async def opened(url: str):
    return await open_worker("w", url, QUICK)


@pytest.mark.parametrize(
    ("double", "protocol"),
    [(SessionDouble, "session"), (SglangDouble, "sglang_grpc"), (VllmDouble, "vllm_grpc")],
)
async def test_the_protocol_of_a_server_is_found(double, protocol):
    engine = double()
    await engine.start()
    worker = await opened(engine.url)
    assert (worker.protocol, worker.id, worker.url) == (protocol, "w", engine.url)
    assert not worker.is_ready
    await engine.kill()


class OneMethod(grpc.GenericRpcHandler):
    """Knows one method of a protocol."""

    def __init__(self, method: str) -> None:
        self._method = method

    def service(self, call_details):
        if call_details.method != self._method:
            return None
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request, context):
        return b""


async def serving(*handlers):
    server = grpc.aio.server(handlers=handlers, options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"grpc://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("tokenspeed.grpc.scheduler.TokenSpeedScheduler", "TokenSpeed"),
        ("trtllm.TrtllmService", "TensorRT-LLM"),
        ("mlx.grpc.engine.MlxEngine", "MLX"),
    ],
)
async def test_protocols_that_are_not_spoken_are_recognized_and_named(service, name):
    server, url = await serving(OneMethod(f"/{service}/GetModelInfo"))
    with pytest.raises(Unsupported, match=f"speaks {name}'s gRPC protocol, which is not served"):
        await opened(url)
    await server.stop(None)


async def test_a_grpc_server_of_another_kind_is_named_as_such():
    server, url = await serving()
    with pytest.raises(ProbeFailed, match=r"neither smg\.engine\.v1 nor SGLang"):
        await opened(url)
    await server.stop(None)


async def test_a_server_that_speaks_no_grpc_is_a_failure_with_a_reason():
    async def talk(_, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ProbeFailed):
        await opened(f"grpc://127.0.0.1:{port}")
    server.close()
    await server.wait_closed()


async def test_nobody_there_is_a_failure_with_a_reason():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ProbeFailed, match="cannot connect"):
        await opened(f"grpc://127.0.0.1:{port}")


async def test_http_workers_are_for_a_later_release():
    with pytest.raises(Unsupported, match="not served in this release"):
        await opened("http://127.0.0.1:8000")


async def test_another_scheme_is_a_bad_request():
    with pytest.raises(InvalidRequest, match="'ftp'"):
        await opened("ftp://127.0.0.1:8000")
