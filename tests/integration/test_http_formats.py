"""The format of calls that a model's name tells, from the engine's tokens to the client's JSON."""

import json

import pytest

from tests.integration.running_router import running_router

CHAT = "/v1/chat/completions"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            },
        },
    }
]
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "5", "days": 5}<|tool_call_end|><|tool_calls_section_end|>'
)
# These models reason before all else; their prompt opens the reasoning.
MINIMAX = (
    '</think><minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">5</parameter>\n'
    '<parameter name="days">5</parameter>\n</invoke>\n</minimax:tool_call>'
)
CODER = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\n5\n</parameter>\n<parameter=days>\n5\n</parameter>\n"
    "</function>\n</tool_call>"
)
GLM = (
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>5</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>5</arg_value>\n</tool_call>"
)
MISTRAL = 'Let me look.[TOOL_CALLS]get_weather[ARGS]{"city": "5", "days": 5}'
OUTPUTS = {
    "moonshotai/Kimi-K2-Instruct": KIMI,
    "MiniMaxAI/MiniMax-M2": MINIMAX,
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": CODER,
    "zai-org/GLM-4.6": GLM,
    "mistralai/Devstral-Small-2507": MISTRAL,
}


def request(model, **fields):
    text = f"[[say:{OUTPUTS[model]}]]"
    return {"model": model, "messages": [{"role": "user", "content": text}], "tools": TOOLS, **fields}


def streamed(text):
    """The deltas of a stream, and why it finished."""
    deltas, finish = [], None
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                deltas.append(choice["delta"])
                finish = choice["finish_reason"] or finish
    return deltas, finish


@pytest.fixture
async def gateway(echo_worker):
    url = await echo_worker(model_ids=tuple(OUTPUTS))
    async with running_router(url) as running:
        yield running


@pytest.mark.parametrize("model", OUTPUTS, ids=str)
async def test_calls_of_known_families(gateway, model):
    answer = (await gateway.http.post(CHAT, json=request(model))).json()
    (choice,) = answer["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"] == {"name": "get_weather", "arguments": '{"city":"5","days":5}'}
    assert choice["message"]["content"] == ("Let me look." if "Devstral" in model else None)
    if "Devstral" in model:
        assert len(call["id"]) == 9
    if "Kimi" in model:
        assert call["id"] == "functions.get_weather:0"

    deltas, finish = streamed((await gateway.http.post(CHAT, json=request(model, stream=True))).text)
    parts = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert parts[0]["function"]["name"] == "get_weather"
    assert "".join(part["function"].get("arguments", "") for part in parts) == '{"city":"5","days":5}'
    assert finish == "tool_calls"


async def test_how_answers_are_read_is_visible(gateway):
    model = "Qwen/Qwen3-Coder-30B-A3B-Instruct"
    for fields in ({}, {"stream": True}):
        answer = await gateway.http.post(CHAT, json=request(model, **fields))
        assert answer.headers["x-smg-parser"] == "tools=qwen3_coder; reasoning=qwen3"
    listed = (await gateway.http.get("/workers")).json()["workers"][0]["models"]
    told = {each["id"]: (each["tool_parser"], each["reasoning_parser"], each["profile"]) for each in listed}
    assert told[model] == ("qwen3_coder", "qwen3", "openai")
    assert told["moonshotai/Kimi-K2-Instruct"] == ("kimi_k2", "kimi_k2", "kimi")


async def test_a_forced_call_may_be_held_to_the_model_s_own_format(echo_worker):
    name = "meta-llama/Llama-3.1-8B-Instruct"
    url = await echo_worker(model_ids=(name,))
    text = '{"name": "get_weather", "parameters": {"city": "5"}}'
    body = {
        "model": name,
        "messages": [{"role": "user", "content": f"[[say:{text}]]"}],
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    }
    for form, arguments in (("native", '{"city":"5"}'), ("json", text.replace(" ", ""))):
        async with running_router(url, models={"tool_call_constraint": form}) as gateway:
            (choice,) = (await gateway.http.post(CHAT, json=body)).json()["choices"]
            assert choice["message"]["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize("name", ["Qwen/Qwen3-Coder-30B-A3B-Instruct", "zai-org/GLM-4.6"])
async def test_a_forced_call_of_a_format_of_tags_is_a_structural_tag(echo_worker, name):
    url = await echo_worker(model_ids=(name,))
    body = {
        **request(name),
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "reasoning_effort": "none",
    }
    mirrored = {**body, "messages": [{"role": "user", "content": "[[mirror]]"}]}
    async with running_router(url, models={"tool_call_constraint": "native"}) as gateway:
        (choice,) = (await gateway.http.post(CHAT, json=body)).json()["choices"]
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"5","days":5}'
        sent = (await gateway.http.post(CHAT, json=mirrored)).json()["choices"][0]["message"]["content"]
    tag = json.loads(json.loads(sent)["structural_tag"])
    assert tag["format"]["tags"][0]["content"]["style"] in ("qwen_xml", "glm_xml")
