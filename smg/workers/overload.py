"""Decides from an engine's load whether it has too much work to get more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from smg_proto.engine.v1 import card_pb2


class OverloadLimits(NamedTuple):
    """The bounds. The default is none.

    Attributes:
        waiting: waiting sequences from which on a worker is overloaded; None for no bound.
        kv_usage: share of the key-value cache in use by running work, likewise.
        sheds: requests are refused while every worker is overloaded.
        retry_after_s: when a client that was refused may come back.
    """

    waiting: int | None = None
    kv_usage: float | None = None
    sheds: bool = False
    retry_after_s: int = 10

    def is_over(self, load: card_pb2.Load) -> bool:
        """A load is over one of the bounds."""
        if self.waiting is not None and load.waiting >= self.waiting:
            return True
        if self.kv_usage is None or not load.kv_capacity_tokens:
            return False
        # What only cached prefixes hold makes room when it is needed.
        used = load.kv_used_tokens - load.kv_evictable_tokens
        return used >= self.kv_usage * load.kv_capacity_tokens
