"""load_engine: from a directory on disk to a stepper and a model card, with what is missing said plainly."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import save_file

from servicers.local import loading
from servicers.local.config import ModelFileError, config_to_hf
from servicers.local.loading import load_engine
from servicers.local.settings import LocalSettings
from tests.unit.servicers.local import byte_tokenizer
from tests.unit.servicers.local.tiny_model import TINY, random_weights

CONFIG = dataclasses.replace(
    TINY, vocab_size=byte_tokenizer.VOCAB_SIZE, eos_token_ids=(byte_tokenizer.EOS,), bos_token_id=256
)


@pytest.fixture
def model_dir(tmp_path):
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_to_hf(CONFIG)))
    (folder / "tokenizer.json").write_text(byte_tokenizer.byte_tokenizer_json())
    save_file(random_weights(CONFIG), folder / "model.safetensors")
    return folder


def load(folder, **changes):
    settings = LocalSettings(model_path=folder, dtype="fp32", threads=1, max_running=2, **changes)
    return load_engine(settings, lambda _: None)


def test_the_card_says_what_is_in_the_files(model_dir):
    loaded = load(model_dir)
    (card,) = loaded.description.models
    assert card.id == "tiny-llama"
    assert (card.architecture, card.model_type) == ("LlamaForCausalLM", "llama")
    assert (card.vocab_size, card.context_length, card.embedding_size) == (264, 512, 64)
    assert (list(card.eos_token_ids), card.bos_token_id) == ([byte_tokenizer.EOS], 256)
    assert list(card.capabilities.constraints) == ["json_schema", "regex", "ebnf", "lark"]
    assert card.capabilities.prompt_logprobs
    assert not card.capabilities.classify
    assert loaded.description.max_running == 2
    assert loaded.tokenizer_dir == model_dir
    assert loaded.stepper.load.latest.kv_capacity_tokens == 2 * 512


def test_a_shorter_context_and_another_name_can_be_set(model_dir):
    (card,) = load(model_dir, max_context=100, model_id="mine").description.models
    assert (card.id, card.context_length) == ("mine", 100)
    (card,) = load(model_dir, max_context=100_000).description.models
    assert card.context_length == 512


@pytest.mark.parametrize("tokenizer", [None, '{"model": null}'])
def test_without_a_usable_tokenizer_constraints_are_not_served(model_dir, tokenizer, caplog):
    if tokenizer is None:
        (model_dir / "tokenizer.json").unlink()
    else:
        (model_dir / "tokenizer.json").write_text(tokenizer)
    loaded = load(model_dir)
    assert loaded.grammars is None
    assert not loaded.description.models[0].capabilities.constraints
    assert "constraints" in caplog.text


def test_slots_are_as_many_as_the_memory_allows(model_dir, monkeypatch):
    token_bytes = 2 * 2 * 2 * 16 * 4
    for memory_tokens, slots in ((0, 4), (512 * 25, 10), (10**9, 64)):
        memory = memory_tokens * token_bytes
        monkeypatch.setattr(loading, "_memory_bytes", lambda _, memory=memory: memory)
        settings = LocalSettings(model_path=model_dir, dtype="fp32", threads=1)
        assert load_engine(settings, lambda _: None).description.max_running == slots


def test_the_memory_of_the_machine_is_a_sane_number():
    assert 2**28 < loading._memory_bytes(torch.device("cpu")) < 2**50


def test_what_cannot_be_loaded_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="nowhere"):
        load(tmp_path / "nowhere")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_device_that_is_not_there_is_named(model_dir):
    with pytest.raises(ModelFileError, match="no CUDA device"):
        load(model_dir, device="cuda")
