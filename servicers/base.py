"""What a session servicer needs of an engine.

One servicer (servicers/session.py) speaks the contract for every engine; an engine implements this small
interface. It builds the events itself, one per session and scheduler step, because it alone knows its steps.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from smg_proto.engine.v1 import card_pb2, engine_pb2


class CannotStart(Exception):
    """An engine cannot be made or started: no such model, something not installed, no memory.

    Raised by `create_engine` and Engine.start; the text says what is wrong and what to do about it.
    """


class NotServed(Exception):
    """An engine has no such thing: UNIMPLEMENTED. The text says what."""


class EngineFault(Exception):
    """An engine refused what an operator asked of it: FAILED_PRECONDITION. The text says why."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the command line says about an engine. Each engine reads what concerns it.

    Attributes:
        model_paths: directories or files of the models to serve; empty: the engine's own default.
        model_ids: names that clients ask for, in step with model_paths, an empty one by the path; empty: all by the paths.
        declared: what a models file says beside paths and names, in step with model_paths; empty: nothing.
        max_context: longest prompt plus output, in tokens; None: the model's own.
        step_seconds: length of one step of a paced engine; 0: as fast as it goes.
        device: "cpu" or "cuda".
        dtype: number format of the weights, "bf16" or "fp32".
        threads: threads of the engine on a CPU; None: its own choice.
        max_running: most sequences computed at a time; None: the engine's own.
        echo_endless: the echo engine answers a prompt without directives by text without end.
        engine_args: further arguments of an engine that is someone else's, by its own names.
    """

    model_paths: tuple[str, ...] = ()
    model_ids: tuple[str, ...] = ()
    declared: tuple[dict[str, Any], ...] = ()
    max_context: int | None = None
    step_seconds: float = 0.0
    device: str = "cpu"
    dtype: str = "bf16"
    threads: int | None = None
    max_running: int | None = None
    echo_endless: bool = False
    engine_args: tuple[tuple[str, Any], ...] = ()


class EventSink(Protocol):
    """One router's session, seen from the engine."""

    @property
    def unsent_events(self) -> int:
        """Events that the router has not taken yet. An engine that is faster than its router may slow down."""
        ...

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        """Send an event. On the event loop only; never blocks. The event must not be changed afterwards.

        A session that has ended takes events and drops them.
        """
        ...


class Engine(abc.ABC):
    """One engine behind a servicer. Every method is called on the event loop, and what is no coroutine returns at once.

    An engine that computes in a thread brings its results back with `loop.call_soon_threadsafe`.
    """

    name: str
    """Engine software, as in DescribeResponse.engine."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Load what is needed. The servicer reports NOT_SERVING until this returns.

        Raises:
            CannotStart: it cannot.
        """

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stop computing and free everything. Sessions are already gone.

        Also called after a start that failed or was cancelled.
        """

    @abc.abstractmethod
    def describe(self) -> card_pb2.DescribeResponse:
        """What is served. `instance_id` is filled in by the servicer."""

    @abc.abstractmethod
    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Take new work and aborts of a session: first the work, then the aborts.

        The servicer has checked all that servicers/checks.py checks, and that the sequence numbers are not in use.
        What else is bad is a Failed event of its sequence, never an exception. Sequence numbers are unique within
        a session only.
        """

    @abc.abstractmethod
    def close(self, session: EventSink) -> None:
        """The session has ended: abort all its sequences within one step. Nothing more is emitted to it."""

    def watch_cache(self, session: EventSink) -> None:  # noqa: B027 - engines without such events need nothing
        """Tell the session of the prefix cache (SessionEvent.cache) until it is closed."""

    @abc.abstractmethod
    def load(self) -> card_pb2.Load:
        """The current load."""

    @abc.abstractmethod
    def flush_cache(self) -> int | Awaitable[int]:
        """Forget unused prefixes. Returns the number of tokens dropped, or what will give it."""

    @abc.abstractmethod
    def tokenizer_dir(self, model: str) -> Path | None:
        """Directory with the tokenizer files of a model ("" for the first); None when it is not served."""

    async def start_profile(self, output_dir: str) -> None:
        """Begin to record what the engine spends its time on.

        Args:
            output_dir: directory for the recording, on the engine's machine; empty: the engine's own choice.

        Raises:
            NotServed: the engine cannot.
            EngineFault: it does not do it now.
        """
        del output_dir
        raise NotServed(f"engine {self.name} does not record profiles")

    async def stop_profile(self) -> None:
        """End the recording. Raises as start_profile."""
        raise NotServed(f"engine {self.name} does not record profiles")

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter; `describe` names it from then on.

        Args:
            name: as Generate.lora will name it.
            path: directory or repository of the adapter, seen from the engine.

        Raises:
            NotServed: the engine knows no adapters.
            EngineFault: it does not load this one.
        """
        del name, path
        raise NotServed(f"engine {self.name} loads no adapters")

    async def unload_lora(self, name: str) -> None:
        """Forget an adapter. Raises as load_lora."""
        del name
        raise NotServed(f"engine {self.name} loads no adapters")
