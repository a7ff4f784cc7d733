"""read_question(): one form or the other, only a type's own members, and each fault by name."""

import pytest

from gateway.decisions.question_form import QuestionMalformed, read_question
from smg_proto.decision.v1 import question_pb2 as q


def options(question):
    return [(each.key, each.description.text or each.description.json) for each in question.options]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"type": "choice", "criteria": {"a": "x", "b": None}}, [("a", "x"), ("b", "")]),
        (
            {"type": "choice", "choices": [{"key": "a", "description": "x"}, {"key": "b"}]},
            [("a", "x"), ("b", "")],
        ),
        ({"type": "score", "criteria": ["low", {"a": 1}]}, [("", "low"), ("", '{"a":1}')]),
        ({"type": "score", "levels": ["low", "high"]}, [("", "low"), ("", "high")]),
        ({"type": "noul", "criteria": {"true": "x"}}, [("true", "x")]),
        ({"type": "noul", "choices": [{"key": "false", "description": "y"}]}, [("false", "y")]),
        ({"type": "noul", "instructions": "x", "criteria": None}, []),
        ({"type": "set", "criteria": {"a": "x"}}, [("a", "x")]),
        ({"type": "span", "labels": [{"key": "a"}], "threshold": 1}, [("a", "")]),
        ({"type": "box", "instructions": "the dog", "at": 1.5}, []),
        ({"type": "noul", "instructions": "x", "preset": "p"}, []),
    ],
)
def test_both_forms_mean_the_same(raw, expected):
    question = read_question("q", raw)
    assert options(question) == expected
    assert q.QuestionType.Name(question.type) == f"QUESTION_TYPE_{raw['type'].upper()}"


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"type": "set", "labels": [{"key": "a"}], "colour": "red"}, "set questions do not take ['colour']"),
        ({"type": "nope"}, "'nope'"),
        ({}, "type is null"),
        ("text", "must be an object"),
        ({"type": "choice", "criteria": {"a": None, "b": None}, "choices": []}, "takes one of them"),
        ({"type": "choice", "criteria": {"only": None}}, "at least 2 options"),
        ({"type": "choice", "criteria": ["a", "b"]}, "must be an object"),
        ({"type": "choice"}, "criteria is null"),
        ({"type": "choice", "choices": [{"key": "a"}, {"key": "a"}]}, "differ"),
        ({"type": "choice", "criteria": {" ": None, "b": None}}, "blank"),
        ({"type": "score", "criteria": ["one"]}, "at least 2 levels"),
        ({"type": "score", "criteria": {"0": "low"}}, "must be an array"),
        ({"type": "score", "criteria": ["low", None]}, "criteria[1] is null"),
        ({"type": "noul", "instructions": 4}, "instructions is 4"),
        ({"type": "noul", "instructions": "x", "threshold": 0.5}, "threshold"),
        ({"type": "set", "labels": [{"key": "a", "color": 1}]}, "labels[0] does not take"),
        ({"type": "set", "labels": [{"key": 1}]}, "labels[0].key is 1"),
        ({"type": "set", "labels": {"a": "x"}}, "must be an array"),
        ({"type": "set", "criteria": {"a": None}, "threshold": "high"}, "threshold is 'high'"),
        ({"type": "set", "criteria": {"a": 5}}, "criteria.a is 5"),
    ],
)
def test_a_fault_is_named(raw, word):
    with pytest.raises(QuestionMalformed) as caught:
        read_question("q", raw)
    assert word in str(caught.value)


def test_numbers_of_any_size_survive():
    assert (
        read_question("q", {"type": "noul", "instructions": {"n": 1 << 80}}).instructions.json
        == f'{{"n":{1 << 80}}}'
    )
