"""Turns token ids and positions into hidden states and logits: a decoder of the Llama family on torch.

One forward takes rows of many sequences at once, new tokens of running sequences and chunks of prompts alike; only
attention knows which rows belong together. In float32 the result for a sequence does not depend on what else is in
the batch, nor on how its prompt is cut (to about 1e-5). A model holds no state of sequences: that is the KVCache's.
Not thread-safe; every method blocks.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from servicers.local.attention import CachedPlan, CausalMask, Segment
from servicers.local.checkpoint import GgufWeights, read_checkpoint
from servicers.local.config import ModelConfig, ModelFileError
from servicers.local.kv_cache import KVCache
from servicers.local.layers import Ends, Layer, build_ends, build_layer, rms_norm
from servicers.local.linear import Precision, choose_precision
from servicers.local.packed_attention import DetachedPlan
from servicers.local.rope import RotaryTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from servicers.local.layers import QuantsOf

    Plan = CachedPlan | DetachedPlan

__all__ = ["KVCache", "Model", "ModelConfig", "ModelFileError", "Segment", "load_model"]

PACKED_TOKENS = 512
"""Most rows of one packed forward, unless a single sequence is longer."""


class Inputs(NamedTuple):
    """What some rows of a forward are.

    Attributes:
        rows: which, int64.
        states: [rows, hidden_size].
    """

    rows: torch.Tensor
    states: torch.Tensor


def load_model(
    path: Path, *, dtype: torch.dtype, device: str = "cpu", threads: int | None = None, int4: bool = False
) -> Model:
    """Load a GGUF file or a directory of safetensors.

    Args:
        path: the file or the directory.
        dtype: torch.float32, or torch.bfloat16 for the fastest arithmetic of at least that precision.
        device: "cpu" or a CUDA device.
        threads: of torch, for the whole process; None leaves torch's choice.
        int4: multiply up to four rows by 4-bit GGUF weights as they lie in the file (int4.py tells the price);
            bfloat16 on a CPU only.

    Raises:
        ModelFileError: missing, damaged or unsupported.
        ValueError: int4 with another dtype or device.
    """
    if int4 and (dtype != torch.bfloat16 or torch.device(device).type != "cpu"):
        raise ValueError(f"int4 needs dtype bfloat16 on a CPU; got {dtype} on {device}")
    if threads is not None:
        torch.set_num_threads(threads)
    checkpoint = read_checkpoint(path)
    quants = checkpoint.weights.quants if int4 and isinstance(checkpoint.weights, GgufWeights) else None
    return Model.from_state_dict(
        checkpoint.config, checkpoint.weights, dtype=dtype, device=device, quants=quants
    )


class Model:
    """A loaded network. See from_state_dict and load_model."""

    def __init__(self, config: ModelConfig, ends: Ends, layers: list[Layer], precision: Precision) -> None:
        self.config = config
        self.precision = precision
        self.device = ends.embedding.device
        self._ends = ends
        self._layers = layers
        self._rotary = RotaryTable(
            config.rope,
            config.head_dim,
            config.context_tokens,
            dtype=precision.activations,
            device=self.device,
        )
        self._causal = CausalMask(precision.cache, self.device)

    @classmethod
    def from_state_dict(
        cls,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        dtype: torch.dtype,
        device: str = "cpu",
        precision: Precision | None = None,
        quants: QuantsOf | None = None,
    ) -> Model:
        """Build a model from weights under the names that the `transformers` package gives them.

        Args:
            config: sizes and rotary settings.
            weights: tensors of any floating-point type.
            dtype: as for load_model.
            device: as for load_model.
            precision: kernels to use; None = the best for dtype and device.
            quants: as for layers.build_layer.

        A weight is asked for when its layer is built, by as many threads as torch has, so a mapping that makes
        weights when asked keeps the peak low.
        """
        target = torch.device(device)
        precision = precision or choose_precision(dtype, target)
        # Unpacking and packing weights are single-threaded and release the interpreter lock.
        with ThreadPoolExecutor(max_workers=torch.get_num_threads(), thread_name_prefix="load") as pool:
            ends = pool.submit(build_ends, config, weights, precision=precision, device=target)
            build = functools.partial(
                build_layer, config, weights, precision=precision, device=target, quants=quants
            )
            layers = list(pool.map(build, range(config.layers)))
        return cls(config, ends.result(), layers, precision)

    def new_cache(self, slots: int, slot_tokens: int) -> KVCache:
        """Slabs for `slots` sequences of up to `slot_tokens` tokens."""
        return KVCache(
            layers=self.config.layers,
            slots=slots,
            slot_tokens=slot_tokens,
            kv_heads=self.config.kv_heads,
            head_dim=self.config.head_dim,
            dtype=self.precision.cache,
            device=self.device,
        )

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        segments: Sequence[Segment],
        cache: KVCache,
        rows: torch.Tensor | None = None,
        inputs: Inputs | None = None,
    ) -> torch.Tensor:
        """Compute the next tokens of some sequences and store their keys and values.

        Args:
            token_ids: [rows] int64, all segments one after another.
            positions: [rows] int64, the place of each token in its sequence.
            segments: which rows belong to which slot; together they cover every row once. Segments of one token are
                fastest when they come first.
            cache: where the sequences live. Each segment's slot must hold `past` tokens and have room for more.
            rows: rows wanted, in any order; None = all.
            inputs: what some rows are instead of their tokens' embeddings.

        Returns: hidden states after the last norm, [rows wanted, hidden_size].
        """
        plan = CachedPlan(segments, cache, self._causal)
        return self._compute(token_ids, positions, plan, rows, inputs)

    @torch.inference_mode()
    def forward_packed(
        self, cache: KVCache, slot: int, prefix_tokens: int, suffixes: Sequence[Sequence[int]]
    ) -> torch.Tensor:
        """Continue one cached prefix in many ways at once; the cache stays as it is.

        Returns: the hidden state of the last token of each suffix, [suffixes, hidden_size].
        """
        parts: list[torch.Tensor] = []
        for batch in _batches(suffixes):
            lengths = [len(suffix) for suffix in batch]
            last = torch.tensor(lengths, device=self.device).cumsum(0) - 1
            parts.append(self._compute_detached(batch, last, cache, slot, prefix_tokens))
        return torch.cat(parts)

    @torch.inference_mode()
    def embed(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """Mean of each sequence's hidden states, scaled to length 1, [sequences, hidden_size] float32."""
        vectors: list[torch.Tensor] = []
        for batch in _batches(sequences):
            states = self._compute_detached(batch, None).float()
            pieces = states.split([len(sequence) for sequence in batch])
            vectors.extend(piece.mean(dim=0) for piece in pieces)
        return functional.normalize(torch.stack(vectors), dim=-1)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the whole vocabulary, [rows, vocab_size] float32. For label logprobs: log_softmax of these."""
        return self._ends.head(hidden).float()

    @torch.inference_mode()
    def label_logits(self, hidden: torch.Tensor, label_ids: Sequence[int]) -> torch.Tensor:
        """Scores of a few tokens only, [rows, labels] float32: enough for a softmax over the labels."""
        rows = self._ends.head_rows[torch.tensor(label_ids, device=self.device)]
        return functional.linear(hidden.float(), rows.float())

    def _compute_detached(
        self,
        sequences: Sequence[Sequence[int]],
        rows: torch.Tensor | None,
        cache: KVCache | None = None,
        slot: int = 0,
        prefix_tokens: int = 0,
    ) -> torch.Tensor:
        lengths = [len(sequence) for sequence in sequences]
        if prefix_tokens + max(lengths) > self.config.context_tokens:
            raise ValueError(
                f"{prefix_tokens + max(lengths)} tokens; the model takes {self.config.context_tokens}"
            )
        plan = DetachedPlan(
            lengths,
            dtype=self.precision.cache,
            device=self.device,
            cache=cache,
            slot=slot,
            prefix_tokens=prefix_tokens,
        )
        ids = torch.tensor([token for sequence in sequences for token in sequence])
        positions = torch.cat([torch.arange(prefix_tokens, prefix_tokens + length) for length in lengths])
        return self._compute(ids, positions, plan, rows)

    def _compute(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        plan: Plan,
        rows: torch.Tensor | None,
        inputs: Inputs | None = None,
    ) -> torch.Tensor:
        config, eps = self.config, self.config.norm_eps
        query_key_heads = config.heads + config.kv_heads
        x = self._ends.embedding[token_ids.to(self.device)].to(self.precision.activations)
        if inputs is not None:
            x[inputs.rows] = inputs.states.to(x.dtype)
        rotation = self._rotary.rows(positions.to(self.device))
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(rms_norm(x, layer.attention_norm, eps))
            qkv = qkv.view(x.shape[0], query_key_heads + config.kv_heads, config.head_dim)
            q, k = self._rotate(layer, qkv[:, :query_key_heads], rotation)
            mixed = plan.attend(index, q, k, qkv[:, query_key_heads:])
            if rows is not None and index == config.layers - 1:
                # Nothing reads the other rows any more: their keys and values are stored.
                x, mixed = x[rows], mixed[rows]
            # In place where a tensor is ours alone: fresh memory costs page faults, a tenth of a long prefill.
            x += layer.output(mixed)
            gate, up = layer.gate_up(rms_norm(x, layer.mlp_norm, eps)).chunk(2, dim=-1)
            x += layer.down(functional.silu(gate).mul_(up))
        return rms_norm(x, self._ends.norm, eps)

    def _rotate(
        self, layer: Layer, heads: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        split = self.config.heads
        if layer.q_norm is not None and layer.k_norm is not None:
            eps = self.config.norm_eps
            q = rms_norm(heads[:, :split], layer.q_norm, eps)
            k = rms_norm(heads[:, split:], layer.k_norm, eps)
            heads = torch.cat([q, k], dim=1)
        heads = self._rotary.rotate(heads, rotation)
        return heads[:, :split], heads[:, split:]


def _batches(sequences: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Cut a list of sequences into runs of at most PACKED_TOKENS tokens, or of one sequence."""
    batches: list[list[Sequence[int]]] = []
    tokens = 0
    for sequence in sequences:
        if not sequence:
            raise ValueError("a sequence without tokens has no hidden state")
        if not batches or tokens + len(sequence) > PACKED_TOKENS:
            batches.append([])
            tokens = 0
        batches[-1].append(sequence)
        tokens += len(sequence)
    if not batches:
        raise ValueError("no sequences")
    return batches
