"""A worker that dies in mid-stream: another one goes on where it has stopped, and no client notices."""

import asyncio

import pytest

from tests.contract.doors.doors import DOORS
from tests.integration.running_router import running_router, until

STEP_S = 0.005
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
LONG = " ".join(f"w{number}é🙂" for number in range(16))
CITY = "Paris in the long, long spring of the year"


def ask(text, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


BODIES = {
    "words": ask("[[len:60]]"),
    "split characters": ask(f"[[say:{LONG}]]"),
    "choices": ask(f"[[say:{LONG}]]", n=3),
    "stop string": ask(f"[[say:{LONG} STOP here]]", stop="STOP"),
    "limit": ask("[[len:100]]", max_completion_tokens=70),
    "log-probabilities": ask("[[len:60]]", logprobs=True, top_logprobs=2),
    "reasoning": ask(f"[[reason:{LONG}]][[say:So.]]"),
    "call": ask(f'[[tool:get_weather:{{"city": "{CITY}"}}]]', tools=[WEATHER]),
    "special tokens": ask(f"[[say:{LONG}]]", skip_special_tokens=False),
}
CASES = [("http stream", name) for name in BODIES] + [("grpc stream", "call"), ("grpc stream", "choices")]


@pytest.mark.parametrize(("door", "name"), CASES, ids=str)
async def test_an_answer_goes_on_elsewhere_as_if_nothing_had_happened(echo_worker, door, name):
    body = BODIES[name]
    first, second = [await echo_worker(step_seconds=STEP_S) for _ in range(2)]
    async with running_router(first, second) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 2)
        expected = await DOORS[door](gateway, body)
        running = asyncio.create_task(DOORS[door](gateway, body))
        url = await someone_writes(echo_worker, (first, second))
        await echo_worker.stop(url)
        outcome = await running
    assert outcome.status == 200
    assert outcome.choices.keys() == expected.choices.keys()
    for index, said in expected.choices.items():
        assert outcome.choices[index].same_as(said)
    assert outcome.usage["prompt"] == expected.usage["prompt"]
    assert outcome.usage["completion"] == expected.usage["completion"]
    assert outcome.usage["reasoning"] == expected.usage["reasoning"]


async def someone_writes(echo_worker, urls):
    """A worker that has given some tokens of its sequences."""
    loads = {url: echo_worker.servers[url].engine.load for url in urls}
    before = {url: load().steps for url, load in loads.items()}

    def writing():
        return next((url for url, load in loads.items() if load().steps >= before[url] + 8), None)

    await until(writing)
    return writing()


async def test_many_streams_survive_one_worker_after_the_other(echo_worker):
    urls = [await echo_worker(step_seconds=STEP_S, max_running=256) for _ in range(3)]
    bodies = [ask(f"[[len:{70 + number}]]") for number in range(16)]
    async with running_router(*urls) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 3)
        expected = await asyncio.gather(*(DOORS["http stream"](gateway, body) for body in bodies))
        running = [asyncio.create_task(DOORS["http stream"](gateway, body)) for body in bodies]
        await someone_writes(echo_worker, urls)
        await echo_worker.stop(urls[0])
        await someone_writes(echo_worker, urls[1:])
        await echo_worker.stop(urls[1])
        outcomes = await asyncio.gather(*running)
        assert [each.choices for each in outcomes] == [each.choices for each in expected]
        assert [each.usage["completion"] for each in outcomes] == [
            each.usage["completion"] for each in expected
        ]
        await until(lambda: gateway.router.admission.running == 0)
        await until(lambda: echo_worker.servers[urls[2]].engine.load().running == 0)


async def test_whole_answers_are_asked_for_again(echo_worker):
    first, second = [await echo_worker(step_seconds=STEP_S) for _ in range(2)]
    body = ask("[[len:60]]", n=2)
    async with running_router(first, second) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 2)
        expected = await DOORS["http"](gateway, body)
        running = asyncio.create_task(DOORS["http"](gateway, body))
        await echo_worker.stop(await someone_writes(echo_worker, (first, second)))
        assert (await running).choices == expected.choices


async def test_with_nobody_left_the_client_is_told(echo_worker):
    url = await echo_worker(step_seconds=STEP_S)
    async with running_router(url) as gateway:
        body = {**ask("[[len:100]]"), "stream": True}
        async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            text = ""
            async for line in lines:
                text += line
                if line.count("{") > 2 and text.count("data:") > 3 and url in echo_worker.servers:
                    await echo_worker.stop(url)
        assert '"error"' in text
        assert text.endswith("data: [DONE]")
        assert '"finish_reason":"stop"' not in text
