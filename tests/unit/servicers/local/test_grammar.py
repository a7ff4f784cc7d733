"""GrammarCompiler: masks allow exactly what the constraint allows, and what cannot be compiled is refused."""

import json
import threading

import pytest

from servicers.local import grammar as grammar_module
from servicers.local.grammar import GrammarCompiler, GrammarPool
from servicers.local.refusal import INVALID_ARGUMENT, RefusalError
from servicers.local.schema_cost import refuse_costly
from smg_proto.engine.v1.work_pb2 import Constraint
from tests.unit.servicers.local.byte_tokenizer import EOS, VOCAB_SIZE, byte_tokenizer_json, ids_of

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


@pytest.fixture(scope="module")
def compiler():
    return GrammarCompiler(byte_tokenizer_json(), vocab_size=VOCAB_SIZE, eos_token_ids=[EOS], capacity=4)


def accepts(compiler, constraint: Constraint, text: str) -> bool:
    """Whether the masks lead along the whole text and then allow its end."""
    grammar = compiler.compile(constraint)
    for token in ids_of(text):
        if not grammar.allowed()[token]:
            return False
        grammar.accept(token)
    return bool(grammar.is_finished or grammar.allowed()[EOS])


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (Constraint(regex="[0-9]{3}-(a|b)"), ["123-a", "000-b"], ["12-a", "123-c", "123-ab", ""]),
        (Constraint(regex="^yes|no$"), ["yes", "no"], ["y", "maybe"]),
        (
            Constraint(json_schema=PERSON),
            ['{"name": "Bo", "age": 7}', '{"name":"é","age":150}', '{\n  "name": "",\n  "age": 0\n}'],
            ['{"name": "Bo"}', '{"name": "Bo", "age": 151}', '{"age": 7, "name": "Bo"}', "[]"],
        ),
        (Constraint(json_schema="true"), ["[1, {}]", "null", '"x"'], ["{", "nul"]),
        (Constraint(ebnf='root ::= "a" more\nmore ::= "," "a" more | ""'), ["a", "a,a,a"], ["", "a,", "aa"]),
        (Constraint(lark='start: "a" b?\nb: "b"'), ["a", "ab"], ["b", "abb"]),
    ],
)
def test_a_constraint_allows_what_it_says(compiler, constraint, good, bad):
    assert [text for text in good if not accepts(compiler, constraint, text)] == []
    assert [text for text in bad if accepts(compiler, constraint, text)] == []


def test_white_space_between_json_tokens_is_bounded(compiler):
    assert accepts(compiler, Constraint(json_schema=PERSON), '{ \n "name":"Bo","age":7}')
    assert not accepts(compiler, Constraint(json_schema=PERSON), "{" + " " * 33 + '"name":"Bo","age":7}')


@pytest.mark.parametrize(
    ("constraint", "named"),
    [
        (
            Constraint(json_schema='{"type": "object", "unevaluatedProperties": false}'),
            "unevaluatedProperties",
        ),
        (Constraint(json_schema='{"type": "string", "format": "wonk"}'), "wonk"),
        (Constraint(json_schema='{"not": {"type": "string"}, "x-guidance": {"lenient": true}}'), '"not"'),
        (Constraint(json_schema='{"type": "colour"}'), "colour"),
        (Constraint(json_schema="{"), "not JSON"),
        (Constraint(json_schema="[1]"), "JSON list"),
        (Constraint(json_schema='{"allOf": [{"type": "string"}, {"type": "null"}]}'), "nsatisfiable"),
        (Constraint(json_schema="false"), "allows nothing"),
        (Constraint(regex="([a"), "unclosed"),
        (Constraint(regex="(?=a)b"), "look-ahead"),
        (Constraint(ebnf='start ::= "a"'), "no rule 'root'"),
        (Constraint(lark="start: missing"), "missing"),
        (Constraint(lark=""), "mpty"),
        (Constraint(structural_tag="{}"), "structural_tag"),
        (Constraint(), "None"),
        (Constraint(json_schema='{"$ref": "#"}'), "refers to itself without end"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value}",
)
def test_what_cannot_be_compiled_is_refused_by_name(compiler, constraint, named):
    with pytest.raises(RefusalError, match=named) as caught:
        compiler.compile(constraint)
    assert caught.value.code == INVALID_ARGUMENT
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("regex", ["(a?){300}a{300}", "((a{1,1000}){1,1000}){1,1000}", "(a{1,9999}){1,9999}"])
def test_a_constraint_beyond_the_limits_is_the_client_s_fault_whenever_it_shows(compiler, regex):
    with pytest.raises(RefusalError, match="too large") as caught:
        accepts(compiler, Constraint(regex=regex), "a" * 2000)
    assert caught.value.code == INVALID_ARGUMENT
    assert len(caught.value.message) < 500
    assert "non-verbose" not in caught.value.message


def test_a_schema_too_deep_to_parse_is_refused(compiler):
    with pytest.raises(RefusalError, match="not JSON"):
        compiler.compile(Constraint(json_schema="[" * 100_000))


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def properties(count, **more):
    return {"type": "object", "properties": {f"p{number}": {} for number in range(count)}, **more}


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (nested(90), "cannot be compiled: recursion limit"),
        (properties(1001), "an object with 1001 optional properties; allowed: 1000"),
        ({"anyOf": [properties(990)] * 17}, "an object with 990 optional properties; .* at most 16 objects"),
    ],
    ids=["deep", "many properties", "many in several objects"],
)
def test_a_schema_that_is_too_much_for_the_compiler_is_the_client_s_fault(compiler, schema, named):
    with pytest.raises(RefusalError, match=named) as caught:
        compiler.compile(Constraint(json_schema=json.dumps(schema)))
    assert caught.value.code == INVALID_ARGUMENT
    assert len(caught.value.message) < 500


def test_required_properties_may_be_many(compiler):
    schema = properties(4100, required=[f"p{number}" for number in range(4100)])
    assert compiler.compile(Constraint(json_schema=json.dumps(schema)))


def forms_of_forms(count):
    """So many forms of which each may be any of them, or null."""
    names = range(count)
    forms = {
        f"d{one}": {"anyOf": [{"$ref": f"#/$defs/d{other}"} for other in names] + [{"type": "null"}]}
        for one in names
    }
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "required": ["x"], "$defs": forms}


def test_forms_that_lead_to_too_many_forms_are_refused_before_they_are_followed(compiler):
    with pytest.raises(
        RefusalError, match="too many alternatives lead to alternatives; allowed: 2000"
    ) as caught:
        compiler.compile(Constraint(json_schema=json.dumps(forms_of_forms(60))))
    assert caught.value.code == INVALID_ARGUMENT


def test_forms_that_lead_to_some_forms_are_followed(compiler):
    assert accepts(compiler, Constraint(json_schema=json.dumps(forms_of_forms(20))), '{"x":null}')


def test_a_grammar_with_too_many_ways_to_go_on_is_too_large(compiler):
    names = [f"d{number}" for number in range(50)]
    rules = "\n".join(f'{name}: {" | ".join(names)} | "null"' for name in names)
    with pytest.raises(RefusalError, match="the constraint is too large") as caught:
        accepts(compiler, Constraint(lark=f'start: "x" d0\n{rules}'), "xnull")
    assert caught.value.code == INVALID_ARGUMENT


def test_a_token_that_takes_too_long_is_the_last_one(compiler, monkeypatch):
    """Somebody else's step waits for it: once is enough."""
    grammar = compiler.compile(Constraint(regex="[0-9]+"))
    grammar.allowed()
    monkeypatch.setattr(grammar_module, "MOST_SECONDS", 0.0)
    with pytest.raises(RefusalError, match="one token of it took more than 0 s") as caught:
        grammar.allowed()
    assert caught.value.code == INVALID_ARGUMENT
    with pytest.raises(RefusalError):
        grammar.accept(ids_of("1")[0])


def test_many_alternatives_that_lead_nowhere_are_followed(compiler):
    schema = {"anyOf": [{"const": number} for number in range(1500)]}
    assert accepts(compiler, Constraint(json_schema=json.dumps(schema)), "1499")


def test_many_forms_that_are_used_once_each_are_followed(compiler):
    forms = {f"d{number}": {"anyOf": [{"type": "integer"}, {"type": "null"}]} for number in range(300)}
    properties = {f"p{number}": {"$ref": f"#/$defs/d{number}"} for number in range(300)}
    schema = {"type": "object", "properties": properties, "$defs": forms}
    assert accepts(compiler, Constraint(json_schema=json.dumps(schema)), '{"p7":null}')


@pytest.mark.parametrize("reference", ["#", "#/$defs/no", "other.json", "#/properties/x/0/y", 5])
def test_references_of_all_kinds_are_looked_at(reference):
    refuse_costly({"properties": {"x": {"$ref": reference}}, "anyOf": [{"$ref": "#"}, True]})


def test_ids_beyond_the_tokenizer_are_never_allowed(compiler):
    mask = compiler.compile(Constraint(regex=".*")).allowed()
    assert mask.shape == (VOCAB_SIZE,)
    assert not mask[259:].any()
    assert mask[EOS]


def test_earlier_output_counts_and_must_follow_the_constraint(compiler):
    constraint = Constraint(regex="abc")
    grammar = compiler.compile(constraint, ids_of("ab"))
    assert grammar.allowed().nonzero()[0].tolist() == ids_of("c")
    assert compiler.compile(constraint, ids_of("abc")).is_finished
    with pytest.raises(RefusalError, match="output_ids do not follow"):
        compiler.compile(constraint, ids_of("ax"))


def test_a_broken_constraint_is_never_taken_for_a_finished_one(compiler):
    grammar = compiler.compile(Constraint(regex="abc"))
    with pytest.raises(RefusalError):
        grammar.accept(ids_of("x")[0])
    assert not grammar.is_finished
    with pytest.raises(RefusalError):
        grammar.allowed()


def test_sequences_of_one_constraint_do_not_share_their_state(compiler):
    constraint = Constraint(regex="ab")
    first, second = compiler.compile(constraint), compiler.compile(constraint)
    first.accept(ids_of("a")[0])
    assert second.allowed().nonzero()[0].tolist() == ids_of("a")


def test_the_number_of_kept_grammars_is_bounded(compiler):
    for number in range(20):
        compiler.compile(Constraint(regex=f"x{number}"))
    assert len(compiler._compiled) == 4
    assert accepts(compiler, Constraint(regex="x0"), "x0")


def test_the_pool_calls_back_with_a_grammar_or_the_refusal(compiler):
    pool = GrammarPool(compiler)
    results, done = [], threading.Semaphore(0)

    def on_done(result):
        results.append(result)
        done.release()

    pool.start(Constraint(regex="a"), [], on_done)
    pool.start(Constraint(regex="("), [], on_done)
    assert done.acquire(timeout=20)
    assert done.acquire(timeout=20)
    pool.stop()
    assert results[0].allowed()[ids_of("a")[0]]
    assert isinstance(results[1], RefusalError)
