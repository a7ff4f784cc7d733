"""One answer with its choices: opens the sink, counts, and knows when everything has ended."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from smg.errors import EngineError
from smg.pipelines.sinks import AnswerHead, AnswerSink, UsageCounter
from smg.pipelines.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.errors import SmgError
    from smg.pipelines.choice import Choice
    from smg.workers.base import Worker
    from smg_proto.engine.v1 import work_pb2


def may_succeed_elsewhere(error: SmgError) -> bool:
    """True if another worker, or the same one later, may succeed."""
    return error.can_retry if isinstance(error, EngineError) else error.is_retryable


class Answer:
    """The state that the choices of one request share, on one worker at a time.

    Attributes:
        sink: where the answer goes.
        parsers: what reads the model's text; empty where nothing does.
        usage: token counts so far.
        is_open: the first event has arrived; from here on an error goes to the sink.
        opened_at: when the first event came, by time.monotonic; 0 before.
        error: what the answer ended with after it was opened; None while all is well.
        worker_urls: the workers that it was given to, one an attempt.
        failovers: attempts after it was opened.
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
        self.worker_urls: list[str] = []
        self.failovers = 0
        self._turns: Turns | None = None
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._worker: Worker | None = None
        self._choices: Sequence[Choice] = ()
        self._remaining = 0
        # What ends the answer whatever attempts are left; None while nothing does.
        self._stopped_by: SmgError | None = None
        # Waits between two attempts.
        self._pause: asyncio.Future[None] | None = None
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

    def start(self, worker: Worker, choices: Sequence[Choice], unended: int) -> None:
        """Take the choices that are about to be submitted to a worker.

        Args:
            worker: where they are to run.
            choices: what it gets.
            unended: choices whose end is still to be written; some may be complete.
        """
        self._worker = worker
        self.worker_urls.append(worker.url)
        self.failovers += self.is_open
        self._choices = choices
        self._remaining = unended
        if self.done.done():
            self.done = self._loop.create_future()
        if not unended:
            self._complete()

    def open(self) -> None:
        """The first event of the answer has arrived."""
        self.is_open = True
        self.opened_at = monotonic()
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
            self._complete()

    def _complete(self) -> None:
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

    def stop(self, error: SmgError) -> None:
        """End with an error that no other attempt can mend, such as that the time is up."""
        self._stopped_by = error
        self.choice_failed(error)
        self._end_pause()

    async def pause(self, pause_s: float) -> None:
        """Wait before another attempt.

        Raises:
            SmgError: the answer was stopped, before or meanwhile.
        """
        if self._stopped_by is not None:
            raise self._stopped_by
        self._pause = self._loop.create_future()
        timer = self._loop.call_later(pause_s, self._end_pause)
        try:
            await self._pause
        finally:
            timer.cancel()
            self._pause = None
        if self._stopped_by is not None:
            raise self._stopped_by

    def _end_pause(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

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
                # The number means somebody else on the next worker.
                choice.sequence = 0

    def can_retry(self, error: SmgError) -> bool:
        """True if another worker, or the same one later, may succeed."""
        if error is self._stopped_by:
            return False
        return may_succeed_elsewhere(error)
