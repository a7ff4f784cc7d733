"""refuse_heavy counts what a JSON reader would make, wherever its slices are cut, and never looks into texts."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.openai import weight
from gateway.openai.weight import refuse_heavy
from smg.errors import MalformedRequest

TEXTS = st.text(alphabet='a,[{"\\\n é', max_size=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXTS, inner, max_size=5)),
    max_leaves=20,
)


def counts(value):
    """Values but for the last of each container, which no comma follows; and objects."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    below = [counts(each) for each in inner]
    mine = isinstance(value, dict | list) + max(0, len(below) - 1)
    return mine + sum(each[0] for each in below), isinstance(value, dict) + sum(each[1] for each in below)


def is_refused(body):
    try:
        refuse_heavy(body)
    except MalformedRequest:
        return True
    return False


@settings(deadline=None)
@given(VALUES, st.integers(1, 30), st.booleans())
def test_it_counts_alike_however_it_is_cut(value, slice_bytes, escapes):
    body = json.dumps(value, ensure_ascii=escapes).encode()
    values, objects = counts(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight, "_SLICE_BYTES", slice_bytes)
        for most_values, most_objects in ((values, objects), (values - 1, objects), (values, objects - 1)):
            patch.setattr(weight, "MAX_VALUES", most_values)
            patch.setattr(weight, "MAX_OBJECTS", most_objects)
            assert is_refused(body) == (values > most_values or objects > most_objects)


def test_long_texts_full_of_signs_are_no_values():
    refuse_heavy(json.dumps({"a": '{"b": [1, 2, 3]}, \\' * 200_000}).encode())


@pytest.mark.parametrize(
    "body", [b"[" * 1_000_001, b"{" * 100_001, b"1," * 1_000_001], ids=["lists", "objects", "numbers"]
)
def test_too_many_are_refused_whether_or_not_it_is_json(body):
    with pytest.raises(MalformedRequest, match="at most 1000000 are read, 100000 of them objects"):
        refuse_heavy(body)


def test_a_million_token_ids_are_read():
    refuse_heavy(json.dumps({"prompt": [1234567] * 999_999}).encode())
