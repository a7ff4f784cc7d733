"""Applies penalties and bias to the logits of a batch, in place and only where a token is concerned.

Order: the repetition penalty scales (prompt and output tokens), presence and frequency penalties subtract (output
tokens only), the bias adds. A state follows one sequence; its output so far counts from the start, so a sequence
that another engine began continues with the same penalties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


class PenaltyState:
    """Which tokens of one sequence are penalized, and how much."""

    __slots__ = (
        "_bias_ids",
        "_bias_values",
        "_counts",
        "_ids",
        "_places",
        "frequency",
        "presence",
        "repetition",
    )

    def __init__(
        self,
        *,
        repetition: float = 1.0,
        presence: float = 0.0,
        frequency: float = 0.0,
        bias: Mapping[int, float] | None = None,
        prompt: Iterable[int] = (),
        output: Iterable[int] = (),
    ) -> None:
        self.repetition = repetition
        self.presence = presence
        self.frequency = frequency
        bias = bias or {}
        self._bias_ids = np.fromiter(bias.keys(), dtype=np.int64, count=len(bias))
        self._bias_values = np.fromiter(bias.values(), dtype=np.float32, count=len(bias))
        self._ids = np.empty(16, dtype=np.int64)
        self._counts = np.zeros(16, dtype=np.float32)
        self._places: dict[int, int] = {}
        if repetition != 1.0:
            for token in prompt:
                self._place(token)
        for token in output:
            self.add(token)

    @property
    def is_idle(self) -> bool:
        """Nothing would ever change."""
        return not (self.counts_tokens or len(self._bias_ids))

    @property
    def counts_tokens(self) -> bool:
        """Depends on the tokens so far."""
        return self.repetition != 1.0 or self.presence != 0.0 or self.frequency != 0.0

    @property
    def seen_ids(self) -> NDArray[np.int64]:
        """Tokens that may be penalized, each once."""
        return self._ids[: len(self._places)]

    @property
    def seen_counts(self) -> NDArray[np.float32]:
        """How often each of seen_ids is in the output."""
        return self._counts[: len(self._places)]

    @property
    def bias_ids(self) -> NDArray[np.int64]:
        """Tokens with a bias."""
        return self._bias_ids

    @property
    def bias_values(self) -> NDArray[np.float32]:
        """Their bias."""
        return self._bias_values

    def add(self, token: int) -> None:
        """A token joins the output."""
        if self.counts_tokens:
            # The array may grow while the place is found.
            place = self._place(token)
            self._counts[place] += 1.0

    def _place(self, token: int) -> int:
        place = self._places.get(token)
        if place is None:
            place = self._places[token] = len(self._places)
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[place] = token
        return place


def apply_penalties(logits: torch.Tensor, rows: Sequence[tuple[int, PenaltyState]]) -> None:
    """Change the logits of some rows.

    Args:
        logits: [rows, vocabulary] float32, changed in place.
        rows: row numbers, each once, and the state of the sequence in it.
    """
    counting = [(row, state) for row, state in rows if state.counts_tokens]
    if counting:
        _penalize(logits, counting)
    biased = [(row, state) for row, state in rows if len(state.bias_ids)]
    if biased:
        index = _index(logits, [(row, state.bias_ids) for row, state in biased])
        logits[index] += _column(logits, [state.bias_values for _, state in biased])


def _penalize(logits: torch.Tensor, rows: Sequence[tuple[int, PenaltyState]]) -> None:
    index = _index(logits, [(row, state.seen_ids) for row, state in rows])
    values = logits[index]
    lengths = [len(state.seen_ids) for _, state in rows]
    scale = _column(
        logits, [np.repeat(np.array([state.repetition for _, state in rows], np.float32), lengths)]
    )
    values = torch.where(values > 0, values / scale, values * scale)
    values -= _column(logits, [_subtrahend(state) for _, state in rows])
    logits[index] = values


def _subtrahend(state: PenaltyState) -> NDArray[np.float32]:
    counts = state.seen_counts
    return (state.frequency * counts + state.presence * (counts > 0)).astype(np.float32)


def _index(
    logits: torch.Tensor, rows: Sequence[tuple[int, NDArray[np.int64]]]
) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = np.repeat(np.array([row for row, _ in rows]), [len(ids) for _, ids in rows])
    tokens = np.concatenate([ids for _, ids in rows])
    return torch.from_numpy(numbers).to(logits.device), torch.from_numpy(tokens).to(logits.device)


def _column(logits: torch.Tensor, parts: Sequence[NDArray[np.float32]]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.float32, copy=False)).to(logits.device)
