"""Turns the answers to one SGLang request into calls of its listener.

What SGLang sends, as its servicer has it: the token ids of chunks are new ones each; with a streamed request the
final message repeats the last chunk's ids and log-probabilities, which must not come twice; without streaming the
final message holds everything. Counts are cumulative.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

from smg.errors import INTERNAL, EngineError, InternalError
from smg.workers.failures import RETRYABLE_CODES
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.errors import SmgError
    from smg.workers.base import GenerateListener
    from smg.workers.http2.headers import Status

_log = logging.getLogger(__name__)

_parse = sglang_pb2.GenerateResponse.FromString

# The first bytes of fields of GenerateResponse and GenerateStreamChunk: number and wire type (length-delimited).
_REQUEST_ID, _CHUNK, _TOKEN_IDS = 0x0A, 0x12, 0x0A

_REASONS = {
    "stop": work_pb2.FINISH_REASON_STOP,
    "length": work_pb2.FINISH_REASON_LENGTH,
    "abort": work_pb2.FINISH_REASON_ABORT,
}


class Progress:
    """Counts what shows that an engine is alive. One per worker, shared by its calls."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


class SequenceReceiver:
    """Receives the messages of one Generate call."""

    def __init__(
        self,
        request: work_pb2.Generate,
        listener: GenerateListener,
        progress: Progress,
        on_over: Callable[[bool], None],
    ) -> None:
        """Args: on_over: called once before the listener hears the end; True when the engine still works on it."""
        self._progress = progress
        self._sequence = request.sequence
        self._is_streamed = request.stream
        self._wants_rows = request.logprobs.output or bool(request.logprobs.token_ids)
        self._asked_ids = list(request.logprobs.token_ids)
        self._wants_chosen = request.logprobs.output
        self._prompt_start = request.logprobs.prompt_start
        self._prior_tokens = len(request.output_ids) // 4
        self._listener = listener
        self._on_over = on_over
        self._is_started = False
        self._is_over = False
        self._has_chunks = False
        # Of chunks that come for a request that was not streamed.
        self._held_ids: list[int] = []
        self._held_rows: list[work_pb2.TokenLogprobs] = []

    def on_messages(self, messages: Sequence[bytes]) -> None:
        """Everything that came in one read is one step."""
        self._progress.steps += 1
        try:
            self._take(messages)
        except Exception as error:  # noqa: BLE001 - one listener must not harm the others
            _log.error(
                "answer of sequence %d not taken; the sequence is over", self._sequence, exc_info=error
            )
            fault = InternalError(f"the engine's answer could not be taken: {error}")
            if self._is_over:
                self._tell_failure(fault)
            else:
                self._fail(fault, is_running=True)

    def give_up(self, error: SmgError) -> None:
        """Tell the listener that its sequence is lost. The call is the caller's to end."""
        self._is_over = True
        self._tell_failure(error)

    def on_end(self, status: Status) -> None:
        """The call is over. With the sequence's end it is no news."""
        if self._is_over:
            return
        if status.code == 0:
            code = "worker_stream_failed" if self._has_chunks else "no_responses_from_server"
            self._fail(
                EngineError(
                    "the engine ended the stream before the sequence had ended",
                    engine_code=INTERNAL,
                    code=code,
                )
            )
        else:
            self._fail(
                EngineError(
                    status.message or f"the engine failed with status {status.code}",
                    engine_code=status.code,
                    can_retry=status.code in RETRYABLE_CODES,
                    code="worker_stream_failed" if self._has_chunks else None,
                )
            )

    def _take(self, messages: Sequence[bytes]) -> None:
        ids: list[int] = []
        rows: list[work_pb2.TokenLogprobs] = []
        # After the first chunk, and without log-probabilities, the ids are all that matters.
        is_plain = self._has_chunks and not self._wants_rows
        for message in messages:
            if is_plain and (new := plain_ids(message)) is not None:
                ids += new
                continue
            response = _parse(message)
            if response.HasField("chunk"):
                chunk = response.chunk
                if not self._is_started:
                    self._start(chunk)
                self._has_chunks = True
                ids += chunk.token_ids
                if self._wants_rows:
                    rows += self._rows(chunk.output_logprobs)
            elif response.HasField("complete"):
                self._complete(response.complete, ids, rows)
                return
        if self._is_streamed:
            if ids:
                self._listener.on_step(ids, rows, None)
        else:
            self._held_ids += ids
            self._held_rows += rows

    def _complete(
        self,
        complete: sglang_pb2.GenerateComplete,
        ids: list[int],
        rows: list[work_pb2.TokenLogprobs],
    ) -> None:
        if not self._is_started:
            self._start(complete)
        if self._has_chunks:
            ids, rows = self._held_ids + ids, self._held_rows + rows
        else:
            ids = list(complete.output_ids)
            rows = self._rows(complete.output_logprobs) if self._wants_rows else []
        if complete.finish_reason == "error":
            self._fail(
                EngineError(
                    "the engine ended the sequence with the reason 'error'",
                    engine_code=INTERNAL,
                    code="worker_stream_failed",
                )
            )
            return
        self._is_over = True
        self._on_over(False)
        self._listener.on_step(ids, rows, self._finished(complete))

    def _start(self, first: sglang_pb2.GenerateStreamChunk | sglang_pb2.GenerateComplete) -> None:
        self._is_started = True
        started = work_pb2.Started(
            sequence=self._sequence,
            prompt_tokens=first.prompt_tokens - self._prior_tokens,
            cached_tokens=first.cached_tokens,
        )
        if first.HasField("input_logprobs"):
            started.prompt_logprobs.extend(prompt_rows(first.input_logprobs, self._prompt_start))
        self._listener.on_started(started)

    def _finished(self, complete: sglang_pb2.GenerateComplete) -> work_pb2.Finished:
        reason = _REASONS.get(complete.finish_reason)
        finished = work_pb2.Finished(
            sequence=self._sequence,
            reason=work_pb2.FINISH_REASON_STOP if reason is None else reason,
            reason_text=complete.finish_reason if reason is None else "",
            matched_stop=complete.matched_stop_str,
            prompt_tokens=complete.prompt_tokens - self._prior_tokens,
            completion_tokens=complete.completion_tokens + self._prior_tokens,
            cached_tokens=complete.cached_tokens,
            reasoning_tokens=complete.reasoning_tokens,
            draft_tokens=complete.spec_draft_tokens,
            accepted_tokens=complete.spec_accepted_tokens,
        )
        if complete.HasField("matched_token_id"):
            finished.matched_token_id = complete.matched_token_id
        return finished

    def _rows(self, source: sglang_pb2.OutputLogProbs) -> list[work_pb2.TokenLogprobs]:
        return output_rows(source, self._asked_ids, wants_chosen=self._wants_chosen)

    def _fail(self, error: SmgError, *, is_running: bool = False) -> None:
        self._is_over = True
        self._on_over(is_running)
        self._tell_failure(error)

    def _tell_failure(self, error: SmgError) -> None:
        try:
            self._listener.on_failed(error)
        except Exception:  # noqa: BLE001 - one listener must not harm the others
            _log.exception("listener of sequence %d raised when told of its failure", self._sequence)


def plain_ids(message: bytes) -> list[int] | None:
    """The token ids of a short chunk, read from its bytes: a quarter of the cost of the whole message.

    Returns: None for anything that does not look just as servicers write a chunk; then the message is to be parsed.
    """
    size = len(message)
    if size < 4 or message[0] != _REQUEST_ID or message[1] > 0x7F:
        return None
    chunk = 2 + message[1]
    if size < chunk + 4 or message[chunk] != _CHUNK:
        return None
    length = message[chunk + 1]
    if length > 0x7F or chunk + 2 + length != size:
        return None
    if message[chunk + 2] != _TOKEN_IDS:
        return None
    position = chunk + 4
    end = position + message[chunk + 3]
    if end > size or message[end - 1] > 0x7F or (end < size and message[end] == _TOKEN_IDS):
        return None
    ids: list[int] = []
    number = shift = 0
    while position < end:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
        else:
            ids.append(number & 0xFFFFFFFF)
            number = shift = 0
    return ids


def output_rows(
    source: sglang_pb2.OutputLogProbs, asked_ids: Sequence[int], *, wants_chosen: bool
) -> list[work_pb2.TokenLogprobs]:
    """Log-probabilities of output tokens, one entry per position."""
    chosen, top, asked = source.token_logprobs, source.top_logprobs, source.token_ids_logprobs
    rows: list[work_pb2.TokenLogprobs] = []
    for position in range(max(len(chosen), len(asked))):
        row = work_pb2.TokenLogprobs()
        if wants_chosen and position < len(chosen):
            row.logprob = chosen[position]
        if wants_chosen and position < len(top):
            row.top_token.extend(top[position].token_ids)
            row.top_logprob.extend(top[position].values)
        if asked_ids and position < len(asked):
            by_id = dict(zip(asked[position].token_ids, asked[position].values, strict=True))
            row.asked_logprob.extend(by_id[token] for token in asked_ids)
        rows.append(row)
    return rows


def prompt_rows(source: sglang_pb2.InputLogProbs, prompt_start: int) -> list[work_pb2.TokenLogprobs]:
    """Log-probabilities of prompt tokens from `prompt_start` on.

    SGLang was asked to start one position early, because it gives no number for the first; position 0 has none.
    """
    rows: list[work_pb2.TokenLogprobs] = []
    top = source.top_logprobs
    for position, entry in enumerate(source.token_logprobs):
        if position == 0 and prompt_start > 0:
            continue
        row = work_pb2.TokenLogprobs()
        if entry.HasField("value"):
            row.logprob = entry.value
            if position < len(top):
                row.top_token.extend(top[position].token_ids)
                row.top_logprob.extend(top[position].values)
        rows.append(row)
    return rows
