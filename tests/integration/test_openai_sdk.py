"""The official OpenAI SDK against the gateway: what its users do works, what they catch is raised."""

import json
from enum import StrEnum

import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel

from tests.conftest import EchoWorkers
from tests.integration.sdk_doors import DOORS

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALL = '[[tool:get_weather:{"city": "Paris"}]]'


class Unit(StrEnum):
    metres = "m"
    feet = "ft"


class Height(BaseModel):
    value: float
    unit: Unit


class Peak(BaseModel):
    name: str
    height: Height
    climbed_by: list[str]


PEAK = '{"name": "Rigi", "height": {"value": 1797.8, "unit": "m"}, "climbed_by": ["Ada"]}'


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DOORS)
async def client(request, tokenizer_dir, thinking_tokenizer_dir, tmp_path_factory):
    """The SDK, at one door after the other."""
    workers = EchoWorkers(tokenizer_dir)
    paths = (str(tokenizer_dir), str(thinking_tokenizer_dir))
    url = await workers(model_paths=paths, model_ids=("m", "thinker"))
    breaker = {"disable_circuit_breaker": True}
    async with DOORS[request.param](url, tmp_path_factory.mktemp("door"), breaker=breaker) as client:
        yield client
    await workers.stop_all()


def said(text):
    return [{"role": "user", "content": text}]


async def test_a_chat(client):
    answer = await client.chat.completions.create(model="m", messages=said("[[say:Hello 🙂]]"))
    assert answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.content == "Hello 🙂"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_chat_of_every_role_and_of_parts(client):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call_of("c1")]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "rain"}]},
        {"role": "user", "content": "[[say:ok]]"},
    ]
    answer = await client.chat.completions.create(model="m", messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "ok"


def call_of(call_id):
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    return {"id": call_id, "type": "function", "function": function}


async def test_a_stream(client):
    stream = await client.chat.completions.create(
        model="m",
        messages=said("[[say:one two three]]"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "one two three"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0


async def test_tools_whole_and_streamed_with_the_sdks_own_accumulator(client):
    fields = {"model": "m", "messages": said(f"[[say:Well. ]]{CALL}{CALL}"), "tools": [WEATHER]}
    answer = await client.chat.completions.create(**fields)
    calls = answer.choices[0].message.tool_calls
    assert [(each.function.name, json.loads(each.function.arguments)) for each in calls] == [
        ("get_weather", {"city": "Paris"})
    ] * 2
    assert answer.choices[0].finish_reason == "tool_calls"
    async with client.chat.completions.stream(**fields) as stream:
        events = [event async for event in stream]
        final = (await stream.get_final_completion()).choices[0]
    assert final.message.content == "Well. "
    assert [each.function.parsed_arguments for each in final.message.tool_calls] == [{"city": "Paris"}] * 2
    assert sum(event.type == "tool_calls.function.arguments.done" for event in events) == 2
    assert final.finish_reason == "tool_calls"


async def test_a_tool_loop(client):
    messages = said(f"{CALL}[[next]][[say:It rains.]]")
    first = (await client.chat.completions.create(model="m", messages=messages, tools=[WEATHER])).choices[0]
    messages.append(first.message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "rain"})
    second = await client.chat.completions.create(model="m", messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == "It rains."


async def test_parse_with_a_pydantic_model(client):
    answer = await client.chat.completions.parse(
        model="m", messages=said(f"[[say:{PEAK}]]"), response_format=Peak
    )
    assert answer.choices[0].message.parsed == Peak.model_validate_json(PEAK)


async def test_parse_sends_the_models_schema_to_the_engine(client):
    seen = await client.chat.completions.create(
        model="m",
        messages=said("[[mirror]]"),
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "p", "schema": Peak.model_json_schema()},
        },
    )
    told = json.loads(seen.choices[0].message.content)
    assert json.loads(told["json_schema"]) == Peak.model_json_schema()


async def test_parse_with_a_tool_made_of_a_pydantic_model(client):
    answer = await client.chat.completions.parse(
        model="m",
        messages=said(f"[[tool:Peak:{PEAK}]]"),
        tools=[openai.pydantic_function_tool(Peak)],
    )
    assert answer.choices[0].message.tool_calls[0].function.parsed_arguments == Peak.model_validate_json(PEAK)


async def test_an_answer_that_is_cut_is_told_by_parse(client):
    with pytest.raises(openai.LengthFinishReasonError):
        await client.chat.completions.parse(
            model="m", messages=said(f"[[say:{PEAK}]]"), response_format=Peak, max_completion_tokens=3
        )


async def test_reasoning_comes_beside_the_content(client):
    fields = {"model": "thinker", "messages": said("[[reason:hm]][[say:So.]]")}
    answer = await client.chat.completions.create(**fields)
    assert answer.choices[0].message.reasoning_content == "\nhm\n"
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    stream = await client.chat.completions.create(**fields, stream=True)
    deltas = [chunk.choices[0].delta async for chunk in stream]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "\nhm\n"


async def test_logprobs(client):
    answer = await client.chat.completions.create(
        model="m", messages=said("[[say:Hello 🙂]]"), logprobs=True, top_logprobs=2
    )
    entries = answer.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == "Hello 🙂"
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


async def test_text_completions(client):
    answer = await client.completions.create(model="m", prompt=["[[say:a]]", "[[say:b]]"], n=1)
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "a"), (1, "b")]
    stream = await client.completions.create(model="m", prompt="[[say:one two]]", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "one two"


async def test_text_completions_as_evaluation_harnesses_ask_for_them(client):
    answer = await client.completions.create(
        model="m", prompt="The sky is blue", echo=True, logprobs=1, max_tokens=0
    )
    (choice,) = answer.choices
    assert choice.text == "The sky is blue"
    assert choice.logprobs.token_logprobs[0] is None
    assert all(logprob <= 0 for logprob in choice.logprobs.token_logprobs[1:])
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset[0] == 0


async def test_models(client):
    assert [model.id async for model in client.models.list()] == ["m", "thinker"]
    assert (await client.models.retrieve("m")).id == "m"


@pytest.mark.parametrize(
    ("fields", "kind", "status"),
    [
        ({"temperature": 3}, openai.BadRequestError, 400),
        ({"model": "no/such"}, openai.NotFoundError, 404),
        ({"messages": said("[[error:RESOURCE_EXHAUSTED:full]]")}, openai.RateLimitError, 429),
        ({"messages": said("[[error:INTERNAL:boom]]")}, openai.InternalServerError, 500),
        ({"messages": said("[[error:UNAVAILABLE:gone]]")}, openai.InternalServerError, 503),
        ({"messages": said("[[error:PERMISSION_DENIED:no]]")}, openai.PermissionDeniedError, 403),
        ({"messages": said("[[error:ABORTED:again]]")}, openai.ConflictError, 409),
    ],
    ids=["rule", "model", "full", "internal", "unavailable", "denied", "conflict"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_errors_are_the_sdks_own_classes(client, fields, kind, status, stream):
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(**{"model": "m", "messages": said("x"), **fields}, stream=stream)
    assert caught.value.status_code == status
    assert caught.value.body["message"]


async def test_an_error_in_the_middle_of_a_stream_is_raised(client):
    stream = await client.chat.completions.create(
        model="m", messages=said("[[say:one two three]][[errorafter:2:INTERNAL:boom]]"), stream=True
    )
    text = ""
    with pytest.raises(openai.APIError, match="boom"):  # noqa: PT012 - what came before it counts too
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert text


async def test_raw_responses_have_the_request_id(client):
    raw = await client.chat.completions.with_raw_response.create(
        model="m", messages=said("[[say:x]]"), extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.parse().id.startswith("mine-1")
