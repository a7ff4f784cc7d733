"""A Worker without a network, whose state a test sets."""

from __future__ import annotations

import asyncio

from smg.workers.base import Worker
from smg_proto.engine.v1 import card_pb2


class FakeWorker(Worker):
    """Runs until it is told to raise."""

    protocol = "fake"

    def __init__(self, worker_id: str, url: str, models: tuple[str, ...] = ("m",)) -> None:
        super().__init__(worker_id, url)
        self.ready = False
        self.inflight = 0
        self.known = card_pb2.DescribeResponse(
            models=[card_pb2.ModelCard(id=model) for model in models], max_running=10, instance_id="i"
        )
        self.described = False
        self.current_load = card_pb2.Load()
        self.is_closed = False
        self.runs = 0
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_ready(self) -> bool:
        return self.ready

    @property
    def is_connected(self) -> bool:
        return self.ready

    @property
    def reason(self) -> str:
        return "" if self.ready else "down"

    @property
    def description(self):
        return self.known if self.described else None

    @property
    def load(self):
        return self.current_load

    @property
    def inflight_requests(self) -> int:
        return self.inflight

    async def run(self) -> None:
        self.runs += 1
        try:
            await self._fault
        finally:
            self.is_closed = True
            self._fault = asyncio.get_running_loop().create_future()

    def break_with(self, error: Exception) -> None:
        self._fault.set_exception(error)

    def come_up(self) -> None:
        self.described = self.ready = True
        self.on_state_change()

    def go_down(self) -> None:
        self.ready = False
        self.on_state_change()

    def set_inflight(self, count: int) -> None:
        self.inflight = count
        self.on_load_change()

    def generate(self, request, listener):
        raise NotImplementedError

    def score(self, request, listener):
        raise NotImplementedError

    def embed(self, request, listener):
        raise NotImplementedError

    def classify(self, request, listener):
        raise NotImplementedError

    def abort(self, sequence):
        raise NotImplementedError

    async def fetch_tokenizer(self, model, target):
        raise NotImplementedError

    async def flush_cache(self):
        raise NotImplementedError
