"""A worker's address, what is known of it, and the connection to it as soon as its protocol is known.

It outlives connections: a lost worker is still known for the models that it serves.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.types.worker import WorkerSnapshot
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.workers.base import Worker

# Running sequences at which a worker counts as full that does not tell its own maximum.
_ASSUMED_MAX_RUNNING = 256

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
        added_at: when it was registered.
        worker: the connection; None until the protocol is known.
        is_draining: takes no new work.
        why_not_known: why there is no connection, in words.
    """

    id: str
    url: str
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    added_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    worker: Worker | None = None
    is_draining: bool = False
    why_not_known: str = "not connected yet"
    last_description: card_pb2.DescribeResponse | None = None

    @property
    def protocol(self) -> str:
        """Name of the protocol; empty until known."""
        return self.worker.protocol if self.worker else ""

    @property
    def is_ready(self) -> bool:
        """Takes new work."""
        return self.worker is not None and self.worker.is_ready and not self.is_draining

    @property
    def state(self) -> WorkerState:
        """State in one word."""
        if self.is_draining:
            return WorkerState.DRAINING
        if self.worker is None or not self.worker.is_connected:
            return WorkerState.CONNECTING
        return WorkerState.READY if self.worker.is_ready else WorkerState.UNHEALTHY

    @property
    def reason(self) -> str:
        """Why it takes no new work, in words; empty when it does."""
        if self.is_draining:
            return "draining"
        return self.worker.reason if self.worker else self.why_not_known

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

    def snapshot(self) -> WorkerSnapshot:
        """The picture that policies see."""
        load, inflight = self.load, self.inflight_requests
        description = self.description
        most = description.max_running if description else 0
        # The engine's own numbers are late by a step: what was submitted meanwhile counts as well.
        busy = max(load.running + load.waiting, inflight)
        return WorkerSnapshot(
            id=self.id,
            url=self.url,
            inflight_requests=inflight,
            running=load.running,
            waiting=load.waiting,
            saturation=busy / (most or _ASSUMED_MAX_RUNNING),
            labels=self.labels,
            instance_id=description.instance_id if description else "",
        )
