"""Tokenizer files from GGUF: cut as the model's own tokenizer cuts, special tokens marked, written once."""

import json
import os

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers

from servicers.local.config import ModelFileError
from servicers.local.tokenizer_files import (
    CUTTINGS,
    KEPT_DIRECTORIES,
    build_tokenizer,
    tokenizer_directory,
    write_tokenizer_files,
)
from tests.unit.servicers.local.gguf_files import write_gguf

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
TOKENS = ["<unk>", "<s>", "</s>", "<tool>", *BYTES, "he", "ll", "hell", "hello", "Ġhello", "12"]
METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 77,
    "llama.embedding_length": 4,
    "llama.feed_forward_length": 4,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.merges": ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2"],
    "tokenizer.ggml.token_type": [2, 3, 3, 4, *[1] * (len(TOKENS) - 4)],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.padding_token_id": 2,
    "tokenizer.chat_template": "{{ messages }}é",
}


def model_file(folder, name="m.gguf", **changes):
    table = np.zeros((len(TOKENS), 4), np.float32)
    return write_gguf(folder / name, {**METADATA, **changes}, {"token_embd.weight": table})


def tokenizer(**changes) -> Tokenizer:
    metadata = {**METADATA, "tokenizer.ggml.token_type": np.array(METADATA["tokenizer.ggml.token_type"])}
    return build_tokenizer({**metadata, **changes})


def pieces(pre: str, text: str) -> list[str]:
    """How text is cut before merging; bytes are shown as in the vocabulary (Ġ is a space, Ċ a line feed)."""
    cutter = tokenizer(**{"tokenizer.ggml.pre": pre})
    normalized = cutter.normalizer.normalize_str(text) if cutter.normalizer else text
    return [piece for piece, _ in cutter.pre_tokenizer.pre_tokenize_str(normalized)]


# Every row was derived by hand from the pattern; what differs between the families is what is worth a row.
@pytest.mark.parametrize(
    ("text", "gpt2", "smollm", "llama3", "qwen2"),
    [
        ("It's  a", "It 's Ġ Ġa", "It 's Ġ Ġa", "It 's Ġ Ġa", "It 's Ġ Ġa"),
        ("IT'S", "IT ' S", "IT ' S", "IT 'S", "IT 'S"),  # contractions in capitals
        ("a 12345", "a Ġ12345", "a Ġ 1 2 3 4 5", "a Ġ 123 45", "a Ġ 1 2 3 4 5"),
        ("x  1", "x Ġ Ġ1", "x ĠĠ 1", "x Ġ Ġ 1", "x Ġ Ġ 1"),  # white space before a digit
        ("\n\n7", "Ċ Ċ 7", "ĊĊ 7", "ĊĊ 7", "ĊĊ 7"),
        ("(foo", "( foo", "( foo", "(foo", "(foo"),  # one sign joins the word behind it
        ("!!\n\na", "!! Ċ Ċ a", "!! Ċ Ċ a", "!!ĊĊ a", "!!ĊĊ a"),  # line feeds join signs before them
        ("a \n b", "a ĠĊ Ġb", "a ĠĊ Ġb", "a ĠĊ Ġb", "a ĠĊ Ġb"),
    ],
)
def test_text_is_cut_as_each_family_cuts_it(text, gpt2, smollm, llama3, qwen2):
    expected = {"gpt-2": gpt2, "smollm": smollm, "llama-bpe": llama3, "qwen2": qwen2}
    assert {pre: " ".join(pieces(pre, text)) for pre in CUTTINGS} == expected


def test_only_qwen2_composes_accents():
    assert [len("".join(pieces(pre, "e\u0301"))) for pre in CUTTINGS] == [3, 3, 3, 2]


def test_llama3_prefers_a_token_that_is_the_whole_piece():
    without_merge = {"tokenizer.ggml.merges": ["h e"], "tokenizer.ggml.pre": "llama-bpe"}
    assert tokenizer(**without_merge).encode("hello").tokens == ["hello"]
    assert tokenizer(**{**without_merge, "tokenizer.ggml.pre": "qwen2"}).encode("hello").tokens == [
        *["he", "l", "l", "o"]
    ]


def test_any_bytes_survive_the_round_trip():
    made = tokenizer()
    text = "hello \x00 é 東京 🙂 \u200d\r\n"
    assert made.decode(made.encode(text).ids) == text


def test_control_tokens_are_special_and_user_tokens_are_not():
    added = tokenizer().get_added_tokens_decoder()
    assert {token.content: token.special for token in added.values()} == {
        "<unk>": True,
        "<s>": True,
        "</s>": True,
        "<tool>": False,
    }
    assert tokenizer().encode("hello</s><tool>").ids == [TOKENS.index("hello"), 2, 3]


def test_a_first_token_is_added_only_where_the_file_says_so():
    assert tokenizer().encode("hello").tokens == ["hello"]
    adding = tokenizer(**{"tokenizer.ggml.add_bos_token": True})
    assert adding.encode("hello").tokens == ["<s>", "hello"]
    assert adding.encode("hello", add_special_tokens=False).tokens == ["hello"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "unknown GGUF tokenizer 'llama'; supported: gpt2"),
        ({"tokenizer.ggml.pre": "tekken"}, "unknown GGUF pre-tokenizer 'tekken'; supported: gpt-2, smollm"),
        ({"tokenizer.ggml.merges": None}, "no key tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["h zzz"]}, "merges do not fit"),
        ({"tokenizer.ggml.merges": ["hello"]}, "merges do not fit"),
    ],
)
def test_what_cannot_be_built_is_named(changes, message):
    with pytest.raises(ModelFileError, match=message):
        tokenizer(**changes)


def test_a_token_id_outside_the_vocabulary_is_refused(tmp_path):
    model = model_file(tmp_path, **{"tokenizer.ggml.bos_token_id": 9999})
    with pytest.raises(ModelFileError, match="bos_token_id is 9999"):
        write_tokenizer_files(model, tmp_path)


def test_the_four_files_say_what_readers_look_for(tmp_path):
    folder = tokenizer_directory(model_file(tmp_path), tmp_path / "cache")
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode("hello").tokens == ["hello"]
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 77
    assert settings["chat_template"] == "{{ messages }}é"
    roles = [settings[f"{role}_token"] for role in ("bos", "eos", "unk", "pad")]
    assert roles == ["<s>", "</s>", "<unk>", "</s>"]
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [2], "bos_token_id": 1, "pad_token_id": 2}
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


def test_a_directory_is_made_once_and_again_when_the_model_changes(tmp_path):
    model, cache = model_file(tmp_path), tmp_path / "cache"
    first = tokenizer_directory(model, cache)
    (first / "mark").touch()
    assert tokenizer_directory(model, cache) == first
    assert (first / "mark").exists()
    model_file(tmp_path, **{"llama.context_length": 78})
    os.utime(model, ns=(1, 1))
    second = tokenizer_directory(model, cache)
    assert second != first
    assert json.loads((second / "tokenizer_config.json").read_text())["model_max_length"] == 78


def test_old_directories_go_when_there_are_too_many(tmp_path):
    cache = tmp_path / "cache"
    made = [
        tokenizer_directory(model_file(tmp_path, f"{i}.gguf"), cache) for i in range(KEPT_DIRECTORIES + 3)
    ]
    assert made[-1].exists()
    assert len(list(cache.iterdir())) == KEPT_DIRECTORIES


def test_a_failed_writing_leaves_nothing_behind(tmp_path):
    cache = tmp_path / "cache"
    with pytest.raises(ModelFileError):
        tokenizer_directory(model_file(tmp_path, **{"tokenizer.ggml.pre": "tekken"}), cache)
    assert list(cache.iterdir()) == []


def test_a_directory_of_safetensors_is_its_own_tokenizer_directory(tmp_path):
    with pytest.raises(ModelFileError, match=r"no tokenizer\.json"):
        tokenizer_directory(tmp_path, tmp_path / "cache")
    (tmp_path / "tokenizer.json").touch()
    assert tokenizer_directory(tmp_path, tmp_path / "cache") == tmp_path
