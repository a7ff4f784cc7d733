"""A bundle's time ends what is not done, a client that leaves ends all of it, and decisions stand beside the others."""

import asyncio

import httpx
import pytest
import pytest_asyncio

from tests.conftest import EchoWorkers
from tests.integration.running_router import running_router, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEVER = {"id": "never", "classify": {"model": "slow", "input": "x"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(decision_tokenizer_dir):
    started = EchoWorkers(decision_tokenizer_dir)
    yield started
    await started.stop_all()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slow(workers):
    """A worker that takes an hour for a step."""
    return await workers(model_ids=("slow",), step_seconds=3600)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(workers, slow):
    async with running_router(slow, await workers(model_ids=("fast",))) as running:
        yield running


async def test_decisions_answer_as_they_do_alone(gateway):
    question = {"type": "noul", "instructions": "Is it about money?"}
    asked = {
        "model": "fast",
        "state": "I was charged twice.",
        "questions": {"q": question, "bad": {"type": "x"}},
    }
    bodies = [
        asked,
        {"model": "fast", "state": "x"},
        {"model": "no/such", "state": "x", "questions": {"q": question}},
    ]
    tasks = [{"id": str(n), "decisions": body} for n, body in enumerate(bodies)]
    results = (await gateway.http.post("/v1/bundle", json={"tasks": tasks})).json()["results"]
    for body, result in zip(bodies, results, strict=True):
        alone = await gateway.http.post("/v1/decisions", json=body)
        if body.get("questions"):
            assert (result["status"], result["body"]) == (alone.status_code, alone.json())
    # Inside a bundle it is the state form always.
    assert results[1]["status"] == 400
    assert results[1]["body"]["error"]["code"] == "invalid_request"


async def test_what_is_not_done_in_time_fails_alone(gateway, workers, slow):
    response = await gateway.http.post("/v1/bundle", json={"tasks": [NEVER], "options": {"deadline_ms": 20}})
    (late,) = response.json()["results"]
    assert (late["id"], late["status"]) == ("never", 504)
    assert late["body"]["error"]["code"] == "deadline_exceeded"
    assert "20" in late["body"]["error"]["message"]
    await until(lambda: workers.servers[slow].engine.load().running == 0)


async def test_a_client_that_leaves_ends_every_task(gateway, workers, slow):
    engine = workers.servers[slow].engine
    tasks = [NEVER | {"id": str(n)} for n in range(3)]
    async with httpx.AsyncClient(base_url=gateway.http.base_url, verify=False) as client:
        request = asyncio.create_task(client.post("/v1/bundle", json={"tasks": tasks}))
        await until(lambda: engine.load().running == 3)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    await until(lambda: engine.load().running == 0)


async def test_too_many_tasks_are_refused_and_the_bound_is_told(gateway):
    limits = (await gateway.http.get("/v1/models")).json()["limits"]
    tasks = [NEVER | {"id": str(n)} for n in range(limits["max_bundle_tasks"] + 1)]
    response = await gateway.http.post("/v1/bundle", json={"tasks": tasks})
    assert response.status_code == 400
    assert f"at most {limits['max_bundle_tasks']}" in response.json()["error"]["message"]
