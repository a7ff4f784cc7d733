"""Streams that are cut, left or kept waiting: what the client reads, and what is counted."""

import asyncio
import json

import pytest

from tests.integration.running_router import running_router, until

CHAT = "/v1/chat/completions"


def body(text, model="m", **fields):
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


async def metric(gateway, name):
    """The value of a metric of chats with the model m; None while it is not there."""
    lines = (await gateway.http.get("/metrics")).text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), None)


def requests_total(outcome):
    return f'smg_requests_total{{model="m",outcome="{outcome}",route="chat"}}'


async def counted(gateway, outcome):
    """Wait until a request has ended so."""
    while await metric(gateway, requests_total(outcome)) is None:
        pass


async def test_a_client_that_leaves_is_counted_with_the_tokens_made_until_then(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        request = body("[[hang]]", stream=True)
        async with gateway.http.stream("POST", CHAT, json=request) as answer:
            seen = 0
            async for line in answer.aiter_lines():
                seen += '"content":"' in line and '"content":""' not in line
                if seen == 3:
                    break
        await until(lambda: echo_worker.servers[url].engine.load().running == 0)
        await counted(gateway, "client_gone")
        assert await metric(gateway, "smg_requests_inflight") == 0
        assert 3 <= await metric(gateway, "smg_completion_tokens_total") < 1000


async def test_a_stream_that_an_engine_breaks_is_counted_as_failed(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        request = body("[[say:one two three]][[errorafter:2:INTERNAL:late]]", stream=True)
        text = (await gateway.http.post(CHAT, json=request)).text
        assert text.endswith("data: [DONE]\n\n")
        assert '"finish_reason":"stop"' not in text
        assert await metric(gateway, requests_total("failed")) == 1
        assert await metric(gateway, requests_total("ok")) is None


async def test_a_refusal_that_comes_after_a_comment_is_an_event_of_the_stream(echo_worker):
    """A stream that has begun with comments has its status: 200. What goes wrong later is told inside it."""
    url = await echo_worker()
    async with running_router(url, sse_keepalive_secs=0.01) as gateway:
        request = body("[[hang0:60000]]", stream=True)
        async with gateway.http.stream("POST", CHAT, json=request) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": ping"
            stopping = asyncio.create_task(echo_worker.stop(url))
            rest = [line async for line in lines if line and line != ": ping"]
            await stopping
        assert answer.status_code == 200
        error, done = (line.removeprefix("data: ") for line in rest)
        assert json.loads(error)["error"].keys() == {"message", "type"}
        assert done == "[DONE]"


async def test_a_whole_answer_gets_no_comments_and_its_own_status(echo_worker):
    url = await echo_worker()
    async with running_router(url, sse_keepalive_secs=0.01) as gateway:
        waiting = asyncio.create_task(gateway.http.post(CHAT, json=body("[[hang0:60000]]")))
        await until(lambda: echo_worker.servers[url].engine.load().running == 1)
        async with gateway.http.stream("POST", CHAT, json=body("[[hang0:60000]]", stream=True)) as other:
            assert await anext(other.aiter_lines()) == ": ping"
        await echo_worker.stop(url)
        answer = await waiting
    assert answer.status_code == 503
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "begins_after"),
    [
        ({"response_format": {"type": "json_object"}}, "</think>"),
        ({"regex": "[0-9]+"}, "</think>"),
        ({"response_format": {"type": "json_object"}, "reasoning_effort": "none"}, None),
    ],
    ids=str,
)
async def test_a_form_begins_where_the_reasoning_ends(
    echo_worker, thinking_tokenizer_dir, fields, begins_after
):
    url = await echo_worker(model_paths=(str(thinking_tokenizer_dir),), model_ids=("org/qwen3-tiny",))
    async with running_router(url) as gateway:
        request = body("[[mirror]]", "org/qwen3-tiny", separate_reasoning=False, **fields)
        answer = (await gateway.http.post(CHAT, json=request)).json()
    told = json.loads(answer["choices"][0]["message"]["content"])
    assert told.get("begins_after") == begins_after
    assert told.keys() & {"json_schema", "regex"}
