"""Log-probabilities: of output and prompt tokens, the likeliest beside them, and those asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from smg.conformance.checking import NotOffered, cases, check, check_each, near
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.conformance.worker import Worker

# Room for the number formats that engines compute in.
SLACK = 0.05


def probability(logprobs: Iterable[float]) -> float:
    return sum(map(math.exp, logprobs))


@check_each({"streamed": (True,), "whole": (False,)})
async def every_output_token_has_a_logprob(worker: Worker, stream: bool) -> None:
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(max_new_tokens=5, ignore_eos=True, stream=stream, logprobs={"output": True})
        )
    assert len(record.logprobs) == len(record.tokens) == 5
    assert all(entry.HasField("logprob") and entry.logprob <= SLACK for entry in record.logprobs)
    assert not any(entry.top_token or entry.asked_logprob for entry in record.logprobs)


@check
async def nobody_gets_logprobs_who_did_not_ask(worker: Worker) -> None:
    async with worker.session() as session:
        asked, silent = await session.run(
            worker.generate(max_new_tokens=4, ignore_eos=True, logprobs={"output": True}),
            worker.generate(max_new_tokens=4, ignore_eos=True),
        )
    assert len(asked.logprobs) == 4
    assert not silent.logprobs
    assert silent.tokens == asked.tokens


@check
async def the_likeliest_tokens_come_best_first_and_lead_with_the_greedy_choice(worker: Worker) -> None:
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(max_new_tokens=4, ignore_eos=True, logprobs={"output": True, "top_k": 20})
        )
    for token, entry in zip(record.tokens, record.logprobs, strict=True):
        assert len(entry.top_token) == len(entry.top_logprob) == len(set(entry.top_token)) == 20
        assert list(entry.top_logprob) == sorted(entry.top_logprob, reverse=True)
        assert entry.top_token[0] == token
        assert entry.top_logprob[0] == near(entry.logprob, 1e-5)
        assert probability(entry.top_logprob) <= 1 + SLACK


@check
async def asked_ids_come_in_their_order_and_agree_with_the_likeliest(worker: Worker) -> None:
    async with worker.session() as session:
        first = await session.run_one(
            worker.generate(max_new_tokens=1, ignore_eos=True, logprobs={"output": True, "top_k": 5})
        )
        top = first.logprobs[0]
        asked = list(reversed(top.top_token))
        record = await session.run_one(
            worker.generate(max_new_tokens=3, ignore_eos=True, logprobs={"output": True, "token_ids": asked})
        )
    assert all(len(entry.asked_logprob) == 5 for entry in record.logprobs)
    assert list(record.logprobs[0].asked_logprob) == near(list(reversed(top.top_logprob)), SLACK)


@check_each(cases(0, 1, 4))
async def prompt_logprobs_begin_where_asked(worker: Worker, start: int) -> None:
    worker.need("prompt_logprobs")
    prompt = worker.ids("The capital of France is Paris, and it is large.")
    options = work_pb2.LogprobsOptions(prompt_start=start, top_k=2)
    async with worker.session() as session:
        record = await session.run_one(worker.generate(prompt, max_new_tokens=1, logprobs=options))
    rows = record.started.prompt_logprobs
    assert len(rows) == len(prompt) - start
    for position, entry in enumerate(rows, start):
        assert entry.HasField("logprob") == (position > 0)
        assert len(entry.top_token) == (2 if position > 0 else 0)
        assert entry.logprob <= SLACK


@check
async def prompt_logprobs_need_no_output(worker: Worker) -> None:
    worker.need("prompt_logprobs")
    prompt = worker.ids("One two three four")
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(prompt, max_new_tokens=0, logprobs={"prompt_start": 1})
        )
    assert len(record.started.prompt_logprobs) == len(prompt) - 1
    assert record.tokens == []


@check_each(
    {f"{count} {how}": (count, how == "streamed") for count in (0, 3) for how in ("streamed", "whole")}
)
async def prompt_and_output_logprobs_come_together(worker: Worker, count: int, stream: bool) -> None:
    worker.need("prompt_logprobs")
    prompt = worker.ids("One two three four")
    options = {"prompt_start": 0, "output": True, "top_k": 2}
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(prompt, max_new_tokens=count, ignore_eos=True, stream=stream, logprobs=options)
        )
    rows = record.started.prompt_logprobs
    assert [entry.HasField("logprob") for entry in rows] == [False, *[True] * (len(prompt) - 1)]
    assert len(record.tokens) == len(record.logprobs) == count
    assert all(len(entry.top_token) == 2 for entry in [*list(rows)[1:], *record.logprobs])


@check_each(cases(0, 2))
async def prompt_logprobs_from_the_end_of_the_prompt_are_none(worker: Worker, count: int) -> None:
    worker.need("prompt_logprobs")
    prompt = worker.ids("One two three four")
    async with worker.session() as session:
        end, beyond = await session.run(
            worker.generate(prompt, max_new_tokens=count, logprobs={"prompt_start": len(prompt)}),
            worker.generate(prompt, max_new_tokens=count, logprobs={"prompt_start": len(prompt) + 1}),
        )
    assert not end.started.prompt_logprobs
    assert beyond.failed.code == 3


@check
async def a_prompt_of_one_token_has_no_logprob(worker: Worker) -> None:
    worker.need("prompt_logprobs")
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(worker.ids("One")[:1], max_new_tokens=0, logprobs={"prompt_start": 0})
        )
    (row,) = record.started.prompt_logprobs
    assert not row.HasField("logprob")


@check
async def a_prompt_that_fills_the_context_has_logprobs_when_nothing_is_to_follow(worker: Worker) -> None:
    worker.need("prompt_logprobs")
    context = worker.card.context_length
    if not context:
        raise NotOffered("the model has no context length")
    prompt = (worker.ids("All the way to the end of it. ") * context)[:context]
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(prompt, max_new_tokens=0, logprobs={"prompt_start": context - 10})
        )
    assert len(record.started.prompt_logprobs) == 10
    assert record.finished.reason == work_pb2.FINISH_REASON_LENGTH


@check
async def prompt_logprobs_do_not_depend_on_what_follows_or_on_the_cache(worker: Worker) -> None:
    worker.need("prompt_logprobs")
    prompt = worker.ids("A rather long sentence, which is repeated to fill a cache. " * 4)
    async with worker.session() as session:
        short, whole, again = [
            await session.run_one(worker.generate(ids, max_new_tokens=1, logprobs={"prompt_start": 0}))
            for ids in (prompt[:20], prompt, prompt)
        ]
    rows = [[entry.logprob for entry in record.started.prompt_logprobs] for record in (short, whole, again)]
    assert rows[1][:20] == near(rows[0], SLACK)
    assert rows[2] == near(rows[1], SLACK)
