"""Multiplies activations by a fixed weight matrix with the fastest exact kernel that the device has.

Weights are rows of output features, as in torch. Which kernel a model uses is one `Precision`, chosen once from
the wanted dtype and the machine. On x86 without bfloat16 arithmetic torch multiplies bfloat16 five times slower
than float32; there a bfloat16 model keeps its weights as float16 and computes in float32: the float16 kernel of
FBGEMM reads half the memory, and a bfloat16 weight of ordinary size fits float16 without loss.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import torch
from torch.nn import functional

FEW_ROWS = 32
"""Up to here reading the weights is the cost and the float16 kernel wins; above, arithmetic is."""


class Linear(Protocol):
    """y = x W^T + b for x of [rows, in_features]; y has the dtype of x."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        ...


@dataclasses.dataclass(frozen=True)
class Precision:
    """How a model computes."""

    activations: torch.dtype
    weights: torch.dtype
    """Of dense weights, and of the embedding table."""
    cache: torch.dtype
    """Of keys and values."""
    half_kernel: bool = False
    """Multiply few rows with FBGEMM's float16 kernel."""
    dense_kernel: bool = True
    """Keep dense weights; False when the float16 kernel takes every row count."""


def choose_precision(dtype: torch.dtype, device: torch.device) -> Precision:
    """Pick kernels for a dtype on a device.

    Raises:
        ValueError: a dtype that is not served.
    """
    if dtype == torch.float32:
        return Precision(torch.float32, torch.float32, torch.float32)
    if dtype != torch.bfloat16:
        raise ValueError(f"dtype {dtype} is not served; known: torch.float32, torch.bfloat16")
    if device.type != "cpu" or not _has_half_kernel():
        return Precision(torch.bfloat16, torch.bfloat16, torch.bfloat16)
    if _has_fast_bfloat16():
        return Precision(torch.bfloat16, torch.bfloat16, torch.bfloat16, half_kernel=True)
    return Precision(torch.float32, torch.float16, torch.float32, half_kernel=True, dense_kernel=False)


def _has_half_kernel() -> bool:
    return "fbgemm" in torch.backends.quantized.supported_engines


def _has_fast_bfloat16() -> bool:
    # Not mkldnn's own answer: that is yes for AVX-512 without bfloat16 instructions, where it emulates them.
    # torch offers no public question.
    return bool(torch.cpu._is_avx512_bf16_supported())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class DenseLinear:
    """Torch's own product."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply rows."""
        return functional.linear(x, self._weight, self._bias)


class HalfLinear:
    """FBGEMM's float16 weights times float32 activations, sums in float32."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        # FBGEMM takes float32 and rounds to float16 itself, saturating what does not fit.
        self._packed = torch.ops.quantized.linear_prepack_fp16(
            weight.float().contiguous(), None if bias is None else bias.float()
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply rows."""
        return torch.ops.quantized.linear_dynamic_fp16(x, self._packed)


class ByRowsLinear:
    """The float16 kernel for few rows, the dense one for many."""

    def __init__(self, few: HalfLinear, many: DenseLinear) -> None:
        self._few = few
        self._many = many

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply rows."""
        if x.shape[0] > FEW_ROWS:
            return self._many(x)
        return self._few(x.float()).to(x.dtype)


def make_linear(
    weight: torch.Tensor, bias: torch.Tensor | None, precision: Precision, device: torch.device
) -> Linear:
    """Prepare a weight matrix for multiplying at a precision."""
    if not precision.dense_kernel:
        return HalfLinear(weight, bias)
    dense = DenseLinear(
        weight.to(device, precision.weights),
        None if bias is None else bias.to(device, precision.activations),
    )
    return ByRowsLinear(HalfLinear(weight, bias), dense) if precision.half_kernel else dense
