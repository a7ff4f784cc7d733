"""completion_request: everything that a completion body says arrives in the message."""

import pytest

from gateway.openai.shapes import CompletionShape
from tests.openai_bodies import completion


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", ""], ["a", ""]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([[]], [[]]),
        ([], []),
        ([0, 2**32 - 1], [[0, 2**32 - 1]]),
    ],
    ids=str,
)
def test_prompts_of_every_form_arrive(prompt, found):
    prompts = completion(prompt=prompt).prompts
    assert [
        each.text if each.WhichOneof("kind") == "text" else list(each.token_ids.ids) for each in prompts
    ] == found


SCALARS = {
    "n": 3,
    "best_of": 4,
    "logprobs": 0,
    "echo": True,
    "suffix": "",
    "json_schema": '{"type":"object"}',
    "return_hidden_states": True,
    "rid": "r-1",
    "user": "u",
    "stream": True,
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_plain_member_arrives(name):
    message = completion(**{name: SCALARS[name]})
    assert getattr(message, name) == SCALARS[name]
    assert message != completion()


def test_nulls_and_unknown_members_count_as_absent():
    nulls = dict.fromkeys(CompletionShape.__annotations__.keys() - {"model", "prompt"})
    assert completion(**nulls, foo=1, messages=5) == completion()


def test_stream_options_arrive():
    assert completion(stream=True, stream_options={"include_usage": True}).stream_options.include_usage
