"""Computes attention of a mixed batch over a slab cache: running sequences beside chunks of new prompts.

A plan is made once per forward and serves every layer. New rows are one of three kinds:
- decode rows (one new token of a sequence): neighbouring slots are attended together, straight from the slab;
- chunks: cut into tiles of queries, so that no key right of a tile is read and masks stay small;
- detached rows (packed_attention.py): their keys and values are not kept; many short suffixes share a tile.
The heads of a group share keys without copying them: a decode row's group takes the place of query rows.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.local.kv_cache import KVCache

TILE_ROWS = 128
"""Queries of one attention call. Smaller tiles skip more of the masked triangle, larger ones cost fewer calls."""
GROUP_COST_TOKENS = 128
"""What one more attention call costs, in keys read (measured: 20 µs against 0.15 µs a key and row)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """Rows [start, start + length) of a batch: the next tokens of the sequence in `slot`."""

    slot: int
    start: int
    length: int
    past: int
    """Tokens of the sequence that the cache holds already."""


@dataclasses.dataclass(frozen=True, slots=True)
class _DecodeGroup:
    first_slot: int
    slots: int
    keys: int
    rows: torch.Tensor | None
    """Batch row of each segment of the group; None when segment i is row `first_row` + i and slot first_slot + i."""
    window_rows: torch.Tensor | None
    """Where these rows lie inside the window of slots; None together with `rows`."""
    first_row: int
    mask: torch.Tensor | None
    """Added to the scores, [slots, 1, 1, keys]; None when every row attends to all keys."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Tile:
    slot: int
    start: int
    rows: int
    keys: int
    mask: torch.Tensor | None
    """Added to the scores, [rows, keys]; None when every row attends to all keys."""


class CausalMask:
    """Cuts every tile's mask out of one tensor: the last `rows` of the last `keys` columns."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self._device = device
        self._mask = self._build(TILE_ROWS)

    def _build(self, keys: int) -> torch.Tensor:
        rows = torch.arange(TILE_ROWS, device=self._device)[:, None] + keys - TILE_ROWS
        hidden = torch.arange(keys, device=self._device)[None] > rows
        mask = torch.zeros(TILE_ROWS, keys, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(hidden, float("-inf"))

    def tile(self, rows: int, keys: int) -> torch.Tensor | None:
        """Mask of a tile of `rows` <= TILE_ROWS queries, the last of which sees all `keys` keys."""
        if rows == 1:
            return None
        if keys > self._mask.shape[1]:
            # Doubling bounds how often; the largest is TILE_ROWS x context numbers, 4 MB at 8192 in float32.
            self._mask = self._build(max(keys, 2 * self._mask.shape[1]))
        return self._mask[TILE_ROWS - rows :, self._mask.shape[1] - keys :]


class CachedPlan:
    """Attention of a batch whose keys and values join the cache."""

    def __init__(self, segments: Sequence[Segment], cache: KVCache, causal: CausalMask) -> None:
        for segment in segments:
            if not 0 <= segment.slot < cache.slots or segment.past + segment.length > cache.slot_tokens:
                raise ValueError(f"{segment} does not fit {cache.slots} slots of {cache.slot_tokens} tokens")
        decoding = 0
        while decoding < len(segments) and segments[decoding].length == 1:
            decoding += 1
        self._cache = cache
        self._chunks = segments[decoding:]
        device = cache.keys[0].device
        self._groups = _decode_groups(segments[:decoding], cache.dtype, device)
        decode = segments[:decoding]
        self._rows = torch.tensor([s.start for s in decode], device=device)
        self._slots = torch.tensor([s.slot for s in decode], device=device)
        self._places = torch.tensor([s.past for s in decode], device=device)
        self._single = decode[0] if decoding == 1 else None
        self._in_order = all(s.start == i for i, s in enumerate(decode))
        self._tiles = [tile for chunk in self._chunks for tile in _chunk_tiles(chunk, causal)]

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Store k and v, then attend.

        Args:
            layer: whose cache to use.
            q: [rows, heads, head_dim].
            k: [rows, kv_heads, head_dim], rotated.
            v: like k.

        Returns: [rows, heads x head_dim] in the dtype of q.
        """
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        self._store(keys, k)
        self._store(values, v)
        dtype = q.dtype
        q = q.to(keys.dtype).view(q.shape[0], k.shape[1], -1, q.shape[2])
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for group in self._groups:
            _attend_group(group, q, keys, values, out)
        for tile in self._tiles:
            end = tile.start + tile.rows
            out[tile.start : end] = attend_tile(
                q[tile.start : end],
                keys[tile.slot, :, : tile.keys],
                values[tile.slot, :, : tile.keys],
                tile.mask,
            )
        return out.view(q.shape[0], -1).to(dtype)

    def _store(self, slab: torch.Tensor, new: torch.Tensor) -> None:
        if self._single is not None:
            slab[self._single.slot, :, self._single.past] = new[self._single.start]
        elif self._groups:
            rows = new[: self._rows.shape[0]] if self._in_order else new[self._rows]
            slab[self._slots, :, self._places] = rows.to(slab.dtype)
        for chunk in self._chunks:
            rows = new[chunk.start : chunk.start + chunk.length]
            slab[chunk.slot, :, chunk.past : chunk.past + chunk.length] = rows.transpose(0, 1)


def _chunk_tiles(chunk: Segment, causal: CausalMask) -> list[_Tile]:
    tiles: list[_Tile] = []
    for offset in range(0, chunk.length, TILE_ROWS):
        rows = min(TILE_ROWS, chunk.length - offset)
        keys = chunk.past + offset + rows
        tiles.append(_Tile(chunk.slot, chunk.start + offset, rows, keys, causal.tile(rows, keys)))
    return tiles


def _decode_groups(
    segments: Sequence[Segment], dtype: torch.dtype, device: torch.device
) -> list[_DecodeGroup]:
    """Cover the decode rows with windows of neighbouring slots.

    A window reads the keys of unused slots and of the longest sequence; it grows while that is cheaper than one
    more call.
    """
    groups: list[list[Segment]] = []
    width = longest = 0
    for segment in sorted(segments, key=lambda s: s.slot):
        keys = segment.past + 1
        if groups:
            wider = segment.slot - groups[-1][0].slot + 1
            merged = wider * max(longest, keys)
            if merged <= width * longest + keys + GROUP_COST_TOKENS:
                groups[-1].append(segment)
                width, longest = wider, max(longest, keys)
                continue
        groups.append([segment])
        width, longest = 1, keys
    return [_decode_group(group, dtype, device) for group in groups]


def _decode_group(group: list[Segment], dtype: torch.dtype, device: torch.device) -> _DecodeGroup:
    first = group[0].slot
    width = group[-1].slot - first + 1
    keys = max(s.past for s in group) + 1
    dense = width == len(group) and all(s.start == group[0].start + i for i, s in enumerate(group))
    lengths = [keys] * width
    for segment in group:
        lengths[segment.slot - first] = segment.past + 1
    mask = None
    if any(length != keys for length in lengths):
        hidden = torch.arange(keys)[None] >= torch.tensor(lengths)[:, None]
        mask = torch.zeros(width, 1, 1, keys, dtype=dtype).masked_fill_(hidden[:, None, None], float("-inf"))
    return _DecodeGroup(
        first_slot=first,
        slots=width,
        keys=keys,
        rows=None if dense else torch.tensor([s.start for s in group], device=device),
        window_rows=None if dense else torch.tensor([s.slot - first for s in group], device=device),
        first_row=group[0].start,
        mask=None if mask is None else mask.to(device),
    )


def _attend_group(
    group: _DecodeGroup, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
) -> None:
    window = slice(group.first_slot, group.first_slot + group.slots)
    rows = slice(group.first_row, group.first_row + group.slots)
    if group.rows is None:
        queries = q[rows]
    else:
        # Slots of the window that do not decode now get zero queries; nobody reads what comes out.
        queries = q.new_zeros(group.slots, *q.shape[1:])
        queries[group.window_rows] = q[group.rows]
    mixed = functional.scaled_dot_product_attention(
        queries, keys[window, :, : group.keys], values[window, :, : group.keys], attn_mask=group.mask
    )
    if group.rows is None:
        out[rows] = mixed
    else:
        out[group.rows] = mixed[group.window_rows]


def attend_tile(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attend q [rows, kv_heads, group, head_dim] over keys and values [kv_heads, keys, head_dim]; shape as q."""
    # The heads of a group see the same keys through a dimension of stride 0; nothing is copied.
    shape = (keys.shape[0], q.shape[2], *keys.shape[1:])
    mixed = functional.scaled_dot_product_attention(
        q.permute(1, 2, 0, 3), keys[:, None].expand(shape), values[:, None].expand(shape), attn_mask=mask
    )
    return mixed.permute(2, 0, 1, 3)
