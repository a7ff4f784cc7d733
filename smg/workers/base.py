"""What the router asks of a worker, whatever protocol it speaks.

Work goes down as messages of smg.engine.v1 and comes back through a listener: the worker's reader calls it on
the event loop, once per sequence and scheduler step, with everything that the step brought. No queue, no task
switch lies between an engine's event and the bytes on a client's socket.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Protocol

from smg.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from smg.errors import SmgError
    from smg_proto.engine.v1 import card_pb2, work_pb2


def _ignore() -> None:
    """Nobody wants to know."""


def _ignore_outcome(error: SmgError | None) -> None:
    """Nobody counts."""
    del error


class GenerateListener(Protocol):
    """Receives one sequence. Called on the event loop only; must not block, must not raise.

    Order: on_started at most once and first; on_step any number of times, the last with `finished` set; or
    on_failed once, at any point, and nothing after it. Exactly one of a `finished` and on_failed ends it.
    """

    def on_started(self, started: work_pb2.Started) -> None:
        """The prompt is computed."""
        ...

    def on_step(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> None:
        """New tokens, perhaps none, and perhaps the end.

        Args:
            token_ids: the new output tokens, in order. For a request that was not streamed: all of them, with
                `finished`; a listener never has to look into Finished.token_ids.
            logprobs: one entry per new token if asked for, else empty.
            finished: set once, in the last call.
        """
        ...

    def on_failed(self, error: SmgError) -> None:
        """The engine refused the sequence, or the worker was lost (EngineError with UNAVAILABLE)."""
        ...


class ResultListener(Protocol):
    """Receives the one answer to a score, embed or classify request. Called on the event loop only."""

    def on_result(self, result: work_pb2.Scored | work_pb2.Embedded | work_pb2.Classified) -> None:
        """The answer."""
        ...

    def on_failed(self, error: SmgError) -> None:
        """The engine refused, or the worker was lost."""
        ...


class ProtocolMismatch(Exception):
    """The address answers, in another protocol than the worker's."""


class Worker(abc.ABC):
    """One replica of an engine, connected to by one of the protocols.

    All methods are called on the event loop. The submit methods do not wait: they hand the work to the
    connection and return the sequence number under which it can be aborted. They set `request.sequence`.
    """

    protocol: str
    """Name as in AdminService: "session", "sglang_grpc", "vllm_grpc", "http"."""

    def __init__(self, worker_id: str, url: str) -> None:
        self.id = worker_id
        self.url = url
        # Connections opened so far: the first, and every reconnect.
        self.connections = 0
        # The registry's hooks: state is readiness, reason and description; load is load and inflight_requests.
        self.on_state_change: Callable[[], None] = _ignore
        self.on_load_change: Callable[[], None] = _ignore
        # Of a worker whose engine tells of its prefix cache: what it tells. None when nobody wants to know; set before run.
        self.on_cache_change: Callable[[Iterable[card_pb2.CacheEvent]], None] | None = None
        # A sequence, or all that a lost connection carried, has ended: with None when well, else with what it failed of.
        # Called before the listener hears of it, and not for what is aborted here.
        self.on_outcome: Callable[[SmgError | None], None] = _ignore_outcome

    @property
    def steps_per_second(self) -> float:
        """Scheduler steps of the engine over about the last second; 0 where it does not tell its steps."""
        return 0.0

    @property
    def ranks(self) -> int:
        """Data-parallel ranks that requests can be sent to by number; 1 for an engine that is used as one."""
        return 1

    def rank_load(self, rank: int) -> card_pb2.Load:
        """The load of one rank, as last heard."""
        del rank
        return self.load

    def rank_inflight_requests(self, rank: int) -> int:
        """Sequences submitted here to one rank that have not ended."""
        del rank
        return self.inflight_requests

    @property
    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Connected, described and healthy."""

    @property
    @abc.abstractmethod
    def is_connected(self) -> bool:
        """Takes submissions, fit for new work or not."""

    @property
    @abc.abstractmethod
    def reason(self) -> str:
        """Why it is not ready, in words; empty when it is."""

    @property
    def is_stalled(self) -> bool:
        """It has made no step for too long, though sequences run."""
        return False

    @property
    @abc.abstractmethod
    def description(self) -> card_pb2.DescribeResponse | None:
        """What it serves, as last heard; None before the first contact."""

    @property
    @abc.abstractmethod
    def load(self) -> card_pb2.Load:
        """Its load as last heard; all zero when it tells none."""

    @property
    def backlog_tokens(self) -> float:
        """Prompt tokens that wait to be computed, as far as it is known of this moment; 0 where it is not."""
        return 0.0

    @property
    @abc.abstractmethod
    def inflight_requests(self) -> int:
        """Sequences submitted here that have not ended."""

    @abc.abstractmethod
    async def run(self) -> None:
        """Connect, keep connected, reconnect with backoff. Runs until cancelled; then closes everything.

        Raises:
            ProtocolMismatch: the address no longer speaks this protocol; somebody has to probe it again.
        """

    def hurry(self) -> None:  # noqa: B027 - a worker that keeps no connection has nothing to do
        """Requests find no worker: do not wait long before the next try to connect."""

    @abc.abstractmethod
    def generate(self, request: work_pb2.Generate, listener: GenerateListener) -> int:
        """Submit a sequence.

        Raises:
            WorkerUnavailable: not connected. Nothing was sent and the listener is not called.
            InvalidRequest: the worker's protocol cannot say what is asked; as little happened.
            EngineError: the same, where another worker may be able to.
        """

    def generate_choices(
        self, requests: Sequence[work_pb2.Generate], listeners: Sequence[GenerateListener]
    ) -> list[int]:
        """Submit the choices of one prompt, in order: requests that differ in choice_index alone, and output_ids.

        The first may ask for log-probabilities of the prompt, and the others leave it to that one.

        Each is a sequence of its own, with its own events, end and abort. No listener is called before this returns.

        Args:
            requests: at least one.
            listeners: one per request.

        Returns: their sequence numbers.

        Raises: as generate. Then none of them runs, and no listener is called.
        """
        sequences: list[int] = []
        try:
            for request, listener in zip(requests, listeners, strict=True):
                sequences.append(self.generate(request, listener))
        except Exception:
            for sequence in sequences:
                self.abort(sequence)
            raise
        return sequences

    @abc.abstractmethod
    def score(self, request: work_pb2.Score, listener: ResultListener) -> int:
        """Submit label sets to score. Raises as generate; Unsupported where the protocol has no scoring."""

    @abc.abstractmethod
    def embed(self, request: work_pb2.Embed, listener: ResultListener) -> int:
        """Submit an input to embed. Raises as score."""

    @abc.abstractmethod
    def classify(self, request: work_pb2.Classify, listener: ResultListener) -> int:
        """Submit an input to classify. Raises as score."""

    @abc.abstractmethod
    def abort(self, sequence: int) -> None:
        """Stop a sequence and forget its listener at once: it is not called again. Unknown numbers are ignored."""

    @abc.abstractmethod
    async def fetch_tokenizer(self, model: str, target: Path) -> None:
        """Download the tokenizer files of a model into an empty directory.

        Raises:
            NotFound: the worker has none to give.
            EngineError: the transfer failed or its checksum is wrong.
        """

    @abc.abstractmethod
    async def flush_cache(self) -> None:
        """Make the engine forget cached prefixes. Raises EngineError."""

    async def load_lora(self, name: str, path: str) -> None:
        """Make the engine load an adapter; `description` names it from then on.

        Args:
            name: by which requests ask for it.
            path: directory or repository, as the engine's machine sees it.

        Raises:
            Unsupported: the protocol loads none.
            EngineError: the engine refuses.
        """
        del name, path
        raise self._cannot("loads no adapters")

    async def unload_lora(self, name: str) -> None:
        """Make the engine forget an adapter. Raises as load_lora."""
        del name
        raise self._cannot("loads no adapters")

    async def start_profile(self, output_dir: str) -> None:
        """Make the engine record a profile. Args: output_dir: on its machine; empty: its own choice. Raises as load_lora."""
        del output_dir
        raise self._cannot("records no profiles")

    async def stop_profile(self) -> None:
        """Make it end the recording. Raises as load_lora."""
        raise self._cannot("records no profiles")

    def _cannot(self, what: str) -> Unsupported:
        return Unsupported(f"worker {self.url}: the protocol {self.protocol} {what}")
