"""Generate: which tokens come, when they end, and what stays the same whatever else changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from smg.conformance.checking import NotOffered, cases, check, check_each
from smg.conformance.session_client import to_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from smg.conformance.worker import Worker

STOP, LENGTH = work_pb2.FINISH_REASON_STOP, work_pb2.FINISH_REASON_LENGTH


@check
async def greedy_output_is_the_same_every_time(worker: Worker) -> None:
    async with worker.session() as session:
        first, second = [await session.run_one(worker.generate(max_new_tokens=12)) for _ in range(2)]
    assert first.tokens == second.tokens != []


@check
async def tokens_do_not_depend_on_streaming(worker: Worker) -> None:
    async with worker.session() as session:
        streamed = await session.run_one(worker.generate(max_new_tokens=12))
        whole = await session.run_one(worker.generate(max_new_tokens=12, stream=False))
    assert whole.tokens == streamed.tokens
    assert whole.finished.reason == streamed.finished.reason
    assert whole.finished.completion_tokens == streamed.finished.completion_tokens == len(streamed.tokens)
    assert not streamed.finished.token_ids


@check_each(cases(1, 2, 9))
async def max_new_tokens_ends_with_length(worker: Worker, count: int) -> None:
    async with worker.session() as session:
        record = await session.run_one(worker.generate(max_new_tokens=count, ignore_eos=True))
    assert len(record.tokens) == count
    assert record.finished.reason == LENGTH
    assert not record.finished.HasField("matched_token_id")


@check
async def no_new_tokens_end_at_once_with_length(worker: Worker) -> None:
    async with worker.session() as session:
        record = await session.run_one(worker.generate(max_new_tokens=0))
    assert record.tokens == []
    assert record.start is not None
    assert record.finished.reason == LENGTH
    assert record.finished.completion_tokens == 0


@check
async def ignore_eos_goes_on_until_max_new_tokens(worker: Worker) -> None:
    async with worker.session() as session:
        record = await session.run_one(worker.generate(max_new_tokens=32, ignore_eos=True))
    assert len(record.tokens) == 32
    assert record.finished.reason == LENGTH


@check
async def a_stop_token_ends_the_sequence_and_is_its_last_token(worker: Worker) -> None:
    async with worker.session() as session:
        free = await session.run_one(worker.generate(max_new_tokens=12, ignore_eos=True))
        stop = free.tokens[5]
        record = await session.run_one(worker.generate(max_new_tokens=12, stop_token_ids=[stop]))
    end = free.tokens.index(stop) + 1
    assert record.tokens == free.tokens[:end]
    assert record.finished.reason == STOP
    assert record.finished.matched_token_id == stop
    assert record.finished.completion_tokens == end


@check
async def no_stop_token_comes_before_min_new_tokens(worker: Worker) -> None:
    async with worker.session() as session:
        free = await session.run_one(worker.generate(max_new_tokens=12, ignore_eos=True))
        stop = free.tokens[2]
        record = await session.run_one(
            worker.generate(max_new_tokens=20, min_new_tokens=10, stop_token_ids=[stop])
        )
    assert len(record.tokens) >= 10
    assert stop not in record.tokens[:10]


@check
async def the_context_ends_a_sequence_with_length(worker: Worker) -> None:
    context = worker.card.context_length
    if not context:
        raise NotOffered("the model has no context length")
    prompt = (worker.ids("All the way to the end of it. ") * context)[: context - 4]
    async with worker.session() as session:
        record = await session.run_one(worker.generate(prompt, max_new_tokens=None, ignore_eos=True))
    assert record.finished.reason == LENGTH
    assert 1 <= len(record.tokens) <= 4


@check
async def the_same_seed_gives_the_same_tokens_whatever_else_runs(worker: Worker) -> None:
    def message() -> work_pb2.Generate:
        return worker.generate(max_new_tokens=10, temperature=1.5, seed=7, ignore_eos=True)

    async with worker.session() as session:
        alone = await session.run_one(message())
        others = [worker.generate(f"{n} more", max_new_tokens=6, ignore_eos=True) for n in range(5)]
        together, *_ = await session.run(message(), *others)
    assert alone.tokens == together.tokens


@check
async def choices_of_one_seed_differ(worker: Worker) -> None:
    async with worker.session() as session:
        records = await session.run(
            *(
                worker.generate(max_new_tokens=24, temperature=1.5, seed=7, choice_index=n, ignore_eos=True)
                for n in range(3)
            )
        )
    assert len({tuple(record.tokens) for record in records}) == 3


@check_each(cases(1, 3, 7))
async def output_ids_go_on_where_another_engine_stopped(worker: Worker, done: int) -> None:
    async with worker.session() as session:
        whole = await session.run_one(worker.generate(max_new_tokens=8, ignore_eos=True))
        rest = await session.run_one(
            worker.generate(max_new_tokens=8, ignore_eos=True, output_ids=to_bytes(whole.tokens[:done]))
        )
    assert rest.tokens == whole.tokens[done:]
    assert rest.finished.completion_tokens == whole.finished.completion_tokens
    assert rest.finished.prompt_tokens == whole.finished.prompt_tokens
    assert rest.finished.reason == whole.finished.reason


@check
async def output_ids_that_are_complete_end_at_once(worker: Worker) -> None:
    async with worker.session() as session:
        whole = await session.run_one(worker.generate(max_new_tokens=4, ignore_eos=True))
        rest = await session.run_one(
            worker.generate(max_new_tokens=4, ignore_eos=True, output_ids=to_bytes(whole.tokens))
        )
    assert rest.tokens == []
    assert rest.finished.reason == LENGTH
    assert rest.finished.completion_tokens == 4


@check
async def a_prompt_seen_before_is_cached_and_a_flush_forgets_it(worker: Worker) -> None:
    prompt = worker.ids("A rather long sentence, which is repeated to fill some blocks of a cache. " * 6)
    async with worker.session() as session:
        await worker.flush()
        cold = await session.run_one(worker.generate(prompt, max_new_tokens=2, ignore_eos=True))
        warm = await session.run_one(worker.generate(prompt, max_new_tokens=2, ignore_eos=True))
        assert cold.started.cached_tokens == cold.finished.cached_tokens == 0
        assert len(prompt) / 2 < warm.started.cached_tokens < len(prompt)
        assert warm.finished.cached_tokens == warm.started.cached_tokens
        assert warm.tokens == cold.tokens
        await worker.wait_until_idle()
        await worker.flush()
        flushed = await session.run_one(worker.generate(prompt, max_new_tokens=2, ignore_eos=True))
        assert flushed.started.cached_tokens == 0


@check
async def a_flush_leaves_running_sequences_alone(worker: Worker) -> None:
    async with worker.session() as session:
        undisturbed = await session.run_one(worker.generate(max_new_tokens=30, ignore_eos=True))
        [record] = await session.start(worker.generate(max_new_tokens=30, ignore_eos=True))
        await session.wait_for_tokens(record)
        await asyncio.gather(worker.flush(), session.wait(record))
    assert record.tokens == undisturbed.tokens


@check
async def a_schema_that_is_no_json_is_refused(worker: Worker) -> None:
    if "json_schema" not in worker.card.capabilities.constraints:
        raise NotOffered("no JSON schemas")
    async with worker.session() as session:
        record, neighbour = await session.run(
            worker.generate(constraint=work_pb2.Constraint(json_schema="{not json")),
            worker.generate(max_new_tokens=3, ignore_eos=True),
        )
    assert record.failed.code == 3
    assert len(neighbour.tokens) == 3
