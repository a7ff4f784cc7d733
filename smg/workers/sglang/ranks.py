"""What is known of each data-parallel rank of a server, where ranks are used one by one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from smg.workers.sglang.cards import rank_loads_of
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

_NO_LOAD = card_pb2.Load()


class Ranks:
    """The ranks of one server.

    Attributes:
        count: ranks that are used by number; 1 for a server that is used as one.
        inflight: sequences of calls to each rank that have not ended. Jobs go to any.
    """

    def __init__(self) -> None:
        self.count = 1
        self.inflight: Counter[int] = Counter()
        self._loads: dict[int, card_pb2.Load] = {}

    def load(self, rank: int) -> card_pb2.Load:
        """The load of a rank, as last told."""
        return self._loads.get(rank, _NO_LOAD)

    def take_loads(self, answer: sglang_pb2.GetLoadsResponse) -> None:
        """Take what the server has told."""
        self._loads = rank_loads_of(answer)
