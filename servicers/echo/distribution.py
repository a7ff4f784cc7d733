"""Log-probabilities without a model: one distribution over the vocabulary for each context and likeliest token.

Pure, and sound: the probabilities of a context sum to 1. The token of rank 0 has probability p, from 0.34 to 0.94;
those of rank r share the rest by 1/(r+1)². Ranks walk the vocabulary from the likeliest token in strides.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

_STRIDES = 64
_LEAST, _SPREAD = 0.34, 0.6


class Row(NamedTuple):
    """The distribution at one position."""

    vocab_size: int
    center: int
    stride: int
    inverse: int
    center_logprob: float
    rest_logprob: float

    def logprob(self, token: int) -> float:
        """Natural logarithm of a token's probability."""
        rank = (token - self.center) * self.inverse % self.vocab_size
        return self.center_logprob if rank == 0 else self.rest_logprob - 2 * math.log(rank + 1)

    def top(self, count: int) -> list[int]:
        """The likeliest tokens, best first."""
        return [
            (self.center + rank * self.stride) % self.vocab_size
            for rank in range(min(count, self.vocab_size))
        ]


class Distribution:
    """Makes the rows of one vocabulary."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        strides = (each for each in range(7, 7 + 64 * _STRIDES) if math.gcd(each, vocab_size) == 1)
        self._strides = [
            (each, pow(each, -1, vocab_size)) for each, _ in zip(strides, range(_STRIDES), strict=False)
        ]
        self._rest = math.log(sum((rank + 1) ** -2 for rank in range(1, max(2, vocab_size))))

    def row(self, context: int, center: int | None = None) -> Row:
        """The row of a context.

        Args:
            context: what context_key gives for the ids before the position.
            center: the likeliest token; None: one that the context decides.
        """
        mixed = crc32(b"row", context)
        share = mixed / 2**32
        stride, inverse = self._strides[mixed % len(self._strides)]
        best = _LEAST + _SPREAD * share
        return Row(
            self._vocab_size,
            crc32(b"center", context) % self._vocab_size if center is None else center,
            stride,
            inverse,
            math.log(best),
            math.log(1 - best) - self._rest,
        )


def context_key(ids: bytes, before: int = 0) -> int:
    """A number that stands for a context: ids as they travel, after those that `before` stands for."""
    return crc32(ids, before)


def context_key_of(tokens: Iterable[int], before: int) -> int:
    """The same for a few ids as numbers."""
    key = before
    for token in tokens:
        key = crc32(token.to_bytes(4, "little"), key)
    return key
