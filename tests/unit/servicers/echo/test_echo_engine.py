"""EchoEngine: steps, pauses, aborts, the queue, and counters that always come back to nothing."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from servicers.base import CannotStart, EngineOptions
from servicers.echo import create_engine
from smg_proto.engine.v1 import engine_pb2, work_pb2
from tests.examples import examples
from tests.unit.servicers.echo.collector import ABORT, Collector, bench


def assert_idle(engine) -> None:
    load = engine.load()
    assert (load.running, load.waiting, load.waiting_uncached_tokens) == (0, 0, 0)
    engine.flush_cache()
    assert engine.load().kv_used_tokens == 0


async def test_all_sequences_of_a_session_share_the_event_of_a_step(tokenizer_dir):
    async with bench(tokenizer_dir, echo_endless=True) as echo:
        await echo.run(*(echo.generate(f"{n}", max_new_tokens=10) for n in range(20)))
        busy = [event for event in echo.sink.events if event.sequence]
        assert len(busy) == 10
        assert all(len(event.sequence) == len(event.token) == 20 and not event.count for event in busy)
        assert_idle(echo.engine)


async def test_an_idle_engine_makes_no_steps(tokenizer_dir):
    async with bench(tokenizer_dir, step_seconds=0.001) as echo:
        await echo.run(echo.generate("x"))
        before = echo.engine.load().steps
        await asyncio.sleep(0.02)
        assert echo.engine.load().steps == before


async def test_an_unpaced_engine_leaves_the_loop_to_others(tokenizer_dir):
    async with bench(tokenizer_dir, echo_endless=True) as echo:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        before = echo.engine.load().steps
        await echo.run(echo.generate("x", max_new_tokens=500))
        steps = echo.engine.load().steps - before
        task.cancel()
        assert steps == 500
        assert turns >= steps // 2


async def test_an_unpaced_engine_waits_for_a_router_that_lags(tokenizer_dir):
    async with bench(tokenizer_dir, echo_endless=True) as echo:
        echo.submit(echo.generate("x", max_new_tokens=5000))
        await echo.sink.wait(lambda: echo.sink.tokens)
        echo.sink.unsent_events = 100
        turns = 0
        before = echo.engine.load().steps
        while echo.engine.load().steps < before + 5:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 20


async def test_pauses_come_before_chunks_and_hold_up_nobody_else(tokenizer_dir):
    async with bench(tokenizer_dir) as echo:
        loop = asyncio.get_running_loop()
        began = loop.time()
        slow, fast = echo.submit(
            echo.generate("[[hang0:60]][[len:2]][[delay:10]]"), echo.generate("[[len:2]]")
        )
        await echo.sink.wait(lambda: fast in echo.sink.ends)
        assert slow not in echo.sink.started
        await echo.sink.wait(lambda: slow in echo.sink.ends)
        assert loop.time() - began >= 0.06 + 0.01 * len(echo.sink.tokens[slow])
        assert echo.sink.tokens[slow] == echo.sink.tokens[fast]


async def test_a_hanging_reply_goes_on_until_it_is_aborted(tokenizer_dir):
    async with bench(tokenizer_dir) as echo:
        [number] = echo.submit(echo.generate("[[say:x]][[hang]]", max_new_tokens=1))
        await echo.sink.wait(lambda: len(echo.sink.tokens.get(number, ())) > 3)
        echo.submit(abort=[number])
        assert echo.sink.ends[number].reason == ABORT
        assert_idle(echo.engine)


@pytest.mark.parametrize(("directive", "eos"), [("", "<|im_end|>"), ("[[eos:0]]", "")])
async def test_a_reply_without_end_stays_until_it_is_aborted(tokenizer_dir, directive, eos):
    async with bench(tokenizer_dir) as echo:
        [silent] = echo.submit(echo.generate(f"[[say:x y]][[nocomplete]]{directive}"))
        [other] = await echo.run(echo.generate("[[len:50]]"))
        assert echo.text(echo.sink.tokens[silent]) == "x y" + eos
        assert silent not in echo.sink.ends
        assert echo.engine.load().running == 1
        assert other in echo.sink.ends
        echo.submit(abort=[silent])
        assert_idle(echo.engine)


async def test_an_abort_is_answered_at_once_with_true_counts(tokenizer_dir):
    async with bench(tokenizer_dir, echo_endless=True) as echo:
        numbers = echo.submit(*(echo.generate(f"{n}", max_new_tokens=4000) for n in range(5)))
        await echo.sink.wait(lambda: len(echo.sink.tokens.get(numbers[0], ())) > 20)
        echo.submit(abort=numbers[:3])
        for number in numbers[:3]:
            end = echo.sink.ends[number]
            assert (end.reason, end.completion_tokens) == (ABORT, len(echo.sink.tokens[number]))
        assert echo.engine.load().running == 2
        told = [event.load.running for event in echo.sink.events if event.HasField("load")]
        assert told[-1] == 2
        echo.submit(abort=numbers)
        assert_idle(echo.engine)


async def test_what_does_not_fit_waits_in_order_and_can_be_aborted(tokenizer_dir):
    async with bench(tokenizer_dir, echo_endless=True, max_running=2) as echo:
        numbers = echo.submit(*(echo.generate(f"{n}", max_new_tokens=50) for n in range(6)))
        load = echo.engine.load()
        assert (load.running, load.waiting) == (2, 4)
        assert load.waiting_uncached_tokens == 4 * len(echo.chat("0")) // 4
        echo.submit(abort=[numbers[3]])
        assert echo.sink.ends[numbers[3]].reason == ABORT
        await echo.sink.wait(lambda: len(echo.sink.ends) == 6)
        assert list(echo.sink.started) == [number for number in numbers if number != numbers[3]]
        assert max(len(event.sequence) for event in echo.sink.events) == 2
        assert_idle(echo.engine)


async def test_closing_a_session_lets_the_waiting_of_others_run(tokenizer_dir):
    async with bench(tokenizer_dir, echo_endless=True, max_running=1) as echo:
        greedy = Collector()
        echo.engine.submit(
            greedy,
            engine_pb2.SessionRequest(generate=[echo.generate("a", max_new_tokens=10**6) for _ in range(3)]),
        )
        [number] = echo.submit(echo.generate("b", max_new_tokens=3))
        await greedy.wait(lambda: greedy.tokens)
        echo.engine.close(greedy)
        count = len(greedy.events)
        await echo.sink.wait(lambda: number in echo.sink.ends)
        assert len(greedy.events) == count
        assert_idle(echo.engine)


async def test_one_shot_work_can_be_aborted_before_its_step(tokenizer_dir):
    async with bench(tokenizer_dir) as echo:
        item = work_pb2.Embed(sequence=50, input_ids=b"\1\0\0\0")
        echo.engine.submit(echo.sink, engine_pb2.SessionRequest(embed=[item], abort=[50]))
        assert echo.sink.ends[50].reason == ABORT
        assert_idle(echo.engine)


async def test_several_models_share_one_engine_and_each_has_its_name(tokenizer_dir):
    paths = (str(tokenizer_dir), str(tokenizer_dir / "tokenizer.json"))
    async with bench(tokenizer_dir, model_paths=paths, model_ids=("a", "b"), max_context=77) as echo:
        cards = echo.engine.describe().models
        assert [(card.id, card.context_length) for card in cards] == [("a", 77), ("b", 77)]
        assert echo.engine.tokenizer_dir("b") == echo.engine.tokenizer_dir("") == tokenizer_dir
        assert echo.engine.tokenizer_dir("c") is None
        tokens, _ = await echo.run_one(echo.generate("[[say:x]]", model="b"))
        assert echo.text(tokens).startswith("x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs --model-path"),
        ({"model_paths": ("/no/such",)}, "has no tokenizer.json"),
        ({"model_paths": ("DIR", "DIR")}, "two models have the name"),
    ],
)
async def test_what_cannot_be_loaded_is_named(tokenizer_dir, options, words):
    paths = tuple(path.replace("DIR", str(tokenizer_dir)) for path in options.get("model_paths", ()))
    engine = create_engine(EngineOptions(model_paths=paths))
    with pytest.raises(CannotStart, match=words):
        await engine.start()
    await engine.stop()


@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_any_mix_of_work_and_aborts_gives_every_sequence_its_tokens_and_one_end(tokenizer_dir, seed):
    asyncio.run(mix(tokenizer_dir, random.Random(seed)))


async def mix(tokenizer_dir, rng: random.Random) -> None:
    prompts = [
        "plain",
        "[[len:30]]",
        "[[say:x]]",
        "[[len:9]][[chunk:4]]",
        "[[len:20]][[errorafter:5:ABORTED]]",
    ]
    async with bench(tokenizer_dir, echo_endless=True, max_running=rng.choice([1, 4, 100])) as echo:
        expected: dict[int, list[int]] = {}
        alone: dict[tuple, list[int]] = {}
        for _ in range(rng.randrange(1, 12)):
            items = []
            for _ in range(rng.randrange(4)):
                key = (rng.choice(prompts), rng.randrange(60), rng.random() < 0.5)
                items.append(echo.generate(key[0], max_new_tokens=key[1], stream=key[2]))
                expected[items[-1].sequence] = key
            aborts = [number for number in expected if rng.random() < 0.1]
            echo.submit(*items, abort=aborts)
            for _ in range(rng.randrange(10)):
                await asyncio.sleep(0)
        await echo.sink.wait(lambda: len(echo.sink.ends) == len(expected))
        assert_idle(echo.engine)
        for number, key in expected.items():
            end = echo.sink.ends[number]
            if isinstance(end, work_pb2.Failed):
                continue
            if key not in alone:
                alone[key], _ = await echo.run_one(echo.generate(key[0], max_new_tokens=key[1]))
            got = echo.sink.tokens.get(number, [])
            if not key[2]:
                assert not got
                continue
            assert end.completion_tokens == len(got)
            assert got == alone[key] if end.reason != ABORT else got == alone[key][: len(got)]
