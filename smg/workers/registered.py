"""A worker's address, what is known of it, and the connection to it as soon as its protocol is known.

It outlives connections: a lost worker is still known for the models that it serves.
"""

from __future__ import annotations

import enum
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.types.worker import WorkerSnapshot
from smg.workers.breaker import Breaker, BreakerOptions, BreakerState
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from smg.workers.base import Worker

# Origins of workers that nobody but the operator removes.
SETTINGS, API = "settings", "api"

# Running sequences at which a worker counts as full that does not tell its own maximum.
_ASSUMED_MAX_RUNNING = 256
# Prompt tokens that, while they wait to be computed, weigh as much as one sequence (benchmarks/routing).
BACKLOG_TOKENS = 256

_STATE_NUMBERS = {BreakerState.CLOSED: 0, BreakerState.OPEN: 1, BreakerState.HALF_OPEN: 2}

_NO_LOAD = card_pb2.Load()


class WorkerState(enum.Enum):
    """State of a worker, as in smg.admin.v1."""

    CONNECTING = "connecting"
    READY = "ready"
    DRAINING = "draining"
    UNHEALTHY = "unhealthy"


@dataclass(eq=False, slots=True)
class RegisteredWorker:
    """One worker as the registry keeps it. Everybody but the registry only reads it.

    Attributes:
        id: the router's id of it.
        url: address as given.
        labels: the operator's.
        origin: who named it: "settings", "api", or the name of a kind of discovery.
        identity: what stands behind the address, as its discovery tells (a pod's uid); empty when it tells nothing.
        only_models: ids of the models that it is to be used for; empty for all that it serves.
        added_at: when it was registered.
        worker: the connection; None until the protocol is known.
        is_draining: takes no new work.
        is_leaving: goes when its running work has ended.
        why_not_known: why there is no connection, in words.
        why_left_out: why it is not used for a model that it serves, in words; empty when it is.
        breaker: its circuit breaker.
    """

    id: str
    url: str
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    origin: str = API
    identity: str = ""
    only_models: frozenset[str] = frozenset()
    added_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    worker: Worker | None = None
    is_draining: bool = False
    is_leaving: bool = False
    why_not_known: str = "not connected yet"
    why_left_out: str = ""
    last_description: card_pb2.DescribeResponse | None = None
    breaker: Breaker = field(default_factory=lambda: Breaker(BreakerOptions(), time.monotonic))

    @property
    def protocol(self) -> str:
        """Name of the protocol; empty until known."""
        return self.worker.protocol if self.worker else ""

    @property
    def is_ready(self) -> bool:
        """Is well and may take new work."""
        worker = self.worker
        if worker is None or self.is_draining or not worker.is_ready:
            return False
        return not (self.only_models and self._mismatch)

    @property
    def is_admitted(self) -> bool:
        """Its breaker lets one more request through."""
        return self.breaker.is_closed or self.breaker.admits(self.inflight_requests)

    @property
    def state(self) -> WorkerState:
        """State in one word."""
        if self.is_draining:
            return WorkerState.DRAINING
        if self.worker is None or not self.worker.is_connected:
            return WorkerState.CONNECTING
        return WorkerState.READY if self.is_ready else WorkerState.UNHEALTHY

    @property
    def unused_word(self) -> str:
        """Why it takes no new work, in one or two words that name nothing of the fleet's inside."""
        if self.state is not WorkerState.READY:
            return self.state.value
        return "excluded" if self.breaker.is_closed else f"with circuit breaker {self.breaker.state.value}"

    @property
    def reason(self) -> str:
        """Why it takes no new work, in words; empty when it does."""
        if self.is_draining:
            return "draining"
        if self.worker is None:
            return self.why_not_known
        reason = self.worker.reason or self._mismatch
        if not reason and not self.breaker.is_closed:
            return f"its circuit breaker is {self.breaker.state.value}"
        return reason or self.why_left_out

    @property
    def cards(self) -> Sequence[card_pb2.ModelCard]:
        """The cards of the models that it is used for, as last heard."""
        description = self.description
        if description is None:
            return ()
        if not self.only_models:
            return description.models
        return [card for card in description.models if card.id in self.only_models]

    @property
    def _mismatch(self) -> str:
        """What it serves instead of what it is to be used for; empty when that is well."""
        if not self.only_models or self.description is None or self.cards:
            return ""
        served = ", ".join(card.id for card in self.description.models)
        return f"it serves {served}, and is to be used for {', '.join(sorted(self.only_models))} alone"

    @property
    def is_stalled(self) -> bool:
        """It stands still over its work."""
        return self.worker is not None and self.worker.is_stalled

    @property
    def description(self) -> card_pb2.DescribeResponse | None:
        """What it serves, as last heard, also by an earlier connection."""
        current = self.worker.description if self.worker else None
        return current or self.last_description

    @property
    def load(self) -> card_pb2.Load:
        """Its load as last heard."""
        return self.worker.load if self.worker else _NO_LOAD

    @property
    def inflight_requests(self) -> int:
        """Requests of this router that it works on."""
        return self.worker.inflight_requests if self.worker else 0

    @property
    def cb_state(self) -> int:
        """Its breaker as a number, for metrics: 0 closed, 1 open, 2 half open."""
        return _STATE_NUMBERS[self.breaker.state]

    @property
    def steps_per_second(self) -> float:
        """Scheduler steps of its engine over about the last second."""
        return self.worker.steps_per_second if self.worker else 0.0

    @property
    def placement_ids(self) -> tuple[str, ...]:
        """The ids that its pictures have."""
        ranks = self.worker.ranks if self.worker else 1
        return (self.id,) if ranks == 1 else tuple(f"{self.id}@{rank}" for rank in range(ranks))

    def snapshots(self) -> tuple[WorkerSnapshot, ...]:
        """The pictures that policies see: one, or one per data-parallel rank where ranks are used one by one."""
        worker = self.worker
        if worker is None or worker.ranks == 1:
            return (self._snapshot(self.id, self.url, self.load, self.inflight_requests),)
        return tuple(
            self._snapshot(
                placement_id,
                f"{self.url}@{rank}",
                worker.rank_load(rank),
                worker.rank_inflight_requests(rank),
                worker.ranks,
            )
            for rank, placement_id in enumerate(self.placement_ids)
        )

    def _snapshot(
        self, snapshot_id: str, url: str, load: card_pb2.Load, inflight: int, ranks: int = 1
    ) -> WorkerSnapshot:
        worker = self.worker
        description = (worker.description if worker is not None else None) or self.last_description
        most = description.max_running if description is not None else 0
        running, waiting = load.running, load.waiting
        # The engine's own numbers are late by a step: what was submitted meanwhile counts as well.
        busy: float = max(running + waiting, inflight)
        if worker is not None and ranks == 1:
            busy += worker.backlog_tokens / BACKLOG_TOKENS
        slots = most / ranks or _ASSUMED_MAX_RUNNING
        # By place: one is made for every request.
        return WorkerSnapshot(
            snapshot_id,
            url,
            inflight,
            running,
            waiting,
            busy / slots,
            self.labels,
            description.instance_id if description is not None else "",
            round(slots),
        )


def count_unused(workers: Iterable[RegisteredWorker]) -> str:
    """How many workers there are, and why they take no work, for clients: addresses and causes stay in the logs."""
    counts = Counter(worker.unused_word for worker in workers)
    if not counts:
        return "no workers"
    told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return f"workers: {told}"
