"""Turns the metadata of a model file into one frozen description of a Llama-family network.

A description either is right for the network that model.py builds or does not come to be: whatever this engine
would compute wrongly (another activation, a partial rotary factor, an unknown rotary scaling) is refused here by
name. Formats: config.json as the `transformers` package writes it; GGUF keys from the specification in
github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")
HF_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


class ModelFileError(ValueError):
    """A model file is missing, damaged, or of a kind that this engine does not compute."""


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Rotary scaling of Llama 3.1 and later: long waves are stretched, short ones kept."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_tokens: int


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding."""

    theta: float = 10_000.0
    linear_factor: float = 1.0
    """Every wave length is multiplied by this; 1.0 changes nothing."""
    llama3: Llama3Scaling | None = None
    wave_factors: tuple[float, ...] | None = None
    """One factor per rotary pair by which its wave length is multiplied (GGUF `rope_freqs`); None = none."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A decoder of the Llama family. Sizes are numbers of elements."""

    architecture: str
    """As the file names it, for messages and model cards."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context_tokens: int
    """Most tokens of one sequence, prompt and output together."""
    norm_eps: float = 1e-5
    rope: RopeConfig = RopeConfig()
    tied_head: bool = False
    """The output head is the embedding table."""
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
        ):
            if getattr(self, name) < 1:
                raise ModelFileError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.heads % self.kv_heads:
            raise ModelFileError(f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise ModelFileError(f"head_dim is {self.head_dim}; rotary embedding needs an even number")
        if self.context_tokens < 1:
            raise ModelFileError(f"context_tokens is {self.context_tokens}; it must be at least 1")


class _Fields:
    """Numbers out of a file's key/value pairs; a missing or odd one is refused by name."""

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "") -> None:
        self.values = values
        self._source = source
        self._prefix = prefix

    def get(self, key: str) -> Any:
        return self.values.get(self._prefix + key)

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None:
            if default is None:
                raise ModelFileError(f"{self._source} has no {self._prefix}{key}")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelFileError(f"{self._prefix}{key} of {self._source} is {value!r}; a number is needed")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value < 1 or value != int(value):
            raise ModelFileError(f"{self._prefix}{key} of {self._source} is {value}; it must be at least 1")
        return int(value)

    def require(self, key: str, allowed: float | str) -> None:
        """Refuse any other value than the one that is computed here; a missing key means that one."""
        value = self.get(key)
        if value is not None and value != allowed:
            raise ModelFileError(
                f"{self._prefix}{key} of {self._source} is {value!r}; only {allowed!r} is supported"
            )


def config_from_gguf(metadata: Mapping[str, Any], *, vocab_size: int, has_head: bool) -> ModelConfig:
    """Read the `<architecture>.*` keys.

    Args:
        metadata: all key/value pairs of the file.
        vocab_size: rows of the embedding table (the key `vocab_size` is optional in the format).
        has_head: the file has a separate output head.

    Raises:
        ModelFileError: another architecture, or a network that is not computed here.
    """
    name = metadata.get("general.architecture")
    if name not in GGUF_ARCHITECTURES:
        raise ModelFileError(
            f"unknown GGUF architecture {name!r}; supported: {', '.join(GGUF_ARCHITECTURES)}"
        )
    fields = _Fields(metadata, "the GGUF file", f"{name}.")
    heads, hidden = fields.count("attention.head_count"), fields.count("embedding_length")
    head_dim = fields.count("attention.key_length", hidden // heads)
    fields.require("rope.dimension_count", head_dim)
    fields.require("attention.value_length", head_dim)
    context = fields.count("context_length")
    tokens = _Fields(metadata, "the GGUF file", "tokenizer.ggml.")
    stops = [tokens.get(f"{role}_token_id") for role in ("eos", "eot", "eom")]
    return ModelConfig(
        architecture=name,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=fields.count("feed_forward_length"),
        layers=fields.count("block_count"),
        heads=heads,
        kv_heads=fields.count("attention.head_count_kv", heads),
        head_dim=head_dim,
        context_tokens=min(context, fields.count("attention.sliding_window", context)),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope=_gguf_rope(fields),
        tied_head=not has_head,
        eos_token_ids=tuple(dict.fromkeys(int(number) for number in stops if number is not None)),
        bos_token_id=tokens.get("bos_token_id"),
    )


def _gguf_rope(fields: _Fields) -> RopeConfig:
    kind = fields.get("rope.scaling.type") or "none"
    if kind not in ("none", "linear"):
        raise ModelFileError(f"unknown rotary scaling {kind!r} in the GGUF file; supported: none, linear")
    factor = fields.number("rope.scaling.factor", 1.0) if kind == "linear" else 1.0
    return RopeConfig(theta=fields.number("rope.freq_base", 10_000.0), linear_factor=factor)


def config_from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """Read a parsed config.json.

    A model with a sliding attention window is served up to the window, where both kinds of attention are equal.

    Raises:
        ModelFileError: another architecture, or a network that is not computed here.
    """
    name = (config.get("architectures") or [None])[0]
    if name not in HF_ARCHITECTURES:
        raise ModelFileError(f"unknown architecture {name!r}; supported: {', '.join(HF_ARCHITECTURES)}")
    fields = _Fields(config, "config.json")
    fields.require("hidden_act", "silu")
    fields.require("partial_rotary_factor", 1.0)
    heads, hidden = fields.count("num_attention_heads"), fields.count("hidden_size")
    context = fields.count("max_position_embeddings")
    # Qwen2 writes a window beside a flag that says whether it is used; Mistral has the window alone.
    if config.get("use_sliding_window", True):
        context = min(context, fields.count("sliding_window", context))
    eos = config.get("eos_token_id")
    return ModelConfig(
        architecture=name,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size"),
        layers=fields.count("num_hidden_layers"),
        heads=heads,
        kv_heads=fields.count("num_key_value_heads", heads),
        head_dim=fields.count("head_dim", hidden // heads),
        context_tokens=context,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=_hf_rope(config),
        tied_head=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
        bos_token_id=config.get("bos_token_id"),
    )


def _hf_rope(config: Mapping[str, Any]) -> RopeConfig:
    # Two spellings: rope_theta beside rope_scaling, and since transformers 5 both in rope_parameters.
    fields = _Fields(config.get("rope_parameters") or config.get("rope_scaling") or {}, "the rotary scaling")
    theta = fields.number("rope_theta", _Fields(config, "config.json").number("rope_theta", 10_000.0))
    fields.require("partial_rotary_factor", 1.0)
    kind = fields.get("rope_type") or fields.get("type") or "default"
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, linear_factor=fields.number("factor"))
    if kind == "llama3":
        stretch = Llama3Scaling(
            factor=fields.number("factor"),
            low_freq_factor=fields.number("low_freq_factor"),
            high_freq_factor=fields.number("high_freq_factor"),
            original_context_tokens=fields.count("original_max_position_embeddings"),
        )
        return RopeConfig(theta=theta, llama3=stretch)
    raise ModelFileError(f"unknown rotary scaling {kind!r}; supported: default, linear, llama3")


_HF_NAMES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def config_to_hf(config: ModelConfig) -> dict[str, Any]:
    """Write a config.json that the `transformers` package builds the same network from."""
    architecture = _HF_NAMES.get(config.architecture, config.architecture)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope.theta}
    if config.rope.linear_factor != 1.0:
        rope |= {"rope_type": "linear", "factor": config.rope.linear_factor}
    if config.rope.llama3 is not None:
        stretch = dataclasses.asdict(config.rope.llama3)
        stretch["original_max_position_embeddings"] = stretch.pop("original_context_tokens")
        rope |= {"rope_type": "llama3", **stretch}
    return {
        "architectures": [architecture],
        "model_type": architecture.removesuffix("ForCausalLM").lower(),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_tokens,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": rope,
        # Readers from before transformers 5 look for these two.
        "rope_theta": config.rope.theta,
        "rope_scaling": None if rope["rope_type"] == "default" else rope,
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied_head,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(config.eos_token_ids),
    }
