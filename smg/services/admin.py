"""smg.admin.v1.AdminService: the router's workers, their caches and loads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from smg.errors import InvalidRequest, SmgError, WorkerUnavailable
from smg.services.methods import ADMIN_SERVICE
from smg.services.rpc import add_service, unary_method
from smg.services.streams import is_own_cancellation
from smg.workers.registered import WorkerState
from smg_proto.admin.v1 import admin_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import grpc.aio

    from smg.services.rpc import Context
    from smg.workers.base import Worker
    from smg.workers.registered import RegisteredWorker
    from smg.workers.registry import WorkerRegistry

FLUSH_TIMEOUT_S = 30.0
MAX_LABELS = 64
MAX_LABEL_CHARS = 256
MAX_MODELS = 256
MAX_MODEL_CHARS = 512

_STATES = {
    WorkerState.CONNECTING: admin_pb2.WORKER_STATE_CONNECTING,
    WorkerState.READY: admin_pb2.WORKER_STATE_READY,
    WorkerState.DRAINING: admin_pb2.WORKER_STATE_DRAINING,
    WorkerState.UNHEALTHY: admin_pb2.WORKER_STATE_UNHEALTHY,
}


class AdminService:
    """The methods and the registry that they look at. Workers are listed in the order of their numbers."""

    def __init__(self, registry: WorkerRegistry) -> None:
        self._registry = registry

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "ListWorkers": unary_method(self.list_workers, admin_pb2.ListWorkersRequest),
            "GetWorker": unary_method(self.get_worker, admin_pb2.GetWorkerRequest),
            "AddWorker": unary_method(self.add_worker, admin_pb2.AddWorkerRequest),
            "UpdateWorker": unary_method(self.update_worker, admin_pb2.UpdateWorkerRequest),
            "RemoveWorker": unary_method(self.remove_worker, admin_pb2.RemoveWorkerRequest),
            "FlushCaches": unary_method(self.flush_caches, admin_pb2.FlushCachesRequest),
            "ListLoads": unary_method(self.list_loads, admin_pb2.ListLoadsRequest),
            "LoadLora": unary_method(self.load_lora, admin_pb2.LoadLoraRequest),
            "UnloadLora": unary_method(self.unload_lora, admin_pb2.UnloadLoraRequest),
            "StartProfile": unary_method(self.start_profile, admin_pb2.StartProfileRequest),
            "StopProfile": unary_method(self.stop_profile, admin_pb2.StopProfileRequest),
        }
        add_service(server, ADMIN_SERVICE, methods)

    async def list_workers(
        self, _request: admin_pb2.ListWorkersRequest, _: Context
    ) -> admin_pb2.ListWorkersResponse:
        """List every worker."""
        return admin_pb2.ListWorkersResponse(
            workers=[worker_message(worker) for worker in self._registry.workers()]
        )

    async def get_worker(
        self, request: admin_pb2.GetWorkerRequest, _: Context
    ) -> admin_pb2.GetWorkerResponse:
        """Tell about one worker. Raises NotFound."""
        return admin_pb2.GetWorkerResponse(worker=worker_message(self._registry.worker(request.id)))

    async def add_worker(
        self, request: admin_pb2.AddWorkerRequest, _: Context
    ) -> admin_pb2.AddWorkerResponse:
        """Add a worker; it is connected to in the background. Raises AlreadyExists, InvalidRequest, Overloaded."""
        self._registry.check_changeable()
        check_labels(request.labels)
        check_models(request.only_models)
        worker = self._registry.add(request.url, request.labels, only_models=request.only_models)
        return admin_pb2.AddWorkerResponse(worker=worker_message(worker))

    async def update_worker(
        self, request: admin_pb2.UpdateWorkerRequest, _: Context
    ) -> admin_pb2.UpdateWorkerResponse:
        """Give a worker other labels, take it out of service or back. Raises NotFound, InvalidRequest."""
        self._registry.check_changeable()
        worker = self._registry.worker(request.id)
        if request.HasField("labels"):
            check_labels(request.labels.values)
            self._registry.relabel(request.id, request.labels.values)
        if request.HasField("draining"):
            self._registry.drain(request.id, is_draining=request.draining)
        return admin_pb2.UpdateWorkerResponse(worker=worker_message(worker))

    async def remove_worker(
        self, request: admin_pb2.RemoveWorkerRequest, _: Context
    ) -> admin_pb2.RemoveWorkerResponse:
        """Remove a worker, now or when its work has ended. Raises NotFound."""
        self._registry.check_changeable()
        self._registry.remove(request.id, drain=request.drain)
        return admin_pb2.RemoveWorkerResponse()

    async def flush_caches(
        self, _request: admin_pb2.FlushCachesRequest, _: Context
    ) -> admin_pb2.FlushCachesResponse:
        """Flush every worker's cache, all at a time."""
        outcomes = await flush_all(self._registry.workers())
        return admin_pb2.FlushCachesResponse(
            results=[
                admin_pb2.FlushResult(worker_id=worker_id, error=fault)
                for worker_id, fault in outcomes.items()
            ]
        )

    async def list_loads(
        self, _request: admin_pb2.ListLoadsRequest, _: Context
    ) -> admin_pb2.ListLoadsResponse:
        """Tell the load of every connected worker."""
        return admin_pb2.ListLoadsResponse(
            loads=[
                admin_pb2.WorkerLoad(
                    worker_id=worker.id, load=worker.load, inflight_requests=worker.inflight_requests
                )
                for worker in self._registry.workers()
                if worker.worker is not None and worker.worker.is_connected
            ]
        )

    async def load_lora(self, request: admin_pb2.LoadLoraRequest, _: Context) -> admin_pb2.LoadLoraResponse:
        """Make a worker load an adapter. Raises NotFound, InvalidRequest, WorkerUnavailable, Unsupported, EngineError."""
        for name in ("name", "path"):
            if not getattr(request, name):
                raise InvalidRequest(f"{name} is empty; allowed: some text", param=name)
        entry = self._registry.worker(request.worker_id)
        await _connected(entry).load_lora(request.name, request.path)
        return admin_pb2.LoadLoraResponse(worker=worker_message(entry))

    async def unload_lora(
        self, request: admin_pb2.UnloadLoraRequest, _: Context
    ) -> admin_pb2.UnloadLoraResponse:
        """Make a worker forget an adapter. Raises as load_lora."""
        entry = self._registry.worker(request.worker_id)
        await _connected(entry).unload_lora(request.name)
        return admin_pb2.UnloadLoraResponse(worker=worker_message(entry))

    async def start_profile(
        self, request: admin_pb2.StartProfileRequest, _: Context
    ) -> admin_pb2.StartProfileResponse:
        """Make a worker record a profile. Raises as load_lora."""
        await _connected(self._registry.worker(request.worker_id)).start_profile(request.output_dir)
        return admin_pb2.StartProfileResponse()

    async def stop_profile(
        self, request: admin_pb2.StopProfileRequest, _: Context
    ) -> admin_pb2.StopProfileResponse:
        """Make a worker end its recording. Raises as load_lora."""
        await _connected(self._registry.worker(request.worker_id)).stop_profile()
        return admin_pb2.StopProfileResponse()


def _connected(entry: RegisteredWorker) -> Worker:
    if entry.worker is None:
        raise WorkerUnavailable(f"worker {entry.id} is not connected")
    return entry.worker


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels that are too many or too long, with InvalidRequest."""
    if len(labels) > MAX_LABELS:
        raise InvalidRequest(
            f"labels has {len(labels)} members; at most {MAX_LABELS} are allowed", param="labels"
        )
    for name, value in labels.items():
        if max(len(name), len(value)) > MAX_LABEL_CHARS:
            raise InvalidRequest(
                f"labels.{name[:40]} must be a string of at most {MAX_LABEL_CHARS} characters", param="labels"
            )


def check_models(models: Sequence[str]) -> None:
    """Refuse names of models that are too many or too long, with InvalidRequest."""
    if len(models) > MAX_MODELS or any(not 0 < len(model) <= MAX_MODEL_CHARS for model in models):
        raise InvalidRequest(
            f"only_models must be at most {MAX_MODELS} names of 1 to {MAX_MODEL_CHARS} characters",
            param="only_models",
        )


def worker_message(worker: RegisteredWorker) -> admin_pb2.Worker:
    """A worker as clients see it."""
    message = admin_pb2.Worker(
        id=worker.id,
        url=worker.url,
        protocol=worker.protocol,
        state=_STATES[worker.state],
        reason=worker.reason,
        inflight_requests=worker.inflight_requests,
        load=worker.load,
        labels=worker.labels,
        origin=worker.origin,
        breaker=worker.breaker.state.value,
        only_models=sorted(worker.only_models),
    )
    message.added_at.FromDatetime(worker.added_at)
    description = worker.description
    if description is not None:
        message.models.extend(description.models)
        message.engine = f"{description.engine} {description.engine_version}".strip()
    return message


async def flush_all(workers: Sequence[RegisteredWorker]) -> dict[str, str]:
    """Flush the caches of workers, all at a time. Returns by id what went wrong; empty where nothing did."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_flush(worker)) for worker in workers]
    return {worker.id: task.result() for worker, task in zip(workers, tasks, strict=True)}


async def _flush(worker: RegisteredWorker) -> str:
    """Flush one worker's cache. Returns what went wrong; empty when nothing did."""
    if worker.worker is None:
        return worker.reason
    try:
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await worker.worker.flush_cache()
    except SmgError as error:
        return error.message
    except asyncio.CancelledError:
        if is_own_cancellation():
            raise
        return "the connection was lost meanwhile"
    except TimeoutError:
        return f"no answer within {FLUSH_TIMEOUT_S:g} s"
    return ""
