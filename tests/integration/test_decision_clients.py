"""The standard's official SDK, OpenAI's and the conformance suite against the gateway, as their users run them."""

import asyncio
import sys

import openai
import pytest
import pytest_asyncio
import typesafe_sdk
from openai.lib.decisions_tool_runner import AsyncDecisionsToolRunner

from tests.conftest import EchoWorkers
from tests.integration.running_envoy import address, configuration, running_envoy
from tests.integration.running_router import running_router
from tests.unit.gateway.decisions.test_images import image

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["listener", "envoy"])
async def base_url(request, decision_tokenizer_dir, tmp_path_factory):
    """Where a gateway answers: at its own port, or behind an Envoy that speaks nothing but gRPC to it."""
    workers = EchoWorkers(decision_tokenizer_dir)
    async with running_router(await workers(model_ids=("d",))) as gateway:
        if request.param == "listener":
            yield str(gateway.http.base_url)
        else:
            found = configuration("edge.yaml", {"gateway": [address(gateway.target)]})
            async with running_envoy(found, tmp_path_factory.mktemp("envoy")) as ports:
                yield f"http://127.0.0.1:{ports['http']}"
    await workers.stop_all()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdk(base_url):
    async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="k", max_retries=0) as client:
        yield client


async def test_openai_decisions(sdk):
    decision = await sdk.decisions.create(
        model="d",
        input=[{"role": "user", "content": "The delivery came late."}],
        questions=[
            {"type": "predicate", "instructions": "It was late."},
            {
                "type": "choice",
                "name": "mood",
                "instructions": "Mood?",
                "choices": [{"value": True}, {"value": "true"}],
            },
            {"type": "score", "instructions": "Rate.", "levels": [{"label": "bad"}, {"label": "good"}]},
        ],
    )
    late, mood, rate = decision.answers
    assert 0 <= late.probability <= 1
    assert mood.name == "mood"
    assert [each.value for each in mood.probabilities] == [True, "true"]
    likeliest = max(mood.probabilities, key=lambda each: each.probability)
    assert (mood.choice, type(mood.choice)) == (likeliest.value, type(likeliest.value))
    assert rate.score == pytest.approx(rate.probabilities[1].probability)
    assert decision.usage.total_tokens == decision.usage.input_tokens
    assert [model.id async for model in sdk.models.list()] == ["d"]


async def test_openai_refusals(sdk):
    with pytest.raises(openai.BadRequestError, match="questions is empty") as caught:
        await sdk.decisions.create(model="d", input="x", questions=[])
    assert caught.value.code == "unsupported_decisions_request"
    with pytest.raises(openai.NotFoundError):
        await sdk.decisions.create(
            model="nope", input="x", questions=[{"type": "predicate", "instructions": "x"}]
        )


async def test_openais_runner_chooses_among_actions_until_it_is_done(sdk):
    done = asyncio.Event()

    async def act():
        done.set()

    async def observe():
        return "done [[lp:-9,-0.01]]" if done.is_set() else "nothing is done [[lp:-0.01,-9]]"

    async def candidates(_observation):
        actions = [{"id": "act", "description": "Do it.", "execute": act}]
        return [*actions, {"id": "done", "description": "Nothing is left to do.", "done": True}]

    async def verify(_observation):
        return done.is_set()

    runner = AsyncDecisionsToolRunner(observe=observe, candidates=candidates, verify=verify)
    # What the engine is told chooses the action first, and the end when it is done.
    result = await runner.run(sdk, {"model": "d", "input": "Do it."}, max_steps=3)
    assert result["status"] == "verified"
    assert result["completed_candidate_ids"] == ["act"]


@pytest_asyncio.fixture(loop_scope="module")
async def typesafe(base_url):
    once = typesafe_sdk.RetryPolicy(max_retries=0)
    async with typesafe_sdk.AsyncTypeSafeClient(api_key="k", base_url=base_url, retry=once) as client:
        yield client


async def test_typesafe_plain_and_compressed(typesafe):
    questions = {
        "refund": typesafe_sdk.Noul(instructions="Is a refund asked for?"),
        "team": typesafe_sdk.Choice(criteria={"billing": "Payments", "sales": None}),
        "anger": typesafe_sdk.Score(criteria=["calm", "cross"]),
    }
    answer = await typesafe.system_one("I want my money back.", questions)
    assert answer.model == "d"
    assert answer.request_id
    assert 0 <= answer.answers["refund"].noul <= 1
    assert set(answer.answers["team"].probabilities) == {"billing", "sales"}
    assert answer.answers["anger"].legend == {0: "calm", 1: "cross"}
    # From 1024 bytes on the SDK compresses.
    longer = await typesafe.system_one({"mail": "I want my money back. " * 100}, questions)
    assert longer.usage.input_tokens > answer.usage.input_tokens + 400


async def test_typesafe_errors(typesafe):
    with pytest.raises(typesafe_sdk.TypeSafeUnprocessableEntityError, match="at least 2 options"):
        await typesafe.system_one("x", {"q": typesafe_sdk.Choice(criteria={"only": None})})
    with pytest.raises(typesafe_sdk.TypeSafeNotFoundError, match="served: d"):
        await typesafe.system_one("x", {"q": typesafe_sdk.Noul(instructions="y")}, model="nope")
    with pytest.raises(typesafe_sdk.TypeSafeBadRequestError, match="does not take"):
        await typesafe.system_one("x", {"q": typesafe_sdk.Noul(instructions="y")}, extra_body={"seed": 7})


async def test_typesafe_images_arrive_in_parts_and_are_refused_for_what_they_are(typesafe):
    picture = typesafe_sdk.Image(image("PNG"))
    asked = {"q": typesafe_sdk.Noul(instructions="Is it red?")}
    with pytest.raises(typesafe_sdk.TypeSafeBadRequestError, match="reads no images"):
        await typesafe.system_one({"receipt": picture}, asked)


async def test_typesafe_lists_the_models(typesafe):
    listed = await typesafe.models.list()
    assert [model.name for model in listed.models] == ["d"]


async def test_jevcompat_finds_every_requirement_met(base_url):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys; from jevcompat.cli import main; sys.exit(main())", "test", base_url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
