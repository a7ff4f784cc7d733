"""Finds out which protocol an address speaks, and opens a worker on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import grpc
import grpc.aio

from smg.errors import Unsupported
from smg.workers.address import parse_url
from smg.workers.channel import open_channel, words
from smg.workers.session import SessionWorker
from smg.workers.sglang_grpc import SglangWorker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from smg.workers.base import Worker
    from smg.workers.options import WorkerOptions

    class _Ask(Protocol):
        def __call__(self, request: bytes, *, timeout: float) -> Awaitable[bytes]: ...


class ProbeFailed(Exception):
    """The address did not tell what it speaks; the text says why. Worth another try."""


# In the order they are asked: a cheap method that answers on any server of the protocol, and what to do then.
_PROTOCOLS: tuple[tuple[str, Callable[[str, str, WorkerOptions], Worker]], ...] = (
    ("/smg.engine.v1.EngineService/Describe", SessionWorker),
    ("/sglang.grpc.scheduler.SglangScheduler/GetModelInfo", SglangWorker),
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
    channel = open_channel(address.target, options)
    try:
        for method, make in _PROTOCOLS:
            if await _answers(channel, method, options.connect_timeout_s):
                return make(worker_id, url, options)
        if await _answers(channel, _VLLM_METHOD, options.connect_timeout_s):
            raise Unsupported(
                f"worker {url} speaks vLLM's gRPC protocol, which is not served in this release"
            )
    finally:
        await channel.close(None)
    raise ProbeFailed(f"{url} speaks neither smg.engine.v1 nor SGLang's gRPC protocol")


async def _answers(channel: grpc.aio.Channel, method: str, timeout_s: float) -> bool:
    """True if the server has the method.

    Raises:
        ProbeFailed: there is no server.
    """
    # Both messages are empty or unread: the status alone tells.
    call = cast("_Ask", channel.unary_unary(method, None, None))  # pyright: ignore[reportUnknownMemberType] - partial stubs
    try:
        await call(b"", timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return False
        raise ProbeFailed(words(error)) from error
    return True
