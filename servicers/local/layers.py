"""Puts the weights of a decoder together, checked against the config.

Matrices that multiply the same input become one: q, k and v, and the two halves of the gated product. Names are
those of the `transformers` package.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from servicers.local.config import ModelConfig, ModelFileError
from servicers.local.int4 import Quants, with_int4
from servicers.local.linear import Linear, Precision, make_linear

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    QuantsOf = Callable[[str], Quants | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer, ready to multiply."""

    attention_norm: torch.Tensor
    qkv: Linear
    """Output features: all heads of q, then of k, then of v."""
    q_norm: torch.Tensor | None
    """Norm of each query head; None when the network has none. The same for keys."""
    k_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    """Output features: gate, then up."""
    down: Linear


@dataclasses.dataclass(frozen=True, slots=True)
class Ends:
    """What lies before the first layer and behind the last."""

    embedding: torch.Tensor
    """[vocab_size, hidden_size]"""
    norm: torch.Tensor
    head: Linear
    head_rows: torch.Tensor
    """The head's weights as rows to pick from, [vocab_size, hidden_size]; the embedding itself when tied."""


def take(weights: Mapping[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A weight that must exist in this shape.

    Raises:
        ModelFileError: it does not.
    """
    if name not in weights:
        raise ModelFileError(f"there is no weight {name}")
    weight = weights[name]
    if tuple(weight.shape) != shape:
        raise ModelFileError(f"weight {name} has shape {tuple(weight.shape)}; the config says {shape}")
    return weight


def build_ends(
    config: ModelConfig, weights: Mapping[str, torch.Tensor], *, precision: Precision, device: torch.device
) -> Ends:
    """Read embedding, last norm and head, and prepare them for a precision and device."""
    size = (config.vocab_size, config.hidden_size)
    embedding = take(weights, "model.embed_tokens.weight", size)
    head = embedding if config.tied_head else take(weights, "lm_head.weight", size)
    table = embedding.to(device, precision.weights)
    return Ends(
        embedding=table,
        norm=take(weights, "model.norm.weight", size[1:]).to(device, precision.activations),
        head=make_linear(head, None, precision, device),
        head_rows=table if config.tied_head else head.to(device, precision.weights),
    )


def build_layer(
    config: ModelConfig,
    weights: Mapping[str, torch.Tensor],
    index: int,
    *,
    precision: Precision,
    device: torch.device,
    quants: QuantsOf | None = None,
) -> Layer:
    """Read the weights of layer `index` and prepare them for a precision and device.

    Args:
        config: sizes that the weights must have.
        weights: by the names that the `transformers` package gives them.
        index: from 0.
        precision: how to multiply.
        device: where.
        quants: 4-bit form of a weight by its name, for the int4 kernel; None leaves that kernel out.
    """
    prefix = f"model.layers.{index}."
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    q_size, kv_size = config.heads * dim, config.kv_heads * dim

    def norm(name: str, size: int) -> torch.Tensor:
        return take(weights, f"{prefix}{name}.weight", (size,)).to(device, precision.activations)

    def linear(block: str, inputs: int, **outputs: int) -> Linear:
        names = {f"{prefix}{block}.{name}": size for name, size in outputs.items()}
        matrix = torch.cat([take(weights, f"{name}.weight", (size, inputs)) for name, size in names.items()])
        if not any(f"{name}.bias" in weights for name in names):
            product = make_linear(matrix, None, precision, device)
            return (
                product
                if quants is None
                else with_int4([quants(f"{name}.weight") for name in names], product)
            )
        bias = torch.cat([take(weights, f"{name}.bias", (size,)) for name, size in names.items()])
        return make_linear(matrix, bias, precision, device)

    has_head_norms = f"{prefix}self_attn.q_norm.weight" in weights
    return Layer(
        attention_norm=norm("input_layernorm", hidden),
        qkv=linear("self_attn", hidden, q_proj=q_size, k_proj=kv_size, v_proj=kv_size),
        q_norm=norm("self_attn.q_norm", dim) if has_head_norms else None,
        k_norm=norm("self_attn.k_norm", dim) if has_head_norms else None,
        output=linear("self_attn", q_size, o_proj=hidden),
        mlp_norm=norm("post_attention_layernorm", hidden),
        gate_up=linear("mlp", hidden, gate_proj=inner, up_proj=inner),
        down=linear("mlp", inner, down_proj=hidden),
    )


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale the last dimension to a root mean square of 1, then by `weight`."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return functional.rms_norm(x, weight.shape, weight, eps)
    # Torch has no float32 kernel for CPUs and spends ten small steps; at one row they cost more than the sums.
    size = weight.shape[0]
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = norm.square_().add_(size * eps).rsqrt_().mul_(size**0.5)
    return (x * scale).mul_(weight)
