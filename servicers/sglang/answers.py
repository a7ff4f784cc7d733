"""Turns the outputs of one generation into what a turn of the loop tells its router.

An output holds all ids and log-probabilities so far, by reference: only what is new is looked at. Format: SGLang
0.5.23, srt/managers/tokenizer_manager.py, `_handle_batch_output` and `add_logprob_to_meta_info`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servicers.checks import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE, Refusal
from servicers.token_bytes import ID_BYTES, ids_to_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from servicers.sglang.engine import Output
    from servicers.sglang.turn import Turn

INTERNAL = 13
_REASONS = {
    "stop": work_pb2.FINISH_REASON_STOP,
    "length": work_pb2.FINISH_REASON_LENGTH,
}
# (log-probability or None, token id, text or None)
Entry = tuple[float | None, int, str | None]


class Answer:
    """One sequence."""

    __slots__ = (
        "is_started", "_asked_ids", "_cached_tokens", "_has_rows", "_ids", "_is_empty", "_is_streamed", "_number",
        "_options", "_prior", "_prompt_tokens", "_rows", "_seen",
    )  # fmt: skip

    def __init__(self, request: work_pb2.Generate) -> None:
        options = request.logprobs
        self.is_started = False
        self._number = request.sequence
        self._options = options
        self._is_streamed = request.stream
        self._has_rows = options.output or bool(options.token_ids)
        self._asked_ids = list(options.token_ids)
        sampling = request.sampling
        self._is_empty = sampling.HasField("max_new_tokens") and sampling.max_new_tokens == 0
        self._prior = len(request.output_ids) // ID_BYTES
        self._prompt_tokens = len(request.prompt_ids) // ID_BYTES
        self._cached_tokens = 0
        self._seen = 0
        self._ids: list[int] = []
        self._rows: list[work_pb2.TokenLogprobs] = []

    @property
    def held_tokens(self) -> int:
        """Tokens of prompt and output, as far as they are known."""
        return self._prompt_tokens + self._prior + self._seen

    def take(self, output: Output, turn: Turn) -> bool:
        """Take an output. Returns True when it is the last one.

        Raises:
            EngineAborted: the engine has given the sequence up.
        """
        meta: dict[str, Any] = output["meta_info"]
        reason = meta["finish_reason"]
        if reason is not None and reason["type"] == "abort":
            raise EngineAborted(_refusal(reason))
        if not self.is_started:
            self._start(meta, turn)
        ids: Sequence[int] = () if self._is_empty else output["output_ids"]
        seen = self._seen
        if len(ids) > seen:
            self._add(ids[seen:], meta, turn)
            self._seen = len(ids)
        if reason is None:
            return False
        turn.finished.append(self._finished(reason, meta))
        return True

    def aborted(self) -> work_pb2.Finished:
        """The end of a sequence that its router has stopped."""
        return self._end(work_pb2.FINISH_REASON_ABORT)

    def _add(self, new: Sequence[int], meta: dict[str, Any], turn: Turn) -> None:
        rows = self._output_rows(meta, len(new)) if self._has_rows else ()
        if self._is_streamed:
            turn.add_tokens(self._number, new)
            if rows:
                turn.logprobs.append(work_pb2.StepLogprobs(sequence=self._number, tokens=rows))
        else:
            self._ids += new
            self._rows += rows

    def _start(self, meta: dict[str, Any], turn: Turn) -> None:
        self.is_started = True
        self._cached_tokens = min(meta.get("cached_tokens") or 0, self._prompt_tokens)
        started = work_pb2.Started(
            sequence=self._number, prompt_tokens=self._prompt_tokens, cached_tokens=self._cached_tokens
        )
        if self._options.HasField("prompt_start"):
            started.prompt_logprobs.extend(self._prompt_rows(meta))
        turn.started.append(started)

    def _prompt_rows(self, meta: dict[str, Any]) -> list[work_pb2.TokenLogprobs]:
        start = self._options.prompt_start
        wanted = self._prompt_tokens - start
        if wanted <= 0:
            return []
        chosen: Sequence[Entry] = meta.get("input_token_logprobs") or ()
        top: Sequence[Sequence[Entry] | None] = meta.get("input_top_logprobs") or ()
        # One position early, because the first has no number; what lies behind the prompt is another engine's output.
        first = 1 if start else 0
        rows: list[work_pb2.TokenLogprobs] = []
        for position in range(first, min(first + wanted, len(chosen))):
            row = work_pb2.TokenLogprobs()
            value = chosen[position][0]
            if value is not None:
                row.logprob = value
                _put_top(row, top[position] if position < len(top) else None)
            rows.append(row)
        return rows

    def _output_rows(self, meta: dict[str, Any], count: int) -> list[work_pb2.TokenLogprobs]:
        seen, options = self._seen, self._options
        chosen: Sequence[Entry] = meta["output_token_logprobs"]
        top: Sequence[Sequence[Entry] | None] = meta.get("output_top_logprobs") or ()
        asked: Sequence[Sequence[Entry] | None] = meta.get("output_token_ids_logprobs") or ()
        rows: list[work_pb2.TokenLogprobs] = []
        for position in range(seen, seen + count):
            row = work_pb2.TokenLogprobs()
            value = chosen[position][0]
            if options.output and value is not None:
                row.logprob = value
                if options.top_k:
                    _put_top(row, top[position])
            if self._asked_ids:
                row.asked_logprob.extend(by_label(asked[position] or (), self._asked_ids))
            rows.append(row)
        return rows

    def _finished(self, reason: dict[str, Any], meta: dict[str, Any]) -> work_pb2.Finished:
        kind: str = reason["type"]
        known = _REASONS.get(kind)
        finished = self._end(work_pb2.FINISH_REASON_STOP if known is None else known)
        if known is None:
            finished.reason_text = kind
        matched = reason.get("matched")
        if isinstance(matched, list) and matched:
            matched = matched[-1]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(matched, int):
            finished.matched_token_id = matched
        elif isinstance(matched, str):
            finished.matched_stop = matched
        finished.reasoning_tokens = min(meta.get("reasoning_tokens") or 0, self._seen)
        finished.draft_tokens = meta.get("spec_num_proposed_drafts") or 0
        finished.accepted_tokens = meta.get("spec_num_correct_drafts") or 0
        return finished

    def _end(self, reason: work_pb2.FinishReason.ValueType) -> work_pb2.Finished:
        finished = work_pb2.Finished(
            sequence=self._number,
            reason=reason,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._prior + self._seen,
            cached_tokens=self._cached_tokens,
        )
        if not self._is_streamed:
            finished.token_ids = ids_to_bytes(self._ids)
            finished.logprobs.extend(self._rows)
        return finished


class EngineAborted(Exception):
    """The engine has given a sequence up, and nobody asked it to."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def by_label(entries: Iterable[Entry], labels: Sequence[int]) -> list[float]:
    """The log-probabilities of ids, in the order of the ids.

    Raises:
        LookupError: one is missing.
    """
    values = {token: value for value, token, _ in entries}
    found: list[float] = []
    for label in labels:
        value = values.get(label)
        if value is None:
            raise LookupError(f"the engine returned no log-probability of token id {label}")
        found.append(value)
    return found


def refusal_of(error: BaseException) -> Refusal:
    """What to tell of an error that the engine raised."""
    if isinstance(error, EngineAborted):
        return error.refusal
    if isinstance(error, ValueError):
        # How SGLang refuses what is asked.
        return Refusal(INVALID_ARGUMENT, str(error))
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _by_status(status, str(getattr(error, "detail", error)))
    return Refusal(INTERNAL, f"the engine failed: {type(error).__name__}: {error}", is_retryable=True)


def _refusal(reason: dict[str, Any]) -> Refusal:
    message = str(reason.get("message") or "the engine ended the sequence")
    status = reason.get("status_code")
    if status is None:
        return Refusal(UNAVAILABLE, message, is_retryable=True)
    return _by_status(int(status), message)


def _by_status(status: int, message: str) -> Refusal:
    """An HTTP status, as SGLang puts them on aborted requests."""
    if status == 429:
        return Refusal(RESOURCE_EXHAUSTED, message, is_retryable=True)
    if status == 503:
        return Refusal(UNAVAILABLE, message, is_retryable=True)
    if 400 <= status < 500:
        return Refusal(INVALID_ARGUMENT, message)
    return Refusal(INTERNAL, message, is_retryable=True)


def _put_top(row: work_pb2.TokenLogprobs, entries: Sequence[Entry] | None) -> None:
    for value, token, _ in entries or ():
        if value is not None:
            row.top_token.append(token)
            row.top_logprob.append(value)
