"""gpt-oss over both ways of answering: channels, calls, counts and stop tokens, from the engine to the client's JSON."""

import json

import pytest

from tests.integration.running_router import running_router
from tests.tokenizer_dirs import make_harmony_dir

CHAT = "/v1/chat/completions"
MODEL = "openai/gpt-oss-20b"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
# The line break keeps the echo engine from taking it for the beginning of its own turn.
THOUGHT = "<|channel|>analysis<|message|>Think a little.<|end|><|start|>\\nassistant"
CALL = (
    THOUGHT + '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>never shown'
)
FINAL = THOUGHT + "<|channel|>final<|message|>Four.<|return|>"


@pytest.fixture(scope="module")
def harmony_dir(tokenizer_dir, tmp_path_factory):
    return make_harmony_dir(tokenizer_dir, tmp_path_factory.mktemp("harmony") / "gpt-oss")


@pytest.fixture
async def gateway(echo_worker, harmony_dir):
    url = await echo_worker(model_ids=(MODEL,), model_paths=(str(harmony_dir),))
    async with running_router(url) as running:
        yield running


async def ask(gateway, text, **fields):
    messages = [{"role": "user", "content": f"[[say:{text}]]"}]
    return await gateway.http.post(CHAT, json={"model": MODEL, "messages": messages, **fields})


def streamed(text):
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return [choice for chunk in chunks for choice in chunk["choices"]]


async def test_channels_become_reasoning_and_content(gateway):
    answer = (await ask(gateway, FINAL)).json()
    (choice,) = answer["choices"]
    assert choice["message"]["reasoning_content"] == "Think a little."
    assert choice["message"]["content"] == "Four."
    assert choice["finish_reason"] == "stop"
    assert (
        0
        < answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
        < answer["usage"]["completion_tokens"]
    )
    choices = streamed((await ask(gateway, FINAL, stream=True)).text)
    deltas = [choice["delta"] for choice in choices]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Think a little."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Four."


async def test_a_call_ends_the_answer(gateway):
    answer = (await ask(gateway, CALL, tools=[TOOL])).json()
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"] for call in choice["message"]["tool_calls"]] == [
        {"name": "f", "arguments": '{"a":1}'}
    ]
    assert choice["message"]["content"] is None
    last = streamed((await ask(gateway, CALL, tools=[TOOL], stream=True)).text)[-1]
    assert last["finish_reason"] == "tool_calls"


async def test_reasoning_may_stay_in_the_content(gateway):
    (choice,) = (await ask(gateway, FINAL, separate_reasoning=False)).json()["choices"]
    assert choice["message"]["content"] == "Think a little.Four."


@pytest.mark.parametrize(
    ("choice", "output"),
    [
        ({"type": "function", "function": {"name": "f"}}, '{"a": 1}'),
        ("required", '[{"name": "f", "parameters": {"a": 1}}]'),
    ],
)
async def test_a_forced_call_needs_no_channels(gateway, choice, output):
    answer = (await ask(gateway, output, tools=[TOOL], tool_choice=choice)).json()
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"a":1}'}


async def test_a_result_of_no_call_is_refused(gateway):
    messages = [{"role": "user", "content": "q"}, {"role": "tool", "content": "r", "tool_call_id": "c9"}]
    answer = await gateway.http.post(CHAT, json={"model": MODEL, "messages": messages})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "harmony_build_failed")
    assert "No function call found for call_id: c9" in answer.json()["error"]["message"]


async def test_a_part_that_cannot_be_rendered_is_refused_in_harmony_s_own_words(gateway):
    messages = [{"role": "user", "content": [{"type": "file_url", "file_url": {"url": "x"}}]}]
    answer = await gateway.http.post(CHAT, json={"model": MODEL, "messages": messages})
    assert (answer.status_code, answer.headers["x-smg-error-code"]) == (400, "harmony_build_failed")
