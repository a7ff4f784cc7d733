"""One sequence of a call: turns its part of SGLang's answers into the events of its listener.

What SGLang sends, as its servicer has it: the token ids of chunks are new ones each; with a streamed request the
final message repeats the last chunk's ids and log-probabilities, which must not come twice; without streaming the
final message holds everything. Counts are cumulative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.workers.sglang.rows import output_rows, prompt_rows
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

    from smg.workers.base import GenerateListener

_REASONS = {
    "stop": work_pb2.FINISH_REASON_STOP,
    "length": work_pb2.FINISH_REASON_LENGTH,
    "abort": work_pb2.FINISH_REASON_ABORT,
}


class SequenceAnswer:
    """What one sequence has got.

    Attributes:
        sequence: its number.
        listener: who hears of it.
        ids: new tokens that the listener has not heard of.
        is_streamed: the listener wants them with every step.
        is_plain: ids are all that a further chunk can bring.
        is_answered: the engine has ended it.
        is_over: the listener hears nothing more.
        is_abandoned: because nobody wants it any more.
        told: tokens that the listener has heard of.
    """

    __slots__ = (
        "sequence", "listener", "ids", "is_streamed", "is_plain", "is_answered", "is_over", "is_abandoned",
        "_rows", "_wants_rows", "_wants_chosen", "_asked_ids", "_prompt_start", "_prior_tokens", "_is_empty",
        "told", "_counts_ids", "_is_started", "_has_chunks",
    )  # fmt: skip

    def __init__(self, request: work_pb2.Generate, listener: GenerateListener, *, counts_ids: bool) -> None:
        """Args: counts_ids: the server's count of output tokens may be that of more than this sequence."""
        logprobs, sampling = request.logprobs, request.sampling
        self.sequence = request.sequence
        self.listener = listener
        self.ids: list[int] = []
        self.is_streamed = request.stream
        self.is_plain = self.is_answered = self.is_over = self.is_abandoned = False
        self._rows: list[work_pb2.TokenLogprobs] = []
        self._wants_rows = logprobs.output or bool(logprobs.token_ids)
        self._wants_chosen = logprobs.output
        self._asked_ids = list(logprobs.token_ids)
        self._prompt_start = logprobs.prompt_start
        self._prior_tokens = len(request.output_ids) // 4
        self._is_empty = sampling.HasField("max_new_tokens") and sampling.max_new_tokens <= self._prior_tokens
        self._counts_ids = counts_ids
        self.told = 0
        self._is_started = self._has_chunks = False

    def take_chunk(self, chunk: sglang_pb2.GenerateStreamChunk) -> None:
        """Take new tokens; the first chunk starts the sequence."""
        if not self._is_started:
            self._start(chunk)
        self._has_chunks = True
        self._add(chunk.token_ids, chunk.output_logprobs)
        self.is_plain = not self._wants_rows and not self._is_empty

    def tell(self) -> None:
        """Tell the listener of the new tokens."""
        ids, rows = self.ids, self._rows
        self.ids, self._rows = [], []
        self.told += len(ids)
        self.listener.on_step(ids, rows, None)

    def take_complete(self, complete: sglang_pb2.GenerateComplete) -> None:
        """Take what the final message alone holds."""
        if not self._is_started:
            self._start(complete)
        if not self._has_chunks:
            self._add(complete.output_ids, complete.output_logprobs)

    def tell_end(self, complete: sglang_pb2.GenerateComplete) -> None:
        """Tell the listener of its last tokens and the end."""
        self.told += len(self.ids)
        self.listener.on_step(self.ids, self._rows, self._finished(complete))

    def _add(self, ids: Iterable[int], rows: sglang_pb2.OutputLogProbs) -> None:
        # A server may choose a token to end a prompt by which nothing is to follow: it is not asked for.
        if self._is_empty:
            return
        self.ids += ids
        if self._wants_rows:
            self._rows += self._output_rows(rows)

    def _start(self, first: sglang_pb2.GenerateStreamChunk | sglang_pb2.GenerateComplete) -> None:
        self._is_started = True
        started = work_pb2.Started(
            sequence=self.sequence,
            prompt_tokens=self._prompt_tokens(first.prompt_tokens),
            cached_tokens=first.cached_tokens,
        )
        if first.HasField("input_logprobs"):
            started.prompt_logprobs.extend(self._prompt_rows(first.input_logprobs, started.prompt_tokens))
        self.listener.on_started(started)

    def _output_rows(self, rows: sglang_pb2.OutputLogProbs) -> list[work_pb2.TokenLogprobs]:
        return output_rows(rows, self._asked_ids, wants_chosen=self._wants_chosen)

    def _prompt_rows(
        self, rows: sglang_pb2.InputLogProbs, prompt_tokens: int
    ) -> list[work_pb2.TokenLogprobs]:
        return prompt_rows(rows, self._prompt_start, prompt_tokens)

    def _reasoning_tokens(self, complete: sglang_pb2.GenerateComplete) -> int:
        return complete.reasoning_tokens

    def _prompt_tokens(self, told: int) -> int:
        return max(0, told - self._prior_tokens)

    def _finished(self, complete: sglang_pb2.GenerateComplete) -> work_pb2.Finished:
        reason = _REASONS.get(complete.finish_reason)
        tokens = self.told if self._counts_ids or self._is_empty else complete.completion_tokens
        finished = work_pb2.Finished(
            sequence=self.sequence,
            reason=work_pb2.FINISH_REASON_STOP if reason is None else reason,
            reason_text=complete.finish_reason if reason is None else "",
            matched_stop=complete.matched_stop_str,
            prompt_tokens=self._prompt_tokens(complete.prompt_tokens),
            completion_tokens=tokens + self._prior_tokens,
            cached_tokens=complete.cached_tokens,
            reasoning_tokens=min(self._reasoning_tokens(complete), tokens),
            draft_tokens=complete.spec_draft_tokens,
            accepted_tokens=complete.spec_accepted_tokens,
        )
        if complete.HasField("matched_token_id"):
            finished.matched_token_id = complete.matched_token_id
        return finished
