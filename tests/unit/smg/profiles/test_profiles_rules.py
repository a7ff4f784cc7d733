"""Every row of the table of validation rules, by its rule code: what breaks it, and what is next to it and does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smg.errors import InvalidRequest
from smg.profiles import profile_for
from smg_proto.chat.v1 import chat_pb2, message_pb2, options_pb2

KIMI, K3, MINIMAX = "moonshotai/Kimi-K2-Instruct", "/models/kimi-k3", "MiniMaxAI/MiniMax-M2"
GLM, GLM53, V4, V41 = "zai-org/GLM-4.6", "GLM-5.3-Air", "deepseek-v4-flash", "x/DeepSeek-V4.1-Flash"
MODES = options_pb2.ToolChoice
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
LONG = "a" * 257


def said(role: str, text: str | None = "x", **fields: Any) -> message_pb2.ChatMessage:
    message = message_pb2.ChatMessage(role=role, **fields)
    if text is not None:
        message.text = text
    return message


def tool(name: str = "f", **members: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}, **members}


def declaring(*tools: Any, role: str = "system", text: str | None = None) -> message_pb2.ChatMessage:
    return said(role, text, tools_json=json.dumps(list(tools)))


def calling(*calls: tuple[str, str]) -> message_pb2.ChatMessage:
    made = [message_pb2.ToolCall(id=each, name="f", arguments=arguments) for each, arguments in calls]
    return said("assistant", None, tool_calls=made)


def answering(call_id: str) -> message_pb2.ChatMessage:
    return said("tool", tool_call_id=call_id)


def chat(model: str, *messages: message_pb2.ChatMessage, **fields: Any) -> chat_pb2.ChatRequest:
    return chat_pb2.ChatRequest(model=model, messages=messages or [said("user")], **fields)


def thinking(**fields: Any) -> dict[str, Any]:
    return {"thinking": options_pb2.Thinking(**fields)}


def sampling(**fields: Any) -> dict[str, Any]:
    return {"sampling": options_pb2.SamplingOptions(**fields)}


def part(**fields: Any) -> message_pb2.ChatMessage:
    parts = message_pb2.ContentParts(parts=[message_pb2.ContentPart(**fields)])
    return message_pb2.ChatMessage(role="user", parts=parts)


def variables(**members: Any) -> dict[str, Any]:
    return {"chat_template_kwargs_json": json.dumps(members)}


def forced(mode: int, **fields: Any) -> dict[str, Any]:
    choice = options_pb2.ToolChoice(mode=mode, name="f", **fields)
    return {"tools": [message_pb2.Tool(type="function", name="f")], "tool_choice": choice}


BROKEN: list[tuple[str, chat_pb2.ChatRequest]] = [
    ("tools_role_restricted", chat(KIMI, declaring(tool(), role="user"))),
    ("tools_role_restricted", chat(KIMI, declaring(role="assistant"), said("user"))),
    ("tools_malformed", chat(KIMI, said("system", None, tools_json='{"a": 1}'), said("user"))),
    ("tools_malformed", chat(KIMI, said("system", None, tools_json="[1"), said("user"))),
    ("tools_malformed", chat(KIMI, declaring(3), said("user"))),
    ("tools_malformed", chat(KIMI, declaring({"type": "function"}), said("user"))),
    ("tools_malformed", chat(KIMI, declaring({"type": "function", "function": {"name": 1}}))),
    ("tools_content_conflict", chat(KIMI, declaring(tool(), text="x"))),
    ("tool_type_unsupported", chat(KIMI, declaring(tool(type="web_search")))),
    ("tool_type_unsupported", chat(KIMI, declaring({"type": "builtin"}))),
    ("tool_name_invalid", chat(KIMI, declaring(tool("1f")))),
    ("tool_name_invalid", chat(KIMI, declaring(tool("f\n")))),
    ("tool_name_invalid", chat(KIMI, declaring(tool("é")))),
    ("tool_name_invalid", chat(KIMI, declaring(tool(LONG)))),
    ("tool_name_duplicate", chat(KIMI, declaring(tool("f"), tool("f")))),
    ("tool_name_duplicate", chat(KIMI, declaring(tool()), declaring(tool(), role="developer"))),
    ("tool_name_duplicate", chat(KIMI, declaring(tool()), tools=[message_pb2.Tool(name="f")])),
    ("tool_name_duplicate", chat(K3, declaring(tool("f"), tool("f")))),
    *[("temperature_not_allowed", chat(K3, **sampling(temperature=each))) for each in (0.3, 1.1, 2)],
    *[("top_p_not_allowed", chat(K3, **sampling(top_p=each))) for each in (0.9, 1)],
    ("presence_penalty_not_allowed", chat(K3, **sampling(presence_penalty=0.1))),
    ("frequency_penalty_not_allowed", chat(K3, **sampling(frequency_penalty=-0.1))),
    ("n_not_allowed", chat(K3, n=2)),
    *[
        ("thinking_type_not_supported", chat(m, **thinking(type="adaptive")))
        for m in (K3, GLM, GLM53, V4, V41)
    ],
    *[
        ("thinking_effort_invalid", chat(K3, **thinking(effort=each)))
        for each in ("none", "minimal", "medium", "xhigh", "")
    ],
    ("tool_call_id_duplicate", chat(MINIMAX, calling(("a", ""), ("a", "")), answering("a"))),
    (
        "tool_call_id_duplicate",
        chat(MINIMAX, calling(("a", "")), answering("a"), calling(("a", "")), answering("a")),
    ),
    ("tool_call_id_mismatch", chat(MINIMAX, calling(("a", "")), answering("a"), answering("b"))),
    ("tool_call_id_mismatch", chat(MINIMAX, calling(("a", "")), answering("a"), answering("a"))),
    ("tool_call_id_mismatch", chat(MINIMAX, answering("a"), said("user"))),
    *[
        ("tool_call_arguments_invalid_json", chat(MINIMAX, calling(("a", each)), answering("a")))
        for each in ("oops", "[1]", '"x"', "null", "{", "{} {}")
    ],
    ("tool_call_unanswered", chat(MINIMAX, calling(("a", "{}")))),
    ("tool_call_unanswered", chat(MINIMAX, calling(("a", "{}"), ("b", "{}")), answering("a"))),
    ("reasoning_effort_not_allowed", chat(GLM, reasoning_effort="banana")),
    ("reasoning_effort_not_allowed", chat(GLM, reasoning_effort="")),
    # Both spellings count, the shadowed one too.
    ("reasoning_effort_not_allowed", chat(GLM, reasoning_effort="banana", **thinking(effort="low"))),
    ("reasoning_effort_not_allowed", chat(GLM, reasoning_effort="low", **thinking(effort="banana"))),
    *[
        ("reasoning_effort_not_allowed", chat(GLM53, reasoning_effort=each))
        for each in ("none", "minimal", "medium", "xhigh")
    ],
    ("thinking_disabled_not_supported", chat(GLM53, **thinking(type="disabled"))),
    ("tool_type_not_supported", chat(GLM, tools=[message_pb2.Tool(type="web_search", name="f")])),
    ("content_part_not_supported", chat(GLM, part(other_json='{"type": "file_url", "file_url": {}}'))),
    *[("reasoning_effort_not_allowed", chat(V4, reasoning_effort=each)) for each in ("banana", "50", "0")],
    *[
        ("reasoning_effort_not_allowed", chat(V41, reasoning_effort=each))
        for each in ("0", "101", "-1", "1.5", "01", "50.0")
    ],
    ("reasoning_effort_not_allowed", chat(V41, reasoning_effort="5", **thinking(effort="0"))),
    ("invalid_thinking_override", chat(V4, **variables(thinking="true"))),
    ("invalid_thinking_override", chat(V4, **variables(enable_thinking=1))),
    ("invalid_thinking_override", chat(V4, **variables(thinking=True, enable_thinking=[]))),
    ("conflicting_thinking_overrides", chat(V4, **variables(thinking=True, enable_thinking=False))),
    ("conflicting_thinking_overrides", chat(V41, **variables(thinking=False, enable_thinking=True))),
    ("tool_choice_not_supported", chat(V4, **forced(MODES.MODE_REQUIRED))),
    ("tool_choice_not_supported", chat(V4, **forced(MODES.MODE_FUNCTION))),
    (
        "tool_choice_not_supported",
        chat(V4, **forced(MODES.MODE_REQUIRED, is_allowed_tools=True, allowed_names=["f"])),
    ),
    ("tool_choice_not_supported", chat(V41, **forced(MODES.MODE_REQUIRED), **thinking(effort="low"))),
    (
        "tool_choice_not_supported",
        chat(V4, **forced(MODES.MODE_REQUIRED), **thinking(type="disabled"), **variables(thinking=True)),
    ),
]

KEPT: list[chat_pb2.ChatRequest] = [
    chat(KIMI, declaring(tool()), declaring(tool("_g9"), role="developer"), said("user")),
    chat(KIMI, declaring(text="content beside no tools"), said("user")),
    chat(KIMI, said("user"), said("tool", tool_call_id="a", tools_json="[3]")),  # neither read nor refused
    chat(KIMI, declaring(tool("a" * 256)), said("user")),
    chat(KIMI, tools=[message_pb2.Tool(name="1bad-name"), message_pb2.Tool(name="1bad-name")]),
    chat(KIMI, n=2, **sampling(temperature=0.3, top_p=0.5), **thinking(type="adaptive", effort="banana")),
    *[chat(K3, **sampling(temperature=each)) for each in (0, 0.6, 1)],
    chat(K3, n=1, **sampling(top_p=0.95, presence_penalty=0, frequency_penalty=0)),
    *[chat(K3, **thinking(effort=each)) for each in ("low", "high", "max")],
    chat(K3, reasoning_effort="medium", **thinking(type="disabled")),
    chat(MINIMAX, calling(("a", '{"x": 1}'), ("b", "")), answering("b"), answering("a"), said("user")),
    chat(MINIMAX, **thinking(type="adaptive", effort="banana")),
    *[chat(GLM, reasoning_effort=each, **thinking(effort=each)) for each in EFFORTS],
    chat(GLM, tools=[message_pb2.Tool(type="function", name="f")], **thinking(type="disabled")),
    *[chat(GLM53, reasoning_effort=each, **thinking(type="enabled")) for each in ("low", "high", "max")],
    *[chat(V4, reasoning_effort=each) for each in EFFORTS],
    *[chat(V41, reasoning_effort=each) for each in (*EFFORTS, "1", "50", "100")],
    chat(V4, **variables(thinking=None, enable_thinking=True)),
    chat(V4, **variables(thinking=False, enable_thinking=False)),
    chat(V4, **forced(MODES.MODE_AUTO, is_allowed_tools=True, allowed_names=["f"])),
    chat(V4, **forced(MODES.MODE_REQUIRED), **thinking(type="disabled")),
    chat(V4, reasoning_effort="none", **forced(MODES.MODE_FUNCTION)),
    chat(V4, **forced(MODES.MODE_REQUIRED), **variables(enable_thinking=False)),
    chat("org/model", declaring(tool(), role="user"), reasoning_effort="banana", **thinking(type="adaptive")),
]


# What the message of each rule says.
SAID = {
    "tools_role_restricted": "may be declared on system and developer",
    "tools_malformed": "must be|is not JSON",
    "tools_content_conflict": "tools or content, not both",
    "tool_type_unsupported": "only function is allowed",
    "tool_name_invalid": "letters, digits and _",
    "tool_name_duplicate": "declared already",
    "temperature_not_allowed": "temperature is .* allowed for this model: 0, 0.6, 1$",
    "top_p_not_allowed": "top_p is .* allowed for this model: 0.95$",
    "presence_penalty_not_allowed": "presence_penalty is 0.1",
    "frequency_penalty_not_allowed": "frequency_penalty is -0.1",
    "n_not_allowed": "n is 2",
    "thinking_type_not_supported": "only enabled or disabled is allowed",
    "thinking_effort_invalid": "thinking.effort is .* low, high, max$",
    "tool_call_id_duplicate": "an earlier call has",
    "tool_call_id_mismatch": "no call with that id",
    "tool_call_arguments_invalid_json": "arguments is ",
    "tool_call_unanswered": "no tool message answers",
    "reasoning_effort_not_allowed": "effort is .* allowed for this model are",
    "thinking_disabled_not_supported": "always thinks",
    "tool_type_not_supported": "only function is allowed",
    "content_part_not_supported": "files are not fetched",
    "invalid_thinking_override": "must be true, false or null",
    "conflicting_thinking_overrides": "disagree",
    "tool_choice_not_supported": "while thinking is on",
}


@pytest.mark.parametrize(
    ("rule", "request_"),
    [pytest.param(*case, id=f"{case[0]}-{number}") for number, case in enumerate(BROKEN)],
)
def test_a_broken_rule_is_refused(rule: str, request_: chat_pb2.ChatRequest) -> None:
    before = request_.SerializeToString(deterministic=True)
    with pytest.raises(InvalidRequest, match=SAID[rule]) as caught:
        profile_for(request_.model).adapt(request_)
    assert (caught.value.code, caught.value.status) == ("400", 400)
    assert caught.value.param
    assert request_.SerializeToString(deterministic=True) == before


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _ in BROKEN} == SAID.keys()


@pytest.mark.parametrize("request_", [pytest.param(each, id=str(number)) for number, each in enumerate(KEPT)])
def test_what_breaks_no_rule_passes(request_: chat_pb2.ChatRequest) -> None:
    before = request_.SerializeToString(deterministic=True)
    profile_for(request_.model).adapt(request_)
    assert request_.SerializeToString(deterministic=True) == before


def test_the_text_that_the_api_prints_is_kept() -> None:
    with pytest.raises(InvalidRequest) as caught:
        profile_for(K3).adapt(chat(K3, **thinking(type="adaptive")))
    assert caught.value.message == (
        "__all__: invalid thinking.type: only enabled or disabled is allowed for this model"
    )


@pytest.mark.parametrize("model", [KIMI, K3, MINIMAX, GLM, GLM53, V4, V41])
def test_what_no_json_is_and_what_is_odd_is_left_to_other_rules(model: str) -> None:
    odd = chat(
        model, message_pb2.ChatMessage(), chat_template_kwargs_json="{oops", **thinking(clear_thinking=True)
    )
    assert profile_for(model).adapt(odd).request.chat_template_kwargs_json == "{oops"


def test_a_fault_in_every_message_is_told_a_few_times() -> None:
    request = chat(MINIMAX, *(answering(str(number)) for number in range(1000)))
    with pytest.raises(InvalidRequest) as caught:
        profile_for(MINIMAX).adapt(request)
    assert caught.value.message.count("no call with that id") == 8
