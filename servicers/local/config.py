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
        for name in ("vocab_size", "hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ModelFileError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.heads % self.kv_heads:
            raise ModelFileError(f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise ModelFileError(f"head_dim is {self.head_dim}; rotary embedding needs an even number")
        if self.context_tokens < 1:
            raise ModelFileError(f"context_tokens is {self.context_tokens}; it must be at least 1")


def config_from_gguf(metadata: Mapping[str, Any], *, vocab_size: int, has_head: bool) -> ModelConfig:
    """Read the `<architecture>.*` keys.

    Args:
        metadata: all key/value pairs of the file.
        vocab_size: rows of the embedding table (the key `vocab_size` is optional in the format).
        has_head: the file has a separate output head.
    """
    name = metadata.get("general.architecture")
    if name not in GGUF_ARCHITECTURES:
        raise ModelFileError(f"unknown GGUF architecture {name!r}; supported: {', '.join(GGUF_ARCHITECTURES)}")

    def need(key: str) -> Any:
        value = metadata.get(f"{name}.{key}")
        if value is None:
            raise ModelFileError(f"the GGUF file has no key {name}.{key}")
        return value

    heads, hidden = int(need("attention.head_count")), int(need("embedding_length"))
    if heads < 1:
        raise ModelFileError(f"{name}.attention.head_count is {heads}; it must be at least 1")
    head_dim = int(metadata.get(f"{name}.attention.key_length", hidden // heads))
    _check_same(f"{name}.rope.dimension_count", metadata.get(f"{name}.rope.dimension_count"), head_dim)
    _check_same(f"{name}.attention.value_length", metadata.get(f"{name}.attention.value_length"), head_dim)
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    more_eos = (metadata.get("tokenizer.ggml.eot_token_id"), metadata.get("tokenizer.ggml.eom_token_id"))
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    context = int(need("context_length"))
    return ModelConfig(
        architecture=name,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=int(need("feed_forward_length")),
        layers=int(need("block_count")),
        heads=heads,
        kv_heads=int(metadata.get(f"{name}.attention.head_count_kv", heads)),
        head_dim=head_dim,
        context_tokens=min(context, int(metadata.get(f"{name}.attention.sliding_window") or context)),
        norm_eps=float(need("attention.layer_norm_rms_epsilon")),
        rope=_gguf_rope(metadata, name),
        tied_head=not has_head,
        eos_token_ids=tuple(dict.fromkeys(int(i) for i in (eos, *more_eos) if i is not None)),
        bos_token_id=None if bos is None else int(bos),
    )


def _check_same(key: str, value: Any, expected: int) -> None:
    if value is not None and int(value) != expected:
        raise ModelFileError(f"{key} is {value}; only {expected} (the whole head) is supported")


def _gguf_rope(metadata: Mapping[str, Any], name: str) -> RopeConfig:
    kind = metadata.get(f"{name}.rope.scaling.type", "none")
    factor = 1.0
    if kind == "linear":
        factor = float(metadata.get(f"{name}.rope.scaling.factor", 1.0))
    elif kind != "none":
        raise ModelFileError(f"unknown rotary scaling {kind!r} in {name}.rope.scaling.type; supported: none, linear")
    return RopeConfig(theta=float(metadata.get(f"{name}.rope.freq_base", 10_000.0)), linear_factor=factor)


def config_from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """Read a parsed config.json.

    A model with a sliding attention window is served up to the window, where both kinds of attention are equal.
    """
    name = (config.get("architectures") or [None])[0]
    if name not in HF_ARCHITECTURES:
        raise ModelFileError(f"unknown architecture {name!r}; supported: {', '.join(HF_ARCHITECTURES)}")

    def need(key: str) -> Any:
        value = config.get(key)
        if value is None:
            raise ModelFileError(f"config.json has no {key!r}")
        return value

    for key, allowed in (("hidden_act", "silu"), ("partial_rotary_factor", 1.0)):
        if config.get(key, allowed) != allowed:
            raise ModelFileError(f"{key} is {config[key]!r}; only {allowed!r} is supported")
    heads, hidden = int(need("num_attention_heads")), int(need("hidden_size"))
    if heads < 1:
        raise ModelFileError(f"num_attention_heads is {heads}; it must be at least 1")
    eos, bos = config.get("eos_token_id"), config.get("bos_token_id")
    return ModelConfig(
        architecture=name,
        vocab_size=int(need("vocab_size")),
        hidden_size=hidden,
        intermediate_size=int(need("intermediate_size")),
        layers=int(need("num_hidden_layers")),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        context_tokens=_hf_context(config, int(need("max_position_embeddings"))),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=_hf_rope(config),
        tied_head=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (int(eos),),
        bos_token_id=None if bos is None else int(bos),
    )


def _hf_context(config: Mapping[str, Any], positions: int) -> int:
    # Qwen2 writes a window beside a flag that says whether it is used; Mistral has the window alone.
    window = config.get("sliding_window")
    if not window or not config.get("use_sliding_window", True):
        return positions
    return min(positions, int(window))


def _hf_rope(config: Mapping[str, Any]) -> RopeConfig:
    # Two spellings: rope_theta beside rope_scaling, and since transformers 5 both in rope_parameters.
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    if float(scaling.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ModelFileError("partial_rotary_factor is not 1.0; only whole heads are rotated here")
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, linear_factor=float(scaling["factor"]))
    if kind == "llama3":
        try:
            stretch = Llama3Scaling(
                factor=float(scaling["factor"]),
                low_freq_factor=float(scaling["low_freq_factor"]),
                high_freq_factor=float(scaling["high_freq_factor"]),
                original_context_tokens=int(scaling["original_max_position_embeddings"]),
            )
        except KeyError as error:
            raise ModelFileError(f"llama3 rotary scaling without {error}") from error
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
