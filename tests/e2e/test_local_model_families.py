"""Small random networks of every supported family, saved by `transformers`, give its logits when loaded here."""

import pytest
import torch

from servicers.local.config import ModelFileError
from servicers.local.model import Segment, load_model

pytestmark = pytest.mark.slow

SIZES = {
    "vocab_size": 200,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 400,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def build(family: str, **more):
    import transformers

    config = getattr(transformers, f"{family}Config")(**SIZES, **more)
    torch.manual_seed(0)
    network = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    # Fresh norms are all ones and fresh biases zeros: a loader that mixed them up would not be seen.
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return network


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("Llama", {}),
        ("Llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3_ROPE}),
        ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
        ("Llama", {"head_dim": 16, "attention_bias": True, "mlp_bias": True}),
        ("Mistral", {"sliding_window": None}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    ],
)
@pytest.mark.parametrize("shard_size", ["50GB", "40KB"])
def test_logits_equal_transformers(tmp_path, family, more, shard_size):
    network = build(family, **more)
    network.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard_size == "40KB")
    model = load_model(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 200, (300,), generator=torch.Generator().manual_seed(1))
    hidden = model.forward(ids, torch.arange(300), [Segment(0, 0, 300, 0)], model.new_cache(1, 300))
    with torch.inference_mode():
        expected = network(ids[None]).logits[0]
    torch.testing.assert_close(model.logits(hidden), expected, rtol=1e-3, atol=2e-4)


def test_a_sliding_window_bounds_the_context(tmp_path):
    build("Mistral", sliding_window=100).save_pretrained(tmp_path)
    assert load_model(tmp_path, dtype=torch.float32).config.context_tokens == 100


def test_another_rotary_scaling_is_refused(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 100}
    build("Llama", rope_parameters=yarn).save_pretrained(tmp_path)
    with pytest.raises(
        ModelFileError, match="unknown rotary scaling 'yarn'; supported: default, linear, llama3"
    ):
        load_model(tmp_path, dtype=torch.float32)
