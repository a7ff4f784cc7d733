"""Turns positions into the cosines and sines that rotate queries and keys.

Halves are rotated against each other (element i with element i + head_dim/2), the layout of the `transformers`
package. Llama's GGUF files interleave the pairs; checkpoint.py puts their rows into this order. Formula of the
llama3 stretch: Llama 3.1 reference code, `apply_scaling`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from servicers.local.config import Llama3Scaling, RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians per position of each of the head_dim/2 pairs, float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.wave_factors is not None:
        frequencies = frequencies / torch.tensor(rope.wave_factors)
    if rope.llama3 is not None:
        frequencies = _stretch_long_waves(frequencies, rope.llama3)
    return frequencies / rope.linear_factor


def _stretch_long_waves(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    waves = 2 * math.pi / frequencies
    shortest_stretched = scaling.original_context_tokens / scaling.high_freq_factor
    longest_blended = scaling.original_context_tokens / scaling.low_freq_factor
    blend = (scaling.original_context_tokens / waves - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    stretched = torch.where(waves > longest_blended, frequencies / scaling.factor, blended)
    return torch.where(waves < shortest_stretched, frequencies, stretched)


class RotaryTable:
    """Cosines and sines of every position of a context, computed once."""

    def __init__(
        self, rope: RopeConfig, head_dim: int, positions: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        angles = (
            torch.arange(positions, dtype=torch.float32)[:, None] * inverse_frequencies(rope, head_dim)[None]
        )
        self._half = head_dim // 2
        self._cosines = angles.cos().to(device, dtype)
        self._sines = angles.sin().to(device, dtype)

    def rows(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of these positions, each [rows, 1, head_dim]."""
        cosines, sines = self._cosines[positions], self._sines[positions]
        # The minus of the rotation goes into the sines, so that rotating is one product and one sum.
        return (
            torch.cat([cosines, cosines], dim=-1).unsqueeze(1),
            torch.cat([-sines, sines], dim=-1).unsqueeze(1),
        )

    def rotate(self, heads: torch.Tensor, rows: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Rotate [rows, heads, head_dim]; the result is a new tensor."""
        cosines, sines = rows
        swapped = torch.cat([heads[..., self._half :], heads[..., : self._half]], dim=-1)
        return (heads * cosines).addcmul_(swapped, sines)
