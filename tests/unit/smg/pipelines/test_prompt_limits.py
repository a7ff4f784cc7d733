"""Prompts are refused before dispatch when they have no token or too many."""

import pytest

from smg.errors import ContextTooLong, InvalidRequest
from smg.pipelines.prompt_limits import check_context, check_output, most_tokens, never_empty
from smg.prompt.builder import TokenPrompt
from smg.prompt.packed import pack_ids
from smg_proto.chat.v1 import options_pb2
from smg_proto.engine.v1 import card_pb2

EMPTY = TokenPrompt(b"", 0, "")


def test_a_prompt_may_fill_the_context():
    check_context(card_pb2.ModelCard(context_length=5), 5)
    check_context(card_pb2.ModelCard(), 10**9)


def test_a_longer_prompt_is_refused_with_both_numbers():
    with pytest.raises(ContextTooLong, match=r"maximum context length is 5 .* has 6 input tokens"):
        check_context(card_pb2.ModelCard(context_length=5), 6)


def test_a_prompt_without_tokens_is_refused():
    with pytest.raises(InvalidRequest, match="no tokens") as caught:
        check_context(card_pb2.ModelCard(context_length=5), 0)
    assert caught.value.is_validation


def test_an_empty_prompt_begins_as_every_text_does():
    assert never_empty(card_pb2.ModelCard(bos_token_id=0), EMPTY) == TokenPrompt(pack_ids([0]), 1, "")
    assert never_empty(card_pb2.ModelCard(), EMPTY) == EMPTY


def test_other_prompts_stay_as_they_are():
    prompt = TokenPrompt(pack_ids([5]), 1, "x")
    assert never_empty(card_pb2.ModelCard(bos_token_id=1), prompt) is prompt


def test_counting_ends_where_a_prompt_is_far_too_long():
    assert most_tokens(card_pb2.ModelCard(context_length=5)) == 20
    assert most_tokens(card_pb2.ModelCard()) is None


def test_an_output_limit_may_be_as_long_as_the_context():
    card = card_pb2.ModelCard(context_length=5)
    check_output(card, options_pb2.SamplingOptions(max_tokens=5))
    check_output(card, options_pb2.SamplingOptions(max_completion_tokens=5, max_tokens=6))
    check_output(card, options_pb2.SamplingOptions())
    check_output(card_pb2.ModelCard(), options_pb2.SamplingOptions(max_tokens=10**9))


def test_a_longer_output_limit_is_refused_with_both_numbers():
    with pytest.raises(ContextTooLong, match=r"is 5 tokens. However, max_completion_tokens is 6"):
        check_output(
            card_pb2.ModelCard(context_length=5), options_pb2.SamplingOptions(max_completion_tokens=6)
        )
