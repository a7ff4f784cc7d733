"""The state of one piece of work from its arrival to its end: a generation, a score or an embedding.

All kinds begin alike: they wait, get a slot, and their ids are computed in chunks. `wanted_from` says from which
position on the hidden states matter; what lies before may come from the prefix cache. The compute thread alone
touches these objects.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import numpy as np

from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    import torch
    from numpy.typing import NDArray

    from servicers.base import EventSink
    from servicers.local.grammar import Grammar
    from servicers.local.late_grammar import LateGrammar
    from servicers.local.logprobs import LogprobsWish
    from servicers.local.penalties import PenaltyState
    from servicers.local.sampling import Choice
    from servicers.local.vision import Sight

    Ids = NDArray[np.int64]

NO_SLOT = -1


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """What every kind of work has."""

    session: EventSink
    number: int
    """The session's sequence number."""
    ids: Ids
    """Tokens to compute before anything else can happen."""
    wanted_from: int
    """First position whose hidden state is wanted; len(ids) when none is."""
    keys: Ids | None = None
    """What a prefix cache goes by where it is not the ids: media have equal ones."""
    is_ready: bool = True
    """False while its constraint is being compiled, or its media are looked at."""
    slot: int = NO_SLOT
    computed: int = 0
    """Leading tokens whose keys and values are in the slot."""
    cached_tokens: int = 0
    """Leading tokens of `ids` that the prefix cache had."""
    begun_at: float = 0.0
    """When it got its slot, by time.monotonic()."""

    @property
    def cache_ids(self) -> Ids:
        """What a prefix cache goes by."""
        return self.ids if self.keys is None else self.keys

    @property
    def remaining(self) -> int:
        """Tokens of `ids` that are still to be computed."""
        return len(self.ids) - self.computed


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class GenerateJob(Job):
    """One sequence to generate. Its ids are the prompt and what another engine has already put out."""

    prompt_tokens: int
    output: list[int]
    """All output tokens, those of the other engine included."""
    earlier_tokens: int
    """How many of `output` the other engine made."""
    limit: int
    """Most output tokens."""
    minimum: int = 0
    """No end token before so many output tokens."""
    end_ids: frozenset[int] = frozenset()
    """Tokens that end the sequence."""
    masked_ids: tuple[int, ...] = ()
    """Tokens that are impossible before `minimum`."""
    choice: Choice
    penalties: PenaltyState | None = None
    grammar: Grammar | LateGrammar | None = None
    compiling: Future[None] | None = None
    """The work on its constraint."""
    sights: Sequence[Sight] = ()
    """What the media of the prompt are to the network."""
    looking: Future[None] | None = None
    """The work on its media."""
    ready_by_s: float | None = None
    """When its constraint must be compiled, on the clock of the steps; None: no step has seen it."""
    wish: LogprobsWish | None = None
    """Log-probabilities of output tokens; None = not wanted."""
    prompt_start: int | None = None
    """First prompt position whose log-probability is wanted; None = none."""
    prompt_top_k: int = 0
    prompt_entries: list[work_pb2.TokenLogprobs] = dataclasses.field(
        default_factory=list[work_pb2.TokenLogprobs]
    )
    is_streamed: bool = False
    held_entries: list[work_pb2.TokenLogprobs] = dataclasses.field(
        default_factory=list[work_pb2.TokenLogprobs]
    )
    """Log-probabilities of the tokens so far, of a sequence that is not streamed."""

    @property
    def cached_prompt_tokens(self) -> int:
        """Prompt tokens that the prefix cache had."""
        return min(self.cached_tokens, self.prompt_tokens)

    def started(self) -> work_pb2.Started:
        """The event that says that the prompt is computed."""
        return work_pb2.Started(
            sequence=self.number,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_prompt_tokens,
            prompt_logprobs=self.prompt_entries,
        )

    def finished(
        self, reason: work_pb2.FinishReason.ValueType, matched: int | None = None
    ) -> work_pb2.Finished:
        """The event that ends the sequence, with all of its new tokens if they were not streamed."""
        event = work_pb2.Finished(
            sequence=self.number,
            reason=reason,
            matched_token_id=matched,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=len(self.output),
            cached_tokens=self.cached_prompt_tokens,
        )
        if not self.is_streamed:
            event.token_ids = ids_to_bytes(self.output[self.earlier_tokens :])
            event.logprobs.extend(self.held_entries)
        return event


@dataclasses.dataclass(frozen=True, slots=True)
class Suffix:
    """One continuation of a Score."""

    ids: list[int]
    label_ids: list[int]
    label_sequences: list[list[int]]

    @property
    def has_long_labels(self) -> bool:
        """Some label is more than one token."""
        return any(len(label) > 1 for label in self.label_sequences)


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class ScoreJob(Job):
    """Label sets to score after one prefix, which are its ids."""

    suffixes: list[Suffix]
    unit_tokens: int = 0
    """Most tokens to compute before the next yield of `progress`."""
    progress: Iterator[int] | None = None
    """Computes the next suffixes and yields how many tokens that took (scoring.py)."""
    scores: list[work_pb2.SuffixScores] = dataclasses.field(default_factory=list[work_pb2.SuffixScores])

    def scored(self) -> work_pb2.Scored:
        """The result. The first suffix pays for the prefix; the others find it computed."""
        for number, scores in enumerate(self.scores):
            scores.cached_tokens = len(self.ids) if number else self.cached_tokens
        return work_pb2.Scored(
            sequence=self.number,
            suffixes=self.scores,
            prompt_tokens=len(self.ids) + sum(len(suffix.ids) for suffix in self.suffixes),
            cached_tokens=self.cached_tokens,
            compute_seconds=time.monotonic() - self.begun_at,
        )


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class EmbedJob(Job):
    """An input whose hidden states are averaged."""

    dimensions: int
    total: torch.Tensor | None = None
    """Sum of the hidden states so far, [hidden_size] float32."""


def ids_from_bytes(data: bytes) -> Ids:
    """Token ids of the wire: four bytes each, unsigned, little-endian. The length must be a multiple of four."""
    return np.frombuffer(data, dtype="<u4").astype(np.int64)


def ids_to_bytes(ids: list[int]) -> bytes:
    """The inverse of ids_from_bytes."""
    return np.array(ids, dtype="<u4").tobytes()
