"""A tiny network with random weights, and the plainest possible way to compute it, to compare against."""

from __future__ import annotations

import dataclasses

import torch

from servicers.local.config import Llama3Scaling, ModelConfig, RopeConfig
from servicers.local.model import KVCache, Model, Segment
from servicers.local.rope import inverse_frequencies

TINY = ModelConfig(
    architecture="llama",
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    layers=2,
    heads=6,
    kv_heads=2,
    head_dim=16,
    context_tokens=512,
    rope=RopeConfig(theta=10_000.0),
    tied_head=True,
)
LIKE_QWEN3 = dataclasses.replace(
    TINY,
    architecture="qwen3",
    tied_head=False,
    rope=RopeConfig(theta=10_000.0, llama3=Llama3Scaling(8.0, 1.0, 4.0, 64)),
)


def random_weights(
    config: ModelConfig, *, seed: int = 0, biases: bool = False, head_norms: bool = False
) -> dict:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 0.2) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    hidden, dim = config.hidden_size, config.head_dim
    weights = {
        "model.embed_tokens.weight": normal(config.vocab_size, hidden, scale=1.0),
        "model.norm.weight": 1 + normal(hidden),
    }
    if not config.tied_head:
        weights["lm_head.weight"] = normal(config.vocab_size, hidden)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        shapes = {
            "self_attn.q_proj": (config.heads * dim, hidden),
            "self_attn.k_proj": (config.kv_heads * dim, hidden),
            "self_attn.v_proj": (config.kv_heads * dim, hidden),
            "self_attn.o_proj": (hidden, config.heads * dim),
            "mlp.gate_proj": (config.intermediate_size, hidden),
            "mlp.up_proj": (config.intermediate_size, hidden),
            "mlp.down_proj": (hidden, config.intermediate_size),
        }
        for name, shape in shapes.items():
            weights[f"{prefix}{name}.weight"] = normal(*shape)
            if biases and name[-6] in "qkv" and "self_attn" in name:
                weights[f"{prefix}{name}.bias"] = normal(shape[0])
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = 1 + normal(hidden)
        if head_norms:
            for name in ("q_norm", "k_norm"):
                weights[f"{prefix}self_attn.{name}.weight"] = 1 + normal(dim)
    return weights


def reference_hidden(config: ModelConfig, weights: dict, ids: list[int]) -> torch.Tensor:
    """Hidden states of one sequence after the last norm, float64, position by position and head by head."""
    w = {name: tensor.double() for name, tensor in weights.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + config.norm_eps).sqrt() * w[name]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    frequencies = inverse_frequencies(config.rope, config.head_dim).double()
    angles = torch.arange(len(ids))[:, None] * frequencies[None]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def rotate(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["model.embed_tokens.weight"][ids]
    causal = torch.ones(len(ids), len(ids)).tril().bool()
    for layer in range(config.layers):
        p = f"model.layers.{layer}."
        h = norm(x, f"{p}input_layernorm.weight")
        q, k, v = (linear(h, f"{p}self_attn.{n}_proj").view(len(ids), -1, config.head_dim) for n in "qkv")
        if f"{p}self_attn.q_norm.weight" in w:
            q, k = norm(q, f"{p}self_attn.q_norm.weight"), norm(k, f"{p}self_attn.k_norm.weight")
        q, k = rotate(q), rotate(k)
        outputs = []
        for head in range(config.heads):
            shared = head // (config.heads // config.kv_heads)
            scores = (q[:, head] @ k[:, shared].T) / config.head_dim**0.5
            outputs.append(scores.masked_fill(~causal, -torch.inf).softmax(-1) @ v[:, shared])
        x = x + linear(torch.cat(outputs, -1), f"{p}self_attn.o_proj")
        h = norm(x, f"{p}post_attention_layernorm.weight")
        gate = torch.nn.functional.silu(linear(h, f"{p}mlp.gate_proj"))
        x = x + linear(gate * linear(h, f"{p}mlp.up_proj"), f"{p}mlp.down_proj")
    return norm(x, "model.norm.weight")


def run(model: Model, cache: KVCache, *parts: tuple[int, int, list[int]]) -> list[torch.Tensor]:
    """Forward (slot, past, token ids) parts as one batch; hidden states of each part."""
    segments, ids, positions = [], [], []
    for slot, past, tokens in parts:
        segments.append(Segment(slot=slot, start=len(ids), length=len(tokens), past=past))
        ids += tokens
        positions += range(past, past + len(tokens))
    hidden = model.forward(torch.tensor(ids), torch.tensor(positions), segments, cache)
    return list(hidden.split([len(tokens) for _, _, tokens in parts]))
