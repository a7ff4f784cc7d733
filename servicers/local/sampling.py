"""Chooses one token per row of logits, for a whole batch at once.

Order of application, from the model's logits to a token:
1. penalties and bias (penalties.py); log-probabilities are recorded here (logprobs.py);
2. masks: end tokens before min_new_tokens, tokens that a constraint forbids;
3. temperature, then the cuts top_k, top_p and min_p, all against the same distribution over the full vocabulary;
4. one uniform number per row picks from what is left.

The full vocabulary is not sorted where the TOP_CANDIDATES likeliest tokens decide, which is nearly always, nor
where nothing is cut; the result is the same. A row's uniform number is a hash of its seed and position, so what is
chosen does not depend on the batch.
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
    Probabilities = NDArray[np.float32]

TOP_CANDIDATES = 64
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

    @property
    def is_cut(self) -> bool:
        """Some tokens may be left out."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


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
    """The cuts of some rows, one number per row."""

    top_k: Ints
    top_p: Floats
    min_p: Floats
    width: int
    """Of the vocabulary."""

    @classmethod
    def of(cls, choices: Sequence[Choice], width: int) -> _Cuts:
        return cls(
            top_k=np.array([choice.top_k if choice.top_k > 0 else width for choice in choices]),
            top_p=np.array([choice.top_p for choice in choices]),
            min_p=np.array([choice.min_p for choice in choices]),
            width=width,
        )

    def kept(self, ranked: Probabilities, before: Floats) -> Ints:
        """How many leading tokens of each row stay; at least one.

        Each cut keeps a leading part of the ranking, so does their intersection. What a mask forbids has p = 0.

        Args:
            ranked: probabilities from the highest down.
            before: the sum of those before each.
        """
        keep = (
            (before < self.top_p[:, None]) & (ranked >= self.min_p[:, None] * ranked[:, :1]) & (ranked > 0.0)
        )
        keep &= np.arange(ranked.shape[1]) < self.top_k[:, None]
        return np.maximum(keep.sum(axis=1), 1)

    def totals(self, mass: Floats, least: Probabilities) -> tuple[Floats, Floats]:
        """Bounds of the sum of what stays of each row, when all candidates do.

        Args:
            mass: sum of the candidates.
            least: probability of the last candidate; no other token has more.
        """
        low = np.where((self.min_p <= 0.0) & (self.top_k >= self.width), np.maximum(self.top_p, mass), mass)
        high = np.minimum(self.top_p + least, mass + (self.top_k - TOP_CANDIDATES) * least)
        # Wider by more than rounding can do.
        return low * (1 - 1e-9), np.minimum(high, 1.0) * (1 + 1e-6)


def _sample(logits: torch.Tensor, choices: Sequence[Choice], draws: Floats) -> Ints:
    inverse = torch.tensor([[1.0 / choice.temperature] for choice in choices], device=logits.device)
    p = torch.softmax(logits * inverse, dim=-1)
    is_cut = np.array([choice.is_cut for choice in choices])
    if not is_cut.any():
        return _pick_open(p, draws)
    tokens = np.empty(len(choices), dtype=np.int64)
    if not is_cut.all():
        tokens[~is_cut] = _pick_open(_rows(p, ~is_cut), draws[~is_cut])
        p = _rows(p, is_cut)
    kept = [choice for choice in choices if choice.is_cut]
    tokens[is_cut] = _pick_cut(p, kept, draws[is_cut])
    return tokens


def _rows(p: torch.Tensor, mask: NDArray[np.bool_]) -> torch.Tensor:
    return p[torch.from_numpy(np.flatnonzero(mask)).to(p.device)]


def _pick_open(p: torch.Tensor, draws: Floats) -> Ints:
    """Choose among all tokens of each row: first a block of tokens, then one of the block."""
    rows, width = p.shape
    tiled = p.view(rows, -1, _BLOCK if width % _BLOCK == 0 else width)
    sums = tiled.sum(dim=-1, dtype=torch.float64).cpu().numpy()
    mass = np.cumsum(sums, axis=1)
    targets = draws * mass[:, -1]
    blocks = _places(mass, targets)
    numbers = np.arange(rows)
    inside = tiled[torch.from_numpy(numbers), torch.from_numpy(blocks)].cpu().numpy()
    targets -= mass[numbers, blocks] - sums[numbers, blocks]
    return blocks * tiled.shape[2] + _places(np.cumsum(inside, axis=1, dtype=np.float64), targets)


def _places(mass: Floats, targets: Floats) -> Ints:
    """Where the running sum of each row passes its target; never at a place that adds nothing."""
    places = (mass <= targets[:, None]).sum(axis=1)
    # Rounding may put a target at the very end: then the last place that adds something is meant.
    return np.minimum(places, (mass < mass[:, -1:]).sum(axis=1))


def _pick_cut(p: torch.Tensor, choices: Sequence[Choice], draws: Floats) -> Ints:
    """Choose among what the cuts leave of each row, in order of rank."""
    width = p.shape[1]
    values, ids = _ranked(p, min(TOP_CANDIDATES, width))
    candidates, rows = values.shape[1], np.arange(len(choices))
    mass = np.cumsum(values, axis=1, dtype=np.float64)
    cuts = _Cuts.of(choices, width)
    kept = cuts.kept(values, mass - values)
    is_inside = (kept < candidates) | (candidates == width)
    # Where more may stay than the candidates, their total is known between bounds. That decides, too, if both
    # bounds lead to one token, and one that nothing outside equals.
    low, high = cuts.totals(mass[:, -1], values[:, -1])
    total = mass[rows, kept - 1]
    places = _places(mass, draws * np.where(is_inside, total, low))
    others = (mass <= (draws * np.where(is_inside, total, high))[:, None]).sum(axis=1)
    places = np.minimum(places, kept - 1)
    is_decided = is_inside | ((places == others) & (values[rows, places] > values[:, -1]))
    tokens = ids[rows, places]
    for row in np.flatnonzero(~is_decided).tolist():
        tokens[row] = _pick_wide(p[row].cpu().numpy(), _Cuts.of([choices[row]], width), draws[row])
    return tokens


def _pick_wide(p: Probabilities, cuts: _Cuts, draw: float) -> int:
    """As _pick_cut for one row, looking at every token. Sorts values only, ten times as fast as ids with them."""
    ranked = np.sort(p)[::-1]
    mass = np.cumsum(ranked, dtype=np.float64)
    count = int(cuts.kept(ranked[None], (mass - ranked)[None])[0])
    place = min(int(np.searchsorted(mass, draw * mass[count - 1], side="right")), count - 1)
    # Of equal tokens the lower id ranks higher.
    equals = np.flatnonzero(p == ranked[place])
    return int(equals[place - np.count_nonzero(p > ranked[place])])


def _ranked(p: torch.Tensor, candidates: int) -> tuple[Probabilities, Ints]:
    """The likeliest tokens of each row: probabilities from the highest down, and ids, of equals the lowest first."""
    top, places = top_tokens(p, candidates)
    values, ids = top.cpu().numpy(), places.cpu().numpy()
    order = np.lexsort((ids, -values), axis=-1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
