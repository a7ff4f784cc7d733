"""is_endless: a schema is refused only when nothing finite can match it; what is not understood is left to engines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.validation.schema import schema_faults

SELF = {"$ref": "#"}


def node(**more):
    return {"type": "object", "properties": {"next": SELF}, **more}


ENDLESS = [
    SELF,
    {"allOf": [SELF]},
    {"anyOf": [SELF, node(required=["next"])]},
    {"oneOf": [SELF]},
    node(required=["next"]),
    {"type": ["object"], "properties": {"next": SELF}, "required": ["next"]},
    {"type": "array", "items": SELF, "minItems": 1},
    {"type": "array", "prefixItems": [SELF], "minItems": 1},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    # The loop stands in a member that may be left out, and is no schema all the same.
    {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}},
    {"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "array", "minItems": 2, "items": SELF}}},
    {"$ref": "#/allOf/0", "allOf": [{"$ref": "#/allOf/0"}]},
]
ENDING = [
    {},
    node(),
    node(required=["other"]),
    {"properties": {"next": SELF}, "required": ["next"]},  # a number matches
    {"type": ["object", "null"], "properties": {"next": SELF}, "required": ["next"]},
    {"anyOf": [{"type": "null"}, node(required=["next"])]},
    {"type": "object", "properties": {"next": {"anyOf": [SELF, {"type": "null"}]}}, "required": ["next"]},
    {"type": "array", "items": SELF},
    {"type": "array", "prefixItems": [{}], "items": SELF, "minItems": 1},
    {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "required": ["kids"],
            }
        },
    },
    {"$ref": "https://example.com/x"},
    {"$ref": "#anchor"},
    {"$ref": "#/nowhere"},
    {"$ref": "#/allOf/" + "9" * 5000, "allOf": [{}]},
    {"$ref": 5},
    {"properties": {"$ref": {"type": "string"}}, "required": "x", "allOf": 5},
    {"const": SELF},
    {"enum": [SELF], "default": {"$ref": "#/default"}},
    {"type": "object", "properties": {"next": SELF}, "required": [5, None, ["next"]]},
]


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_a_schema_without_an_end_is_named(schema):
    (field, sentence), *rest = schema_faults(json.dumps(schema), "json_schema")
    assert (field, rest) == ("json_schema", [])
    assert "without an end" in sentence


@pytest.mark.parametrize("schema", ENDING, ids=lambda schema: str(schema)[:100])
def test_a_schema_with_an_end_is_taken(schema):
    assert schema_faults(json.dumps(schema), "json_schema") == []


@pytest.mark.parametrize("wrap", [lambda ref: ref, lambda ref: {"allOf": [ref]}], ids=["refs", "allOf"])
@pytest.mark.parametrize("length", [10, 1500, 15_000])
def test_long_chains_of_references_are_taken(wrap, length):
    chain = {f"a{n}": wrap({"$ref": f"#/$defs/a{n + 1}"}) for n in range(length)}
    text = json.dumps({"$defs": chain | {f"a{length}": {"type": "string"}}, "$ref": "#/$defs/a0"})
    assert [sentence for _, sentence in schema_faults(text, "s") if "end" in sentence] == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{} x", "not JSON"),
        ('{"a":NaN}', "not JSON"),
        ('{"a":1e400}', "64 bits"),
        ('{"a":-1E+0400}', "64 bits"),
        ('{"a":' + "1" * 310 + ".0}", "64 bits"),
        ('{"a":' * 300 + "1" + "}" * 300, "not JSON"),
        ("[" * 1_000_000, "not JSON"),
        ("[]", "an array"),
        ("null", "null"),
        ("true", "true"),
        ("5", "a number"),
        ('"x"', "a string"),
        (" " * (1 << 20) + "{}", "at most 1048576"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_no_json_object_is_named(text, word):
    ((field, sentence),) = schema_faults(text, "json_schema")
    assert field == "json_schema"
    assert word in sentence
    assert len(sentence) < 300


@pytest.mark.parametrize(
    "text", ['{"a":1e308}', '{"a":"1e999"}', '{"a":' + "1" * 400 + "}", '{"a":1e-999}'], ids=lambda t: t[:20]
)
def test_numbers_that_can_be_read_are_taken(text):
    assert schema_faults(text, "s") == []


KEYS = st.sampled_from(
    [
        "$ref",
        "$defs",
        "type",
        "properties",
        "required",
        "items",
        "minItems",
        "anyOf",
        "oneOf",
        "allOf",
        "prefixItems",
        "a",
    ]
)
LEAVES = st.sampled_from(
    ["#", "#/$defs/a", "#/properties/a", "#/anyOf/0", "object", "array", "a", 1, 0, None, True]
)
SCHEMAS = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=6,
)


@given(SCHEMAS)
def test_any_json_object_is_judged(schema):
    assert len(schema_faults(json.dumps(schema), "s")) <= 1
