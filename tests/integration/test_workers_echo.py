"""The registry and its workers against the product's own echo engine, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from smg.errors import UNAVAILABLE, WorkerUnavailable
from smg.policies import make_policy
from smg.policies.base import RouteRequest
from smg.workers.options import WorkerOptions
from smg.workers.registry import WorkerRegistry
from smg.workers.tokenizers import TokenizerStore
from tests.contract.workers.collecting import Collector, generate, generate_request

QUICK = WorkerOptions(backoff_min_s=0.01, backoff_max_s=0.05)
ROUTE = RouteRequest("m")


@pytest.fixture
async def registry():
    registry = WorkerRegistry(QUICK)
    registry.start()
    yield registry
    await registry.close()


async def placed(registry):
    assert await registry.wait_ready(10, "m")
    return registry.place("m", make_policy("least_load"), ROUTE)


async def test_streamed_and_whole_answers_agree(registry, echo_worker):
    registry.add(await echo_worker())
    worker = await placed(registry)
    streamed, whole = [
        await generate(worker, [5, 6, 7, 8], max_new=24, stream=stream) for stream in (True, False)
    ]
    assert streamed.ids == whole.ids
    assert streamed.finished.completion_tokens == whole.finished.completion_tokens == len(streamed.ids) > 0


async def test_200_streams_at_once_equal_their_whole_twins(registry, echo_worker):
    registry.add(await echo_worker())
    worker = await placed(registry)
    prompts = [[index + 3, index + 9, 40] for index in range(200)]
    streams, twins = [[Collector() for _ in prompts] for _ in range(2)]
    for prompt, stream, twin in zip(prompts, streams, twins, strict=True):
        worker.generate(generate_request(prompt, max_new=20), stream)
        worker.generate(generate_request(prompt, max_new=20, stream=False), twin)
    await asyncio.gather(*(answer.done for answer in (*streams, *twins)))
    assert [answer.ids for answer in streams] == [answer.ids for answer in twins]
    assert worker.inflight_requests == 0


async def test_a_worker_that_is_missing_at_the_start_is_used_as_soon_as_it_is_there(registry, echo_worker):
    url = await echo_worker()
    await echo_worker.stop(url)
    entry = registry.add(url)
    with pytest.raises(WorkerUnavailable):
        registry.place("m", make_policy("round_robin"), ROUTE)
    await echo_worker(port=int(url.rpartition(":")[2]))
    worker = await placed(registry)
    assert entry.is_ready
    assert (await generate(worker, [5, 6])).error is None


async def test_work_goes_on_elsewhere_when_one_of_two_stops(registry, echo_worker):
    urls = [await echo_worker(step_seconds=0.02), await echo_worker()]
    entries = [registry.add(url) for url in urls]
    for entry in entries:
        while not entry.is_ready:
            assert await registry.wait_ready(10)
            await asyncio.sleep(0)
    answer = Collector()
    entries[0].worker.generate(generate_request([5, 6, 7], max_new=10_000), answer)
    await answer.first_step.wait()
    await echo_worker.stop(urls[0])
    await answer.done
    assert (answer.error.engine_code, answer.error.can_retry) == (UNAVAILABLE, True)
    policy = make_policy("round_robin")
    assert {registry.place("m", policy, ROUTE).url for _ in range(4)} == {urls[1]}


async def test_the_tokenizer_arrives_as_the_engine_has_it(registry, echo_worker, tokenizer_dir):
    registry.add(await echo_worker())
    await placed(registry)
    store = TokenizerStore(registry, None, None)
    directory = await store.directory("m")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        assert (directory / name).read_bytes() == (tokenizer_dir / name).read_bytes()
    await store.close()


async def test_an_aborted_sequence_leaves_the_engine(registry, echo_worker):
    url = await echo_worker(step_seconds=0.005)
    registry.add(url)
    worker = await placed(registry)
    seen = asyncio.Event()
    answers = [Collector() for _ in range(8)]
    sequences = [worker.generate(generate_request([5, 6], max_new=10_000), answer) for answer in answers]
    await asyncio.gather(*(answer.first_step.wait() for answer in answers))
    worker.on_load_change = seen.set
    for sequence in sequences:
        worker.abort(sequence)
    while worker.load.running:
        seen.clear()
        await seen.wait()
    assert not any(answer.done.done() for answer in answers)
