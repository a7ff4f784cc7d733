"""Turns rows of logits into TokenLogprobs: natural logarithms over the full vocabulary, in float32.

They are taken after penalties and bias, and before masks, temperature and cuts, so that a number is what the model
thinks of a token and is finite also for tokens that a constraint forbids.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from servicers.local.sampling import top_tokens
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

PROMPT_ROWS = 64
"""Prompt positions whose logits exist at a time: 13 MB for 50,000 tokens of vocabulary."""


@dataclasses.dataclass(frozen=True, slots=True)
class LogprobsWish:
    """What one sequence wants to know of each of its output tokens."""

    top_k: int = 0
    asked: tuple[int, ...] = ()


class BatchLogprobs:
    """Log-probabilities of some rows of one step, held until the tokens are chosen."""

    def __init__(self, logits: torch.Tensor, rows: Sequence[int], wishes: Sequence[LogprobsWish]) -> None:
        """Take what is needed of the logits, which may change afterwards.

        Args:
            logits: [all rows, vocabulary] float32.
            rows: the rows that want log-probabilities.
            wishes: one per such row.
        """
        self._rows = list(rows)
        self._wishes = list(wishes)
        wanted = logits if len(rows) == len(logits) else logits[torch.tensor(rows, device=logits.device)]
        self._logp = torch.log_softmax(wanted, dim=-1)
        self._top = _tops(self._logp, max(wish.top_k for wish in wishes))

    def of(self, tokens: NDArray[np.int64]) -> dict[int, work_pb2.TokenLogprobs]:
        """The entry of each row, given the tokens chosen in all rows of the step."""
        chosen = _gather(self._logp, tokens[self._rows])
        entries: dict[int, work_pb2.TokenLogprobs] = {}
        for place, (row, wish) in enumerate(zip(self._rows, self._wishes, strict=True)):
            entry = work_pb2.TokenLogprobs(logprob=chosen[place])
            _fill_top(entry, self._top, place, wish.top_k)
            if wish.asked:
                asked = torch.tensor(wish.asked, device=self._logp.device)
                entry.asked_logprob.extend(self._logp[place, asked].tolist())
            entries[row] = entry
        return entries


def prompt_logprobs(
    hidden: torch.Tensor,
    targets: NDArray[np.int64],
    top_k: int,
    to_logits: Callable[[torch.Tensor], torch.Tensor],
) -> list[work_pb2.TokenLogprobs]:
    """Log-probabilities of prompt tokens.

    Args:
        hidden: [positions, hidden_size], each the state before its target.
        targets: the token that stands at each position.
        top_k: number of likeliest tokens beside it.
        to_logits: the model's head; called on a few rows at a time.
    """
    entries: list[work_pb2.TokenLogprobs] = []
    for start in range(0, len(targets), PROMPT_ROWS):
        logp = torch.log_softmax(to_logits(hidden[start : start + PROMPT_ROWS]), dim=-1)
        top = _tops(logp, top_k)
        for place, value in enumerate(_gather(logp, targets[start : start + PROMPT_ROWS])):
            entry = work_pb2.TokenLogprobs(logprob=value)
            _fill_top(entry, top, place, top_k)
            entries.append(entry)
    return entries


Top = tuple[list[list[int]], list[list[float]]]


def _tops(logp: torch.Tensor, count: int) -> Top | None:
    if count <= 0:
        return None
    values, ids = top_tokens(logp, count)
    return ids.tolist(), values.tolist()


def _fill_top(entry: work_pb2.TokenLogprobs, top: Top | None, place: int, count: int) -> None:
    if top is not None and count:
        entry.top_token.extend(top[0][place][:count])
        entry.top_logprob.extend(top[1][place][:count])


def _gather(logp: torch.Tensor, tokens: NDArray[np.int64]) -> list[float]:
    index = torch.from_numpy(np.ascontiguousarray(tokens)).to(logp.device)
    return logp.gather(1, index[:, None])[:, 0].tolist()
