"""Finds out which protocol an address speaks, and opens a worker on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import UNIMPLEMENTED, Unsupported
from smg.workers.address import parse_url
from smg.workers.engine_client import DESCRIBE
from smg.workers.http2.connecting import connect
from smg.workers.session import SessionWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.workers.base import Worker
    from smg.workers.http2.connection import Connection
    from smg.workers.options import WorkerOptions


class ProbeFailed(Exception):
    """The address did not tell what it speaks; the text says why. Worth another try."""


def _sglang_worker(worker_id: str, url: str, options: WorkerOptions) -> Worker:
    from smg.workers.sglang_grpc import SglangWorker

    return SglangWorker(worker_id, url, options)


def _vllm_worker(worker_id: str, url: str, options: WorkerOptions) -> Worker:
    from smg.workers.vllm_grpc import VllmWorker

    return VllmWorker(worker_id, url, options)


# In the order they are asked: a cheap method that answers on any server of the protocol, and what to do then. Others'
# protocols are loaded where they are spoken.
_PROTOCOLS: tuple[tuple[str, Callable[[str, str, WorkerOptions], Worker]], ...] = (
    (DESCRIBE, SessionWorker),
    ("/sglang.grpc.scheduler.SglangScheduler/GetModelInfo", _sglang_worker),
    ("/vllm.grpc.engine.VllmEngine/GetModelInfo", _vllm_worker),
)
# Of the same family, and not spoken: what to call them, and what they answer.
_OTHERS = (
    ("TokenSpeed", "/tokenspeed.grpc.scheduler.TokenSpeedScheduler/GetModelInfo"),
    ("TensorRT-LLM", "/trtllm.TrtllmService/GetModelInfo"),
    ("MLX", "/mlx.grpc.engine.MlxEngine/GetModelInfo"),
)


async def open_worker(worker_id: str, url: str, options: WorkerOptions) -> Worker:
    """Make the worker of the protocol that an address speaks. The worker is not yet connected.

    Raises:
        ProbeFailed: nobody answers there, or nobody that speaks a known protocol.
        Unsupported: the address is of a kind that this release does not serve.
        InvalidRequest: the address is malformed.
    """
    address = parse_url(url)
    if address.scheme == "http":
        raise Unsupported(f"worker {url}: http:// workers are not served in this release; use grpc://")
    try:
        connection = await connect(address, options)
    except (OSError, TimeoutError) as fault:
        raise ProbeFailed(f"cannot connect: {fault or 'no answer in time'}") from fault
    try:
        for method, make in _PROTOCOLS:
            if await _answers(connection, method, options.connect_timeout_s):
                return make(worker_id, url, options)
        for name, method in _OTHERS:
            if await _answers(connection, method, options.connect_timeout_s):
                raise Unsupported(
                    f"worker {url} speaks {name}'s gRPC protocol, which is not served; known are smg.engine.v1, SGLang's "
                    "and vLLM's"
                )
    finally:
        connection.close()
    raise ProbeFailed(f"{url} speaks neither smg.engine.v1 nor SGLang's or vLLM's gRPC protocol")


async def _answers(connection: Connection, method: str, timeout_s: float) -> bool:
    """True if the server has the method.

    Raises:
        ProbeFailed: it does not answer, or not now.
    """
    # An empty message is a valid one of any kind, and the status alone tells.
    _, status = await connection.ask(method, b"", timeout_s)
    if status.code == UNIMPLEMENTED:
        return False
    if status.code:
        raise ProbeFailed(f"probe failed: {status.message or status.code}")
    return True
