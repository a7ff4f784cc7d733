"""Turns the quantised blocks of GGUF tensors into float32.

Each format packs a fixed number of weights into a block with its own scales. The functions take whole tensors as
[blocks, bytes] and return [blocks, elements]. Layouts: `block_*` in github.com/ggml-org/ggml/blob/master/src/ggml-common.h
and `dequantize_row_*` in ggml-quants.c beside it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Q4_0, Q4_1 = 2, 3

TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class BlockFormat:
    """One way to store weights."""

    elements: int
    """Weights of one block."""
    size_bytes: int
    to_floats: Callable[[np.ndarray], np.ndarray]
    """[blocks, size_bytes] uint8 to [blocks, elements] float32."""


def nibbles(packed: np.ndarray) -> np.ndarray:
    """[..., n] bytes to [..., 2n]: all low halves, then all high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _halves(blocks: np.ndarray, start: int) -> np.ndarray:
    """The float16 at a byte of each block, [blocks, 1] float32."""
    return blocks[:, start : start + 2].copy().view("<f2").astype(np.float32)


def _f32(blocks: np.ndarray) -> np.ndarray:
    return blocks.reshape(-1).view("<f4")


def _f16(blocks: np.ndarray) -> np.ndarray:
    return blocks.reshape(-1).view("<f2").astype(np.float32)


def _bf16(blocks: np.ndarray) -> np.ndarray:
    return (blocks.reshape(-1).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    return blocks[:, 2:].view(np.int8) * _halves(blocks, 0)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    return (nibbles(blocks[:, 2:]).astype(np.float32) - 8) * _halves(blocks, 0)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    weights = nibbles(blocks[:, 4:]) * _halves(blocks, 0)
    weights += _halves(blocks, 2)
    return weights


def split_4bit(kind: int, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Take Q4_0 or Q4_1 blocks apart so that weight = value * scale + minimum; None for any other kind.

    Returns: values [blocks, 32] int32 from 0 to 15, scales [blocks, 1] and minima [blocks, 1] float32.
    """
    if kind == Q4_0:
        scales = _halves(blocks, 0)
        return nibbles(blocks[:, 2:]).astype(np.int32), scales, -8 * scales
    if kind == Q4_1:
        return nibbles(blocks[:, 4:]).astype(np.int32), _halves(blocks, 0), _halves(blocks, 2)
    return None


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """[blocks, 4] bytes to [blocks, 32]: 16 for each set bit."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    quants = nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return (quants.astype(np.float32) - 16) * _halves(blocks, 0)


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    quants = nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return quants * _halves(blocks, 0) + _halves(blocks, 2)


def _k_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eight 6-bit scales and minima of Q4_K and Q5_K, from 12 bytes: [blocks, 8] each."""
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=-1)
    minima = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=-1)
    return scales, minima


def _scaled_groups(blocks: np.ndarray, quants: np.ndarray) -> np.ndarray:
    """Compute d * scale * quant - dmin * minimum for quants [blocks, 8, 32]."""
    scales, minima = _k_scales(blocks[:, 4:16])
    scale = (_halves(blocks, 0) * scales)[:, :, None]
    minimum = (_halves(blocks, 2) * minima)[:, :, None]
    return (scale * quants - minimum).reshape(len(blocks), 256)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    return _scaled_groups(blocks, nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    low = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    bits = np.arange(8, dtype=np.uint8)[:, None]
    high = (blocks[:, None, 16:48] >> bits) & 1
    return _scaled_groups(blocks, low | (high << 4))


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    # Two halves of 128 weights: 64 bytes of low nibbles and 32 bytes of upper bit pairs each.
    low = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    quants = (low | (high << 4)).astype(np.int8) - np.int8(32)
    scales = blocks[:, 192:208].view(np.int8) * _halves(blocks, 208)
    return (quants.reshape(-1, 16, 16) * scales[:, :, None]).reshape(len(blocks), 256)


def _pairs_of_bits(packed: np.ndarray) -> np.ndarray:
    """64 bytes to [blocks, 16, 16] two-bit numbers, in the order of the weights."""
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    return ((packed.reshape(-1, 2, 1, 32) >> shifts) & 3).reshape(-1, 16, 16)


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    scales = _halves(blocks, 80) * (blocks[:, :16] & 15)
    minima = _halves(blocks, 82) * (blocks[:, :16] >> 4)
    quants = _pairs_of_bits(blocks[:, 16:80])
    return (scales[:, :, None] * quants - minima[:, :, None]).reshape(len(blocks), 256)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    # A third bit that is NOT set takes 4 away.
    bits = np.arange(8, dtype=np.uint8)[:, None]
    missing = (((blocks[:, None, :32] >> bits) & 1) ^ 1).reshape(-1, 16, 16)
    quants = _pairs_of_bits(blocks[:, 32:96]).astype(np.int8) - (missing << 2).astype(np.int8)
    # Sixteen 6-bit scales: low nibbles in 8 bytes, upper pairs of bits in 4 more.
    low = nibbles(blocks[:, 96:104])
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    high = ((blocks[:, None, 104:108] >> shifts) & 3).reshape(-1, 16)
    scales = (low | (high << 4)).astype(np.int8) - np.int8(32)
    scale = _halves(blocks, 108) * scales
    return (scale[:, :, None] * quants).reshape(len(blocks), 256)


BLOCK_FORMATS = {
    0: BlockFormat(1, 4, _f32),
    1: BlockFormat(1, 2, _f16),
    2: BlockFormat(32, 18, _q4_0),
    3: BlockFormat(32, 20, _q4_1),
    6: BlockFormat(32, 22, _q5_0),
    7: BlockFormat(32, 24, _q5_1),
    8: BlockFormat(32, 34, _q8_0),
    10: BlockFormat(256, 84, _q2_k),
    11: BlockFormat(256, 110, _q3_k),
    12: BlockFormat(256, 144, _q4_k),
    13: BlockFormat(256, 176, _q5_k),
    14: BlockFormat(256, 210, _q6_k),
    30: BlockFormat(1, 2, _bf16),
}
