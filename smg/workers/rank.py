"""One data-parallel rank of a worker, as a worker of its own: what is submitted to it carries the rank's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.workers.base import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from smg.workers.base import GenerateListener, ResultListener
    from smg_proto.engine.v1 import card_pb2, work_pb2


class RankWorker(Worker):
    """A rank. Connection, health and breaker are those of the whole worker."""

    def __init__(self, whole: Worker, rank: int) -> None:
        super().__init__(f"{whole.id}@{rank}", f"{whole.url}@{rank}")
        self.protocol = whole.protocol
        self._whole = whole
        self._rank = rank

    @property
    def is_ready(self) -> bool:
        """The worker is."""
        return self._whole.is_ready

    @property
    def is_connected(self) -> bool:
        """The worker is."""
        return self._whole.is_connected

    @property
    def reason(self) -> str:
        """The worker's."""
        return self._whole.reason

    @property
    def description(self) -> card_pb2.DescribeResponse | None:
        """The worker's."""
        return self._whole.description

    @property
    def load(self) -> card_pb2.Load:
        """The rank's own."""
        return self._whole.rank_load(self._rank)

    @property
    def inflight_requests(self) -> int:
        """The rank's own."""
        return self._whole.rank_inflight_requests(self._rank)

    async def run(self) -> None:
        """Nobody runs a rank: the registry keeps the worker connected."""
        raise NotImplementedError

    def generate(self, request: work_pb2.Generate, listener: GenerateListener) -> int:
        """Submit a sequence to the rank."""
        request.data_parallel_rank = self._rank
        return self._whole.generate(request, listener)

    def generate_choices(
        self, requests: Sequence[work_pb2.Generate], listeners: Sequence[GenerateListener]
    ) -> list[int]:
        """Submit choices to the rank."""
        for request in requests:
            request.data_parallel_rank = self._rank
        return self._whole.generate_choices(requests, listeners)

    def score(self, request: work_pb2.Score, listener: ResultListener) -> int:
        """Submit label sets. The worker spreads their prompts over its ranks itself."""
        return self._whole.score(request, listener)

    def embed(self, request: work_pb2.Embed, listener: ResultListener) -> int:
        """Submit an input. The worker chooses the rank."""
        return self._whole.embed(request, listener)

    def classify(self, request: work_pb2.Classify, listener: ResultListener) -> int:
        """Submit an input. The worker chooses the rank."""
        return self._whole.classify(request, listener)

    def abort(self, sequence: int) -> None:
        """Stop a sequence."""
        self._whole.abort(sequence)

    async def fetch_tokenizer(self, model: str, target: Path) -> None:
        """Download the tokenizer files."""
        await self._whole.fetch_tokenizer(model, target)

    async def flush_cache(self) -> None:
        """Forget the prefixes of all ranks."""
        await self._whole.flush_cache()
