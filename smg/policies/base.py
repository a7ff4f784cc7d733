"""What a policy is: picks one worker for one request, from pictures taken when the request is placed.

A policy does no I/O and sees no protobuf. It is called once per attempt, on the event loop, and must be done within
100 µs at 1,000 workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.types.worker import WorkerSnapshot


class RouteRequest(NamedTuple):
    """What a policy may know of a request.

    Attributes:
        model: id of the model.
        prompt_ids: token ids of the prompt, four bytes each, little-endian.
        routing_key: key for sticky placement; empty when there is none.
        target_worker: index among the workers that the caller asked for; None when it asked for none.
    """

    model: str
    prompt_ids: bytes = b""
    routing_key: str = ""
    target_worker: int | None = None


class Policy(Protocol):
    """Picks workers. One instance serves all models and keeps whatever state it needs between calls."""

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> WorkerSnapshot:
        """Pick one of the snapshots.

        Args:
            snapshots: the ready workers of the model, at least one, in a stable order.
            request: what is to be placed.
        """
        ...
