"""Where `smg top` looks: a gateway's HTTP port or its gRPC port."""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio
import httpx

from smg.cli.metrics_text import MetricsText
from smg.cli.top.snapshot import Snapshot, WorkerNow, snapshot_of
from smg_proto.admin.v1 import admin_pb2

if TYPE_CHECKING:
    from pathlib import Path

_LIST_WORKERS = "/smg.admin.v1.AdminService/ListWorkers"
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403


class LookFailed(Exception):
    """The gateway did not tell; the text says why."""


class Source(Protocol):
    """Looks at one gateway."""

    async def look(self) -> Snapshot:
        """Look once. Raises LookFailed."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class HttpSource:
    """Reads /metrics, and /workers where the key opens it."""

    def __init__(self, url: str, key: str, timeout_s: float, ca_cert: Path | None) -> None:
        self._url = url
        trust = ssl.create_default_context(cafile=ca_cert) if url.startswith("https") else False
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=timeout_s,
            verify=trust,
            trust_env=False,
        )
        self._is_told_workers = True

    async def look(self) -> Snapshot:
        """Look once. Raises LookFailed."""
        try:
            page = await self._client.get("/metrics")
            page.raise_for_status()
            metrics = MetricsText(page.text)
            told = await self._workers()
        except (httpx.HTTPError, ValueError, KeyError) as error:
            reason = str(error) or type(error).__name__
            raise LookFailed(
                f"no gateway answers at {self._url}: {reason} (smg doctor {self._url} tells more)"
            ) from None
        if not metrics.has("smg_build_info"):
            raise LookFailed(f"what answers at {self._url} is no SMG gateway (smg doctor {self._url})")
        return snapshot_of(metrics, time.monotonic(), told)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def _workers(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        if not self._is_told_workers:
            return {}
        answer = await self._client.get("/workers")
        if answer.status_code in (_UNAUTHORIZED, _FORBIDDEN):
            # Reasons and models are for the gateway's operator; the numbers are not.
            self._is_told_workers = False
            return {}
        answer.raise_for_status()
        told: Any = answer.json()
        return {
            worker["url"]: (
                worker.get("reason", ""),
                tuple(str(model["id"]) for model in worker.get("models", ())),
            )
            for worker in told["workers"]
        }


class GrpcSource:
    """Asks AdminService, which tells of the workers alone."""

    def __init__(
        self, target: str, key: str, timeout_s: float, *, is_tls: bool, ca_cert: Path | None
    ) -> None:
        aio: Any = grpc.aio
        if is_tls:
            roots = ca_cert.read_bytes() if ca_cert is not None else None
            self._channel: Any = aio.secure_channel(target, grpc.ssl_channel_credentials(roots))
        else:
            self._channel = aio.insecure_channel(target)
        self._ask = self._channel.unary_unary(
            _LIST_WORKERS,
            request_serializer=admin_pb2.ListWorkersRequest.SerializeToString,
            response_deserializer=admin_pb2.ListWorkersResponse.FromString,
        )
        self._target = target
        self._timeout_s = timeout_s
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()

    async def look(self) -> Snapshot:
        """Look once. Raises LookFailed."""
        try:
            answer: admin_pb2.ListWorkersResponse = await self._ask(
                admin_pb2.ListWorkersRequest(), timeout=self._timeout_s, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            words = f"{error.code().name}: {error.details()}"
            raise LookFailed(f"{self._target} does not tell its workers: {words}") from None
        return Snapshot(time.monotonic(), tuple(_worker(worker) for worker in answer.workers))

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _worker(worker: admin_pb2.Worker) -> WorkerNow:
    load = worker.load
    return WorkerNow(
        worker.url,
        admin_pb2.WorkerState.Name(worker.state).removeprefix("WORKER_STATE_").lower(),
        worker.reason,
        tuple(card.id for card in worker.models),
        inflight=worker.inflight_requests,
        running=load.running,
        waiting=load.waiting,
        kv_used=load.kv_used_tokens,
        kv_capacity=load.kv_capacity_tokens,
        tokens_per_second=load.tokens_per_second,
        steps=load.steps,
    )
