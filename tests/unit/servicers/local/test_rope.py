"""Rotary tables: the scaling formulas number by number, and rotation as multiplication of complex numbers."""

import math

import pytest
import torch

from servicers.local.config import Llama3Scaling, RopeConfig
from servicers.local.rope import RotaryTable, inverse_frequencies
from tests.unit.servicers.local.tensors import assert_close

DIM = 32


def plain(pair: int) -> float:
    return 10_000.0 ** (-2 * pair / DIM)


def test_linear_scaling_divides_every_frequency():
    scaled = inverse_frequencies(RopeConfig(linear_factor=4.0), DIM)
    assert scaled.tolist() == pytest.approx([plain(pair) / 4 for pair in range(DIM // 2)], rel=1e-5)


def test_wave_factors_divide_their_own_frequency():
    factors = tuple(float(pair + 1) for pair in range(DIM // 2))
    scaled = inverse_frequencies(RopeConfig(wave_factors=factors), DIM)
    assert scaled.tolist() == pytest.approx([plain(pair) / (pair + 1) for pair in range(DIM // 2)], rel=1e-5)


def test_llama3_keeps_short_waves_stretches_long_ones_and_blends_between():
    scaling = Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_tokens=256
    )
    expected = []
    for pair in range(DIM // 2):
        wave = 2 * math.pi / plain(pair)
        if wave < 256 / 4:
            expected.append(plain(pair))
        elif wave > 256 / 1:
            expected.append(plain(pair) / 8)
        else:
            smooth = (256 / wave - 1) / (4 - 1)
            expected.append((1 - smooth) * plain(pair) / 8 + smooth * plain(pair))
    kinds = {value / plain(pair) for pair, value in enumerate(expected)}
    assert {1.0, 0.125} < kinds
    scaled = inverse_frequencies(RopeConfig(llama3=scaling), DIM)
    assert scaled.tolist() == pytest.approx(expected, rel=1e-5)


def test_rotating_multiplies_each_pair_by_a_unit_complex_number():
    table = RotaryTable(RopeConfig(), DIM, 50, dtype=torch.float32, device=torch.device("cpu"))
    heads = torch.randn(3, 2, DIM, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 7, 49])
    rotated = table.rotate(heads, table.rows(positions))
    as_complex = torch.complex(heads[..., : DIM // 2], heads[..., DIM // 2 :])
    turns = torch.polar(torch.ones(3, DIM // 2), positions[:, None] * inverse_frequencies(RopeConfig(), DIM))
    expected = as_complex * turns[:, None]
    assert_close(rotated, torch.cat([expected.real, expected.imag], dim=-1), atol=1e-5, rtol=1e-5)
