"""LateGrammar: free until a text has come, never ended before it, bound from there on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicers.local.grammar import GrammarCompiler
from servicers.local.late_grammar import LateGrammar, Opening
from servicers.local.refusal import INVALID_ARGUMENT, RefusalError
from smg_proto.engine.v1.work_pb2 import Constraint
from tests.unit.servicers.local.byte_tokenizer import EOS, VOCAB_SIZE, byte_tokenizer_json, ids_of

DIGITS = Constraint(regex="[0-9]{2}", begins_after="</t>")


@pytest.fixture(scope="module")
def compiler():
    return GrammarCompiler(byte_tokenizer_json(), vocab_size=VOCAB_SIZE, eos_token_ids=[EOS], capacity=2)


def put(grammar, text: str) -> None:
    for token in ids_of(text):
        assert grammar.allowed()[token]
        grammar.accept(token)


def test_until_the_text_has_come_everything_but_the_end_is_free(compiler):
    grammar = compiler.compile(DIGITS)
    for text in ("", "x", "<", "/t", " ></t"):
        put(grammar, text)
        allowed = grammar.allowed()
        assert not allowed[EOS]
        assert allowed.sum() == VOCAB_SIZE - 1
        assert not grammar.is_finished


def test_after_the_text_the_form_applies_from_its_first_token_to_its_end(compiler):
    grammar = compiler.compile(DIGITS)
    put(grammar, "12 a</t>")
    assert grammar.allowed().nonzero()[0].tolist() == ids_of("0123456789")
    put(grammar, "42")
    assert grammar.is_finished
    with pytest.raises(RefusalError):
        grammar.accept(ids_of("x")[0])


def test_a_text_that_overlaps_itself_is_found(compiler):
    grammar = compiler.compile(Constraint(regex="z", begins_after="aab"))
    put(grammar, "aaaab")
    assert grammar.allowed().nonzero()[0].tolist() == ids_of("z")


def test_a_text_of_a_special_token_is_found(compiler):
    grammar = compiler.compile(Constraint(regex="z", begins_after="<pad>"))
    grammar.accept(258)
    assert grammar.allowed().nonzero()[0].tolist() == ids_of("z")


@pytest.mark.parametrize(
    ("output", "rest"), [("", ""), ("thinking", ""), ("x</t>", "0123456789"), ("x</t>4", "0123456789")]
)
def test_earlier_output_counts(compiler, output, rest):
    grammar = compiler.compile(DIGITS, ids_of(output))
    allowed = grammar.allowed()
    assert allowed.nonzero()[0].tolist() == ids_of(rest) if rest else not allowed[EOS]


def test_earlier_output_must_follow_the_form_after_the_text(compiler):
    with pytest.raises(RefusalError, match="output_ids do not follow the regex") as caught:
        compiler.compile(DIGITS, ids_of("</t>x"))
    assert caught.value.code == INVALID_ARGUMENT
    assert not compiler.compile(DIGITS, ids_of("xx")).is_finished
    assert compiler.compile(DIGITS, ids_of("</t>42")).is_finished


def test_the_number_of_kept_texts_is_bounded(compiler):
    for number in range(9):
        compiler.compile(Constraint(regex="a", begins_after=f"</{number}>"))
    assert len(compiler._openings) == 2


def test_no_text_means_from_the_first_token(compiler):
    grammar = compiler.compile(Constraint(regex="a", begins_after=""))
    assert not isinstance(grammar, LateGrammar)
    assert grammar.allowed().nonzero()[0].tolist() == ids_of("a")


class Never:
    """A grammar that must not be asked."""

    is_finished = False


@given(
    text=st.binary(min_size=1, max_size=4).map(lambda data: bytes(byte % 3 + 97 for byte in data)),
    words=st.lists(st.text("abc", min_size=1, max_size=5).map(str.encode), min_size=1, max_size=12),
    data=st.data(),
)
def test_the_text_always_ends_where_a_token_ends_and_what_is_forbidden_would_run_past_it(text, words, data):
    vocabulary = [b"a", b"b", b"c", *words, b"<end>"]
    end = len(vocabulary) - 1
    grammar = LateGrammar(Never(), Opening(text, vocabulary, [end]))
    output = b""
    for _ in range(12):
        mask = grammar.allowed()
        assert not mask[end]
        for token, word in enumerate(vocabulary[:-1]):
            runs_past = text in (output + word)[:-1] and text not in output
            assert mask[token] == (not runs_past)
        token = data.draw(st.sampled_from(mask.nonzero()[0].tolist()))
        output += vocabulary[token]
        grammar.accept(token)
        assert grammar.has_begun == (text in output)
        if grammar.has_begun:
            assert output.endswith(text)
            break


def test_white_space_that_another_engine_put_behind_the_text_is_no_part_of_the_form():
    grammar = LateGrammar(Never(), Opening(b"</t>", [b"</t>\n\n", b"</t>{"], []))
    assert grammar.follow(0) == b"\n\n"
    assert grammar.has_begun
