"""One sequence that is generated: where it stands in its output, and what each step brings it.

`advance` does all that is out of the common: the start, the end, pauses, chunks, log-probabilities, replies that are
not streamed. Between them a sequence may be in the fast lane, which hands its tokens out without a look at it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from servicers.echo.distribution import context_key, context_key_of
from servicers.echo.prefix_cache import BLOCK_TOKENS
from servicers.echo.rows import prompt_rows, token_logprobs
from servicers.token_bytes import ID_BYTES, ids_to_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.echo.directives import Plan
    from servicers.echo.distribution import Distribution
    from servicers.echo.lane import FastLane
    from servicers.echo.output import Output
    from servicers.echo.step import StepColumns

HANG_WAIT_S = 0.05
_REASONS = {
    "stop": work_pb2.FINISH_REASON_STOP,
    "length": work_pb2.FINISH_REASON_LENGTH,
    "abort": work_pb2.FINISH_REASON_ABORT,
}


class EchoSequence:
    """A Generate in work."""

    __slots__ = (
        "number", "request", "plan", "output", "distribution", "blocks", "cached_tokens", "prompt_tokens",
        "due", "is_started", "lane_end", "_is_common", "_lane", "_position", "_first", "_chunks", "_key", "_rows",
    )  # fmt: skip

    def __init__(
        self,
        request: work_pb2.Generate,
        plan: Plan,
        output: Output,
        distribution: Distribution,
        blocks: Sequence[int],
    ) -> None:
        self.number = request.sequence
        self.request = request
        self.plan = plan
        self.output = output
        self.distribution = distribution
        self.blocks = blocks
        self.cached_tokens = 0
        self.prompt_tokens = len(request.prompt_ids) // ID_BYTES
        self.due = 0.0
        """Time before which no step concerns it."""
        self.is_started = False
        self.lane_end = 0
        """The lane's tick at which the tokens that it joined with are used up."""
        self._is_common = (
            request.stream
            and not request.HasField("logprobs")
            and plan.chunk_tokens == 1
            and not plan.chunk_wait_s
            and not plan.hangs
            and plan.failure_after is None
        )
        self._lane: FastLane | None = None
        self._first = len(request.output_ids) // ID_BYTES
        # In the lane: where it will stand at lane_end.
        self._position = self._first
        self._chunks = 0
        self._key = 0
        self._rows: list[work_pb2.TokenLogprobs] = []

    @property
    def position(self) -> int:
        """Output tokens so far, those of another engine included."""
        return self._position if self._lane is None else self._position - (self.lane_end - self._lane.tick)

    @property
    def held_tokens(self) -> int:
        """Tokens that it holds outside of the prefix cache: the end of its prompt, and its own output."""
        return self.prompt_tokens - len(self.blocks) * BLOCK_TOKENS + self.position - self._first

    def stretch(self) -> Sequence[int]:
        """The next tokens that the fast lane may hand out: as far as one array goes, the last token left out."""
        output, position = self.output, self._position
        left = len(output.head) + len(output.cycle) if output.total is None else output.total - 1 - position
        if left <= 0 or not (self._is_common and self.is_started):
            return ()
        array, start = output.head, position
        if position >= len(array):
            array = output.cycle
            start = (output.cycle_start + position - len(output.head)) % len(array)
        return array[start : start + left]

    def enter_lane(self, lane: FastLane, lane_end: int) -> None:
        """From now on the lane hands its tokens out."""
        self._position += lane_end - lane.tick
        self._lane, self.lane_end = lane, lane_end

    def leave_lane(self) -> None:
        """The lane hands out none any more."""
        self._position, self._lane = self.position, None

    def start_at(self, now: float) -> None:
        """It is admitted: its waits begin."""
        self.due = now + self.plan.first_wait_s + self.plan.chunk_wait_s

    def advance(self, now: float, step: StepColumns) -> bool:
        """Take part in a step. Returns whether the sequence has ended."""
        if self.due > now:
            return False
        plan = self.plan
        if not self.is_started:
            if plan.failure is not None:
                step.fail(self.number, plan.failure)
                return True
            self._start(step)
        if self._fails_now(step):
            return True
        total = self.output.total
        if total is None or self.position < total:
            self._emit(self._take(plan.chunk_tokens, step), step)
            self._chunks += 1
        if total is not None and self.position >= total:
            return self._finish_unless_told(step)
        wait = plan.chunk_wait_s
        if plan.hangs and self.position >= len(self.output.head):
            wait = max(wait, HANG_WAIT_S)
        self.due = now + wait if wait else 0.0
        return False

    def abort(self) -> work_pb2.Finished:
        """What an abort tells the router."""
        return self._finished(work_pb2.FINISH_REASON_ABORT)

    def _start(self, step: StepColumns) -> None:
        self.is_started = True
        request = self.request
        started = work_pb2.Started(
            sequence=self.number, prompt_tokens=self.prompt_tokens, cached_tokens=self._told_cached_tokens()
        )
        if request.HasField("logprobs"):
            self._key = context_key(request.output_ids, context_key(request.prompt_ids))
            if request.logprobs.HasField("prompt_start"):
                started.prompt_logprobs.extend(prompt_rows(request, self.distribution))
        step.started.append(started)

    def _take(self, count: int, step: StepColumns) -> list[int]:
        """The next tokens, as far as there are any."""
        output, position = self.output, self._position
        end = position + count if output.total is None else min(position + count, output.total)
        self._position = end
        step.generated_tokens += end - position
        return [output.token(each) for each in range(position, end)]

    def _emit(self, tokens: list[int], step: StepColumns) -> None:
        rows: list[work_pb2.TokenLogprobs] = []
        options = self.request.logprobs
        if options.output or options.token_ids:
            for token in tokens:
                is_first = self._chunks == 0 and not rows
                rows.append(
                    token_logprobs(
                        self.distribution.row(self._key, token), token, options, self.plan, is_first
                    )
                )
                self._key = context_key_of((token,), self._key)
        if not self.request.stream:
            self._rows += rows
            return
        step.add_tokens(self.number, tokens)
        if rows:
            step.logprobs.append(work_pb2.StepLogprobs(sequence=self.number, tokens=rows))

    def _fails_now(self, step: StepColumns) -> bool:
        after = self.plan.failure_after
        if after is None or self._chunks < after[0]:
            return False
        step.fail(self.number, after[1])
        return True

    def _finish_unless_told(self, step: StepColumns) -> bool:
        if self.plan.never_ends:
            self.due = inf
            return False
        if self._fails_now(step):
            return True
        step.finished.append(self._finished(self.output.reason))
        return True

    def _finished(self, reason: work_pb2.FinishReason.ValueType) -> work_pb2.Finished:
        plan, position = self.plan, self.position
        finished = work_pb2.Finished(
            sequence=self.number,
            reason=reason,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=position,
            cached_tokens=self._told_cached_tokens(),
            reasoning_tokens=min(plan.reasoning_tokens or 0, position),
            draft_tokens=plan.draft_tokens or 0,
            accepted_tokens=plan.accepted_tokens or 0,
        )
        is_abort = reason == work_pb2.FINISH_REASON_ABORT
        if plan.finish is not None and not is_abort:
            finished.reason = _REASONS.get(plan.finish, work_pb2.FINISH_REASON_STOP)
            finished.reason_text = "" if plan.finish in _REASONS else plan.finish
        if not is_abort and self.output.matched is not None:
            finished.matched_token_id = self.output.matched
        if not self.request.stream:
            finished.token_ids = ids_to_bytes(map(self.output.token, range(self._first, position)))
            finished.logprobs.extend(self._rows)
        return finished

    def _told_cached_tokens(self) -> int:
        told = self.plan.cached_tokens
        return self.cached_tokens if told is None else told
