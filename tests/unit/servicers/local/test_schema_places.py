"""schema_places: a compiler's message gets the places in the schema that it is about."""

import json

import pytest

from servicers.local.grammar import GrammarCompiler
from servicers.local.refusal import RefusalError
from servicers.local.schema_places import MAX_PLACES, places_of
from smg_proto.engine.v1.work_pb2 import Constraint
from tests.unit.servicers.local.byte_tokenizer import EOS, VOCAB_SIZE, byte_tokenizer_json

UNIQUE = {"type": "array", "uniqueItems": True}
OVERLAP = {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}


@pytest.fixture(scope="module")
def compiler():
    return GrammarCompiler(byte_tokenizer_json(), vocab_size=VOCAB_SIZE, eos_token_ids=[EOS], capacity=4)


def in_property(name, schema):
    return {"type": "object", "properties": {name: schema}}


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        (UNIQUE, "#/uniqueItems"),
        (in_property("a", {"items": UNIQUE}), "#/properties/a/items/uniqueItems"),
        # The name of a property is no keyword; the values of an enum are no schemas.
        (in_property("not", {"not": {}}), "#/properties/not/not"),
        (in_property("a", {"enum": [{"not": 1}], "not": {}}), "#/properties/a/not"),
        (in_property("a/b~c", {"items": [UNIQUE]}), "#/properties/a~1b~0c/items/0/uniqueItems"),
        (in_property("a", {"if": {}, "not": {}}), "#/properties/a/if, #/properties/a/not"),
        ({"$defs": {"d": UNIQUE}, "$ref": "#/$defs/d"}, "#/$defs/d/uniqueItems"),
        ({"anyOf": [{"type": "null"}, OVERLAP]}, "#/anyOf/1/oneOf"),
        (in_property("when", {"type": "string", "format": "wonk"}), "#/properties/when/format"),
        (in_property("a", {"type": "colour"}), "#/properties/a/type"),
        (in_property("a", {"type": "string", "pattern": "(?=x)"}), "#/properties/a/pattern"),
        (in_property("a", {"type": "number", "multipleOf": "x"}), "#/properties/a/multipleOf"),
    ],
    ids=str,
)
def test_a_refusal_names_the_keyword_and_where_it_stands(compiler, schema, places):
    with pytest.raises(RefusalError) as caught:
        compiler.compile(Constraint(json_schema=json.dumps(schema)))
    assert str(caught.value).endswith(f" (at {places})")


def test_a_fault_without_a_place_gets_none(compiler):
    with pytest.raises(RefusalError) as caught:
        compiler.compile(Constraint(json_schema='{"type": "string", "minLength": 5, "pattern": "^a$"}'))
    assert "(at " not in str(caught.value)


def test_only_the_first_places_are_told():
    schema = {"allOf": [UNIQUE] * 50}
    places = places_of(schema, 'Unimplemented keys: ["uniqueItems"]')
    assert places == [f"#/allOf/{index}/uniqueItems" for index in range(MAX_PLACES)]


@pytest.mark.parametrize("schema", [True, 3, None, [], {}], ids=str)
def test_what_is_no_schema_has_no_places(schema):
    assert places_of(schema, 'Unimplemented keys: ["not"]') == []
