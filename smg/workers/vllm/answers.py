"""One sequence of a call to vLLM: as SGLang's, with what vLLM tells otherwise.

Counts of output tokens are those of the message, not of the sequence; the end-of-sequence token is not named as what
matched; the likeliest tokens come with the chosen one before them; prompt log-probabilities begin at the prompt's start.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from smg_grpc_proto.generated import vllm_engine_pb2 as vllm_pb2

from smg.workers.sglang.answers import SequenceAnswer
from smg.workers.sglang.plain import vllm_plain_ids
from smg.workers.sglang.receiver import Wire
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from smg.workers.base import GenerateListener


class VllmAnswer(SequenceAnswer):
    """What one sequence has got."""

    __slots__ = ("_eos_ids", "_ignores_eos", "_start_position", "_top_k")

    def __init__(
        self,
        request: work_pb2.Generate,
        listener: GenerateListener,
        *,
        counts_ids: bool,
        eos_ids: Collection[int],
    ) -> None:
        """Args: eos_ids: the model's own ids that end a sequence."""
        del counts_ids
        super().__init__(request, listener, counts_ids=True)
        self._eos_ids = eos_ids
        self._ignores_eos = request.sampling.ignore_eos
        self._start_position = request.logprobs.prompt_start
        self._top_k = request.logprobs.top_k

    def _output_rows(self, rows: Any) -> list[work_pb2.TokenLogprobs]:
        result: list[work_pb2.TokenLogprobs] = []
        for position, value in enumerate(rows.token_logprobs):
            row = work_pb2.TokenLogprobs(logprob=value)
            if self._top_k and position < len(rows.top_logprobs):
                _put_top(row, rows.top_logprobs[position], self._top_k)
            result.append(row)
        return result

    def _prompt_rows(self, rows: Any, prompt_tokens: int) -> list[work_pb2.TokenLogprobs]:
        result: list[work_pb2.TokenLogprobs] = []
        for position in range(self._start_position, min(prompt_tokens, len(rows.token_logprobs))):
            row = work_pb2.TokenLogprobs()
            entry = rows.token_logprobs[position]
            if position and entry.HasField("value"):
                row.logprob = entry.value
                if self._top_k and position < len(rows.top_logprobs):
                    _put_top(row, rows.top_logprobs[position], self._top_k)
            result.append(row)
        return result

    def _reasoning_tokens(self, complete: Any) -> int:
        del complete
        return 0

    def _finished(self, complete: Any) -> work_pb2.Finished:
        finished = super()._finished(complete)
        if self._is_empty:
            # It has generated one token all the same.
            finished.reason = work_pb2.FINISH_REASON_LENGTH
            finished.ClearField("matched_token_id")
            return finished
        ids = complete.output_ids
        if (
            finished.reason == work_pb2.FINISH_REASON_STOP
            and complete.WhichOneof("matched_stop") is None
            and not self._ignores_eos
            and ids
            and ids[-1] in self._eos_ids
        ):
            finished.matched_token_id = ids[-1]
        return finished


def wire(eos_ids: Collection[int]) -> Wire:
    """How vLLM's messages are read. Args: eos_ids: the model's."""
    make: Callable[..., SequenceAnswer] = partial(VllmAnswer, eos_ids=frozenset(eos_ids))
    return Wire(vllm_pb2.GenerateResponse.FromString, vllm_plain_ids, make)


def _put_top(row: work_pb2.TokenLogprobs, top: Any, count: int) -> None:
    pairs = sorted(zip(top.values, top.token_ids, strict=True), key=lambda pair: -pair[0])[:count]
    row.top_logprob.extend(value for value, _ in pairs)
    row.top_token.extend(token for _, token in pairs)
