"""read_tokenizer_directory finds what models are published with, and names the file that is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from smg.prompt.directory import read_tokenizer_directory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    return tmp_path


def write(directory: Path, name: str, content: Any) -> None:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_a_bare_tokenizer_is_enough(directory: Path) -> None:
    found = read_tokenizer_directory(directory)
    assert (found.named_tokens, found.eos_ids, found.templates) == ({}, frozenset(), {})


def test_without_tokenizer_json_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        read_tokenizer_directory(tmp_path)


def test_named_tokens_may_be_strings_or_objects_and_the_config_wins(directory: Path) -> None:
    write(
        directory,
        "special_tokens_map.json",
        {"bos_token": "<old>", "pad_token": "<pad>", "additional_special_tokens": ["<x>"]},
    )
    write(
        directory,
        "tokenizer_config.json",
        {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "unk_token": None},
    )
    assert read_tokenizer_directory(directory).named_tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
    }


@pytest.mark.parametrize(
    ("generation", "model", "expected"),
    [
        ({"eos_token_id": [1, 2]}, {"eos_token_id": 3}, {1, 2}),
        ({"eos_token_id": 1}, {}, {1}),
        ({}, {"eos_token_id": 3}, {3}),
        ({"eos_token_id": None}, {"eos_token_id": [4]}, {4}),
    ],
)
def test_end_ids_come_from_the_generation_config_first(
    directory: Path, generation: dict[str, Any], model: dict[str, Any], expected: set[int]
) -> None:
    write(directory, "generation_config.json", generation)
    write(directory, "config.json", model)
    assert read_tokenizer_directory(directory).eos_ids == expected


def test_templates_in_files_win_over_the_config(directory: Path) -> None:
    named = [
        {"name": "default", "template": "a"},
        {"name": "tool_use", "template": "b"},
        {"name": "rag", "template": "c"},
    ]
    write(directory, "tokenizer_config.json", {"chat_template": named})
    assert read_tokenizer_directory(directory).templates == {"default": "a", "tool_use": "b", "rag": "c"}
    write(directory, "chat_template.json", {"chat_template": "d"})
    write(directory, "additional_chat_templates/tool_use.jinja", "e")
    assert read_tokenizer_directory(directory).templates == {"default": "d", "tool_use": "e", "rag": "c"}
    write(directory, "chat_template.jinja", "f")
    assert read_tokenizer_directory(directory).templates == {"default": "f", "tool_use": "e", "rag": "c"}


@pytest.mark.parametrize(("content", "says"), [("{", "not valid JSON"), ("[1]", "must hold a JSON object")])
def test_a_broken_file_is_named(directory: Path, content: str, says: str) -> None:
    write(directory, "tokenizer_config.json", content)
    with pytest.raises(ValueError, match=rf"tokenizer_config\.json.* {says}"):
        read_tokenizer_directory(directory)


def test_named_templates_may_be_an_object_too(directory: Path) -> None:
    write(directory, "tokenizer_config.json", {"chat_template": {"default": "a", "tool_use": "b"}})
    write(directory, "chat_template.json", {"chat_template": [{"name": "rag", "template": "c"}]})
    assert read_tokenizer_directory(directory).templates == {"default": "a", "tool_use": "b", "rag": "c"}


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.json"])
@pytest.mark.parametrize(
    "wrong",
    [
        5,
        [],
        {},
        ["a"],
        [{"name": "a"}],
        [{"name": "a", "template": 1}],
        [{"name": 1, "template": "a"}],
        {"a": 1},
        [{"name": "a", "template": "x"}, {"name": "a", "template": "y"}],
    ],
    ids=str,
)
def test_a_template_entry_of_another_form_names_its_file(directory: Path, name: str, wrong: Any) -> None:
    write(directory, name, {"chat_template": wrong})
    with pytest.raises(ValueError, match=f"{name}: chat_template must be"):
        read_tokenizer_directory(directory)


def test_a_template_file_that_is_not_utf_8_is_named(directory: Path) -> None:
    write(directory, "chat_template.jinja", b"\xff")
    with pytest.raises(ValueError, match=r"chat_template\.jinja is not UTF-8"):
        read_tokenizer_directory(directory)
