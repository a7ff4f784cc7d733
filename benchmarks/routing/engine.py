"""A simulated engine: a prefix cache of blocks, one prefill at a time, and decoding that slows down as it gets fuller.

The figures are those of an 8B model on one large GPU, rounded: 20,000 prompt tokens per second, steps of 15 ms and
more. What matters to a policy is only their order: computing a long prompt costs what some dozens of steps cost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.types.worker import WorkerSnapshot
from smg.workers.backlog import Backlog
from smg.workers.registered import BACKLOG_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.routing.workloads import Prompt

BLOCK_TOKENS = 32


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine is like.

    Attributes:
        cache_tokens: most tokens that the prefix cache holds.
        slots: most sequences that decode at a time.
        prefill_token_s: time to compute one token of a prompt.
        prefill_s: time that every prompt takes besides.
        step_s: time of one decoding step with nothing else running.
        step_per_sequence_s: what each further sequence adds to it.
        report_s: time between two reports of the load.
    """

    cache_tokens: int = 96 * 1024
    slots: int = 64
    prefill_token_s: float = 1 / 20_000
    prefill_s: float = 0.004
    step_s: float = 0.015
    step_per_sequence_s: float = 0.000_2
    report_s: float = 0.02


class Job:
    """A request on its way.

    Attributes:
        prompt: what is asked.
        sent_s: when it arrived.
        done: called at its end.
    """

    __slots__ = ("prompt", "sent_s", "done")

    def __init__(self, prompt: Prompt, sent_s: float, done: Callable[[], None]) -> None:
        self.prompt = prompt
        self.sent_s = sent_s
        self.done = done


class BlockCache:
    """The blocks that were used last, up to a bound."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: Sequence[int]) -> int:
        """Leading blocks that are held."""
        held = self._held
        for count, block in enumerate(blocks):
            if block not in held:
                return count
        return len(blocks)

    def use(self, blocks: Sequence[int]) -> None:
        """Hold blocks; the first ones are dropped last."""
        held = self._held
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        while len(held) > self._capacity:
            held.popitem(last=False)


class SimulatedEngine:
    """One worker. It asks for the time and for calls at later times, and knows no sockets."""

    def __init__(
        self,
        index: int,
        figures: EngineFigures,
        now: Callable[[], float],
        at: Callable[[float, Callable[[], None]], None],
        on_first_token: Callable[[Job, int], None],
    ) -> None:
        """Args: at: calls back at a time; on_first_token: told of each prompt that is computed, and its cached tokens."""
        self._index = index
        self._figures = figures
        self._now = now
        self._at = at
        self._on_first_token = on_first_token
        self._cache = BlockCache(figures.cache_tokens // BLOCK_TOKENS)
        self._queue: deque[Job] = deque()
        self._is_computing = False
        self._decoding = 0
        self.inflight = 0
        self._told: tuple[int, int, int] = (0, 0, 0)
        self._told_s = -1.0
        self._backlog = Backlog()
        self._picture: WorkerSnapshot | None = None

    def submit(self, job: Job) -> None:
        """Take a request."""
        self.inflight += 1
        self._backlog.sent(job.prompt.tokens)
        self._picture = None
        self._queue.append(job)
        self._go_on()

    def picture(self) -> WorkerSnapshot:
        """The engine as the router sees it: its own count of requests, and the last report."""
        now, figures = self._now(), self._figures
        if now - self._told_s >= figures.report_s:
            told = (self._decoding + self._is_computing, len(self._queue), self._waiting_tokens())
            if told != self._told or self._backlog.tokens:
                self._told, self._picture = told, None
                self._backlog.told(told[2])
            self._told_s = now
        if self._picture is None:
            running, waiting, _ = self._told
            busy = max(running + waiting, self.inflight) + self._backlog.tokens / BACKLOG_TOKENS
            self._picture = WorkerSnapshot(
                id=f"worker-{self._index}",
                url=f"grpc://engine-{self._index}:50051",
                inflight_requests=self.inflight,
                running=running,
                waiting=waiting,
                saturation=busy / figures.slots,
                instance_id="1",
                slots=figures.slots,
            )
        return self._picture

    def _waiting_tokens(self) -> int:
        """Tokens of waiting prompts that no cached prefix covers."""
        match = self._cache.match
        return sum(job.prompt.tokens - match(job.prompt.blocks) * BLOCK_TOKENS for job in self._queue)

    def _go_on(self) -> None:
        if self._is_computing or not self._queue or self._decoding >= self._figures.slots:
            return
        figures, job = self._figures, self._queue.popleft()
        self._is_computing = True
        prompt = job.prompt
        # An engine always computes the last token.
        cached = min(self._cache.match(prompt.blocks) * BLOCK_TOKENS, prompt.tokens - 1)
        self._cache.use(prompt.blocks)
        took_s = figures.prefill_s + (prompt.tokens - cached) * figures.prefill_token_s
        # Chunks of prompts share their steps with what decodes.
        took_s *= 1 + self._decoding / figures.slots
        self._at(self._now() + took_s, lambda: self._computed(job, cached))

    def _computed(self, job: Job, cached: int) -> None:
        self._is_computing = False
        self._decoding += 1
        self._backlog.started(job.prompt.tokens, cached)
        self._on_first_token(job, cached)
        figures = self._figures
        step_s = figures.step_s + figures.step_per_sequence_s * self._decoding
        self._at(self._now() + job.prompt.output_tokens * step_s, lambda: self._ended(job))
        self._go_on()

    def _ended(self, job: Job) -> None:
        self._decoding -= 1
        self.inflight -= 1
        self._picture = None
        self._cache.use(job.prompt.whole_blocks)
        self._go_on()
        job.done()
