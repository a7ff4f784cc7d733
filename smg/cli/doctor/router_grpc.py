"""Examines a gateway through its gRPC port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2

from smg.cli.doctor.findings import Finding, note, ok, problem
from smg.cli.doctor.fleet import ListedWorker, worker_findings
from smg.cli.doctor.grpc_calls import CallFailed, Calls
from smg_proto.admin.v1 import admin_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smg.cli.doctor.wire import Target

WORKERS_METHOD = "/smg.admin.v1.AdminService/ListWorkers"
_HEALTH = "/grpc.health.v1.Health/Check"
_CLOSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
KEY_NEEDED = "set SMG_API_KEY (or give --api-key) to the gateway's own key, not a tenant's"


async def examine_grpc_router(target: Target, key: str, model: str = "") -> AsyncIterator[Finding]:
    """Look at a gateway. Raises CallFailed when it stops answering."""
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    async with Calls(target, metadata) as calls:
        health = health_pb2.HealthCheckResponse.FromString(await calls.ask(_HEALTH))
        if health.status == health_pb2.HealthCheckResponse.SERVING:
            yield ok("health", "serving")
        else:
            yield problem("health", "it does not serve: no worker is ready, or it is draining", "see below")
        try:
            answer = admin_pb2.ListWorkersResponse.FromString(await calls.ask(WORKERS_METHOD))
        except CallFailed as failed:
            if failed.code not in _CLOSED:
                raise
            yield note("workers", "its workers are told to its operator only", KEY_NEEDED)
            return
    for finding in worker_findings([listed(worker) for worker in answer.workers], model):
        yield finding


def listed(worker: admin_pb2.Worker) -> ListedWorker:
    """A worker out of AdminService's list."""
    state = admin_pb2.WorkerState.Name(worker.state).removeprefix("WORKER_STATE_").lower()
    return ListedWorker(worker.url, state, worker.reason, tuple(card.id for card in worker.models))
