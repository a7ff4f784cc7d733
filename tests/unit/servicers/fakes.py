"""An engine for tests of the servicer: it does what the test tells it, and remembers what it was told."""

from __future__ import annotations

import asyncio

import grpc.aio

from servicers.base import Engine
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2


def model_card(name: str = "m", **fields) -> card_pb2.ModelCard:
    can = card_pb2.Capabilities(generate=True, score=True, embed=True, classify=True, prompt_logprobs=True)
    return card_pb2.ModelCard(
        **{
            "id": name,
            "vocab_size": 100,
            "context_length": 32,
            "embedding_size": 8,
            "labels": ["a", "b"],
            "eos_token_ids": [2],
            "capabilities": can,
            **fields,
        }
    )


def generate(sequence: int, **fields) -> work_pb2.Generate:
    return work_pb2.Generate(**{"sequence": sequence, "prompt_ids": b"\1\0\0\0", "stream": True, **fields})


class RemoteControlledEngine(Engine):
    """Emits only when the test calls it. Aborts are answered at once, unless `answers_aborts` is set to False."""

    name = "remote-controlled"

    def __init__(self, *, loads_first: bool = True) -> None:
        self.may_start = asyncio.Event()
        if loads_first:
            self.may_start.set()
        self.sessions = []
        self.requests: list[engine_pb2.SessionRequest] = []
        self.closed = []
        self.is_stopped = False
        self.answers_aborts = True
        self.current_load = card_pb2.Load()
        self.arrived = asyncio.Event()
        self.has_closed = asyncio.Event()

    async def start(self) -> None:
        await self.may_start.wait()

    async def stop(self) -> None:
        self.is_stopped = True

    def describe(self):
        return card_pb2.DescribeResponse(models=[model_card()], engine=self.name, max_running=4)

    def submit(self, session, request) -> None:
        if session not in self.sessions:
            self.sessions.append(session)
        self.requests.append(request)
        self.arrived.set()
        ends = [
            work_pb2.Finished(sequence=each, reason=work_pb2.FINISH_REASON_ABORT) for each in request.abort
        ]
        if ends and self.answers_aborts:
            session.emit(engine_pb2.SessionEvent(finished=ends))

    def close(self, session) -> None:
        self.closed.append(session)
        self.has_closed.set()

    def load(self):
        return self.current_load

    def flush_cache(self) -> int:
        return 0

    def tokenizer_dir(self, model: str):
        return None

    def emit_token(self, sequence: int = 1, token: int = 5) -> None:
        self.sessions[0].emit(engine_pb2.SessionEvent(sequence=[sequence], token=[token]))

    def finish(self, sequence: int = 1) -> None:
        end = work_pb2.Finished(sequence=sequence, reason=work_pb2.FINISH_REASON_STOP)
        self.sessions[0].emit(engine_pb2.SessionEvent(finished=[end]))


async def read_to_end(call) -> tuple[list[engine_pb2.SessionEvent], grpc.StatusCode, str]:
    """The remaining events of a session, and how it ended."""
    events = []
    try:
        while (event := await call.read()) is not grpc.aio.EOF:
            events.append(event)
    except grpc.aio.AioRpcError as error:
        return events, error.code(), error.details()
    return events, await call.code(), await call.details()
