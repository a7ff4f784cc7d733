"""The layers of a BERT-family encoder, on padded batches. Equal to the `transformers` package's, which tests compare.

Post-norm blocks with learnt positions. RoBERTa counts positions from the padding's number on, and has no second type.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from servicers.local.config import ModelFileError
from servicers.local.encoders.files import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from servicers.local.encoders.files import EncoderConfig

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": functools.partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": functools.partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class Linear(NamedTuple):
    """Weight [out, in] and bias [out]."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it to the last dimension."""
        return functional.linear(x, self.weight, self.bias)


class Norm(NamedTuple):
    """Layer normalization over the last dimension."""

    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Weights:
    """Tensors of a checkpoint under the names inside its network."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype, device: str) -> None:
        self._tensors = tensors
        self._dtype = dtype
        self._device = device

    def take(self, *names: str) -> torch.Tensor:
        """The first of these names that there is.

        Raises:
            ModelFileError: there is none.
        """
        for name in names:
            if name in self._tensors:
                return self._tensors[name].to(device=self._device, dtype=self._dtype)
        raise ModelFileError(f"the checkpoint has no tensor {' or '.join(names)}")

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self._tensors

    def linear(self, name: str) -> Linear:
        """A linear layer."""
        return Linear(self.take(f"{name}.weight"), self.take(f"{name}.bias"))

    def norm(self, name: str, eps: float) -> Norm:
        """A layer normalization; old checkpoints name its numbers by Greek letters."""
        return Norm(
            self.take(f"{name}.weight", f"{name}.gamma"), self.take(f"{name}.bias", f"{name}.beta"), eps
        )


class _Layer:
    """One block."""

    def __init__(self, weights: Weights, prefix: str, config: EncoderConfig) -> None:
        parts = [weights.linear(f"{prefix}attention.self.{name}") for name in ("query", "key", "value")]
        # One product for all three.
        self._qkv = Linear(
            torch.cat([each.weight for each in parts]), torch.cat([each.bias for each in parts])
        )
        self._joined = weights.linear(f"{prefix}attention.output.dense")
        self._attention_norm = weights.norm(f"{prefix}attention.output.LayerNorm", config.norm_eps)
        self._up = weights.linear(f"{prefix}intermediate.dense")
        self._down = weights.linear(f"{prefix}output.dense")
        self._norm = weights.norm(f"{prefix}output.LayerNorm", config.norm_eps)
        self._activation = _ACTIVATIONS[config.activation]
        self._heads = config.heads

    def __call__(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        rows, length, size = x.shape
        qkv = self._qkv(x).view(rows, length, 3, self._heads, size // self._heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=mask)
        x = self._attention_norm(self._joined(seen.transpose(1, 2).reshape(rows, length, size)) + x)
        return self._norm(self._down(self._activation(self._up(x))) + x)


class EncoderNetwork:
    """Token ids to states."""

    def __init__(self, config: EncoderConfig, weights: Weights, device: str) -> None:
        """Args: weights with or without the network's name before theirs."""
        name = f"{FAMILIES[config.family]}."
        prefix = name if weights.has(f"{name}embeddings.word_embeddings.weight") else ""
        at = f"{prefix}embeddings."
        self._device = device
        self._config = config
        self._words = weights.take(f"{at}word_embeddings.weight")
        self._positions = weights.take(f"{at}position_embeddings.weight")
        self._types = weights.take(f"{at}token_type_embeddings.weight")
        self._norm = weights.norm(f"{at}LayerNorm", config.norm_eps)
        if self._words.shape != (config.vocab_size, config.hidden_size):
            raise ModelFileError(
                f"the embedding table is {tuple(self._words.shape)}; config.json says"
                f" {(config.vocab_size, config.hidden_size)}"
            )
        self._layers = [_Layer(weights, f"{prefix}encoder.layer.{n}.", config) for n in range(config.layers)]
        self.pooler = (
            weights.linear(f"{prefix}pooler.dense") if weights.has(f"{prefix}pooler.dense.weight") else None
        )

    def states(
        self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor, wanted: Collection[int]
    ) -> dict[int, torch.Tensor]:
        """States after some layers, each [rows, length, hidden_size] float32.

        Args:
            ids: [rows, length], padded at the end.
            mask: [rows, length], True for what is no padding.
            types: [rows, length], 0 for the first text, 1 for the second.
            wanted: numbers of layers, from 1.
        """
        length = ids.shape[1]
        offset = self._config.position_offset
        x = self._words[ids] + self._positions[offset : offset + length] + self._types[types]
        x = self._norm(x)
        seen = None if bool(mask.all()) else mask[:, None, None, :]
        found: dict[int, torch.Tensor] = {}
        for number, layer in enumerate(self._layers[: max(wanted)], 1):
            x = layer(x, seen)
            if number in wanted:
                found[number] = x.float()
        return found
