"""An encoder with its head: batches of token ids to vectors or logits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from servicers.local.checkpoint import SafetensorsWeights
from servicers.local.config import ModelFileError
from servicers.local.encoders.files import read_encoder
from servicers.local.encoders.network import EncoderNetwork, Linear, Weights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from servicers.local.encoders.files import EncoderConfig

SELF_CHECK_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


class Row(NamedTuple):
    """One input of a batch.

    Attributes:
        ids: token ids.
        second_at: where the second text begins; None for a single one.
        layer: whose states are embedded.
        dimensions: length to cut the vector to; None for the model's own.
    """

    ids: Sequence[int]
    second_at: int | None = None
    layer: int = 0
    dimensions: int | None = None


class EncoderModel:
    """Computes batches. Not safe to use from several threads at once."""

    def __init__(self, config: EncoderConfig, weights: Weights, *, dtype: torch.dtype, device: str) -> None:
        self.config = config
        self.dtype = dtype
        self.device = torch.device(device)
        self._network = EncoderNetwork(config, weights, device)
        self._head = _Head(config, weights, self._network.pooler) if config.labels else None

    @torch.inference_mode()
    def compute(self, rows: Sequence[Row]) -> list[list[float]]:
        """One vector, or one list of logits, for every row.

        A vector is as long as its row asks; logits are one for each label, and such for each token after another where
        the model labels tokens.
        """
        config = self.config
        lengths = [len(row.ids) for row in rows]
        longest = max(lengths)
        ids = torch.full((len(rows), longest), config.pad_token_id, dtype=torch.int64)
        types = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : lengths[number]] = torch.tensor(row.ids, dtype=torch.int64)
            if row.second_at is not None and config.has_types:
                types[number, row.second_at : lengths[number]] = 1
        mask = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
        wanted = {row.layer or config.layers for row in rows}
        ids, types, mask = (each.to(self.device) for each in (ids, types, mask))
        states = self._network.states(ids, mask, types, wanted)
        if self._head is not None:
            logits = self._head(states[config.layers].to(self.dtype)).float().cpu()
            if config.task == "tokens":
                return [row[:length].flatten().tolist() for row, length in zip(logits, lengths, strict=True)]
            return logits.tolist()
        pooled = {layer: _pooled(each, mask, config.pooling).cpu() for layer, each in states.items()}
        return [self._vector(pooled[row.layer or config.layers][n], row) for n, row in enumerate(rows)]

    def _vector(self, pooled: torch.Tensor, row: Row) -> list[float]:
        cut = pooled[: row.dimensions]
        is_cut = row.dimensions is not None and row.dimensions < len(pooled)
        if self.config.normalizes or is_cut:
            cut = functional.normalize(cut, dim=-1)
        return cut.tolist()

    def self_check(self) -> str:
        """What is wrong with the model's answers to a probe; empty when nothing is.

        A row's answer must be finite, and the same beside a longer row, whose length it is padded to.
        """
        count = min(6, self.config.context_tokens, self.config.vocab_size)
        short, long = Row(list(range(max(1, count // 2)))), Row(list(range(count)))
        alone, (beside, _) = self.compute([short])[0], self.compute([short, long])
        if not all(map(math.isfinite, alone)):
            return "its answer to the self-check is not finite"
        apart = max(abs(one - other) for one, other in zip(alone, beside, strict=True))
        if apart > SELF_CHECK_TOLERANCE.get(self.dtype, 5e-2) * max(1.0, *map(abs, alone)):
            return (
                f"its answer to the self-check moves by {apart:.3g} when another input is computed beside it"
            )
        return ""


class _Head:
    """States to logits, as `transformers` has it for the family."""

    def __init__(self, config: EncoderConfig, weights: Weights, pooler: Linear | None) -> None:
        self._is_for_tokens = config.task == "tokens"
        # RoBERTa's head for whole texts has a dense layer of its own; BERT's uses the network's pooler.
        self._dense = weights.linear("classifier.dense") if weights.has("classifier.dense.weight") else pooler
        self._out = weights.linear(
            "classifier" if weights.has("classifier.weight") else "classifier.out_proj"
        )
        if not self._is_for_tokens and self._dense is None:
            raise ModelFileError("the checkpoint of a classifier has neither a pooler nor classifier.dense")
        if len(self._out.bias) != len(config.labels):
            raise ModelFileError(
                f"the head has {len(self._out.bias)} outputs for {len(config.labels)} labels"
            )

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        if self._is_for_tokens or self._dense is None:
            return self._out(states)
        return self._out(torch.tanh(self._dense(states[:, 0])))


def _pooled(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """[rows, hidden_size], as sentence-transformers' Pooling."""
    if pooling == "cls":
        return states[:, 0]
    weights = mask.unsqueeze(-1).to(states.dtype)
    if pooling == "max":
        return states.masked_fill(weights == 0, -1e9).amax(dim=1)
    if pooling == "lasttoken":
        last = mask.sum(dim=1) - 1
        return states[torch.arange(len(states), device=states.device), last]
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def load_encoder_model(
    path: Path, *, dtype: torch.dtype, device: str, declared: dict[str, Any] | None = None
) -> EncoderModel:
    """Load a directory and check the model's answers.

    Raises:
        ModelFileError: missing, damaged or unsupported, or the answers are no good.
    """
    config = read_encoder(path, declared=declared)
    weights = Weights(SafetensorsWeights(path), dtype, device)
    model = EncoderModel(config, weights, dtype=dtype, device=device)
    if fault := model.self_check():
        raise ModelFileError(f"{path}: {fault}")
    return model
