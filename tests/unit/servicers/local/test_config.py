"""ModelConfig: what the network needs is read, what it would compute wrongly is refused by name."""

import dataclasses

import numpy as np
import pytest

from servicers.local.config import ModelFileError, config_from_gguf, config_from_hf, config_to_hf
from tests.unit.servicers.local.tiny_model import LIKE_QWEN3, TINY

HF = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def from_gguf(**changes):
    metadata = {**GGUF, **changes}
    return config_from_gguf(
        {k: v for k, v in metadata.items() if v is not None}, vocab_size=100, has_head=False
    )


def test_defaults_of_a_config_file():
    config = config_from_hf(HF)
    assert (config.kv_heads, config.head_dim, config.tied_head) == (4, 16, False)
    assert (config.rope.theta, config.eos_token_ids, config.bos_token_id) == (10_000.0, (), None)


@pytest.mark.parametrize("config", [TINY, LIKE_QWEN3, dataclasses.replace(TINY, eos_token_ids=(3, 4))])
def test_a_written_config_reads_back_the_same(config):
    back = config_from_hf(config_to_hf(config))
    assert dataclasses.replace(back, architecture=config.architecture) == config


@pytest.mark.parametrize(
    ("spelling", "theta"),
    [
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}}, 5e5),
    ],
)
def test_both_spellings_of_rotary_settings_are_read(spelling, theta):
    assert config_from_hf({**HF, **spelling}).rope.theta == theta


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"sliding_window": None}, 512),
        ({"sliding_window": 128}, 128),
        ({"sliding_window": 128, "use_sliding_window": False}, 512),
        ({"sliding_window": 9999}, 512),
    ],
)
def test_a_sliding_window_bounds_the_context(changes, tokens):
    assert config_from_hf({**HF, **changes}).context_tokens == tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": None}, "unknown architecture None; supported: LlamaForCausalLM"),
        ({"hidden_act": "gelu"}, "hidden_act of config.json is 'gelu'; only 'silu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "unknown rotary scaling 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, "has no low_freq_factor"),
        ({"hidden_size": None}, "config.json has no hidden_size"),
        ({"hidden_size": "64"}, "hidden_size of config.json is '64'; a number is needed"),
        ({"num_attention_heads": 0}, "num_attention_heads of config.json is 0"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"head_dim": 15}, "head_dim is 15"),
    ],
)
def test_a_config_file_that_would_compute_wrongly_is_refused(changes, message):
    with pytest.raises(ModelFileError, match=message):
        config_from_hf({**HF, **changes})


def test_gguf_stop_tokens_are_all_kept_once():
    stops = {"eos": 5, "eot": 7, "eom": 5}
    config = from_gguf(**{f"tokenizer.ggml.{role}_token_id": number for role, number in stops.items()})
    assert config.eos_token_ids == (5, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"general.architecture": "mamba"},
            "unknown GGUF architecture 'mamba'; supported: llama, qwen2, qwen3",
        ),
        ({"llama.block_count": None}, "the GGUF file has no llama.block_count"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count of the GGUF file is 8; only 16"),
        ({"llama.attention.value_length": 8}, "value_length"),
        ({"llama.rope.scaling.type": "yarn"}, "unknown rotary scaling 'yarn'"),
        ({"llama.attention.head_count_kv": np.array([1, 2])}, "head_count_kv of the GGUF file is array"),
    ],
)
def test_gguf_metadata_that_would_compute_wrongly_is_refused(changes, message):
    with pytest.raises(ModelFileError, match=message):
        from_gguf(**changes)


def test_gguf_linear_scaling_is_read():
    config = from_gguf(**{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    assert config.rope.linear_factor == 4.0
