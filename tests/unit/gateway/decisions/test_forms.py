"""form_of(): the type of questions and the names beside it decide, nothing else."""

import pytest

from gateway.decisions.forms import form_of

ARRAY, OBJECT = [], {}


@pytest.mark.parametrize(
    ("body", "form"),
    [
        ({"input": "x", "questions": ARRAY}, "openai"),
        ({"state": "x", "questions": ARRAY}, "openai"),
        ({"questions": ARRAY}, "openai"),
        ({"state": "x", "questions": OBJECT}, "state"),
        ({"questions": OBJECT}, "state"),
        ({"states": {}}, "state"),
        ({"state": None}, "state"),
        ({"state": "x", "input": "x"}, "state"),
        ({"state": "x", "input": "x", "questions": OBJECT}, "state"),
        ({"input": "x", "questions": OBJECT}, "neither"),
        ({"input": "x"}, "openai"),
        ({"input": "x", "questions": "text"}, "openai"),
        ({}, "openai"),
        ({"model": "state", "options": {"state": 1}}, "openai"),
    ],
)
def test_the_form(body, form):
    assert form_of(body) == form
