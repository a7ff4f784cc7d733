"""Multiplies a few rows with 4-bit weights as a GGUF file holds them.

Torch's int4 kernel for CPUs computes (quant - 8) * scale + zero per group of 32, which is the block of Q4_0 and
Q4_1. Quants are taken over bit by bit; scales become bfloat16, so weights are those of the file to 2^-9 relative,
like bfloat16 weights, and not to the 2^-12 of float16 ones. Hence off unless asked for. One row reads a quarter of
what float16 weights take, which CPUs with AVX-512 turn into speed; with AVX2 alone unpacking eats the gain
(benchmarks/engine/model.py --int4).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.local.linear import Linear

GROUP = 32
INT4_ROWS = 4
"""Up to here the kernel is used; above, unpacking the quants costs more than reading whole weights."""
_ROW_MULTIPLE = 16
"""The kernel packs whole tiles of output features."""
_INNER_TILES = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Quants:
    """A weight matrix of 4-bit numbers: weight = values * scale + minimum."""

    values: torch.Tensor
    """[rows, columns] int32, 0 to 15."""
    scales: torch.Tensor
    """[rows, columns / 32] float32."""
    minima: torch.Tensor
    """As scales."""


class Int4Linear:
    """The int4 kernel for up to INT4_ROWS rows, another product above. Computes in bfloat16."""

    def __init__(self, parts: Sequence[Quants], many: Linear) -> None:
        """Pack matrices that lie above each other; `many` multiplies by the same weights."""
        values = torch.cat([part.values for part in parts])
        scales = torch.cat([part.scales for part in parts]).T
        zeros = torch.cat([part.minima for part in parts]).T + 8 * scales
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, _INNER_TILES)  # noqa: SLF001 - the kernel has no public name
        self._scales = torch.stack([scales, zeros], dim=-1).contiguous().bfloat16()
        self._many = many

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply rows."""
        if x.shape[0] > INT4_ROWS:
            return self._many(x)
        rows = x.bfloat16().contiguous()
        product = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self._packed, GROUP, self._scales)  # noqa: SLF001 - as above
        return product.to(x.dtype)


def with_int4(parts: Sequence[Quants | None], many: Linear) -> Linear:
    """`many` with the int4 kernel for few rows; `many` alone where the kernel does not take these matrices."""
    quants = [part for part in parts if part is not None]
    if len(quants) < len(parts) or sum(part.values.shape[0] for part in quants) % _ROW_MULTIPLE:
        return many
    return Int4Linear(quants, many)
