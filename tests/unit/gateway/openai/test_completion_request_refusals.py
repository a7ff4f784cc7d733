"""What a completion body is answered with, from bytes to error: taken, a fault of shape, or a broken rule."""

import pytest

from tests.openai_bodies import completion_refusal, error_body

TAKEN, SHAPE, RULE = None, "json_parse_error", 400

CASES = [
    ({}, TAKEN, ""),
    ({"prompt": ""}, TAKEN, ""),
    ({"prompt": ["", "x"]}, TAKEN, ""),
    ({"prompt": [1, 2, 3]}, TAKEN, ""),
    ({"prompt": [[1], [2]]}, TAKEN, ""),
    ({"prompt": []}, RULE, "prompt"),
    ({"prompt": [[]]}, RULE, "prompt"),
    ({"prompt": [[1], []]}, RULE, "prompt[1]"),
    ({"prompt": None}, SHAPE, "prompt"),
    ({"prompt": ["a"] * 1025}, RULE, "prompt"),
    ({"prompt": ["a"] * 9, "n": 128}, RULE, "prompt"),
    ({"prompt": ["a"] * 1024}, TAKEN, ""),
    ({"prompt": ["a"] * 100, "best_of": 20}, RULE, "prompt"),
    ({"n": 128}, TAKEN, ""),
    ({"n": 0}, RULE, "n"),
    ({"n": 129}, RULE, "n"),
    ({"n": 100_000, "best_of": 100_000, "logprobs": 100_000}, RULE, "n"),
    ({"best_of": 3}, TAKEN, ""),
    ({"best_of": 3, "n": 2}, TAKEN, ""),
    ({"best_of": 0}, RULE, "best_of"),
    ({"best_of": 1}, RULE, "best_of"),
    ({"best_of": 2, "n": 2}, RULE, "best_of"),
    ({"best_of": 1, "n": 2}, RULE, "best_of"),
    ({"best_of": 21}, RULE, "best_of"),
    ({"best_of": 3, "stream": True}, RULE, "best_of"),
    ({"best_of": None, "stream": True}, TAKEN, ""),
    ({"logprobs": 0}, TAKEN, ""),
    ({"logprobs": 5}, TAKEN, ""),
    ({"logprobs": 6}, RULE, "logprobs"),
    ({"logprobs": True}, SHAPE, "logprobs"),
    ({"max_tokens": 0}, TAKEN, ""),
    ({"max_tokens": -1}, SHAPE, "max_tokens"),
    ({"max_completion_tokens": 2**32 - 1}, RULE, "max_completion_tokens"),
    ({"min_tokens": 3, "max_tokens": 2}, RULE, "min_tokens"),
    ({"temperature": 3}, RULE, "temperature"),
    ({"top_p": 0}, RULE, "top_p"),
    ({"frequency_penalty": -3}, RULE, "frequency_penalty"),
    ({"presence_penalty": 3}, RULE, "presence_penalty"),
    ({"stop": ["a", "b", "c", "d"]}, TAKEN, ""),
    ({"stop": ["a", "b", "c", "d", "e"]}, RULE, "stop"),
    ({"stop": ""}, RULE, "stop"),
    ({"stream": True, "stream_options": {"include_usage": True}}, TAKEN, ""),
    ({"stream_options": {"include_usage": True}}, RULE, "stream_options"),
    ({"echo": True, "max_tokens": 0, "suffix": "END", "user": "u", "foo": 1}, TAKEN, ""),
    ({"rid": "c-1"}, TAKEN, ""),
    ({"rid": "x y"}, RULE, "rid"),
    ({"json_schema": '{"type": "object"}'}, TAKEN, ""),
    ({"json_schema": "{}"}, TAKEN, ""),
    ({"json_schema": "{}", "regex": "a"}, RULE, "regex"),
    ({"json_schema": "{}", "ebnf": "a"}, RULE, "ebnf"),
    ({"regex": "a", "ebnf": "b"}, RULE, "regex"),
    *(
        ({"json_schema": text}, RULE, "json_schema")
        for text in (
            "",
            "not json",
            "[]",
            '"x"',
            "true",
            "null",
            "1",
            '{"$ref":"#"}',
            '{"a":NaN}',
            '{"a":1e999}',
        )
    ),
    ({"json_schema": '{"a":' * 5000 + "1" + "}" * 5000}, RULE, "json_schema"),
    ({"json_schema": " " * (1 << 20) + "{}"}, RULE, "json_schema"),
    ({"model": ""}, RULE, "model"),
    ({"model": None}, SHAPE, "model"),
]


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    CASES,
    ids=[f"{number}-{str(case[0])[:60]}" for number, case in enumerate(CASES)],
)
def test_a_completion_body_is_answered(fields, code, named):
    error = completion_refusal({"model": "m", "prompt": "x", **fields})
    if code is TAKEN:
        assert error is None
        return
    assert error_body(error)["code"] == code
    assert named in error.message
    assert named in error.param
