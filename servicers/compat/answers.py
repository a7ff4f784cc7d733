"""Turns what the engine tells of a call into SGLang's answers.

As SGLang's servicer has them: chunks carry new tokens and cumulative counts; with a stream the last message repeats the
last chunk's tokens, without one it carries all; the first position of prompt log-probabilities has no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

from servicers.token_bytes import ids_from_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from servicers.compat.session import Part

_REASONS = {
    work_pb2.FINISH_REASON_STOP: "stop",
    work_pb2.FINISH_REASON_LENGTH: "length",
    work_pb2.FINISH_REASON_ABORT: "abort",
}


class ChoiceAnswer:
    """The answers of one choice."""

    def __init__(self, request: sglang_pb2.GenerateRequest, index: int) -> None:
        self._request = request
        self._index = index
        self._asked = list(request.token_ids_logprob)
        self._prompt_tokens = len(request.tokenized.input_ids)
        self._cached_tokens = 0
        self._completion_tokens = 0
        self._prompt_rows: sglang_pb2.InputLogProbs | None = None
        self._last: Sequence[int] = ()
        self._last_rows: sglang_pb2.OutputLogProbs | None = None

    def start(self, started: work_pb2.Started) -> None:
        """Its prompt is computed."""
        self._prompt_tokens, self._cached_tokens = started.prompt_tokens, started.cached_tokens
        if self._request.return_logprob and self._request.logprob_start_len >= 0:
            ids = self._request.tokenized.input_ids[self._request.logprob_start_len :]
            self._prompt_rows = _prompt_rows(started.prompt_logprobs, ids)

    def chunk(self, part: Part) -> sglang_pb2.GenerateResponse:
        """New tokens."""
        self._last = list(part.tokens)
        self._last_rows = self._rows(part.tokens, part.logprobs)
        self._completion_tokens += len(part.tokens)
        chunk = sglang_pb2.GenerateStreamChunk(
            token_ids=part.tokens,
            completion_tokens=self._completion_tokens,
            output_logprobs=self._last_rows,
            input_logprobs=self._prompt_rows,
            index=self._index,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
        )
        self._prompt_rows = None
        return sglang_pb2.GenerateResponse(request_id=self._request.request_id, chunk=chunk)

    def complete(self, end: work_pb2.Finished) -> sglang_pb2.GenerateResponse:
        """The end."""
        if not self._request.stream:
            self._last = ids_from_bytes(end.token_ids)
            self._last_rows = self._rows(self._last, end.logprobs)
        complete = sglang_pb2.GenerateComplete(
            output_ids=self._last,
            finish_reason=end.reason_text or _REASONS.get(end.reason, "stop"),
            prompt_tokens=end.prompt_tokens,
            completion_tokens=end.completion_tokens,
            cached_tokens=end.cached_tokens,
            reasoning_tokens=end.reasoning_tokens,
            output_logprobs=self._last_rows,
            input_logprobs=self._prompt_rows,
            index=self._index,
            spec_accepted_tokens=end.accepted_tokens,
            spec_draft_tokens=end.draft_tokens,
        )
        if end.HasField("matched_token_id"):
            complete.matched_token_id = end.matched_token_id
        elif end.matched_stop:
            complete.matched_stop_str = end.matched_stop
        return sglang_pb2.GenerateResponse(request_id=self._request.request_id, complete=complete)

    def _rows(
        self, tokens: Sequence[int], rows: Iterable[work_pb2.TokenLogprobs]
    ) -> sglang_pb2.OutputLogProbs | None:
        if not self._request.return_logprob:
            return None
        result = sglang_pb2.OutputLogProbs(token_ids=tokens)
        for row in rows:
            result.token_logprobs.append(row.logprob)
            if self._request.top_logprobs_num > 0:
                result.top_logprobs.add(values=row.top_logprob, token_ids=row.top_token)
            if self._asked:
                result.token_ids_logprobs.add(values=row.asked_logprob, token_ids=self._asked)
        return result


def scored_answer(
    request: sglang_pb2.GenerateRequest, scored: work_pb2.Scored
) -> sglang_pb2.GenerateResponse:
    """The scores of labels, as a generation of no tokens."""
    rows = sglang_pb2.OutputLogProbs()
    rows.token_ids_logprobs.add(values=scored.suffixes[0].logprobs, token_ids=request.token_ids_logprob)
    complete = sglang_pb2.GenerateComplete(
        finish_reason="length",
        prompt_tokens=scored.prompt_tokens,
        cached_tokens=scored.cached_tokens,
        output_logprobs=rows,
    )
    return sglang_pb2.GenerateResponse(request_id=request.request_id, complete=complete)


def _prompt_rows(rows: Sequence[work_pb2.TokenLogprobs], ids: Sequence[int]) -> sglang_pb2.InputLogProbs:
    result = sglang_pb2.InputLogProbs(token_ids=ids)
    for position, row in enumerate(rows):
        entry = result.token_logprobs.add()
        top = result.top_logprobs.add()
        if position and row.HasField("logprob"):
            entry.value = row.logprob
            top.values.extend(row.top_logprob)
            top.token_ids.extend(row.top_token)
    return result
