"""Vendors' contracts over both doors: what a profile refuses, fills in and tells, up to the engine and back."""

import json

import pytest

from smg_proto.chat.v1 import chat_pb2
from tests.integration.running_router import running_router

CHAT = "/v1/chat/completions"
MODELS = ("moonshotai/Kimi-K2-Instruct", "MiniMaxAI/MiniMax-M2", "zai-org/GLM-4.6", "deepseek-v4-flash")
KIMI, MINIMAX, GLM, DEEPSEEK = MODELS
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture
async def gateway(echo_worker):
    url = await echo_worker(model_ids=MODELS)
    async with running_router(url, models={"model_alias": {"mine": GLM}}) as running:
        yield running


def asking(model, text="[[say:ok]]", **fields):
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


async def post(gateway, body):
    return await gateway.http.post(CHAT, json=body)


async def events(gateway, body):
    text = (await post(gateway, {**body, "stream": True})).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def test_a_broken_rule_has_the_shape_of_a_validation_error(gateway):
    answer = await post(gateway, asking(GLM, thinking={"type": "adaptive"}))
    assert answer.status_code == 400
    assert "x-smg-error-code" not in answer.headers
    assert answer.json() == {
        "error": {
            "message": "__all__: invalid thinking.type: only enabled or disabled is allowed for this model",
            "type": "invalid_request_error",
            "code": 400,
        }
    }


async def test_the_name_is_read_as_it_was_sent(gateway):
    assert (await post(gateway, asking("mine", reasoning_effort="banana"))).status_code == 200
    assert (await post(gateway, asking(GLM, reasoning_effort="banana"))).status_code == 400


async def test_a_root_message_is_minimax_s_alone(gateway):
    root = {"role": "root", "content": "r"}
    body = asking(MINIMAX)
    assert (await post(gateway, {**body, "messages": [*body["messages"], root]})).status_code == 200
    body = asking(KIMI)
    assert (await post(gateway, {**body, "messages": [root, *body["messages"]]})).status_code == 400


async def test_an_output_limit_beyond_the_window_is_refused_for_zai_alone(gateway):
    answer = await post(gateway, asking(GLM, max_completion_tokens=10**8))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert (await post(gateway, asking(KIMI, max_completion_tokens=10**8))).status_code == 200


async def test_a_call_is_read_without_tools_only_for_minimax(gateway):
    call = '</think><minimax:tool_call><invoke name="f"></invoke></minimax:tool_call>'
    (choice,) = (await post(gateway, asking(MINIMAX, f"[[say:{call}]]"))).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    answer = await post(gateway, asking(MINIMAX, f"[[say:{call}]]", tool_choice="none"))
    assert "tool_calls" not in answer.json()["choices"][0]["message"]


async def test_tools_of_kimi_s_messages_can_be_chosen(gateway):
    declaring = {"role": "system", "tools": [TOOL]}
    body = asking(KIMI, '[[say:{"a": 1}]]')
    body["messages"].insert(0, declaring)
    body["tool_choice"] = {"type": "function", "function": {"name": "f"}}
    (choice,) = (await post(gateway, body)).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "f"


async def test_kimi_s_streams_tell_their_usage(gateway):
    assert (await events(gateway, asking(KIMI)))[-1]["usage"]["completion_tokens"]
    without = await events(gateway, asking(KIMI, stream_options={"include_usage": False}))
    assert not any("usage" in chunk for chunk in without)


async def test_deepseek_s_streams_tell_it_with_the_finish(gateway):
    chunks = await events(gateway, asking(DEEPSEEK, n=2, stream_options={"include_usage": True}))
    assert [chunk["usage"] is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(chunk["choices"] for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    plain = await events(gateway, asking(DEEPSEEK))
    assert ["usage" in chunk for chunk in plain] == [False] * (len(plain) - 1) + [True]


async def test_the_same_holds_over_grpc(gateway):
    message = {"role": "user", "text": "[[say:ok]]"}
    request = chat_pb2.StreamChatCompletionRequest(chat={"model": DEEPSEEK, "messages": [message]})
    chunks = [each.chunk async for each in gateway.chats.StreamChatCompletion(request)]
    assert [chunk.HasField("usage") for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
