"""SessionWorker: which events count as progress."""

from __future__ import annotations

from smg.workers.options import WorkerOptions
from smg.workers.session import SessionWorker
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2


def progressed(*events: engine_pb2.SessionEvent) -> list[bool]:
    """For each event, whether the engine was seen to make a step."""
    worker = SessionWorker("w", "grpc://127.0.0.1:1", WorkerOptions())
    seen: list[bool] = []
    for event in events:
        before = worker._progress_seen()
        worker._on_event(event)
        seen.append(worker._progress_seen() != before)
    return seen


def load(steps: int, **fields) -> engine_pb2.SessionEvent:
    return engine_pb2.SessionEvent(load=card_pb2.Load(steps=steps), **fields)


def test_a_load_alone_is_no_progress_unless_its_steps_move():
    assert progressed(load(5), load(5), load(6), load(6)) == [True, False, True, False]


def test_tokens_are_progress_even_from_an_engine_that_counts_no_steps():
    assert progressed(load(0), load(0, sequence=[1], token=[2])) == [False, True]


def test_everything_else_is_progress():
    finished = work_pb2.Finished(sequence=1)
    assert progressed(engine_pb2.SessionEvent(finished=[finished]), engine_pb2.SessionEvent()) == [True, True]


def test_the_load_is_kept_as_last_heard():
    worker = SessionWorker("w", "grpc://127.0.0.1:1", WorkerOptions())
    worker._on_event(engine_pb2.SessionEvent(load=card_pb2.Load(running=3)))
    worker._on_event(engine_pb2.SessionEvent(sequence=[1], token=[2]))
    assert worker.load.running == 3
