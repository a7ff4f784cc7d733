"""A worker that was found wedged is used again when its engine turns out to be well, and only then."""

from __future__ import annotations

import dataclasses

import pytest
from tokenizers import Tokenizer

from servicers.limits import SessionLimits
from smg_proto.engine.v1 import card_pb2
from tests.contract.workers.collecting import Collector, generate, generate_request
from tests.contract.workers.engine_script import HANGS, NORMAL, script
from tests.contract.workers.running import QUICK, watched
from tests.contract.workers.session_double import SessionDouble
from tests.contract.workers.sglang_double import SglangDouble

WEDGED_SOON = dataclasses.replace(QUICK, wedge_s=0.1)


class StuckDouble(SessionDouble):
    """An engine that tells its load, and makes no step while it is wedged."""

    def __init__(self) -> None:
        super().__init__()
        self.load = card_pb2.Load(running=1, steps=5)
        self.loads_told = 0

    async def GetLoad(self, request, context):
        self.loads_told += 1
        self.changes.notify()
        return card_pb2.GetLoadResponse(load=self.load)


@pytest.fixture
async def stuck():
    double = StuckDouble()
    await double.start()
    yield double
    await double.kill()


async def wedge(watch, double) -> None:
    """Let a sequence be given up, and the engine be asked a few times since."""
    double.is_wedged = True
    answer = Collector()
    watch.worker.generate(generate_request([NORMAL, 1]), answer)
    await answer.done
    await double.changes.until(lambda: double.loads_told >= 3)
    assert watch.worker.reason == "no step for 0.1 s while sequences ran"


async def test_an_engine_that_forgot_a_sequence_is_used_again(echo_worker, tokenizer_dir):
    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    prompt = tokenizer.encode("[[say:x]][[nocomplete]]", add_special_tokens=False).ids
    # The load is told between the last step and the abort, as it is in earnest: the answer to the abort is no news.
    url = await echo_worker(limits=SessionLimits(load_interval_s=0.01))
    async with watched(url, WEDGED_SOON) as watch:
        states = []
        watch.worker.on_load_change = lambda: states.append(watch.worker.is_ready)
        answer = Collector()
        watch.worker.generate(generate_request(prompt, max_new=None), answer)
        await answer.done
        assert answer.error.can_retry
        assert False in states
        await watch.until(lambda worker: worker.is_ready)
        assert (await generate(watch.worker, [5, 6, 7])).error is None


@pytest.mark.parametrize("well", [{"running": 0, "steps": 5}, {"running": 1, "steps": 6}])
async def test_a_stuck_engine_stays_out_until_it_is_empty_or_makes_steps(stuck, well):
    async with watched(stuck.url, WEDGED_SOON) as watch:
        await wedge(watch, stuck)
        stuck.is_wedged = False
        stuck.load = card_pb2.Load(**well)
        await watch.until(lambda worker: worker.is_ready)
        assert (await generate(watch.worker, [NORMAL, 2])).ids == script([NORMAL, 2], 6).ids


async def test_an_engine_on_which_sequences_wait_and_none_runs_stays_wedged(stuck):
    stuck.load = card_pb2.Load(waiting=1, steps=5)
    async with watched(stuck.url, WEDGED_SOON) as watch:
        await wedge(watch, stuck)
        assert not watch.worker.is_ready


async def test_an_engine_that_says_nothing_while_sequences_run_is_lost_and_tried_again(stuck, caplog):
    """As one whose process is stopped: its connection stays open, and takes everything."""
    stuck.is_wedged = True
    options = dataclasses.replace(QUICK, silence_s=0.1)
    async with watched(stuck.url, options) as watch:
        answer = Collector()
        watch.worker.generate(generate_request([NORMAL, 1]), answer)
        await answer.done
        assert answer.error.can_retry
        assert "nothing was heard for 0.1 s while sequences ran" in caplog.text
        stuck.is_wedged = False
        await watch.until(lambda worker: worker.is_ready)
        assert (await generate(watch.worker, [NORMAL, 2])).ids == script([NORMAL, 2], 6).ids


async def test_an_sglang_server_that_forgot_a_sequence_is_used_again_when_its_health_is_good():
    double = SglangDouble()
    await double.start()
    options = dataclasses.replace(QUICK, wedge_s=0.1, health_interval_s=0.5)
    async with watched(double.url, options) as watch:
        answer = Collector()
        watch.worker.generate(generate_request([HANGS, 1]), answer)
        await watch.until(lambda worker: not worker.is_ready)
        await answer.done
        assert answer.error.can_retry
        await watch.until(lambda worker: worker.is_ready)
        assert (await generate(watch.worker, [NORMAL, 2])).ids == script([NORMAL, 2], 6).ids
    await double.kill()
