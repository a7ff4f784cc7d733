"""Which profile a name selects, and every default and rewrite of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smg.profiles import BASELINE, PROFILES, profile_for
from smg_proto.chat.v1 import chat_pb2, message_pb2, options_pb2

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}


def adapted(model: str, *messages: message_pb2.ChatMessage, **fields: Any) -> chat_pb2.ChatRequest:
    asked = chat_pb2.ChatRequest(
        model=model, messages=messages or [message_pb2.ChatMessage(role="user", text="q")], **fields
    )
    return profile_for(model).adapt(asked).request


def kwargs_of(request: chat_pb2.ChatRequest) -> dict[str, Any]:
    return json.loads(request.chat_template_kwargs_json or "{}")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("moonshotai/Kimi-K2-Instruct", "kimi"),
        ("/models/moonshot-v1-8k", "kimi"),
        ("KIMI_K3-preview", "kimi_k3"),
        ("moonshotai/Kimi-K3", "kimi_k3"),
        ("my-kimi", "openai"),  # a segment must begin with the marker
        ("MiniMaxAI/MiniMax-M2", "minimax"),
        ("abab6.5s", "minimax"),
        ("zai-org/anything", "zai"),
        ("z-ai/x", "zai"),
        ("GLM-4.6", "zai"),
        ("THUDM/chatglm3-6b", "openai"),
        *[
            (f"a/{marker}-Air", "zai_glm53")
            for marker in ("glm-5.3", "GLM5.3", "glm_5.3", "glm-5-3", "glm5-3")
        ],
        ("glm-5.30", "zai_glm53"),
        ("glm-5", "zai"),
        ("deepseek-ai/DeepSeek-V4-Flash", "deepseek_v4"),
        ("DeepSeek-Flash", "deepseek_v4"),
        ("deepseek-v4-pro/snapshot", "deepseek_v4"),
        ("deepseek-v4.1-flash", "deepseek_v41"),
        ("deepseek-v4-flash-fp8", "openai"),  # a segment must be equal
        ("deepseek-ai/DeepSeek-V3", "openai"),
        ("", "openai"),
        ("kimi" * 1000, "kimi"),
    ],
)
def test_a_segment_of_the_name_selects(model: str, name: str) -> None:
    assert profile_for(model).name == name


def test_a_model_without_a_profile_gets_its_own_request_back() -> None:
    request = chat_pb2.ChatRequest(model="m", messages=[message_pb2.ChatMessage(role="user", text="q")])
    result = profile_for("m").adapt(request)
    assert result.request is request
    assert result.prompt is request


def test_kimi_joins_the_tools_of_messages_but_for_the_prompt() -> None:
    messages = [
        message_pb2.ChatMessage(role="system", tools_json=json.dumps([TOOL])),
        message_pb2.ChatMessage(role="tool", text="r", tool_call_id="c", tools_json=json.dumps([TOOL])),
    ]
    own = message_pb2.Tool(type="function", name="g")
    asked = chat_pb2.ChatRequest(model="kimi-k2", messages=messages, tools=[own])
    result = profile_for("kimi-k2").adapt(asked)
    assert [tool.name for tool in result.request.tools] == ["g", "f"]
    joined = result.request.tools[1]
    assert json.loads(joined.parameters_json) == {"type": "object"}
    assert (joined.strict, json.loads(joined.source_json)) == (True, TOOL)
    assert [tool.name for tool in result.prompt.tools] == ["g"]
    assert [bool(message.tools_json) for message in result.prompt.messages] == [True, False]


def test_kimi_k3_fills_in_the_contract() -> None:
    request = adapted("kimi-k3", sampling=options_pb2.SamplingOptions(temperature=0, max_tokens=5))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, request.n) == (0, 0.95, 5, 1)
    assert sampling.HasField("presence_penalty")
    assert sampling.HasField("frequency_penalty")
    assert adapted("kimi-k3").sampling.temperature == 1.0
    assert not adapted("kimi-k2").HasField("sampling")


def test_minimax_moves_root_messages_to_the_front() -> None:
    roles = ("user", "root", "system", "root", "assistant")
    messages = [message_pb2.ChatMessage(role=role, text=str(n)) for n, role in enumerate(roles)]
    moved = adapted("MiniMax-M2", *messages).messages
    assert [(each.role, each.text) for each in moved] == [
        ("system", "1"),
        ("system", "3"),
        ("user", "0"),
        ("system", "2"),
        ("assistant", "4"),
    ]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("glm-4.6", (1.0, 0.95)),
        ("GLM-4.7-Flash", (1.0, 0.95)),
        ("glm-5", (1.0, 0.95)),
        ("glm_5.1", (1.0, 0.95)),
        ("glm-5.3", (1.0, 0.95)),
        ("glm-4.5", None),
        ("glm-4-6b", None),
        ("glm-50", None),
        ("zai-org/x", None),
    ],
)
def test_zai_fills_in_sampling_of_newer_models(model: str, expected: tuple[float, float] | None) -> None:
    sampling = adapted(model).sampling
    has = sampling.HasField("temperature") or sampling.HasField("top_p")
    assert ((sampling.temperature, sampling.top_p) if has else None) == expected
    kept = adapted(model, sampling=options_pb2.SamplingOptions(temperature=0.2, top_p=0.5)).sampling
    assert (kept.temperature, kept.top_p) == (0.2, 0.5)


def test_zai_tells_the_template_about_earlier_reasoning() -> None:
    clear = options_pb2.Thinking(clear_thinking=False)
    assert kwargs_of(adapted("glm-4.7", thinking=clear)) == {"clear_thinking": False}
    own = adapted("glm-4.7", thinking=clear, chat_template_kwargs_json='{"clear_thinking": true, "a": 1}')
    assert kwargs_of(own) == {"clear_thinking": True, "a": 1}
    beside = adapted("glm-4.7", thinking=clear, chat_template_kwargs_json='{"a": 1}')
    assert kwargs_of(beside) == {"a": 1, "clear_thinking": False}
    assert kwargs_of(adapted("glm-4.7", thinking=options_pb2.Thinking(type="enabled"))) == {}


@pytest.mark.parametrize(
    ("effort", "v4", "v41"),
    [
        ("none", "none", "none"),
        ("minimal", "low", "low"),
        ("low", "low", "low"),
        ("medium", "high", "high"),
        ("high", "high", "high"),
        ("xhigh", "high", "xhigh"),
        ("max", "max", "max"),
    ],
)
def test_deepseek_rewrites_both_spellings_of_the_effort(effort: str, v4: str, v41: str) -> None:
    for model, expected in (("deepseek-v4-pro", v4), ("deepseek-v4.1-flash", v41)):
        request = adapted(model, reasoning_effort=effort, thinking=options_pb2.Thinking(effort=effort))
        assert (request.reasoning_effort, request.thinking.effort) == (expected, expected)
    assert not adapted("deepseek-v4-pro").HasField("thinking")


@pytest.mark.parametrize(
    ("fields", "variables", "thinks"),
    [
        ({}, {}, True),
        ({"reasoning_effort": "minimal"}, {}, True),
        ({"reasoning_effort": "none"}, {}, False),
        ({"thinking": options_pb2.Thinking(type="disabled")}, {}, False),
        ({"thinking": options_pb2.Thinking(type="enabled")}, {}, True),
        # The shadowed spelling says nothing.
        ({"reasoning_effort": "none", "thinking": options_pb2.Thinking(effort="low")}, {}, True),
        ({"thinking": options_pb2.Thinking(type="disabled")}, {"thinking": True}, True),
        ({}, {"enable_thinking": False}, False),
        ({}, {"thinking": None}, True),
        ({"reasoning_effort": "none"}, {"thinking": None, "enable_thinking": True}, True),
    ],
)
def test_deepseek_thinks_unless_it_is_told_not_to(
    fields: dict[str, Any], variables: dict[str, Any], thinks: bool
) -> None:
    text = json.dumps(variables) if variables else ""
    request = adapted("deepseek-v4-pro", chat_template_kwargs_json=text, **fields)
    assert kwargs_of(request) == variables | {"thinking": thinks}


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("m", {}, (False, False, False)),
        ("m", {"include_usage": True, "continuous_usage_stats": True}, (True, True, False)),
        ("kimi-k2", {}, (True, False, False)),
        ("kimi-k2", {"include_usage": False}, (False, False, False)),
        ("kimi-k3", {"continuous_usage_stats": True}, (True, True, False)),
        ("deepseek-v4-pro", {}, (False, False, True)),
        ("deepseek-v4-pro", {"include_usage": True, "continuous_usage_stats": True}, (True, False, True)),
    ],
)
def test_where_streams_tell_their_usage(
    model: str, options: dict[str, bool], expected: tuple[bool, bool, bool]
) -> None:
    assert profile_for(model).stream_usage(options_pb2.StreamOptions(**options)) == expected


def test_what_else_a_profile_says() -> None:
    assert [profile.name for profile in PROFILES if profile.scans_calls] == ["minimax"]
    assert {profile.name for profile in PROFILES if profile.bounds_output} == {"zai", "zai_glm53"}
    assert not BASELINE.scans_calls
