"""A chat is answered alike over HTTP and gRPC, whole and streamed, and however the engine cuts its tokens."""

import pytest
import pytest_asyncio

from tests.conftest import EchoWorkers
from tests.contract.doors.cases import CASES, THINKER, UNKNOWN_THINKER, M
from tests.contract.doors.doors import DOORS
from tests.integration.running_router import running_router

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tokenizer_dir, thinking_tokenizer_dir):
    workers = EchoWorkers(tokenizer_dir)
    thinker = str(thinking_tokenizer_dir)
    paths = (str(tokenizer_dir), thinker, thinker)
    url = await workers(model_paths=paths, model_ids=(M, THINKER, UNKNOWN_THINKER), max_running=64)
    async with running_router(url) as running:
        yield running
    await workers.stop_all()


def cut(body, directive):
    """The same request, its answer coming in other steps."""
    first, *rest = body["messages"]
    return {**body, "messages": [{**first, "content": first["content"] + directive}, *rest]}


def summary(said):
    return said.content, said.reasoning, [tuple(call[1:]) for call in said.calls], said.finish


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_every_door_gives_the_same_answer(gateway, case):
    # The first request fills the engine's prefix cache, so that the counts of the others are equal.
    await DOORS["http"](gateway, case.body)
    outcomes = {name: await ask(gateway, case.body) for name, ask in DOORS.items()}
    first = outcomes["http"]
    check(case, first)
    for name, outcome in outcomes.items():
        same(case, name, first, outcome)


@pytest.mark.parametrize("directive", ["[[chunk:3]]", "[[chunk:1000]]"])
@pytest.mark.parametrize("case", [case for case in CASES if case.can_be_cut], ids=lambda case: case.name)
async def test_the_engines_steps_do_not_change_the_answer(gateway, case, directive):
    expected = await DOORS["http"](gateway, case.body)
    outcomes = {name: await ask(gateway, cut(case.body, directive)) for name, ask in DOORS.items()}
    for name, outcome in outcomes.items():
        assert_same_text(case, name, expected, outcome)
        assert_same_logprobs(name, outcomes["http"], outcome)


def check(case, outcome):
    assert (outcome.status, outcome.code) == (case.status, case.code), outcome.message
    assert case.message in outcome.message
    if case.choices is not None:
        assert [summary(outcome.choices[index]) for index in sorted(outcome.choices)] == case.choices
    for name, count in case.usage.items():
        assert outcome.usage[name] == count
    ids = [call[0] for said in outcome.choices.values() for call in said.calls]
    assert len(set(ids)) == len(ids)
    assert all(call_id.startswith("call_") for call_id in ids)
    for said in outcome.choices.values():
        if said.logprobs and not said.calls:
            # A stop string may cut through the last token.
            spelled = [entry[2].decode("utf-8", "ignore") for entry in said.logprobs]
            whole = b"".join(entry[2] for entry in said.logprobs).decode()
            assert whole.startswith(said.content)
            assert len(whole) - len(said.content) < max(1, len(spelled[-1]))


def same(case, name, first, outcome):
    assert (outcome.status, outcome.code, outcome.message) == (first.status, first.code, first.message), name
    assert outcome.usage == first.usage, name
    assert_same_text(case, name, first, outcome)
    assert_same_logprobs(name, first, outcome)


def assert_same_logprobs(name, first, outcome):
    for index, said in first.choices.items():
        assert outcome.choices[index].logprobs == said.logprobs, name


def assert_same_text(case, name, first, outcome):
    assert outcome.choices.keys() == first.choices.keys(), name
    for index, said in first.choices.items():
        other = outcome.choices[index]
        # The engine's numbers depend on the prompt, which says how to cut.
        assert [entry[::2] for entry in other.logprobs] == [entry[::2] for entry in said.logprobs], name
        if case.streams_more and "stream" in name:
            assert (other.content, other.finish) == (said.content, said.finish), name
            assert len(other.calls) <= 1, name
        else:
            assert summary(other) == summary(said), name
        assert other.matched_stop == said.matched_stop, name
