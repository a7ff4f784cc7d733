"""SGLang's servicer: one event per turn, aborts, embeddings, adapters, profiles, its start and its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from servicers.base import CannotStart, EngineFault, EngineOptions
from servicers.sglang.servicer import SglangEngine
from servicers.sglang.settings import settings_from_options
from servicers.sglang.thread import EngineThread
from smg_proto.engine.v1 import engine_pb2, work_pb2
from tests.contract.servicers.sglang_stand_in import StandInPackage
from tests.unit.servicers.sglang.serving import Listener, generate, running


async def test_all_sequences_of_a_step_come_in_one_event(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, _):
        session = Listener()
        work = [generate(number, 1, 2, number, ignore_eos=True) for number in range(3, 67)]
        engine.submit(session, engine_pb2.SessionRequest(generate=work))
        await session.wait_ends(64)
        with_tokens = [event for event in session.events if event.token]
        assert [len(event.sequence) for event in with_tokens] == [64] * 4


async def test_an_abort_is_told_at_once_and_reaches_the_scheduler(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, package):
        session = Listener()
        endless = generate(1, 1, 2, max_new_tokens=900, ignore_eos=True)
        engine.submit(session, engine_pb2.SessionRequest(generate=[endless]))
        await session.until(session.tokens)
        engine.submit(session, engine_pb2.SessionRequest(abort=[1]))
        ends = await session.wait_ends(1)
        assert ends[1].reason == work_pb2.FINISH_REASON_ABORT
        assert ends[1].completion_tokens == len(session.tokens())
        # A request that would still run would keep the cache from being flushed.
        assert engine.load().running == 0
        engine.submit(session, engine_pb2.SessionRequest(generate=[generate(2, 1, 2)]))
        await session.wait_ends(2)
        assert (await package.engines[0].flush_cache()).success


async def test_names_of_requests_never_begin_with_one_another(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, package):
        session = Listener()
        work = [generate(number, 1, 2, max_new_tokens=1) for number in range(1, 21)]
        engine.submit(session, engine_pb2.SessionRequest(generate=work))
        await session.wait_ends(20)
        names = [call["rid"] for call in package.engines[0].calls]
        assert len(set(names)) == 20
        assert len(set(map(len, names))) == 1


async def test_a_score_computes_its_first_question_alone_and_the_others_together(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, package):
        session = Listener()
        suffixes = [work_pb2.ScoreSuffix(ids=bytes([n, 0, 0, 0]), label_ids=[7, 8]) for n in range(5)]
        score = work_pb2.Score(sequence=1, prefix_ids=bytes([9, 0, 0, 0]) * 40, suffixes=suffixes)
        engine.submit(session, engine_pb2.SessionRequest(score=[score]))
        ends = await session.wait_ends(1)
        assert [len(each.logprobs) for each in ends[1].suffixes] == [2] * 5
        assert [len(call["input_ids"]) for call in package.engines[0].calls] == [1, 4]
        assert [each.cached_tokens for each in ends[1].suffixes] == [0, 32, 32, 32, 32]


async def test_an_embedding_model_embeds_token_ids(tokenizer_dir):
    async with running(tokenizer_dir, StandInPackage(is_generation=False)) as (engine, _):
        can = engine.describe().models[0].capabilities
        assert can.embed
        assert not can.generate
        session = Listener()
        ids = bytes([5, 0, 0, 0, 6, 0, 0, 0])
        work = [
            work_pb2.Embed(sequence=1, input_ids=ids),
            work_pb2.Embed(sequence=2, input_ids=ids, dimensions=4),
        ]
        engine.submit(session, engine_pb2.SessionRequest(embed=work))
        ends = await session.wait_ends(2)
        assert [len(ends[number].values) for number in (1, 2)] == [16, 4]
        for end in ends.values():
            assert sum(each * each for each in end.values) == pytest.approx(1, abs=1e-5)
            assert end.prompt_tokens == 2


async def test_adapters_are_loaded_named_and_unloaded(tokenizer_dir):
    async with running(tokenizer_dir, enable_lora=True) as (engine, package):
        await engine.load_lora("poet", "/adapters/poet")
        assert list(engine.describe().models[0].loras) == ["poet"]
        session = Listener()
        work = generate(1, 1, 2)
        work.lora = "poet"
        engine.submit(session, engine_pb2.SessionRequest(generate=[work]))
        await session.wait_ends(1)
        assert package.engines[0].calls[-1]["lora_path"] == "poet"
        await engine.unload_lora("poet")
        assert not engine.describe().models[0].loras
        with pytest.raises(EngineFault, match="no such adapter"):
            await engine.unload_lora("poet")


async def test_an_adapter_that_sglang_refuses_is_a_fault_with_its_words(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, _):
        with pytest.raises(EngineFault, match="LoRA is not enabled"):
            await engine.load_lora("poet", "/adapters/poet")


async def test_profiles_start_and_stop_once_each(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, package):
        with pytest.raises(EngineFault, match="not in progress"):
            await engine.stop_profile()
        await engine.start_profile("/profiles")
        with pytest.raises(EngineFault, match="already in progress"):
            await engine.start_profile("")
        await engine.stop_profile()
        assert package.engines[0].profiles == ["/profiles", None]


async def test_a_flush_while_work_runs_drops_nothing(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, _):
        session = Listener()
        prompt = range(100, 164)
        engine.submit(session, engine_pb2.SessionRequest(generate=[generate(1, *prompt)]))
        await session.wait_ends(1)
        endless = generate(2, *prompt, max_new_tokens=900, ignore_eos=True)
        engine.submit(session, engine_pb2.SessionRequest(generate=[endless]))
        await session.until(lambda: len(session.tokens()) > 4)
        assert await engine.flush_cache() == 0
        engine.close(session)


async def test_what_cannot_start_says_why(tokenizer_dir):
    options = EngineOptions((str(tokenizer_dir),))
    engine = SglangEngine(settings_from_options(options), StandInPackage(fails_to_start="no CUDA device"))
    with pytest.raises(CannotStart, match="RuntimeError: no CUDA device"):
        await engine.start()
    await engine.stop()


async def test_the_engine_is_shut_down_at_the_end_and_its_work_is_cancelled(tokenizer_dir):
    async with running(tokenizer_dir) as (engine, package):
        session = Listener()
        endless = generate(1, 1, 2, max_new_tokens=900, ignore_eos=True)
        engine.submit(session, engine_pb2.SessionRequest(generate=[endless]))
        await session.until(session.tokens)
    assert package.engines[0].is_shut_down


async def test_a_start_that_is_given_up_does_not_wait_for_the_loading():
    may_go_on = threading.Event()
    thread = EngineThread(may_go_on.wait, asyncio.get_running_loop())
    starting = asyncio.ensure_future(thread.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    await thread.stop()
    may_go_on.set()
