"""Who exists: the workers, the tasks that keep them connected, and the pictures that policies pick from.

All of it lives on the event loop. What a request needs is kept ready: a load that changes costs the next placement one
new picture, a worker that comes or goes rebuilds everything.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from smg.errors import AlreadyExists, ModelNotFound, NotFound, Unsupported, WorkerUnavailable
from smg.workers.address import parse_url
from smg.workers.backoff import Backoff
from smg.workers.base import ProtocolMismatch
from smg.workers.overload import OverloadLimits
from smg.workers.pools import Pools
from smg.workers.probe import ProbeFailed, open_worker
from smg.workers.registered import RegisteredWorker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from smg.types.worker import WorkerSnapshot
    from smg.workers.base import Worker
    from smg.workers.options import WorkerOptions
    from smg_proto.engine.v1 import card_pb2

    OpenWorker = Callable[[str, str, WorkerOptions], Awaitable[Worker]]

_NO_LIMITS = OverloadLimits()

_log = logging.getLogger(__name__)

RouteT_contra = TypeVar("RouteT_contra", contravariant=True)
RouteT = TypeVar("RouteT")


class Picked(Protocol):
    """A pick with its reason, likewise (smg.policies.base.Pick)."""

    @property
    def worker(self) -> WorkerSnapshot:
        """The picked one."""
        ...


PickT_co = TypeVar("PickT_co", bound=Picked, covariant=True)
PickT = TypeVar("PickT", bound=Picked)


class Picker(Protocol[RouteT_contra, PickT_co]):
    """A policy, as far as the registry looks at it (smg.policies.base.Policy)."""

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteT_contra) -> WorkerSnapshot:
        """Pick one of the snapshots."""
        ...

    def explain(self, snapshots: Sequence[WorkerSnapshot], request: RouteT_contra) -> PickT_co:
        """Pick one of the snapshots, and tell why."""
        ...


class WorkerRegistry:
    """The workers of this router. `start` connects to them; `close` ends every task."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        open_worker: OpenWorker = open_worker,
        overload: OverloadLimits = _NO_LIMITS,
    ) -> None:
        """Args: open_worker: finds out an address's protocol (smg.workers.probe); overload: when one gets no more."""
        self._options = options
        self._open_worker = open_worker
        self._ids = itertools.count(1)
        self._workers: dict[str, RegisteredWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_started = False
        self._pools = Pools(overload)
        self._overload = overload
        self._callbacks: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    def add(self, url: str, labels: Mapping[str, str] | None = None) -> RegisteredWorker:
        """Register a worker. It is connected to in the background, for as long as it takes.

        Raises:
            InvalidRequest: the address is not grpc:// or http://.
            AlreadyExists: it is registered.
        """
        address = parse_url(url)
        for known in self._workers.values():
            if parse_url(known.url) == address:
                raise AlreadyExists(f"worker url {url!r} is registered as {known.id}", param="url")
        entry = RegisteredWorker(f"worker-{next(self._ids)}", url, MappingProxyType(dict(labels or {})))
        self._workers[entry.id] = entry
        if self._is_started:
            self._start(entry)
        self._rebuild()
        return entry

    def remove(self, worker_id: str, *, drain: bool = False) -> None:
        """Forget a worker: now, or with `drain` when its running work has ended. Its sequences fail otherwise.

        Raises:
            NotFound: no worker has that id.
        """
        entry = self.worker(worker_id)
        if drain and entry.inflight_requests:
            entry.is_draining = True
            self._rebuild()
        else:
            self._drop(entry)

    def relabel(self, worker_id: str, labels: Mapping[str, str]) -> None:
        """Give a worker other labels.

        Raises:
            NotFound: no worker has that id.
        """
        self.worker(worker_id).labels = MappingProxyType(dict(labels))
        self._rebuild()

    def start(self) -> None:
        """Begin to connect."""
        self._is_started = True
        for entry in self._workers.values():
            self._start(entry)

    async def close(self) -> None:
        """Close every connection. Running sequences fail. Nothing is left behind."""
        self._is_started = False
        for entry in list(self._workers.values()):
            self._drop(entry)
        if self._ending:
            await asyncio.wait(self._ending)

    def workers(self) -> Sequence[RegisteredWorker]:
        """All workers, in the order they were added."""
        return tuple(self._workers.values())

    def worker(self, worker_id: str) -> RegisteredWorker:
        """The worker of that id.

        Raises:
            NotFound: there is none.
        """
        entry = self._workers.get(worker_id)
        if entry is None:
            raise NotFound(f"unknown worker {worker_id!r}", param="id")
        return entry

    def models(self) -> Mapping[str, tuple[RegisteredWorker, ...]]:
        """Every model and the workers that serve it, lost ones included."""
        return self._pools.models

    def snapshots(self, model_id: str) -> tuple[WorkerSnapshot, ...]:
        """The workers that are ready for a model, in the order they were added."""
        return self._pools.snapshots(model_id)

    def card(self, model_id: str) -> card_pb2.ModelCard | None:
        """The card of a model, of a ready worker if there is one; None when nobody serves it."""
        return self._pools.cards.get(model_id)

    def constraints(self, model_id: str) -> Mapping[str, Sequence[str]]:
        """By id of each worker that serves the model, lost ones included: the kinds of constraints that it enforces."""
        return {
            entry.id: tuple(card.capabilities.constraints)
            for entry in self._pools.models.get(model_id, ())
            for card in (entry.description.models if entry.description else ())
            if card.id == model_id
        }

    def place(
        self,
        model_id: str,
        policy: Picker[RouteT, PickT],
        route: RouteT,
        exclude: frozenset[str] = frozenset(),
        on_pick: Callable[[PickT], None] | None = None,
    ) -> Worker:
        """Let a policy pick a worker.

        Args:
            model_id: the model, no alias.
            policy: who picks.
            route: what the policy may know of the request.
            exclude: ids of workers not to use.
            on_pick: told which worker was picked, and why.

        Raises:
            ModelNotFound: no worker serves the model.
            WorkerUnavailable: workers serve it, and none is ready or has room; or nothing is known of any worker yet.
        """
        snapshots, are_over = self._pools.placeable(model_id)
        if are_over and self._overload.sheds:
            raise WorkerUnavailable(
                f"every worker of model {model_id!r} has as much work as it may get; try again later",
                code="worker_overload_protection_shed",
                retry_after_s=self._overload.retry_after_s,
            )
        if exclude:
            snapshots = _without(snapshots, exclude) or _without(self._pools.snapshots(model_id), exclude)
        if not snapshots:
            raise self._nobody(model_id)
        if on_pick is None:
            picture = policy.pick(snapshots, route)
        else:
            pick = policy.explain(snapshots, route)
            on_pick(pick)
            picture = pick.worker
        worker = self._workers[picture.id].worker
        if worker is None:
            raise self._nobody(model_id)
        return worker

    async def wait_ready(self, timeout_s: float, model_id: str | None = None) -> bool:
        """Wait until some worker is ready, for the model if one is given. Returns False on timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (self.snapshots(model_id) if model_id else self._pools.has_ready):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever a worker comes, goes, or changes its state or models. Returns how to end that."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def _nobody(self, model_id: str) -> ModelNotFound | WorkerUnavailable:
        serving = self._pools.models.get(model_id, ())
        if not serving and self._pools.models:
            known = ", ".join(sorted(self._pools.models))
            return ModelNotFound(f"no worker serves model {model_id!r}; served: {known}", param="model")
        reasons = "; ".join(
            f"{entry.url}: {entry.reason or 'excluded'}" for entry in serving or self.workers()
        )
        return WorkerUnavailable(f"no worker is ready for model {model_id!r} ({reasons or 'no workers'})")

    def _start(self, entry: RegisteredWorker) -> None:
        self._tasks[entry.id] = asyncio.create_task(self._keep(entry), name=f"{entry.id} {entry.url}")

    def _drop(self, entry: RegisteredWorker) -> None:
        del self._workers[entry.id]
        entry.is_draining = True
        task = self._tasks.pop(entry.id, None)
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        self._rebuild()

    async def _keep(self, entry: RegisteredWorker) -> None:
        """Keep one worker connected until cancelled."""
        backoff = Backoff(self._options)
        while True:
            try:
                worker = entry.worker
                if worker is None:
                    worker = await self._open_worker(entry.id, entry.url, self._options)
                    self._attach(entry, worker)
                    backoff.reset()
                await worker.run()
            except Unsupported as refusal:
                self._detach(entry, refusal.message)
                return
            except (ProbeFailed, ProtocolMismatch) as fault:
                self._detach(entry, str(fault))
            except Exception:  # noqa: BLE001 - a fault of ours in one connection must not end it for ever
                _log.exception("worker %s: the connection broke down; it is opened again", entry.url)
            await asyncio.sleep(backoff.next_s())

    def _attach(self, entry: RegisteredWorker, worker: Worker) -> None:
        def load_changed() -> None:
            self._pools.mark_stale(entry)
            if entry.is_draining and not worker.inflight_requests and entry.id in self._workers:
                self._drop(entry)

        entry.worker = worker
        worker.on_state_change = self._rebuild
        worker.on_load_change = load_changed
        self._rebuild()

    def _detach(self, entry: RegisteredWorker, why: str) -> None:
        if why != entry.why_not_known:
            _log.warning("worker %s: %s", entry.url, why)
        entry.last_description = entry.description
        entry.worker, entry.why_not_known = None, why
        self._rebuild()

    def _rebuild(self) -> None:
        self._pools.rebuild(self.workers())
        self._changed.set()
        for callback in tuple(self._callbacks):
            callback()


def _without(snapshots: Sequence[WorkerSnapshot], exclude: frozenset[str]) -> tuple[WorkerSnapshot, ...]:
    return tuple([snapshot for snapshot in snapshots if snapshot.id not in exclude])
