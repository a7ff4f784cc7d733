"""Computes attention of many short sequences over one shared prefix, whose own keys are not kept.

All sequences lie one after another in one batch, and each sees the prefix and itself. Several short sequences share
a tile (their mask is a block pattern), a long one is cut into tiles, so the work grows with rows x (prefix + tile),
not with rows x rows.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from servicers.local.attention import TILE_ROWS, attend_tile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.local.kv_cache import KVCache


@dataclasses.dataclass(frozen=True, slots=True)
class _Tile:
    start: int
    end: int
    first_key: int
    """Batch row of the first own key; keys are the prefix and rows [first_key, end)."""
    mask: torch.Tensor
    """Added to the scores, [rows, prefix + end - first_key]."""


class DetachedPlan:
    """Attention of packed sequences, over a prefix in the cache or over none."""

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        dtype: torch.dtype,
        device: torch.device,
        cache: KVCache | None = None,
        slot: int = 0,
        prefix_tokens: int = 0,
    ) -> None:
        self._cache = cache
        self._slot = slot
        self._prefix = prefix_tokens
        self._dtype = dtype
        owners = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))

        def mask(start: int, end: int, first_key: int) -> torch.Tensor:
            rows, own = torch.arange(start, end)[:, None], torch.arange(first_key, end)[None]
            hidden = (own > rows) | (owners[start:end, None] != owners[None, first_key:end])
            numbers = torch.zeros(end - start, prefix_tokens + end - first_key, dtype=dtype)
            numbers[:, prefix_tokens:].masked_fill_(hidden, float("-inf"))
            return numbers.to(device)

        self._tiles = [_Tile(*span, mask(*span)) for span in _spans(lengths)]

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """As CachedPlan.attend, without storing anything."""
        dtype = q.dtype
        q = q.to(self._dtype).view(q.shape[0], k.shape[1], -1, q.shape[2])
        own_keys, own_values = k.to(self._dtype).transpose(0, 1), v.to(self._dtype).transpose(0, 1)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for tile in self._tiles:
            keys, values = own_keys[:, tile.first_key : tile.end], own_values[:, tile.first_key : tile.end]
            if self._cache is not None and self._prefix:
                keys = torch.cat([self._cache.keys[layer][self._slot, :, : self._prefix], keys], dim=1)
                values = torch.cat([self._cache.values[layer][self._slot, :, : self._prefix], values], dim=1)
            out[tile.start : tile.end] = attend_tile(q[tile.start : tile.end], keys, values, tile.mask)
        return out.view(q.shape[0], -1).to(dtype)


def _spans(lengths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Cut packed sequences into (first row, end row, first own key) of tiles."""
    spans: list[tuple[int, int, int]] = []
    start = row = 0
    for length in lengths:
        if row > start and row + length - start > TILE_ROWS:
            spans.append((start, row, start))
            start = row
        row += length
        while row - start > TILE_ROWS:
            # Only a sequence that began at a tile's start gets here: it is alone in its tiles.
            first_key = row - length
            spans.append((start, start + TILE_ROWS, first_key))
            start += TILE_ROWS
        if row - start > 0 and start > row - length:
            spans.append((start, row, row - length))
            start = row
    if row > start:
        spans.append((start, row, start))
    return spans
