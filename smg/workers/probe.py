"""Finds out which protocol an address speaks, and opens a worker on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import UNIMPLEMENTED, Unsupported
from smg.workers.address import parse_url
from smg.workers.engine_client import DESCRIBE
from smg.workers.http2.connecting import connect
from smg.workers.session import SessionWorker
from smg.workers.sglang.client import MODEL_INFO
from smg.workers.sglang_grpc import SglangWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.workers.base import Worker
    from smg.workers.http2.connection import Connection
    from smg.workers.options import WorkerOptions


class ProbeFailed(Exception):
    """The address did not tell what it speaks; the text says why. Worth another try."""


# In the order they are asked: a cheap method that answers on any server of the protocol, and what to do then.
_PROTOCOLS: tuple[tuple[str, Callable[[str, str, WorkerOptions], Worker]], ...] = (
    (DESCRIBE, SessionWorker),
    (MODEL_INFO, SglangWorker),
)
# Known, and for a later release.
_VLLM_METHOD = "/vllm.grpc.engine.VllmEngine/GetModelInfo"


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
        if await _answers(connection, _VLLM_METHOD, options.connect_timeout_s):
            raise Unsupported(
                f"worker {url} speaks vLLM's gRPC protocol, which is not served in this release"
            )
    finally:
        connection.close()
    raise ProbeFailed(f"{url} speaks neither smg.engine.v1 nor SGLang's gRPC protocol")


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
