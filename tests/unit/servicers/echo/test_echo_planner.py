"""Planner: finds the last user message in raw token bytes, reads no more than it must, and remembers within bounds."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from servicers.base import CannotStart
from servicers.echo.model import load_model
from servicers.echo.planner import TAIL_TOKENS, Planner
from servicers.token_bytes import ids_to_bytes

OPEN = "<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def model(tokenizer_dir):
    return load_model(str(tokenizer_dir), "m", None)


@pytest.fixture
def planner(model):
    return Planner(model, is_endless=False)


def user(model, text: str) -> list[int]:
    return model.encode(f"<|im_start|>user\n{text}<|im_end|>\n")


def reply(planner, model, ids) -> str:
    return model.decode(planner.script(ids_to_bytes(ids), 0).ids)


def test_bytes_of_neighbours_that_look_like_a_mark_are_none(model, planner):
    start, role = model.encode("<|im_start|>user")
    # The mark, one byte late: it lies across three ids.
    shifted = b"\x05" + ids_to_bytes([start, role]) + b"\0\0\0"
    prompt = ids_to_bytes(user(model, "[[say:found]]")) + shifted + ids_to_bytes(model.encode(OPEN))
    assert len(prompt) % 4 == 0
    assert model.decode(planner.script(prompt, 0).ids) == "found"


def test_the_last_message_is_taken_whole_however_long(model, planner):
    ids = user(model, "[[say:old]]") + user(model, "[[say:far away]] " + "long " * 5 * TAIL_TOKENS)
    assert reply(planner, model, ids + model.encode(OPEN)) == "far away"


def test_of_a_prompt_without_marks_only_the_end_is_read(model, planner):
    filler = model.encode("so ") * TAIL_TOKENS
    say = model.encode("[[say:x]]")
    assert reply(planner, model, filler + say) == "x"
    assert reply(planner, model, say + filler) != "x"


def test_a_prompt_without_brackets_is_not_remembered(model, planner):
    for number in range(10):
        planner.script(ids_to_bytes(user(model, f"plain {number}")), 0)
    assert not planner._cache


def test_what_is_remembered_is_bounded_and_right(model):
    planner = Planner(model, is_endless=False, cache_entries=10, cache_bytes=20_000)
    order = [*range(30), *range(29, -1, -1)]
    for number in order:
        script = planner.script(ids_to_bytes(user(model, f"[[say:number {number}]]")), 0)
        assert script.plan.pieces == (f"number {number}",)
    assert len(planner._cache) == 10
    for number in range(10):
        planner.script(ids_to_bytes(user(model, f"{number} [[say:x]] " + "word " * 500)), 0)
    assert 0 < planner._cache_bytes <= 20_000
    assert 0 < len(planner._cache) < 10


def test_choices_are_remembered_apart(model, planner):
    prompt = ids_to_bytes(user(model, "[[say:x]]"))
    texts = [model.decode(planner.script(prompt, choice).ids) for choice in (0, 1, 0, 1)]
    assert texts == ["x", "x [1]", "x", "x [1]"]


@pytest.fixture
def plain_dir(tmp_path):
    """A tokenizer of single bytes without special tokens, and without any other file."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={each: n for n, each in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_tokenizer_without_special_tokens_works_once_its_end_token_is_told(plain_dir):
    with pytest.raises(CannotStart, match="which token ends a sequence"):
        load_model(str(plain_dir), None, None)
    (plain_dir / "config.json").write_text('{"eos_token_id": [7, 8]}')
    model = load_model(str(plain_dir), None, None)
    assert (model.id, model.eos_ids, model.context_length) == (plain_dir.name, (7, 8), 0)
    planner = Planner(model, is_endless=False)
    assert reply(planner, model, model.encode("<|user|>[[say:old]]<|assistant|>..<|user|>[[say:x]]")) == "x"


@pytest.mark.parametrize(
    ("files", "eos"),
    [
        ({"tokenizer_config.json": '{"eos_token": "!"}'}, "!"),
        ({"tokenizer_config.json": '{"eos_token": {"content": "?"}}'}, "?"),
        ({"config.json": '{"eos_token_id": 3}', "generation_config.json": '{"eos_token_id": 4}'}, 4),
    ],
)
def test_the_end_token_comes_from_the_most_telling_file(plain_dir, files, eos):
    for name, text in files.items():
        (plain_dir / name).write_text(text)
    model = load_model(str(plain_dir), None, None)
    assert model.eos_ids == (eos if isinstance(eos, int) else model.tokenizer.token_to_id(eos),)


def test_broken_files_are_named(plain_dir):
    (plain_dir / "config.json").write_text("{")
    with pytest.raises(CannotStart, match=r"config\.json is not JSON"):
        load_model(str(plain_dir), None, None)
    (plain_dir / "tokenizer.json").write_text("{}")
    with pytest.raises(CannotStart, match="not a tokenizer"):
        load_model(str(plain_dir), None, None)
