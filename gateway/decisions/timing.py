"""The time of one request by phase, as the header Server-Timing tells it (W3C Server Timing; milliseconds)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smg_proto.decision.v1 import answer_pb2
    from smg_proto.embedding.v1 import common_pb2

PHASES: tuple[str, ...] = ("parse", "tokenize", "queue", "forward", "post", "serialize")


class Phases:
    """Measures one request, from its handler's start. Phases never sum to more than the total."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._ms: dict[str, float] = dict.fromkeys(PHASES, 0.0)

    def parsed(self) -> None:
        """The body is read."""
        self._ms["parse"] = self._total_ms()

    def answered(self, timings: answer_pb2.DecisionTimings | common_pb2.EncodeTimings) -> None:
        """The pipeline has answered. States of a batch run beside each other: their times are scaled to what passed."""
        told = {
            "tokenize": timings.tokenize_ms,
            "queue": timings.queue_ms,
            "forward": timings.forward_ms,
            "post": timings.post_ms,
        }
        passed, spent = self._total_ms() - self._ms["parse"], sum(told.values())
        share = passed / spent if spent > passed else 1.0
        self._ms.update({name: value * share for name, value in told.items()})

    def timings(self) -> dict[str, float]:
        """The phases so far, by name, and the total."""
        return {**{f"{name}_ms": value for name, value in self._ms.items()}, "total_ms": self._total_ms()}

    def serialized(self, began: float) -> None:
        """The answer is bytes; `began` is when that began, by time.perf_counter()."""
        self._ms["serialize"] = (time.perf_counter() - began) * 1000

    def header(self) -> tuple[bytes, bytes]:
        """The header."""
        told = [f"{name};dur={value:.3f}" for name, value in self._ms.items()]
        # Each is rounded by itself; the total is not to fall behind their sum for that.
        total = max(self._total_ms(), sum(round(value, 3) for value in self._ms.values()))
        return b"server-timing", ", ".join([*told, f"total;dur={total:.3f}"]).encode()

    def _total_ms(self) -> float:
        return (time.perf_counter() - self._begun) * 1000
