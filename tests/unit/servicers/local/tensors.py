"""Compares tensors. torch.testing does as well, but imports torch.distributed for it: two seconds at the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def assert_close(actual: torch.Tensor, expected: torch.Tensor, *, rtol: float, atol: float) -> None:
    """Same shape and kind of numbers, and |actual - expected| <= atol + rtol * |expected| everywhere."""
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=rtol, atol=atol, strict=True)
