"""Worker: what every protocol inherits."""

from __future__ import annotations

import pytest

from smg.errors import InvalidRequest
from smg_proto.engine.v1 import work_pb2
from tests.unit.smg.workers.fake_worker import FakeWorker
from tests.unit.smg.workers.recorder import Recorder


class Picky(FakeWorker):
    """Takes so many sequences, then refuses."""

    def __init__(self, most: int) -> None:
        super().__init__("w", "grpc://127.0.0.1:1")
        self.most = most
        self.running: list[int] = []
        self.aborted: list[int] = []

    def generate(self, request, listener):
        if len(self.running) == self.most:
            raise InvalidRequest("no more")
        self.running.append(len(self.running) + 1)
        return self.running[-1]

    def abort(self, sequence):
        self.aborted.append(sequence)


async def test_choices_are_submitted_in_order():
    worker = Picky(3)
    assert worker.generate_choices([work_pb2.Generate()] * 3, [Recorder()] * 3) == [1, 2, 3]
    assert worker.aborted == []


async def test_choices_submitted_before_one_is_refused_are_aborted():
    worker = Picky(2)
    with pytest.raises(InvalidRequest, match="no more"):
        worker.generate_choices([work_pb2.Generate()] * 3, [Recorder()] * 3)
    assert worker.aborted == [1, 2]


async def test_requests_and_listeners_must_be_in_step():
    worker = Picky(9)
    with pytest.raises(ValueError, match="shorter"):
        worker.generate_choices([work_pb2.Generate()] * 2, [Recorder()])
    assert worker.aborted == worker.running
