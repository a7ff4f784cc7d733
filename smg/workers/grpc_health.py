"""Asks a worker for its health by the standard service grpc.health.v1."""

from __future__ import annotations

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from smg.workers.channel import words

_SERVING = health_pb2.HealthCheckResponse.SERVING


async def check_health(channel: grpc.aio.Channel, service: str, timeout_s: float) -> str:
    """Check once. Returns what is wrong in words; empty when the service is serving.

    A server without a health service counts as serving: its stream is proof of life enough.
    """
    try:
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=timeout_s
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return ""
        return f"health check failed: {words(error)}"
    if answer.status == _SERVING:
        return ""
    return f"health check says {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"
