"""Runs the engine one step at a time: requests in, events out. No thread, no loop, no clock of its own.

A step takes the work that came, gives slots to who waits, computes one mixed batch and a piece of scoring, and
chooses tokens. What goes wrong is confined: a broken rule or constraint loses its sequence, a fault in the batch
loses the sequences of the batch, and the next step starts clean. Owned by one thread, the compute thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from servicers.local import batch
from servicers.local.compile_watch import overdue
from servicers.local.decoding import Outcome, decode, end_without_token
from servicers.local.events import Outbox
from servicers.local.load import LoadMeter
from servicers.local.logprobs import prompt_logprobs
from servicers.local.prefix_cache import PrefixCache
from servicers.local.refusal import INTERNAL, UNIMPLEMENTED, RefusalError
from servicers.local.scheduler import Scheduler
from servicers.local.scoring import score
from servicers.local.sequence import EmbedJob, GenerateJob, Job
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from servicers.base import EventSink
    from servicers.local.events import Events
    from servicers.local.grammar import Grammar, GrammarPool
    from servicers.local.jobs import JobMaker
    from servicers.local.kv_cache import KVCache
    from servicers.local.late_grammar import LateGrammar
    from servicers.local.model import Model
    from servicers.local.vision import Eyes, Sight

logger = logging.getLogger(__name__)


class Stepper:
    """One model and everything that runs on it."""

    def __init__(
        self,
        model: Model,
        memory: KVCache,
        maker: JobMaker,
        grammars: GrammarPool | None,
        eyes: Eyes | None = None,
        *,
        step_tokens: int,
        max_waiting: int,
        call_later: Callable[[Callable[[], None]], None],
    ) -> None:
        """Put the parts together.

        Args:
            model: the network.
            memory: its slots.
            maker: makes jobs of requests.
            grammars: compiles constraints; None when the model has no tokenizer.
            eyes: look at images; None when the model sees none.
            step_tokens: tokens of one forward, about.
            max_waiting: most jobs without a slot.
            call_later: runs a function in the stepper's thread; callable from any thread.
        """
        self._model = model
        self._memory = memory
        self._maker = maker
        self._grammars = grammars
        self._eyes = eyes
        self._call_later = call_later
        self.cache = PrefixCache(memory)
        self._scheduler = Scheduler(self.cache, step_tokens=step_tokens, max_waiting=max_waiting)
        self._load = LoadMeter(self._scheduler, self.cache)
        self._outbox = Outbox()
        self._sessions: dict[EventSink, None] = {}
        self._watchers: dict[EventSink, None] = {}

    @property
    def can_step(self) -> bool:
        """Whether a step would compute something now."""
        return self._scheduler.can_step

    @property
    def has_work(self) -> bool:
        """Whether some job has not ended."""
        return self._scheduler.running + self._scheduler.waiting > 0

    @property
    def load(self) -> LoadMeter:
        """The counters."""
        return self._load

    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Take a session's new work and aborts."""
        self._sessions[session] = None
        for generate in request.generate:
            self._take(session, generate.sequence, lambda item=generate: self._add_generate(session, item))
        for item in request.score:
            self._take(session, item.sequence, lambda item=item: self._add(self._maker.score(session, item)))
        for item in request.embed:
            self._take(session, item.sequence, lambda item=item: self._add(self._maker.embed(session, item)))
        for item in request.classify:
            refusal = RefusalError(
                "classify is not served; the model is not a classifier", code=UNIMPLEMENTED
            )
            self._outbox.failed(session, item.sequence, refusal)
        for number in request.abort:
            self._abort(session, number)

    def close(self, session: EventSink) -> None:
        """The session has ended: so has its work. Nothing more is said to it."""
        for job in self._scheduler.jobs_of(session):
            self._scheduler.remove(job)
        self._sessions.pop(session, None)
        self._watchers.pop(session, None)
        self.cache.is_watched = bool(self._watchers)
        self._outbox.drop(session)

    def watch_cache(self, session: EventSink) -> None:
        """Tell a session of the prefix cache from now on."""
        self._watchers[session] = None
        self.cache.is_watched = True

    @torch.inference_mode()
    def step(self, now_s: float) -> Events:
        """Compute what is planned next, if anything, and return what there is to tell."""
        tokens = 0
        try:
            self._scheduler.admit()
            is_computing = self._scheduler.running > 0
            if is_computing:
                tokens = self._compute()
            unready = self._scheduler.unready() if self._scheduler.waiting else []
            for job, refusal in overdue(unready, now_s):
                self._fail(job, refusal)
            if is_computing or unready:
                # Waiting for a constraint, which has its own bound, is no standstill.
                self._load.count_step(tokens, now_s)
        except Exception as error:
            logger.exception("a step failed; %d sequences are lost", self._scheduler.running)
            self._lose(self._scheduler.running_jobs(), error)
        events = self._outbox.take(self._load.update(now_s), self._sessions)
        return events + self._cache_events() if self._watchers else events

    def _cache_events(self) -> Events:
        """What those who watch are told of the prefix cache."""
        changes = [
            card_pb2.CacheEvent(stored_prefixes=[card_pb2.CachedPrefix(ids=change.ids)])
            if change.kept_tokens is None
            else card_pb2.CacheEvent(
                evicted_prefixes=[card_pb2.CachedPrefix(ids=change.ids, kept_tokens=change.kept_tokens)]
            )
            for change in self.cache.take_changes()
        ]
        if not changes:
            return []
        event = engine_pb2.SessionEvent(cache=changes)
        return [(session, event) for session in self._watchers]

    def lose_everything(self, refusal: RefusalError) -> Events:
        """End all work at once; returns the last events."""
        for job in self._scheduler.all_jobs():
            self._fail(job, refusal)
        return self._outbox.take(None, ())

    def _take(self, session: EventSink, number: int, add: Callable[[], None]) -> None:
        try:
            add()
        except RefusalError as refusal:
            self._outbox.failed(session, number, refusal)
        except Exception as error:
            logger.exception("taking sequence %d failed", number)
            self._outbox.failed(session, number, _fault(error))

    def _add(self, job: Job) -> None:
        if self._scheduler.find(job.session, job.number) is not None:
            raise RefusalError(f"sequence {job.number} is running already")
        self._scheduler.add(job)

    def _add_generate(self, session: EventSink, request: work_pb2.Generate) -> None:
        job = self._maker.generate(session, request)
        is_bound = request.constraint.WhichOneof("kind") is not None
        if is_bound and self._grammars is None:
            raise RefusalError("constraints are not served; the model has no tokenizer.json")
        job.is_ready = not (is_bound or request.media)
        self._add(job)
        if request.media and self._eyes is not None:
            job.looking = self._eyes.start(
                request, lambda result: self._call_later(lambda: self._looked(job, request, result))
            )
        elif is_bound:
            self._compile(job, request)

    def _looked(
        self, job: GenerateJob, request: work_pb2.Generate, result: Sequence[Sight] | RefusalError
    ) -> None:
        if self._scheduler.find(job.session, job.number) is not job:
            return
        if isinstance(result, RefusalError):
            self._fail(job, result)
            return
        job.sights = result
        if request.constraint.WhichOneof("kind") is None:
            job.is_ready = True
            return
        # Its time begins now.
        job.ready_by_s = None
        self._compile(job, request)

    def _compile(self, job: GenerateJob, request: work_pb2.Generate) -> None:
        if self._grammars is None:
            return
        job.compiling = self._grammars.start(
            request.constraint,
            job.output,
            lambda result: self._call_later(lambda: self._compiled(job, result)),
        )

    def _compiled(self, job: GenerateJob, result: Grammar | LateGrammar | RefusalError) -> None:
        if self._scheduler.find(job.session, job.number) is not job:
            return
        if isinstance(result, RefusalError):
            self._fail(job, result)
            return
        job.grammar = result
        job.is_ready = True

    def _abort(self, session: EventSink, number: int) -> None:
        job = self._scheduler.find(session, number)
        if job is None:
            return
        if isinstance(job, GenerateJob):
            event = job.finished(work_pb2.FINISH_REASON_ABORT)
        else:
            event = work_pb2.Finished(sequence=number, reason=work_pb2.FINISH_REASON_ABORT)
        self._outbox.finished(session, event)
        self._scheduler.remove(job)

    def _compute(self) -> int:
        """One mixed forward and a piece of scoring. Returns the number of tokens put out."""
        plan = self._scheduler.plan()
        tokens = 0
        if plan.decodes or plan.chunks:
            computed = batch.compute(self._model, self._memory, self.cache, plan)
            jobs, states = list(plan.decodes), [computed.decodes]
            for chunk in computed.chunks:
                if self._take_chunk(chunk) and isinstance(chunk.job, GenerateJob):
                    jobs.append(chunk.job)
                    states.append(chunk.hidden[-1:])
            if jobs:
                tokens = self._decode(jobs, states[0] if len(states) == 1 else torch.cat(states))
        self._score(plan.score_tokens)
        return tokens

    def _take_chunk(self, chunk: batch.Chunk) -> bool:
        """Use the states of a chunk. Returns whether its job now wants a token."""
        job = chunk.job
        if isinstance(job, EmbedJob):
            self._pool(job, chunk.hidden)
        elif isinstance(job, GenerateJob) and job.prompt_start is not None:
            self._prompt_logprobs(job, chunk)
        self._scheduler.advance(job)
        if job.remaining or not isinstance(job, GenerateJob):
            self._end_embedding(job)
            return False
        self._outbox.started(job)
        ended = end_without_token(job)
        if ended is None:
            return True
        self._outbox.finished(job.session, ended)
        self._scheduler.remove(job)
        return False

    def _prompt_logprobs(self, job: GenerateJob, chunk: batch.Chunk) -> None:
        if job.prompt_start == 0 and not job.prompt_entries:
            job.prompt_entries.append(work_pb2.TokenLogprobs())
        # The state at a position is about the token after it.
        targets = job.ids[chunk.first + 1 : job.prompt_tokens][: len(chunk.hidden)]
        hidden = chunk.hidden[: len(targets)]
        job.prompt_entries.extend(prompt_logprobs(hidden, targets, job.prompt_top_k, self._model.logits))

    def _pool(self, job: EmbedJob, hidden: torch.Tensor) -> None:
        total = hidden.float().sum(dim=0)
        job.total = total if job.total is None else job.total + total

    def _end_embedding(self, job: Job) -> None:
        if job.remaining or not isinstance(job, EmbedJob) or job.total is None:
            return
        vector = torch.nn.functional.normalize(job.total[: job.dimensions], dim=0)
        event = work_pb2.Embedded(sequence=job.number, values=vector.tolist(), prompt_tokens=len(job.ids))
        self._outbox.embedded(job, event)
        self._scheduler.remove(job, keep=False)

    def _decode(self, jobs: list[GenerateJob], hidden: torch.Tensor) -> int:
        outcomes = decode(self._model.logits(hidden), jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._tell(job, outcome)
        return len(jobs)

    def _tell(self, job: GenerateJob, outcome: Outcome) -> None:
        if outcome.refusal is not None:
            self._fail(job, outcome.refusal)
            return
        self._outbox.outcome(job, outcome)
        if outcome.finished is not None:
            self._scheduler.remove(job)

    def _score(self, tokens: int) -> None:
        """Go on with the oldest scores until about so many tokens are computed."""
        while tokens > 0 and self._scheduler.scoring:
            job = self._scheduler.scoring[0]
            job.unit_tokens = tokens
            try:
                if job.progress is None:
                    job.progress = score(job, self._model, self._memory)
                spent = next(job.progress, None)
            except Exception as error:
                logger.exception("scoring failed")
                self._lose([job], error)
                continue
            if spent is None:
                self._outbox.scored(job, job.scored())
                self._scheduler.remove(job)
            else:
                tokens -= spent

    def _lose(self, jobs: Iterable[Job], error: Exception) -> None:
        for job in jobs:
            self._outbox.failed(job.session, job.number, _fault(error))
            # What a fault left in the slot is not to be trusted.
            self._scheduler.remove(job, keep=False)

    def _fail(self, job: Job, refusal: RefusalError) -> None:
        self._outbox.failed(job.session, job.number, refusal)
        self._scheduler.remove(job)


def _fault(error: Exception) -> RefusalError:
    return RefusalError(
        f"the engine failed: {type(error).__name__}: {error}", code=INTERNAL, is_retryable=True
    )
