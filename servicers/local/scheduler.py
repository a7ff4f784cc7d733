"""Decides which work runs next and how much of it: who gets a slot, and the tokens of each step.

A step computes one token of every running sequence first, and fills up to `step_tokens` with chunks of prompts: a
long prompt slows the others down by a bounded amount and never stops them. Of several prompts the oldest gets half
of the room, the shortest the rest, so that a short question does not wait behind a long document.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from servicers.local.refusal import RESOURCE_EXHAUSTED, RefusalError
from servicers.local.sequence import NO_SLOT, EmbedJob, GenerateJob, Job, ScoreJob

if TYPE_CHECKING:
    import numpy as np

    from servicers.base import EventSink
    from servicers.local.prefix_cache import PrefixCache

MIN_CHUNK_TOKENS = 32
"""Prompts go on by at least so many tokens a step, however many sequences run."""
SHARED_TOKENS = 32
"""A prompt waits for another one that is being computed if they have at least so many tokens in common."""
LONE_SCORE_FACTOR = 2
"""A step that only scores takes this many times as many tokens."""


@dataclasses.dataclass(slots=True)
class StepPlan:
    """The work of one step."""

    decodes: list[GenerateJob]
    """Sequences that get one more token, by slot."""
    chunks: list[tuple[Job, int]]
    """Prompts, and how many of their tokens to compute."""
    score_tokens: int
    """Suffix tokens to score, about."""


class Scheduler:
    """The queues. A job is in exactly one of them, or nowhere once it has ended."""

    def __init__(self, cache: PrefixCache, *, step_tokens: int, max_waiting: int) -> None:
        self._cache = cache
        self._step_tokens = step_tokens
        self._max_waiting = max_waiting
        self._waiting: dict[Job, int] = {}
        # Waiting jobs in order, each with the tokens that no slot held when it came.
        self._jobs: dict[tuple[EventSink, int], Job] = {}
        self.prefilling: list[Job] = []
        self.decoding: list[GenerateJob] = []
        self.scoring: list[ScoreJob] = []

    @property
    def waiting(self) -> int:
        """Jobs without a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Jobs with a slot."""
        return len(self.prefilling) + len(self.decoding) + len(self.scoring)

    @property
    def can_step(self) -> bool:
        """Whether a step would compute anything."""
        return self.running > 0 or any(job.is_ready for job in self._waiting)

    def waiting_uncached_tokens(self) -> int:
        """Tokens of waiting jobs that no slot holds."""
        return sum(self._waiting.values())

    def unready(self) -> list[GenerateJob]:
        """Jobs that wait for their constraints to be compiled, or for their media to be looked at."""
        return [job for job in self._waiting if isinstance(job, GenerateJob) and not job.is_ready]

    def running_jobs(self) -> list[Job]:
        """Every job that waits no more, also one that is between two queues when something goes wrong."""
        return [job for job in self._jobs.values() if job not in self._waiting]

    def jobs_of(self, session: EventSink) -> list[Job]:
        """Every job of a session that has not ended."""
        return [job for job in self._jobs.values() if job.session is session]

    def all_jobs(self) -> list[Job]:
        """Every job that has not ended."""
        return list(self._jobs.values())

    def find(self, session: EventSink, number: int) -> Job | None:
        """The job of a sequence number, unless it has ended."""
        return self._jobs.get((session, number))

    def add(self, job: Job) -> None:
        """Queue new work.

        Raises:
            RefusalError: too many wait already.
        """
        if len(self._waiting) >= self._max_waiting:
            raise RefusalError(
                f"{len(self._waiting)} sequences wait already; the engine lets at most {self._max_waiting} wait",
                code=RESOURCE_EXHAUSTED,
                is_retryable=True,
            )
        self._waiting[job] = len(job.ids) - self._cache.match(job.cache_ids, job.wanted_from)
        self._jobs[job.session, job.number] = job

    def remove(self, job: Job, *, keep: bool = True) -> None:
        """The job has ended.

        Args:
            job: in whichever queue.
            keep: what its slot holds is sound and may serve as a prefix.
        """
        self._waiting.pop(job, None)
        self._jobs.pop((job.session, job.number), None)
        if isinstance(job, GenerateJob) and job.compiling is not None:
            job.compiling.cancel()
        if isinstance(job, GenerateJob) and job.looking is not None:
            job.looking.cancel()
        for queue in (self.prefilling, self.decoding, self.scoring):
            if job in queue:
                queue.remove(job)  # pyright: ignore[reportArgumentType] - it is in there
        if job.slot != NO_SLOT:
            self._cache.release(job.slot, keep=keep)
            job.slot = NO_SLOT

    def admit(self) -> None:
        """Give free slots to waiting jobs, first come first served."""
        for job in list(self._waiting):
            if not self._cache.has_free_slot:
                return
            if not job.is_ready or self._is_computed_elsewhere(job):
                continue
            # In a running queue before anything can go wrong, so that a fault finds it there.
            del self._waiting[job]
            self.prefilling.append(job)
            job.slot, job.computed = self._cache.acquire(job.cache_ids, job.wanted_from)
            job.cached_tokens = job.computed
            job.begun_at = time.monotonic()
            self.advance(job)

    def advance(self, job: Job) -> None:
        """Move a job on whose ids are computed, perhaps."""
        if job.remaining:
            return
        self.prefilling.remove(job)
        if isinstance(job, GenerateJob):
            self.decoding.append(job)
        elif isinstance(job, ScoreJob):
            self.scoring.append(job)

    def plan(self) -> StepPlan:
        """The next step."""
        decodes = sorted(self.decoding, key=lambda job: job.slot)
        budget = max(self._step_tokens - len(decodes), MIN_CHUNK_TOKENS)
        chunks = self._chunks(budget)
        left = budget - sum(tokens for _, tokens in chunks)
        is_lone = not decodes and not chunks
        score_tokens = LONE_SCORE_FACTOR * self._step_tokens if is_lone else max(left, MIN_CHUNK_TOKENS)
        return StepPlan(decodes, chunks, score_tokens)

    def _chunks(self, budget: int) -> list[tuple[Job, int]]:
        if not self.prefilling:
            return []
        oldest, *others = self.prefilling
        tokens = {oldest: min(budget // 2 if others else budget, oldest.remaining)}
        left = budget - tokens[oldest]
        for job in sorted(others, key=lambda job: job.remaining):
            tokens[job] = min(left, job.remaining)
            left -= tokens[job]
        tokens[oldest] += min(left, oldest.remaining - tokens[oldest])
        return [(job, count) for job, count in tokens.items() if count]

    def _is_computed_elsewhere(self, job: Job) -> bool:
        """Whether a prompt that is being computed will soon hold more of this one than any slot does."""
        for other in self.prefilling:
            if isinstance(other, EmbedJob):
                continue  # its tokens are not kept
            shared = _common(job.cache_ids[: job.wanted_from], other.cache_ids)
            if shared < SHARED_TOKENS or shared <= other.computed:
                continue
            if self._cache.match(job.cache_ids, job.wanted_from) <= other.computed:
                return True
        return False


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the common prefix."""
    width = min(len(a), len(b))
    if width == 0 or a[0] != b[0]:
        return 0
    differs = a[:width] != b[:width]
    return int(differs.argmax()) if differs.any() else width
