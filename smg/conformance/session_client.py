"""A router for tests: opens sessions, and checks on every event what the contract promises of all of them."""

from __future__ import annotations

import asyncio
import itertools
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc.aio

from smg_proto.engine.v1 import engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from smg_proto.engine.v1 import card_pb2

    Work = work_pb2.Generate | work_pb2.Score | work_pb2.Embed | work_pb2.Classify

_aio: Any = grpc.aio

ENDS = ("finished", "failed", "scored", "embedded", "classified")
# Short of the tests' own timeout, so that the message tells what is missing.
WAIT_S = 50.0
UNIMPLEMENTED = 12


def to_bytes(ids: Iterable[int]) -> bytes:
    """Token ids as they travel."""
    return array("I", ids).tobytes()


def from_bytes(data: bytes) -> list[int]:
    """The other way."""
    return list(array("I", data))


@dataclass(eq=False)
class Record:
    """What a session has told of one sequence."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[work_pb2.TokenLogprobs] = field(default_factory=list[work_pb2.TokenLogprobs])
    start: work_pb2.Started | None = None
    end: Any = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def started(self) -> work_pb2.Started:
        """What it started with; it must have."""
        assert self.start is not None, "it never started"
        return self.start

    @property
    def failed(self) -> work_pb2.Failed:
        """How it failed; it must have."""
        assert isinstance(self.end, work_pb2.Failed), self.end
        return self.end

    @property
    def finished(self) -> work_pb2.Finished:
        """How it finished; it must have."""
        assert isinstance(self.end, work_pb2.Finished), self.end
        return self.end


def declines_to_continue(record: Record) -> bool:
    """Whether the engine says that it cannot take over another one's output as it is, and that a third one may."""
    end: object = record.end
    return isinstance(end, work_pb2.Failed) and end.code == UNIMPLEMENTED and end.is_retryable


class Session:
    """One session. Use as an async context manager; leaving it cancels the call."""

    def __init__(self, stub: Any) -> None:
        self._call: Any = stub.Session()
        self._numbers = itertools.count(1)
        self.records: dict[int, Record] = {}
        self.ready = engine_pb2.Ready()
        self.loads: list[card_pb2.Load] = []
        self.cache: list[card_pb2.CacheEvent] = []
        self.cache_changed = asyncio.Event()
        self.largest_step = 0

    async def __aenter__(self) -> Session:
        event = await asyncio.wait_for(self._call.read(), WAIT_S)
        assert event.HasField("ready"), event
        self.ready = event.ready
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        self._reader.cancel()
        result = (await asyncio.gather(self._reader, return_exceptions=True))[0]
        if isinstance(result, AssertionError):
            raise result

    async def send(self, request: engine_pb2.SessionRequest) -> None:
        """Send a message as it is."""
        await self._call.write(request)

    async def wait_cache(self, is_seen: Callable[[card_pb2.CacheEvent], bool]) -> None:
        """Wait until some change of the cache is the one meant."""
        while not any(map(is_seen, self.cache)):
            self.cache_changed.clear()
            await asyncio.wait_for(self.cache_changed.wait(), WAIT_S)

    async def half_close(self) -> grpc.StatusCode:
        """Send no more; returns how the session ended."""
        await self._call.done_writing()
        return await asyncio.wait_for(self._call.code(), WAIT_S)

    async def start(self, *messages: Work) -> list[Record]:
        """Submit Generate, Score, Embed and Classify messages together; numbers those that have none."""
        request = engine_pb2.SessionRequest()
        records: list[Record] = []
        for message in messages:
            message.sequence = message.sequence or next(self._numbers)
            record = self.records[message.sequence] = Record()
            records.append(record)
            getattr(request, type(message).__name__.lower()).append(message)
        await self.send(request)
        return records

    async def run(self, *messages: Work) -> list[Record]:
        """Submit messages together and wait for all their ends."""
        records = await self.start(*messages)
        await self.wait(*records)
        return records

    async def run_one(self, message: Work) -> Record:
        """Submit one message and wait for its end."""
        return (await self.run(message))[0]

    async def wait(self, *records: Record) -> None:
        """Wait for the ends of sequences; fail when the session breaks or takes too long."""

        async def all_ends() -> None:
            for record in records:
                await record.ended.wait()

        ends = asyncio.create_task(all_ends())
        await asyncio.wait((ends, self._reader), timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        if not ends.done():
            ends.cancel()
            missing = [n for n, record in self.records.items() if record in records and record.end is None]
            error = self._reader.exception() if self._reader.done() else None
            raise AssertionError(f"no end of sequences {missing[:10]}: {error or f'none within {WAIT_S} s'}")

    async def wait_for_tokens(self, record: Record, count: int = 1) -> None:
        """Wait until a sequence has so many; it must not end before."""
        while len(record.tokens) < count:
            record.changed.clear()
            await asyncio.wait_for(record.changed.wait(), WAIT_S)
            assert record.end is None or len(record.tokens) >= count, record.end

    async def abort(self, record: Record) -> None:
        """Ask for a sequence's end."""
        number = next(n for n, each in self.records.items() if each is record)
        await self.send(engine_pb2.SessionRequest(abort=[number]))

    async def _read(self) -> None:
        while (event := await self._call.read()) is not _aio.EOF:
            self._check_columns(event)
            if event.cache:
                self.cache += event.cache
                self.cache_changed.set()
            if event.HasField("load"):
                self.loads.append(event.load)
            for started in event.started:
                record = self.records[started.sequence]
                assert record.start is None, f"sequence {started.sequence} started twice"
                assert not record.tokens, f"sequence {started.sequence} got tokens before its start"
                record.start = started
            self._take_tokens(event)
            self._take_ends(event)

    def _check_columns(self, event: engine_pb2.SessionEvent) -> None:
        assert not event.HasField("ready"), "Ready comes once"
        expected = sum(event.count) if event.count else len(event.sequence)
        assert len(event.token) == expected
        assert not event.count or len(event.count) == len(event.sequence)
        self.largest_step = max(self.largest_step, len(event.sequence))

    def _take_tokens(self, event: engine_pb2.SessionEvent) -> None:
        at = 0
        for sequence, count in zip(event.sequence, event.count or [1] * len(event.sequence), strict=True):
            record = self.records[sequence]
            assert record.end is None, f"sequence {sequence} got tokens after its end"
            assert record.start is not None, f"sequence {sequence} got tokens before its start"
            record.tokens += event.token[at : at + count]
            at += count
            record.changed.set()
        for entry in event.logprobs:
            self.records[entry.sequence].logprobs += entry.tokens

    def _take_ends(self, event: engine_pb2.SessionEvent) -> None:
        for kind in ENDS:
            for end in getattr(event, kind):
                record = self.records[end.sequence]
                assert record.end is None, f"sequence {end.sequence} ended twice: {record.end} and {end}"
                record.end = end
                if kind == "finished" and end.token_ids:
                    assert not record.tokens, "a reply that is not streamed came in pieces"
                    record.tokens = from_bytes(end.token_ids)
                    record.logprobs = list(end.logprobs)
                record.ended.set()
                record.changed.set()
