"""One answer with its choices: opens the sink, counts, and knows when everything has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from smg.errors import DeadlineExceeded, EngineError
from smg.pipelines.sinks import AnswerHead, AnswerSink, UsageCounter
from smg.pipelines.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.errors import SmgError
    from smg.pipelines.choice import Choice
    from smg.workers.base import Worker
    from smg_proto.engine.v1 import work_pb2


class Answer:
    """The state that the choices of one request share, on one worker at a time.

    Attributes:
        sink: where the answer goes.
        parsers: what reads the model's text; empty where nothing does.
        usage: token counts so far.
        is_open: the first event has arrived; from here on an error goes to the sink.
        opened_at: loop time of the first event; 0 before.
        error: what the answer ended with after it was opened; None while all is well.
        done: set when all choices have ended, with the error if they failed.
    """

    def __init__(self, answer_id: str, created: int, model: str, sink: AnswerSink, parsers: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self.id = answer_id
        self.created = created
        self.model = model
        self.sink = sink
        self.parsers = parsers
        self.usage = UsageCounter()
        self.is_open = False
        self.opened_at = 0.0
        self.error: SmgError | None = None
        self._turns: Turns | None = None
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._worker: Worker | None = None
        self._choices: Sequence[Choice] = ()
        self._remaining = 0
        self._late_after_s = 0.0
        # Prompt and cached tokens by prompt: the choices of one prompt share it, so the largest cache hit counts.
        self._prompts: dict[int, tuple[int, int]] = {}

    @property
    def turns(self) -> Turns:
        """Where choices do what takes long."""
        if self._turns is None:
            self._turns = Turns()
        return self._turns

    @turns.setter
    def turns(self, turns: Turns) -> None:
        self._turns = turns

    def start(self, worker: Worker, choices: Sequence[Choice]) -> None:
        """Take the choices that are about to be submitted to a worker.

        Raises:
            DeadlineExceeded: time ran out between two attempts.
        """
        if self._is_late:
            raise self._late()
        self._worker = worker
        self._choices = choices
        self._remaining = len(choices)
        if self.done.done():
            self.done = self._loop.create_future()

    def open(self) -> None:
        """The first event of the answer has arrived."""
        self.is_open = True
        self.opened_at = self._loop.time()
        worker_url = self._worker.url if self._worker is not None else ""
        head = AnswerHead(self.id, self.created, self.model, worker_url, self.usage, self.parsers)
        self.sink.open(head)

    def prompt_started(self, choice: Choice, prompt_tokens: int, cached_tokens: int) -> None:
        """A choice's prompt is computed, or its engine tells the counts with its end."""
        known = self._prompts.get(choice.prompt_index)
        if known is not None and known[0] == prompt_tokens and known[1] >= cached_tokens:
            return
        cached = cached_tokens if known is None else max(known[1], cached_tokens)
        self._prompts[choice.prompt_index] = (prompt_tokens, cached)
        self.usage.prompt_tokens = sum(counts[0] for counts in self._prompts.values())
        self.usage.cached_tokens = sum(counts[1] for counts in self._prompts.values())

    def choice_finished(self, choice: Choice, finished: work_pb2.Finished | None) -> None:
        """A choice has ended: by its engine, or here by a stop string (then `finished` may be None)."""
        usage = self.usage
        if finished is None:
            if self._worker is not None:
                self._worker.abort(choice.sequence)
        else:
            if not choice.is_resumed:
                self.prompt_started(choice, finished.prompt_tokens, finished.cached_tokens)
            usage.draft_tokens += finished.draft_tokens
            usage.accepted_tokens += finished.accepted_tokens
        # The engine's own count where it has one: it knows its model's tokens. Of two engines each knows a part.
        counted = finished.reasoning_tokens if finished is not None and not choice.is_resumed else 0
        usage.reasoning_tokens += counted or choice.reasoning_tokens
        self._remaining -= 1
        if self._remaining == 0 and not self.done.done():
            self.sink.close()
            self.done.set_result(None)

    def choice_failed(self, error: SmgError) -> None:
        """A choice is lost, and the answer with it, unless somebody can make it go on elsewhere."""
        if self.done.done():
            return
        self.abort()
        self.done.set_exception(error)
        # Retrieved here as well: a request whose client has left awaits `done` no more.
        self.done.exception()

    def time_out(self, limit_s: float) -> None:
        """The request has taken as long as it may."""
        self._late_after_s = limit_s
        self.choice_failed(self._late())

    @property
    def _is_late(self) -> bool:
        return self._late_after_s > 0

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the request took longer than {self._late_after_s:g} s")

    def fail(self, error: SmgError) -> None:
        """Tell the client of an answer that was opened and cannot be completed."""
        self.error = error
        self.sink.fail(error)

    def abort(self) -> None:
        """Stop every choice that still runs."""
        worker, choices = self._worker, self._choices
        # They know us as well: a cycle, for which memory would wait.
        self._choices = ()
        if worker is not None:
            for choice in choices:
                if not choice.is_finished:
                    choice.is_finished = True
                    worker.abort(choice.sequence)

    @staticmethod
    def can_retry(error: SmgError) -> bool:
        """True if another worker, or the same one later, may succeed."""
        return error.can_retry if isinstance(error, EngineError) else error.is_retryable
