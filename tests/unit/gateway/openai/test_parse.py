"""parse_body: what is not JSON of the request's shape is a json_parse_error that says where, and says it shortly."""

import json

import pytest

from smg.errors import MalformedRequest
from tests.openai_bodies import USER, error_body, read_chat, read_completion

BODY = {"model": "m", "messages": [USER]}


def malformed(body, content_type=b"application/json", read=read_chat):
    with pytest.raises(MalformedRequest) as caught:
        read(body, content_type)
    assert error_body(caught.value)["code"] == "json_parse_error"
    return caught.value.message


@pytest.mark.parametrize(
    "content_type", [None, b"", b"text/plain", b"application/x-json", b"x" * 5000], ids=lambda t: str(t)[:30]
)
def test_a_body_must_be_declared_as_json(content_type):
    message = malformed(BODY, content_type)
    assert "application/json" in message
    assert len(message) < 200


@pytest.mark.parametrize(
    "content_type", [b"application/json; charset=utf-8", b"Application/JSON", b"application/x+json"]
)
def test_json_may_be_declared_in_other_ways(content_type):
    assert read_chat(BODY, content_type).model == "m"


def with_text(text):
    """A chat body with raw JSON as the message's content."""
    return b'{"model":"m","messages":[{"role":"user","content":%b}]}' % text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"true",
        b'{"model":"m"} x',
        b"{'model':'m'}",
        b'\xef\xbb\xbf{"model":"m","messages":[]}',
        b'{"model":"m","messages":[],"temperature":NaN}',
        b'{"model":"m","messages":[],"temperature":Infinity}',
        b'{"model":"m","messages":[],"temperature":-Infinity}',
        b'{"model":"m","messages":[],"n":1%b}' % (b"0" * 5000),
        with_text(b'"\xff"'),
        with_text(b'"\xed\xa0\xbd"'),
        with_text(rb'"\ud83d"'),
        with_text(rb'"\ud83d\ud83d"'),
        with_text(rb'"\udc00"'),
        with_text(b'"\x00"'),
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"[" * 1_000_000,
    ],
    ids=lambda body: repr(body[:60]),
)
def test_what_is_not_json_is_refused(body):
    assert malformed(body)


SURROGATE_PLACES = {
    "model": '{"model":"§","messages":[]}',
    "role": '{"model":"m","messages":[{"role":"§","content":"x"}]}',
    "tool": '{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"§"}}]}',
    "schema": '{"model":"m","messages":[],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"§":1}}}}',
    "kwargs": '{"model":"m","messages":[],"chat_template_kwargs":{"a":["§"]}}',
    "stop": '{"model":"m","messages":[],"stop":["§"]}',
    "user": '{"model":"m","messages":[],"user":"§"}',
    "rid": '{"model":"m","messages":[],"rid":"§"}',
    "key": '{"model":"m","messages":[],"§":1}',
}


@pytest.mark.parametrize("place", SURROGATE_PLACES)
def test_half_a_character_is_refused_wherever_it_stands(place):
    malformed(SURROGATE_PLACES[place].replace("§", r"\ud83d").encode())


def test_whole_characters_written_as_escapes_are_text():
    assert read_chat(with_text(rb'"\ud83d\ude00 \u0000"')).messages[0].text == "😀 \0"


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{}, "x"]}]}, "messages[0].content[1]"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"stream": "true"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 1.0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"max_tokens": 2**64}, "max_tokens"),
        ({"n": -1}, "n"),
        ({"n": True}, "n"),
        ({"n": 10**300}, "n"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"top_k": 2**40}, "top_k"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"sampling_seed": 2**64}, "sampling_seed"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop[0]"),
        ({"stop": ["a", None]}, "stop[1]"),
        ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]"),
        ({"stop_token_ids": [2**40]}, "stop_token_ids[0]"),
        ({"logit_bias": {"1": "x"}}, "logit_bias.1"),
        ({"logit_bias": {"1": None}}, "logit_bias.1"),
        ({"logit_bias": []}, "logit_bias"),
        ({"logprobs": 1}, "logprobs"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"description": "x"}}]}, "tools[0].function.name"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"functions": [{}]}, "functions[0].name"),
        ({"function_call": {}}, "function_call.name"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
        ),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"reasoning_effort": True}, "reasoning_effort"),
        ({"reasoning_effort": ["low"]}, "reasoning_effort"),
        ({"thinking": "on"}, "thinking"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"thinking": {"effort": 5}}, "thinking.effort"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"metadata": "x"}, "metadata"),
        ({"modalities": "text"}, "modalities"),
        ({"lora_path": ["a"]}, "lora_path"),
        ({"rid": 5}, "rid"),
        ({"user": {}}, "user"),
        ({"return_audio": "yes"}, "return_audio"),
    ],
    ids=lambda value: str(value)[:90],
)
def test_a_wrong_shape_names_the_place(fields, place):
    assert malformed({**BODY, **fields}).split()[0] == place


def test_what_was_found_and_what_is_allowed_are_told():
    assert malformed({**BODY, "stop": 5}) == "stop is 5; it must be a string or an array"
    assert malformed({**BODY, "n": -1}) == "n is -1; it must be greater than or equal to 0"
    assert malformed({"messages": [USER]}) == "model is missing; it is required"
    assert (
        malformed({**BODY, "stop": "x", "n": 1.5, "user": 5}) == "n is 1.5; it must be an integer; and 1 more"
    )


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e999999", "1" * 400 + ".5"], ids=lambda n: n[:20])
@pytest.mark.parametrize(
    "member",
    [
        '"temperature":§',
        '"n":§',
        '"seed":§',
        '"logit_bias":{"1":§}',
        '"reasoning_effort":§',
        '"chat_template_kwargs":{"a":[null,§]}',
        '"metadata":{"a":§}',
        '"tools":[{"type":"function","function":{"name":"f","parameters":{"maximum":§}}}]',
        '"tools":[{"type":"function","function":{"name":"f"},"more":§}]',
        '"functions":[{"name":"f","parameters":{"maximum":§}}]',
        '"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"maximum":§}}}',
    ],
)
def test_a_number_beyond_every_float_is_refused_and_its_member_named(member, number):
    body = f'{{"model":"m","messages":[{{"role":"user","content":"x"}}],{member.replace("§", number)}}}'
    assert member.split('"')[1] in malformed(body.encode())


@pytest.mark.parametrize("number", ["-0", "0", "0e5", "1e-400"])
def test_zero_in_any_spelling_is_a_temperature(number):
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":%b}' % number.encode()
    assert read_chat(body).sampling.temperature == 0


@pytest.mark.parametrize("name", ["model", "messages", "temperature", "stream"])
def test_a_member_that_stands_twice_is_refused(name):
    body = json.dumps({**BODY, "temperature": 1, "stream": False}).encode()
    twice = body.replace(b"{", b'{"%b": null, ' % name.encode(), 1)
    assert malformed(twice).startswith(f"{name} is in the body twice")


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
def test_a_member_that_stands_twice_in_a_long_body_is_refused(separators):
    long = {**BODY, "messages": [{"role": "user", "content": "x" * 10_000}], "seed": 10**18}
    body = json.dumps(long, separators=separators).encode()
    assert read_chat(body).sampling.seed == 10**18
    assert malformed(body[:-1] + b',"seed":1}').startswith("seed is in the body twice")
    assert malformed(body[:-1] + b',"seed":%d}' % 10**30).startswith("seed is in the body twice")


def test_a_text_like_the_name_of_a_member_is_no_member():
    body = {**BODY, "user": "user", "stop": ["stop", "model"], "made_up": {"model": 1, "user": [{"n": 1}]}}
    assert read_chat(body).user == "user"


def test_unknown_members_may_stand_twice():
    assert read_chat(b'{"x":1,"x":2,' + json.dumps(BODY).encode()[1:]).model == "m"


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [1] * 100_000},
        {"messages": [{"role": "user", "content": [1] * 100_000}]},
        {"stop": [1] * 100_000},
        {"stop_token_ids": ["x"] * 100_000},
        {"tools": [1] * 100_000},
        {"modalities": [1] * 100_000},
        {"logit_bias": {str(n): "x" for n in range(100_000)}},
        {"logit_bias": {"9" * 1_000_000: "x"}},
        {"model": ["x" * 1_000_000]},
        {"n": "9" * 1_000_000},
        {"tool_choice": "x" * 1_000_000},
        {"reasoning_effort": [["x"] * 100_000]},
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_full_of_faults_gets_a_short_answer(fields):
    assert len(malformed({**BODY, **fields})) < 1000


@pytest.mark.parametrize(
    ("prompt", "place"),
    [
        (None, "prompt"),
        (5, "prompt"),
        ({}, "prompt"),
        (["a", 1], "prompt[1]"),
        ([[1], "a"], "prompt[1]"),
        ([[1.5]], "prompt[0][0]"),
        ([True], "prompt[0]"),
        ([-1], "prompt[0]"),
        ([[2**33]], "prompt[0][0]"),
        ([["x"] * 100_000], "prompt[0][0]"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_prompt_of_no_known_form_is_named(prompt, place):
    assert malformed({"model": "m", "prompt": prompt}, read=read_completion).split()[0] == place


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"best_of": -1}, "best_of"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"json_schema": {}}, "json_schema"),
        ({"echo": "x"}, "echo"),
        ({"suffix": 1}, "suffix"),
    ],
    ids=str,
)
def test_a_wrong_shape_of_a_completion_names_the_place(fields, place):
    assert malformed({"model": "m", "prompt": "x", **fields}, read=read_completion).split()[0] == place
