"""What a chat body is answered with, from bytes to error: taken, a fault of shape, or a broken rule that is named."""

import pytest

from tests.openai_bodies import USER, chat_refusal, error_body

TAKEN, SHAPE, RULE = None, "json_parse_error", 400


def function(name="f", **more):
    return {"type": "function", "function": {"name": name, **more}}


def schema(value, name="n"):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": value}}}


def choice(value, *names):
    return {"tool_choice": value, "tools": [function(name) for name in names]}


def allowed(mode, *names):
    return {
        "type": "allowed_tools",
        "mode": mode,
        "tools": [{"type": "function", "name": name} for name in names],
    }


def messages(*items):
    return {"messages": list(items)}


NAMED = {"type": "function", "function": {"name": "f"}}
LOOP = {"$ref": "#"}
ENDLESS = {"type": "object", "properties": {"next": LOOP}, "required": ["next"]}

# Members, the answer's code, the member that is named.
CASES = [
    # numbers: ends of the ranges, and one step beyond
    *(({name: value}, TAKEN, "") for name in ("temperature", "repetition_penalty") for value in (0, 2)),
    *(({name: value}, TAKEN, "") for name in ("presence_penalty", "frequency_penalty") for value in (-2, 2)),
    *(({name: value}, RULE, name) for name in ("temperature", "repetition_penalty") for value in (-0.1, 2.1)),
    *(
        ({name: value}, RULE, name)
        for name in ("presence_penalty", "frequency_penalty")
        for value in (-2.1, 2.1)
    ),
    ({"top_p": 1}, TAKEN, ""),
    ({"top_p": 0.0001}, TAKEN, ""),
    ({"top_p": 0}, RULE, "top_p"),
    ({"top_p": 1.1}, RULE, "top_p"),
    ({"top_k": -1}, TAKEN, ""),
    ({"top_k": 1}, TAKEN, ""),
    ({"top_k": 0}, RULE, "top_k"),
    ({"top_k": -2}, RULE, "top_k"),
    ({"min_p": 1}, TAKEN, ""),
    ({"min_p": 1.5}, RULE, "min_p"),
    ({"n": 10}, TAKEN, ""),
    ({"n": 0}, RULE, "n"),
    ({"n": 11}, RULE, "n"),
    ({"n": -1}, SHAPE, "n"),
    ({"max_tokens": 1}, TAKEN, ""),
    ({"max_tokens": 0}, RULE, "max_tokens"),
    ({"max_tokens": -1}, SHAPE, "max_tokens"),
    ({"max_tokens": 2**32 - 1}, RULE, "max_tokens"),
    ({"max_completion_tokens": 0}, RULE, "max_completion_tokens"),
    ({"max_completion_tokens": 1, "max_tokens": 9}, TAKEN, ""),
    ({"min_tokens": 0}, TAKEN, ""),
    ({"min_tokens": 5, "max_tokens": 5}, TAKEN, ""),
    ({"min_tokens": 6, "max_tokens": 5}, RULE, "min_tokens"),
    ({"min_tokens": 6, "max_completion_tokens": 5, "max_tokens": 9}, RULE, "min_tokens"),
    ({"temperature": 5, "top_p": 3, "n": 50}, RULE, "n"),
    # log-probabilities, stream options
    ({"logprobs": True, "top_logprobs": 20}, TAKEN, ""),
    ({"logprobs": True, "top_logprobs": 0}, TAKEN, ""),
    ({"logprobs": False}, TAKEN, ""),
    ({"logprobs": True, "top_logprobs": 21}, RULE, "top_logprobs"),
    ({"top_logprobs": 2}, RULE, "top_logprobs"),
    ({"logprobs": False, "top_logprobs": 0}, RULE, "top_logprobs"),
    ({"stream": True, "stream_options": {}}, TAKEN, ""),
    ({"stream_options": {"include_usage": True}}, RULE, "stream_options"),
    ({"stream": False, "stream_options": {}}, RULE, "stream_options"),
    ({"stream": "yes"}, SHAPE, "stream"),
    # stop sequences, biases
    ({"stop": "x"}, TAKEN, ""),
    ({"stop": ["a", "b", "c", "d"]}, TAKEN, ""),
    ({"stop": []}, TAKEN, ""),
    ({"stop": "x" * 4096}, TAKEN, ""),
    ({"stop": ""}, RULE, "stop"),
    ({"stop": [""]}, RULE, "stop"),
    ({"stop": ["a", ""]}, RULE, "stop"),
    ({"stop": ["a", "b", "c", "d", "e"]}, RULE, "stop"),
    ({"stop": "x" * 1_000_000}, RULE, "stop"),
    ({"stop_token_ids": [0]}, TAKEN, ""),
    ({"stop_token_ids": [0] * 5000}, RULE, "stop_token_ids"),
    ({"logit_bias": {"1": 200}}, TAKEN, ""),
    ({"logit_bias": {}}, TAKEN, ""),
    ({"logit_bias": {"abc": 1}}, RULE, "logit_bias"),
    ({"logit_bias": {"": 1}}, RULE, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, RULE, "logit_bias"),
    ({"logit_bias": {"4294967296": 1}}, RULE, "logit_bias"),
    ({"logit_bias": {"9" * 1_000_000: 1}}, RULE, "logit_bias"),
    ({"logit_bias": {str(n): 1 for n in range(100_000)}}, RULE, "logit_bias"),
    # messages
    (messages(), RULE, "messages"),
    (messages(*[USER] * 20_001), RULE, "messages"),
    (messages({"role": "user"}), SHAPE, "messages[0].content"),
    (messages({"role": "user", "content": ""}), RULE, "messages[0].content"),
    (messages({"role": "user", "content": []}), RULE, "messages[0].content"),
    (messages({"role": "user", "content": "   "}), TAKEN, ""),
    (messages({"role": "alien", "content": "x"}), SHAPE, "messages[0].role"),
    (messages({"role": "root", "content": "x"}, USER), RULE, "messages[0].role"),
    (messages({"role": "developer", "content": "x"}, USER), TAKEN, ""),
    (messages({"role": "function", "name": "f", "content": "x"}, USER), TAKEN, ""),
    (messages({"role": "system"}, USER), TAKEN, ""),
    (messages(USER, {"role": "tool", "content": "sunny"}), SHAPE, "messages[1].tool_call_id"),
    (messages(USER, {"role": "tool", "tool_call_id": "c", "content": ""}), TAKEN, ""),
    # tools and the choice among them
    ({"tools": []}, TAKEN, ""),
    ({"tools": [function(), function()]}, TAKEN, ""),
    ({"tools": [{**function(), "type": "weird"}]}, TAKEN, ""),
    ({"tools": [function(parameters=None)]}, TAKEN, ""),
    ({"tools": [function(parameters={})]}, TAKEN, ""),
    ({"tools": [function(parameters="str")]}, RULE, "tools[0].function.parameters"),
    ({"tools": [function(), function(parameters=[])]}, RULE, "tools[1].function.parameters"),
    ({"tools": [function(parameters=ENDLESS)]}, RULE, "tools[0].function.parameters"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, SHAPE, "tools[0].function"),
    *(
        ({"tools": [function(name)]}, TAKEN, "")
        for name in ("get-weather", "ns.tool", "天気", "a b", "x" * 256)
    ),
    *(
        ({"tools": [function(name)]}, RULE, "tools[0].function.name")
        for name in ("", 'a"b', "a\\b", "a\nb", "a\0b")
    ),
    ({"tools": [function("x" * 1_000_000)]}, RULE, "tools[0].function.name"),
    ({"functions": [{"name": "f"}], "function_call": "auto"}, TAKEN, ""),
    ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, RULE, "tool_choice"),
    ({"tool_choice": "auto"}, TAKEN, ""),
    ({"tool_choice": "none"}, TAKEN, ""),
    ({"tool_choice": "required"}, RULE, "tool_choice"),
    ({"tool_choice": NAMED}, RULE, "tool_choice"),
    ({"tool_choice": allowed("auto", "f")}, RULE, "tool_choice"),
    ({"tool_choice": "maybe"}, SHAPE, "tool_choice"),
    (choice(NAMED, "f"), TAKEN, ""),
    (choice(NAMED, "g"), RULE, "tool_choice"),
    (choice({"type": "function", "function": {"name": ""}}, "f"), RULE, "tool_choice"),
    (choice(allowed("auto", "f"), "f", "g"), TAKEN, ""),
    (choice(allowed("required", "f", "g"), "f", "g"), TAKEN, ""),
    (choice(allowed("auto", "nope"), "f"), RULE, "tool_choice"),
    (choice(allowed("sometimes", "f"), "f"), RULE, "tool_choice.mode"),
    (choice(allowed("auto"), "f"), TAKEN, ""),
    (choice(allowed("required"), "f"), RULE, "tool_choice"),
    (choice({"type": "allowed_tools", "allowed_tools": allowed("auto", "f")}, "f"), SHAPE, "tool_choice"),
    # the form of the answer
    ({"response_format": {"type": "text"}, "regex": "a"}, TAKEN, ""),
    ({"response_format": {"type": "json_object"}}, TAKEN, ""),
    ({"response_format": {"type": "json_schema"}}, SHAPE, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": None}}, SHAPE, "response_format.json_schema"),
    ({"response_format": {"type": "xml"}}, SHAPE, "response_format.type"),
    (schema({}), TAKEN, ""),
    (schema({}, name=""), RULE, "response_format.json_schema.name"),
    *((schema(value), RULE, "response_format.json_schema.schema") for value in ("x", [], True, 1, None)),
    (schema(LOOP), RULE, "response_format.json_schema.schema"),
    (schema(ENDLESS), RULE, "response_format.json_schema.schema"),
    ({"regex": "a", "ebnf": "b"}, RULE, "regex"),
    ({"regex": "a", "response_format": {"type": "json_object"}}, RULE, "regex"),
    ({"ebnf": "a", "response_format": {"type": "json_object"}}, RULE, "ebnf"),
    ({"regex": "a", **schema({})}, RULE, "regex"),
    ({"regex": "a", **choice("required", "f")}, RULE, "regex"),
    ({"regex": "a", **choice("auto", "f")}, TAKEN, ""),
    ({"regex": ""}, RULE, "regex"),
    ({"ebnf": "x" * 100_000}, RULE, "ebnf"),
    # reasoning
    ({"reasoning_effort": 5}, TAKEN, ""),
    ({"reasoning_effort": "x" * 65}, RULE, "reasoning_effort"),
    ({"reasoning_effort": 10**100}, RULE, "reasoning_effort"),
    ({"thinking": {}}, TAKEN, ""),
    ({"thinking": {"type": "adaptive", "more": 1}}, TAKEN, ""),
    ({"thinking": {"effort": "x" * 65}}, RULE, "thinking.effort"),
    # the rest
    ({"model": ""}, RULE, "model"),
    ({"rid": "r-1"}, TAKEN, ""),
    ({"rid": "a b"}, RULE, "rid"),
    ({"rid": "x" * 257}, RULE, "rid"),
    ({"lora_path": "x" * 1025}, RULE, "lora_path"),
    ({"user": "u", "metadata": {"a": "b"}, "store": True, "verbosity": "low"}, TAKEN, ""),
    ({"modalities": ["text"]}, TAKEN, ""),
    (
        {"chat_template_kwargs": {"tool_choice": "mine", "response_format": "mine", "thinking": None}},
        TAKEN,
        "",
    ),
    *(
        ({"chat_template_kwargs": {name: 1}}, RULE, "chat_template_kwargs")
        for name in ("messages", "tools", "add_generation_prompt", "chat_template", "tokenize")
    ),
]


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    CASES,
    ids=[f"{number}-{str(case[0])[:60]}" for number, case in enumerate(CASES)],
)
def test_a_chat_body_is_answered(fields, code, named):
    error = chat_refusal({"model": "m", "messages": [USER], **fields})
    if code is TAKEN:
        assert error is None
        return
    assert error_body(error)["code"] == code
    assert named in error.message
    assert named in error.param


def test_all_broken_rules_are_told_at_once():
    error = chat_refusal(
        {"model": "m", "messages": [USER], "temperature": 5, "top_p": 3, "n": 50, "stop": ""}
    )
    assert all(text in error.message for text in ("temperature is 5", "top_p is 3", "n is 50", "stop"))
