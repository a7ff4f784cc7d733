"""Sorts a router's request into what the engine gets and what is refused, sequence by sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from servicers.checks import (
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    Refusal,
    check_classify,
    check_embed,
    check_generate,
    check_score,
    unknown_model,
)
from smg_proto.engine.v1 import engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from servicers.models import ServedModel

    _Check = Callable[[Any, ServedModel], Refusal | None]

# Field of SessionRequest, and the check of its entries.
_KINDS: tuple[tuple[str, _Check], ...] = (
    ("generate", check_generate),
    ("score", check_score),
    ("embed", check_embed),
    ("classify", check_classify),
)
_DRAINING = Refusal(UNAVAILABLE, "the engine is shutting down and takes no new work", is_retryable=True)


class Sorted(NamedTuple):
    """What becomes of a request.

    Attributes:
        accepted: for the engine; the request itself when nothing was refused; None when nothing is left.
        failed: the refusals.
        doubled: numbers of sequences that run already; they must not go on either.
    """

    accepted: engine_pb2.SessionRequest | None
    failed: Sequence[work_pb2.Failed]
    doubled: set[int]


class Intake:
    """Checks the work of one session. Adds what it accepts to the session's live sequences."""

    def __init__(
        self, models: Mapping[str, ServedModel], max_sequences: int, live: set[int], muted: set[int]
    ) -> None:
        """Prepare.

        Args:
            models: the engine's models.
            max_sequences: most live sequences at a time.
            live: numbers in use; shared with the session, which takes out what has ended.
            muted: numbers that the engine still uses though the router has been told their end.
        """
        self._models = models
        self._max_sequences = max_sequences
        self._live = live
        self._muted = muted
        self.is_draining = False

    def sort(self, request: engine_pb2.SessionRequest) -> Sorted:
        """Sort one request."""
        failed: list[work_pb2.Failed] = []
        refused: set[tuple[str, int]] = set()
        doubled: set[int] = set()
        for kind, check in _KINDS:
            for index, item in enumerate(getattr(request, kind)):
                refusal = self._refusal(item, check, doubled)
                if refusal is None:
                    self._live.add(item.sequence)
                else:
                    refused.add((kind, index))
                    failed.append(_failed(item.sequence, refusal))
        if not refused:
            return Sorted(request, (), doubled)
        return Sorted(_without(request, refused), failed, doubled)

    def _refusal(self, item: Any, check: _Check, doubled: set[int]) -> Refusal | None:
        sequence: int = item.sequence
        if sequence in self._live or sequence in self._muted:
            doubled.update(self._live & {sequence})
            return Refusal(
                INVALID_ARGUMENT, f"sequence is {sequence}, which is in use; allowed: a new number"
            )
        if self.is_draining:
            return _DRAINING
        if len(self._live) >= self._max_sequences:
            return Refusal(
                RESOURCE_EXHAUSTED,
                f"the session has {len(self._live)} sequences; allowed: at most {self._max_sequences} at a time",
                is_retryable=True,
            )
        model = self._models.get(item.model)
        if model is None:
            return unknown_model(item.model, filter(None, self._models))
        return check(item, model)


def _failed(sequence: int, refusal: Refusal) -> work_pb2.Failed:
    return work_pb2.Failed(
        sequence=sequence,
        code=refusal.code,
        message=refusal.message,
        is_retryable=refusal.is_retryable,
    )


def _without(
    request: engine_pb2.SessionRequest, refused: set[tuple[str, int]]
) -> engine_pb2.SessionRequest | None:
    """A copy without the refused entries; None when it would be empty."""
    rest = engine_pb2.SessionRequest(abort=request.abort)
    for kind, _ in _KINDS:
        kept = [each for index, each in enumerate(getattr(request, kind)) if (kind, index) not in refused]
        getattr(rest, kind).extend(kept)
    return rest if rest.ByteSize() else None
