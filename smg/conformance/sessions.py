"""Session: a lease on an engine. Ready first, one end for each sequence, nothing left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from smg.conformance.checking import check
from smg.conformance.session_client import Record, to_bytes
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2

if TYPE_CHECKING:
    from smg.conformance.worker import Worker


@check
async def ready_comes_first_and_names_the_process_that_describe_names(worker: Worker) -> None:
    async with worker.session() as session:
        assert session.ready.instance_id == worker.description.instance_id
        assert session.ready.max_running == worker.description.max_running > 0


@check
async def a_sequence_starts_then_gets_tokens_then_ends(worker: Worker) -> None:
    async with worker.session() as session:
        record = await session.run_one(worker.generate(max_new_tokens=4, ignore_eos=True))
    assert record.started.prompt_tokens == len(worker.ids("The capital of France is"))
    assert len(record.tokens) == 4
    assert record.finished.prompt_tokens == record.started.prompt_tokens


@check
async def sequences_of_two_sessions_may_have_the_same_number(worker: Worker) -> None:
    async with worker.session() as one, worker.session() as other:
        first, second = await asyncio.gather(
            one.run_one(worker.generate("One two three", max_new_tokens=6)),
            other.run_one(worker.generate("Four five six", max_new_tokens=3)),
        )
    assert first.finished.prompt_tokens == len(worker.ids("One two three"))
    assert len(first.tokens) <= 6
    assert len(second.tokens) <= 3


@check
async def closing_one_session_leaves_the_other_alone(worker: Worker) -> None:
    async with worker.session() as stays:
        [record] = await stays.start(worker.generate(max_new_tokens=24, ignore_eos=True))
        async with worker.session() as goes:
            await goes.start(worker.generate(max_new_tokens=2000, ignore_eos=True))
        await stays.wait(record)
        assert len(record.tokens) == 24
    await worker.wait_until_idle()


@check
async def an_abort_ends_the_sequence_with_abort(worker: Worker) -> None:
    async with worker.session() as session:
        [record] = await session.start(worker.generate(max_new_tokens=2000, ignore_eos=True))
        await session.wait_for_tokens(record)
        await session.abort(record)
        await session.wait(record)
    assert record.finished.reason == work_pb2.FINISH_REASON_ABORT
    assert record.finished.completion_tokens == len(record.tokens) < 2000


@check
async def an_abort_frees_the_engine_within_a_step(worker: Worker) -> None:
    async with worker.session() as session:
        [record] = await session.start(worker.generate(max_new_tokens=2000, ignore_eos=True))
        await session.wait_for_tokens(record)
        before = (await worker.load()).steps
        await session.abort(record)
        await session.wait(record)
        assert (await worker.load()).running == 0
    # The abort travels while the engine steps: what is ruled out is an abort that waits for the sequence's end.
    assert (await worker.load()).steps - before < 1000


@check
async def an_abort_in_the_same_message_as_its_sequence_is_obeyed(worker: Worker) -> None:
    async with worker.session() as session:
        message = worker.generate(max_new_tokens=2000, ignore_eos=True, sequence=77)
        session.records[77] = record = Record()
        await session.send(engine_pb2.SessionRequest(generate=[message], abort=[77]))
        await session.wait(record)
    assert record.finished.reason == work_pb2.FINISH_REASON_ABORT


@check
async def aborts_of_unknown_and_ended_sequences_are_ignored(worker: Worker) -> None:
    async with worker.session() as session:
        record = await session.run_one(worker.generate(max_new_tokens=2))
        await session.send(engine_pb2.SessionRequest(abort=[1, 999_999]))
        again = await session.run_one(worker.generate(max_new_tokens=2))
    assert again.tokens == record.tokens


@check
async def closing_a_session_aborts_everything_on_it(worker: Worker) -> None:
    async with worker.session() as session:
        records = await session.start(
            *(worker.generate(f"{n} times", max_new_tokens=2000, ignore_eos=True) for n in range(8))
        )
        await session.wait_for_tokens(records[0])
        assert (await worker.load()).running > 0
    await worker.wait_until_idle()


@check
async def a_half_closed_session_ends_well_after_its_last_sequence(worker: Worker) -> None:
    async with worker.session() as session:
        [record] = await session.start(worker.generate(max_new_tokens=5, ignore_eos=True))
        assert await session.half_close() is grpc.StatusCode.OK
        assert len(record.tokens) == 5


@check
async def two_hundred_sequences_at_a_time_each_get_their_own_answer(worker: Worker) -> None:
    texts = ["go on " * (1 + n % 5) for n in range(200)]
    async with worker.session() as session:
        records = await session.run(
            *(
                worker.generate(text, max_new_tokens=1 + n % 3, ignore_eos=True)
                for n, text in enumerate(texts)
            )
        )
    for n, (text, record) in enumerate(zip(texts, records, strict=True)):
        assert record.finished.prompt_tokens == len(worker.ids(text))
        assert record.finished.completion_tokens == len(record.tokens) == 1 + n % 3
        # Greedy, with an equal twin: the batch must not mix sequences up.
        assert record.tokens == records[n % 15].tokens
    await worker.wait_until_idle()


@check
async def a_step_brings_its_tokens_in_one_event(worker: Worker) -> None:
    async with worker.session() as session:
        await session.run(
            *(worker.generate(f"{n} and", max_new_tokens=16, ignore_eos=True) for n in range(8))
        )
        assert session.largest_step > 1


@check
async def the_load_is_told_and_ends_at_nothing(worker: Worker) -> None:
    async with worker.session() as session:
        await session.run(*(worker.generate(max_new_tokens=8, ignore_eos=True) for _ in range(4)))
        assert max(load.running for load in session.loads) > 0
    await worker.wait_until_idle()
    load = await worker.load()
    assert (load.running, load.waiting, load.waiting_uncached_tokens) == (0, 0, 0)


@check
async def a_number_in_use_fails_that_sequence_once_and_no_other(worker: Worker) -> None:
    async with worker.session() as session:
        neighbour, record = await session.start(
            worker.generate(max_new_tokens=40, ignore_eos=True),
            worker.generate("Two", max_new_tokens=2000, ignore_eos=True),
        )
        await session.wait_for_tokens(record)
        double = worker.generate("Three", max_new_tokens=5, sequence=2)
        await session.send(engine_pb2.SessionRequest(generate=[double]))
        await session.wait(record, neighbour)
        assert record.failed.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert "sequence is 2" in record.failed.message
        assert len(neighbour.tokens) == 40
        # The client would raise if the engine told of the number again.
        await session.run_one(worker.generate(max_new_tokens=4))
    await worker.wait_until_idle()


@check
async def bytes_that_are_no_request_end_the_session_with_a_reason(worker: Worker) -> None:
    call = worker.channel.stream_stream("/smg.engine.v1.EngineService/Session")()
    await call.write(b"\xff\xff\xff\xff")
    await call.read()
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "SessionRequest" in (await call.details() or "")


@check
async def who_watches_the_cache_is_told_what_it_holds_and_when_it_is_emptied(worker: Worker) -> None:
    worker.need("cache_events")
    prompt = worker.ids("A river runs through the old town, and over it a bridge of stone. " * 4)
    async with worker.session() as watching, worker.session() as silent:
        await watching.send(engine_pb2.SessionRequest(watch_cache=True))
        await watching.run_one(worker.generate("Wait until the wish has arrived", max_new_tokens=1))
        await silent.run_one(worker.generate(prompt, max_new_tokens=4, ignore_eos=True))

        def is_prompt(change: card_pb2.CacheEvent) -> bool:
            return any(
                (
                    len(each.ids) >= 4 * 16 * (len(prompt) // 16 - 1)
                    and to_bytes(prompt).startswith(each.ids[: 4 * len(prompt)])
                )
                or each.ids.startswith(to_bytes(prompt))
                for each in change.stored_prefixes
            )

        await watching.wait_cache(is_prompt)
        await worker.stub.FlushCache(card_pb2.FlushCacheRequest())
        await watching.wait_cache(lambda change: change.cleared)
        assert not silent.cache
