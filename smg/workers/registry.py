"""Who exists: the workers, and the pictures that policies pick from. Keeper keeps them connected.

All of it lives on the event loop. What a request needs is kept ready: a load that changes costs the next placement one
new picture, a worker that comes or goes rebuilds everything.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from smg.errors import AlreadyExists, ModelNotFound, NotFound, Overloaded, Unsupported, WorkerUnavailable
from smg.workers.address import parse_url
from smg.workers.breaker import Breaker, BreakerOptions
from smg.workers.keeper import Keeper, OpenWorker
from smg.workers.overload import OverloadLimits
from smg.workers.pools import Pools
from smg.workers.probe import open_worker
from smg.workers.rank import RankWorker
from smg.workers.registered import API, RegisteredWorker, count_unused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from smg.types.worker import WorkerSnapshot
    from smg.workers.base import Worker
    from smg.workers.keeper import CacheWatcher
    from smg.workers.options import WorkerOptions
    from smg_proto.engine.v1 import card_pb2

_NO_LIMITS = OverloadLimits()
# Workers that are tried at once when a request finds none.
_HURRIED = 16

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
        breakers: BreakerOptions | None = None,
        *,
        open_worker: OpenWorker = open_worker,
        overload: OverloadLimits = _NO_LIMITS,
    ) -> None:
        """Set up.

        Args:
            options: how workers are connected to.
            breakers: when their circuit breakers open; None for the defaults.
            open_worker: finds out an address's protocol (smg.workers.probe).
            overload: when a worker gets no more.

        Clients cannot change the workers of a registry whose `is_one_of_several` is set: other router processes have others.
        """
        self.is_one_of_several = False
        self._options = options
        self._breakers = breakers or BreakerOptions()
        self._keeper = Keeper(options, open_worker, self._rebuild, self._load_changed, self._drop_idle)
        self._ids = itertools.count(1)
        self._workers: dict[str, RegisteredWorker] = {}
        self._by_url: dict[str, RegisteredWorker] = {}
        self._is_started = False
        self._pools = Pools(self.workers, overload)
        self._overload = overload
        self._hurry_at = 0.0
        self._turns = itertools.count()
        self._callbacks: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    def add(
        self,
        url: str,
        labels: Mapping[str, str] | None = None,
        *,
        origin: str = API,
        identity: str = "",
        only_models: Iterable[str] = (),
    ) -> RegisteredWorker:
        """Register a worker. It is connected to in the background, for as long as it takes.

        Args:
            url: its address.
            labels: the operator's.
            origin: who names it.
            identity: what stands behind the address; empty when nobody tells.
            only_models: models that it is to be used for; empty for all that it serves.

        Raises:
            InvalidRequest: the address is not grpc:// or http://.
            AlreadyExists: it is registered.
            Overloaded: there are as many workers as are allowed.
        """
        address = parse_url(url).url
        known = self._by_url.get(address)
        if known is not None:
            raise AlreadyExists(f"worker url {url!r} is registered as {known.id}", param="url")
        most = self._options.max_workers
        if len(self._workers) >= most:
            raise Overloaded(f"there are {most} workers already, as many as --max-workers allows")
        entry = RegisteredWorker(
            f"worker-{next(self._ids)}",
            address,
            MappingProxyType(dict(labels or {})),
            origin,
            identity,
            frozenset(only_models),
            breaker=Breaker(self._breakers, time.monotonic),
        )
        self._workers[entry.id] = self._by_url[address] = entry
        if self._is_started:
            self._keeper.start(entry)
        # Nothing is known of it that a placement could read.
        self._tell()
        return entry

    def remove(self, worker_id: str, *, drain: bool = False) -> None:
        """Forget a worker: now, or with `drain` when its running work has ended or has had its time.

        What still runs on it then goes on elsewhere, or fails where nobody else serves the model.

        Raises:
            NotFound: no worker has that id.
        """
        entry = self.worker(worker_id)
        if drain and entry.inflight_requests:
            if not entry.is_leaving:
                _log.info("worker %s is drained: %d sequences run", entry.url, entry.inflight_requests)
                entry.is_draining = entry.is_leaving = True
                self._keeper.drop_later(entry)
            self._rebuild(entry)
        else:
            self._drop(entry)

    def drain(self, worker_id: str, *, is_draining: bool) -> None:
        """Take a worker out of service, or back into it. It stays registered; what runs on it is finished.

        Raises:
            NotFound: no worker has that id.
        """
        entry = self.worker(worker_id)
        entry.is_draining = is_draining
        if not is_draining and entry.is_leaving:
            entry.is_leaving = False
            self._keeper.keep(entry)
        self._rebuild(entry)

    def relabel(
        self, worker_id: str, labels: Mapping[str, str], only_models: Iterable[str] | None = None
    ) -> None:
        """Give a worker other labels, and other models to be used for unless they are None.

        Raises:
            NotFound: no worker has that id.
        """
        entry = self.worker(worker_id)
        entry.labels = MappingProxyType(dict(labels))
        if only_models is not None:
            entry.only_models = frozenset(only_models)
        self._rebuild(entry)

    def check_changeable(self) -> None:
        """Refuse a change that a client asks for where it would reach one router process of several.

        Raises:
            Unsupported: it would.
        """
        if self.is_one_of_several:
            raise Unsupported(
                "this router runs as several processes, and workers are changed in one of them alone; name them with "
                "--worker-urls, or let them be discovered"
            )

    def watch_caches(self, watcher: CacheWatcher) -> None:
        """Hear of the prefix caches of engines that tell of them. Before `start`."""
        self._keeper.cache_watcher = watcher

    def start(self) -> None:
        """Begin to connect."""
        self._is_started = True
        for entry in self._workers.values():
            self._keeper.start(entry)

    async def close(self) -> None:
        """Close every connection. Running sequences fail. Nothing is left behind."""
        self._is_started = False
        for entry in list(self._workers.values()):
            self._drop(entry)
        await self._keeper.wait_ended()

    def workers(self) -> Sequence[RegisteredWorker]:
        """All workers, in the order they were added."""
        return tuple(self._workers.values())

    def find(self, url: str) -> RegisteredWorker | None:
        """The worker of that address, in its one form (Address.url); None when there is none."""
        return self._by_url.get(url)

    def worker(self, worker_id: str) -> RegisteredWorker:
        """The worker of that id.

        Raises:
            NotFound: there is none.
        """
        entry = self._workers.get(worker_id)
        if entry is None:
            raise NotFound(f"Worker {worker_id[:200]} not found", param="id")
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
        """By placement id of each worker that serves the model, lost ones included: the kinds of constraints that it enforces."""
        return {placement_id: tuple(can.constraints) for placement_id, can in self._capabilities(model_id)}

    def modalities(self, model_id: str) -> Mapping[str, Sequence[str]]:
        """As `constraints`: the kinds of media that each worker takes."""
        return {placement_id: tuple(can.modalities) for placement_id, can in self._capabilities(model_id)}

    def _capabilities(self, model_id: str) -> Iterator[tuple[str, card_pb2.Capabilities]]:
        """What each worker of a model can do, by placement id."""
        for entry in self._pools.models.get(model_id, ()):
            for placement_id in entry.placement_ids:
                for card in entry.cards:
                    if card.id == model_id:
                        yield placement_id, card.capabilities

    def place(
        self,
        model_id: str,
        policy: Picker[RouteT, PickT],
        route: RouteT,
        exclude: frozenset[str] = frozenset(),
        tokenizer: str = "",
        on_pick: Callable[[PickT], None] | None = None,
    ) -> Worker:
        """Let a policy pick a worker. Submit to it before anything else runs: its models may change.

        Args:
            model_id: the model, no alias.
            policy: who picks.
            route: what the policy may know of the request.
            exclude: ids of workers not to use.
            tokenizer: fingerprint of the tokenizer that made the prompt; empty when it is not known.
            on_pick: told which worker was picked, and why.

        Raises:
            ModelNotFound: no worker serves the model.
            WorkerUnavailable: workers serve it, and none is ready or has room; or nothing is known of any worker yet.
        """
        snapshots, are_over = self._pools.placeable(model_id, tokenizer)
        if are_over and self._overload.sheds:
            raise WorkerUnavailable(
                f"every worker of model {model_id!r} has as much work as it may get; try again later",
                code="worker_overload_protection_shed",
                retry_after_s=self._overload.retry_after_s,
            )
        if exclude:
            snapshots = _without(snapshots, exclude) or _without(
                self._pools.snapshots(model_id, tokenizer), exclude
            )
        if not snapshots:
            self.hurry(model_id)
            raise self._nobody(model_id)
        if on_pick is None:
            picture = policy.pick(snapshots, route)
        else:
            pick = policy.explain(snapshots, route)
            on_pick(pick)
            picture = pick.worker
        worker_id, _, rank = picture.id.partition("@")
        worker = self._workers[worker_id].worker
        if worker is None:
            raise self._nobody(model_id)
        return RankWorker(worker, int(rank)) if rank else worker

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

    def hurry(self, model_id: str = "") -> None:
        """A request finds no worker: the lost ones are looked for soon, a few at a time, and not for each request.

        Args:
            model_id: the model that is wanted; empty, or of no known worker: any.
        """
        now = time.monotonic()
        if now < self._hurry_at:
            return
        self._hurry_at = now + self._options.hurried_pause_s
        wanted = self._pools.models.get(model_id, ()) or self.workers()
        first = next(self._turns) * _HURRIED
        for number in range(first, first + min(_HURRIED, len(wanted))):
            entry = wanted[number % len(wanted)]
            if entry.worker is None or not entry.worker.is_connected:
                self._keeper.hurry(entry)

    def _nobody(self, model_id: str) -> ModelNotFound | WorkerUnavailable:
        serving = self._pools.models.get(model_id, ())
        if not serving and self._pools.models:
            known = ", ".join(sorted(self._pools.models))
            return ModelNotFound(f"no worker serves model {model_id!r}; served: {known}", param="model")
        states = count_unused(serving or self.workers())
        return WorkerUnavailable(f"no worker is ready for model {model_id!r} ({states})")

    def _drop(self, entry: RegisteredWorker) -> None:
        del self._workers[entry.id], self._by_url[entry.url]
        entry.is_draining = True
        self._keeper.stop(entry)
        self._rebuild(entry)

    def _drop_idle(self, entry: RegisteredWorker) -> None:
        if entry.is_leaving and entry.id in self._workers:
            self._drop(entry)

    def _load_changed(self, entry: RegisteredWorker) -> None:
        self._pools.mark_stale(entry)
        # A half-open breaker lets a few through at a time.
        if not entry.breaker.is_closed and entry.is_admitted is not self._pools.is_used(entry):
            self._rebuild(entry)

    def _rebuild(self, entry: RegisteredWorker) -> None:
        self._pools.mark_outdated(entry)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        for callback in tuple(self._callbacks):
            callback()


def _without(snapshots: Sequence[WorkerSnapshot], exclude: frozenset[str]) -> tuple[WorkerSnapshot, ...]:
    return tuple([snapshot for snapshot in snapshots if snapshot.id not in exclude])
