"""What a policy is: picks one worker for one request, from pictures taken when the request is placed.

A policy does no I/O and sees no protobuf. It is called once per attempt, on the event loop, and must be done within
100 µs at 1,000 workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from smg.errors import WorkerUnavailable

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
        hint_ids: the prompt's first token ids, packed likewise, as the caller told them; placement then goes by them
            instead of prompt_ids. Empty when it told none.
        text_length: characters of the prompt; 0 when only its tokens are known.
        caller: who asks, in whatever form is the same each time; empty for callers that cannot be told apart.
    """

    model: str
    prompt_ids: bytes = b""
    routing_key: str = ""
    target_worker: int | None = None
    hint_ids: bytes = b""
    text_length: int = 0
    caller: str = ""

    @property
    def leading_ids(self) -> bytes:
        """The packed token ids that decide about placement."""
        return self.hint_ids or self.prompt_ids


class Pick(NamedTuple):
    """A picked worker and why it was picked. The words are made when somebody reads them.

    Attributes:
        worker: the picked one.
        because: the reason as a format string.
        facts: what to fill in.
    """

    worker: WorkerSnapshot
    because: str
    facts: tuple[object, ...] = ()

    @property
    def reason(self) -> str:
        """The reason in one line, without text from the caller."""
        return self.because.format(*self.facts)


class Policy(Protocol):
    """Picks workers. One instance serves all models and keeps whatever state it needs between calls.

    A placement is one call, of either method: both count for turns, stickiness and what a policy remembers.
    """

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> WorkerSnapshot:
        """Pick one of the snapshots.

        Args:
            snapshots: the ready workers of the model, in a stable order.
            request: what is to be placed.

        Raises:
            WorkerUnavailable: there are no workers, or none of them is the one that the caller insists on.
        """
        ...

    def explain(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick as `pick` does, and tell why.

        Raises:
            WorkerUnavailable: as `pick`.
        """
        ...


class BasePolicy:
    """What all policies share. One of them overrides `choose`, which may rely on at least one worker."""

    def pick(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> WorkerSnapshot:
        """Pick one of the snapshots."""
        return self.explain(snapshots, request).worker

    def explain(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick one of the snapshots, and tell why."""
        if not snapshots:
            raise WorkerUnavailable(f"no worker is ready for model {request.model!r}")
        return self.choose(snapshots, request)

    def choose(self, snapshots: Sequence[WorkerSnapshot], request: RouteRequest) -> Pick:
        """Pick one of at least one."""
        raise NotImplementedError
