"""Tokenizer.table: what is written of each token is made once, and never for more ids than there are tokens."""

import pytest

from smg.prompt.builder import PromptBuilder


def upper(data):
    return data.decode("utf-8", "replace").upper()


def length(data):
    return str(len(data))


@pytest.fixture(scope="module")
def tokenizer(tokenizer_dir):
    return PromptBuilder.load(tokenizer_dir).tokenizer


def test_each_function_has_a_table_of_its_own_and_keeps_it(tokenizer):
    table = tokenizer.table(upper)
    assert table[300] == upper(tokenizer.token_bytes(300))
    assert table[300] is table[300]
    assert tokenizer.table(upper) is table
    assert tokenizer.table(length)[300] == str(len(tokenizer.token_bytes(300)))


@pytest.mark.parametrize("token", [-1, 1 << 31], ids=str)
def test_ids_that_an_engine_invents_are_empty_and_are_not_kept(tokenizer, token):
    table = tokenizer.table(length)
    assert table[token] == "0"
    assert token not in table
