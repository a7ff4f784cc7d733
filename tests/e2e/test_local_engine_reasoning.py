"""The local engine with a template that thinks: a form holds for the answer, and leaves the reasoning free."""

import json

import pytest
import pytest_asyncio

pytest.importorskip("torch")

from servicers.local.checkpoint import find_default_model
from servicers.local.engine import LocalEngine
from servicers.local.settings import LocalSettings
from servicers.local.tokenizer_files import tokenizer_directory
from servicers.serve import start_server
from tests.integration.running_router import running_router

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TEMPLATE = r"""
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.reasoning_content %}{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% endif %}
{{- message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n<think>\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}
{%- endif %}
""".strip()
# The model was never taught to reason: examples show it how, and when to stop.
EXAMPLES = (
    ("Is ice cold?", "Ice is frozen water. Frozen things are cold.", "yes"),
    ("Is fire cold?", "Fire burns. Burning things are hot.", "no"),
    ("Is snow cold?", "Snow is frozen water. Frozen things are cold.", "yes"),
)
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
REPLY = {"type": "function", "function": {"name": "reply", "parameters": SCHEMA}}
ANSWERS = ({"answer": "yes"}, {"answer": "no"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(tmp_path_factory):
    cache = tmp_path_factory.mktemp("tokenizers")
    config = tokenizer_directory(find_default_model(), cache) / "tokenizer_config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**settings, "chat_template": TEMPLATE}), encoding="utf-8")
    engine = LocalEngine(
        LocalSettings(
            model_id="thinker",
            dtype="fp32",
            threads=1,
            max_context=1024,
            max_running=4,
            tokenizer_cache=cache,
        )
    )
    server = await start_server(engine, host="127.0.0.1")
    async with running_router(server.url) as gateway:
        yield gateway.http
    await server.stop(0)


async def choice(http, **fields):
    messages = []
    for question, reasoning, answer in EXAMPLES:
        content = json.dumps({"answer": answer})
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "reasoning_content": reasoning, "content": content})
    messages.append({"role": "user", "content": "Is lava cold?"})
    body = {"model": "thinker", "messages": messages, "temperature": 0, "max_tokens": 120, **fields}
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


async def test_a_schema_holds_from_the_end_of_the_reasoning_on(http):
    said = await choice(http, response_format=FORMAT)
    assert said["finish_reason"] == "stop"
    assert json.loads(said["message"]["content"]) in ANSWERS
    assert "{" not in said["message"]["reasoning_content"]
    assert said["message"]["reasoning_content"].strip()


@pytest.mark.parametrize(
    "tool_choice", ["required", {"type": "function", "function": {"name": "reply"}}], ids=str
)
async def test_a_call_that_is_asked_for_comes_after_the_reasoning(http, tool_choice):
    said = await choice(http, tools=[REPLY], tool_choice=tool_choice)
    assert said["finish_reason"] == "tool_calls"
    [call] = said["message"]["tool_calls"]
    assert call["function"]["name"] == "reply"
    assert json.loads(call["function"]["arguments"]) in ANSWERS
    assert said["message"]["content"] is None
    assert said["message"]["reasoning_content"].strip()


async def test_without_reasoning_a_schema_holds_from_the_first_token(http):
    said = await choice(http, response_format=FORMAT, reasoning_effort="none")
    assert json.loads(said["message"]["content"]) in ANSWERS
    assert said["message"]["reasoning_content"] is None


async def test_a_schema_that_cannot_be_enforced_names_the_keyword_and_its_place(http):
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    body = {
        "model": "thinker",
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
    }
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert '["uniqueItems"] (at #/properties/a/uniqueItems)' in answer.json()["error"]["message"]


async def test_a_pattern_that_cannot_be_enforced_is_refused(http):
    body = {"model": "thinker", "prompt": "x", "max_tokens": 4, "regex": "(?=a)b"}
    answer = await http.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert "look-ahead" in answer.json()["error"]["message"]
