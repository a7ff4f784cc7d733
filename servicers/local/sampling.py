"""Chooses one token per row of logits, for a whole batch at once.

Order of application, from the model's logits to a token:
1. penalties and bias (penalties.py); log-probabilities are recorded here (logprobs.py);
2. masks: end tokens before min_new_tokens, tokens that a constraint forbids;
3. temperature, then the cuts top_k, top_p and min_p, all against the same distribution over the full vocabulary;
4. one uniform number per row picks from what is left.

The full vocabulary is never sorted where the few likeliest tokens decide, which is nearly always: TOP_CANDIDATES
of them, then WIDE_CANDIDATES, then all. The result is the same whichever decides. A row's uniform number is a hash
of its seed and position and of nothing else, so what is chosen does not depend on the batch.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

TOP_CANDIDATES = 64
WIDE_CANDIDATES = 1024
GREEDY_BELOW = 1e-5
"""Temperatures below this differ from 0 only by overflowing."""
_BLOCK = 64
"""Tokens of one block of the two-level search for the likeliest tokens."""
_WORD = (1 << 64) - 1
_STEP, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """How one sequence chooses its tokens."""

    temperature: float = 1.0
    """0 takes the likeliest token, of equals the one with the lowest id."""
    top_k: int = -1
    """-1 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    key: int = 0
    """Made by random_key()."""

    @property
    def is_greedy(self) -> bool:
        """No chance involved."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1


def random_key(seed: int, choice_index: int) -> int:
    """Key of a sequence's random numbers; 64 bits."""
    return _mix(_mix(seed & _WORD) + (choice_index + 1) * _STEP & _WORD)


def _mix(x: int) -> int:
    """The finisher of SplitMix64 (Steele, Lea, Flood 2014): every bit of x reaches every bit of the result."""
    x = (x + _STEP) & _WORD
    x = ((x ^ x >> 30) * _MIX_1) & _WORD
    x = ((x ^ x >> 27) * _MIX_2) & _WORD
    return x ^ x >> 31


def uniforms(keys: Sequence[int], positions: Sequence[int]) -> Floats:
    """One number in [0, 1) per row, from its key and its position in the output: SplitMix64 without state."""
    x = np.array(keys, dtype=np.uint64) + (np.array(positions, dtype=np.uint64) + np.uint64(1)) * np.uint64(
        _STEP
    )
    x = (x ^ x >> np.uint64(30)) * np.uint64(_MIX_1)
    x = (x ^ x >> np.uint64(27)) * np.uint64(_MIX_2)
    x = x ^ x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def choose(logits: torch.Tensor, choices: Sequence[Choice], positions: Sequence[int]) -> Ints:
    """Choose a token for each row.

    Args:
        logits: [rows, vocabulary] float32, penalties and masks applied.
        choices: one per row.
        positions: number of output tokens that each row's sequence has already.

    Returns: [rows] token ids.
    """
    sampled = [row for row, choice in enumerate(choices) if not choice.is_greedy]
    if not sampled:
        return argmax(logits)
    tokens = np.empty(len(choices), dtype=np.int64)
    if len(sampled) < len(choices):
        greedy = [row for row, choice in enumerate(choices) if choice.is_greedy]
        tokens[greedy] = argmax(logits[greedy])
        logits = logits[sampled]
    kept = [choices[row] for row in sampled]
    draws = uniforms([choice.key for choice in kept], [positions[row] for row in sampled])
    tokens[sampled] = _sample(logits, kept, draws)
    return tokens


def argmax(logits: torch.Tensor) -> Ints:
    """The likeliest token of each row, of equals the lowest id."""
    if logits.device.type == "cpu":
        return logits.numpy().argmax(axis=-1)  # ten times as fast as torch's (measured, 16 rows)
    return logits.argmax(dim=-1).cpu().numpy()


def top_tokens(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` highest scores of each row and their places, best first, as torch.topk.

    Among the blocks with the highest maxima are all of the highest scores, so most of a row is only looked at once.
    """
    rows, width = scores.shape
    blocks = width // _BLOCK
    if width % _BLOCK or blocks <= 2 * count:
        return scores.topk(min(count, width), dim=-1)
    tiled = scores.view(rows, blocks, _BLOCK)
    best = tiled.amax(dim=-1).topk(count, dim=-1, sorted=False).indices
    few = tiled.gather(1, best[:, :, None].expand(-1, -1, _BLOCK)).view(rows, -1)
    values, places = few.topk(count, dim=-1)
    return values, best.gather(1, places // _BLOCK) * _BLOCK + places % _BLOCK


@dataclasses.dataclass(frozen=True, slots=True)
class _Cuts:
    """The cuts of some rows as columns."""

    top_k: Ints
    top_p: Floats
    min_p: Floats
    is_open: NDArray[np.bool_]
    """Rows without any cut."""

    def take(self, rows: NDArray[np.bool_]) -> _Cuts:
        return _Cuts(self.top_k[rows], self.top_p[rows], self.min_p[rows], self.is_open[rows])


def _sample(logits: torch.Tensor, choices: Sequence[Choice], draws: Floats) -> Ints:
    width = logits.shape[1]
    inverse = torch.tensor([[1.0 / choice.temperature] for choice in choices], device=logits.device)
    logp = torch.log_softmax(logits * inverse, dim=-1)
    cuts = _Cuts(
        top_k=np.array([choice.top_k if choice.top_k > 0 else width for choice in choices]),
        top_p=np.array([choice.top_p for choice in choices]),
        min_p=np.array([choice.min_p for choice in choices]),
        is_open=np.array([c.top_k <= 0 and c.top_p >= 1.0 and c.min_p <= 0.0 for c in choices]),
    )
    tokens = np.full(len(choices), -1, dtype=np.int64)
    for candidates in (TOP_CANDIDATES, WIDE_CANDIDATES, width):
        todo = tokens < 0
        if not todo.any():
            break
        some = logp if todo.all() else logp[torch.from_numpy(np.flatnonzero(todo)).to(logp.device)]
        tokens[todo] = _pick(some, cuts.take(todo), draws[todo], min(candidates, width))
    return tokens


def _pick(logp: torch.Tensor, cuts: _Cuts, draws: Floats, candidates: int) -> Ints:
    """Choose among the likeliest candidates of each row; -1 where they do not decide."""
    values, ids = _ranked(logp, candidates)
    p = np.exp(values)
    mass = np.cumsum(p, axis=1)
    # Each cut keeps a leading part of the ranking, so does their intersection; the first token always stays. What
    # a mask forbids has p = 0.
    keep = (mass - p < cuts.top_p[:, None]) & (p >= cuts.min_p[:, None] * p[:, :1]) & (p > 0.0)
    keep &= np.arange(candidates) < cuts.top_k[:, None]
    kept = np.maximum(keep.sum(axis=1), 1)
    rows = np.arange(len(draws))
    is_inside = (kept < candidates) | (candidates == logp.shape[1])
    total = np.where(is_inside, mass[rows, kept - 1], 1.0)
    target = draws * total
    place = (mass <= target[:, None]).sum(axis=1)
    is_decided = is_inside | (cuts.is_open & (place < candidates))
    tokens = ids[rows, np.minimum(place, kept - 1)]
    tokens[~is_decided] = -1
    for row in np.flatnonzero(cuts.is_open & ~is_decided):
        tokens[row] = _pick_rest(logp[row], ids[row], target[row] - mass[row, -1])
    return tokens


def _ranked(logp: torch.Tensor, candidates: int) -> tuple[Floats, Ints]:
    top, places = top_tokens(logp, candidates)
    values, ids = top.double().cpu().numpy(), places.cpu().numpy()
    order = np.lexsort((ids, -values), axis=-1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)


def _pick_rest(logp: torch.Tensor, taken: Ints, target: float) -> int:
    """Choose outside of the candidates, in order of id: without a cut, rank does not matter."""
    p = np.exp(logp.double().cpu().numpy())
    p[taken] = 0.0
    mass = np.cumsum(p)
    place = int(np.searchsorted(mass, target, side="right"))
    if place < len(p):
        return place
    # Rounding left the target at or above the last mass: the last token that has any is meant.
    return int(np.searchsorted(mass, mass[-1], side="left")) if mass[-1] > 0.0 else int(taken[-1])
