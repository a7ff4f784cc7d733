"""What a policy sees of a worker: an immutable picture, taken when the request is placed."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class WorkerSnapshot(NamedTuple):
    """One worker that is ready for the model in question.

    Attributes:
        id: the router's id of the worker.
        url: address as the operator gave it.
        inflight_requests: requests of this router that the worker is working on.
        running: sequences the engine computes, all routers together, as it last told; 0 when it does not tell.
        waiting: sequences that wait in the engine, as it last told.
        saturation: 0 idle, 1.0 full, above 1.0 queueing; from running, waiting, the prompt tokens that wait to be
            computed, and the engine's own maximum.
        slots: sequences that the engine computes at a time; 0 when nobody knows.
        labels: the operator's.
        instance_id: the engine process, as it names itself; another one on the same id is a restart, with its caches
            empty. Empty when it does not tell.
    """

    id: str
    url: str
    inflight_requests: int = 0
    running: int = 0
    waiting: int = 0
    saturation: float = 0.0
    labels: Mapping[str, str] = _NO_LABELS
    instance_id: str = ""
    slots: int = 0
