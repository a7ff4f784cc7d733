"""What a session servicer needs of an engine.

One servicer (servicers/session.py) speaks the contract for every engine; an engine implements this small
interface. It builds the events itself, one per session and scheduler step, because it alone knows its steps.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from smg_proto.engine.v1 import card_pb2, engine_pb2


class EventSink(Protocol):
    """One router's session, seen from the engine."""

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        """Send an event. On the event loop only; never blocks. The event must not be changed afterwards.

        A session that has ended takes events and drops them.
        """
        ...


class Engine(abc.ABC):
    """One engine behind a servicer. Every method is called on the event loop and returns at once.

    An engine that computes in a thread brings its results back with `loop.call_soon_threadsafe`.
    """

    name: str
    """Engine software, as in DescribeResponse.engine."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Load what is needed. The servicer reports NOT_SERVING until this returns."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stop computing and free everything. Sessions are already gone."""

    @abc.abstractmethod
    def describe(self) -> card_pb2.DescribeResponse:
        """What is served. `instance_id` is filled in by the servicer."""

    @abc.abstractmethod
    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Take new work and aborts of a session.

        Bad input is a Failed event of its sequence, never an exception. Sequence numbers are unique within a
        session only.
        """

    @abc.abstractmethod
    def close(self, session: EventSink) -> None:
        """The session has ended: abort all its sequences within one step. Nothing more is emitted to it."""

    @abc.abstractmethod
    def load(self) -> card_pb2.Load:
        """The current load."""

    @abc.abstractmethod
    def flush_cache(self) -> int:
        """Forget unused prefixes. Returns the number of tokens dropped."""

    @abc.abstractmethod
    def tokenizer_dir(self, model: str) -> Path | None:
        """Directory with the tokenizer files of a model ("" for the first); None when it is not served."""
