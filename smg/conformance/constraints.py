"""Constraint.begins_after: the output is free until its text has come. What is then enforced is the engine's part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smg.conformance.checking import NotOffered, check, check_each
from smg.conformance.worker import begins_late
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from smg.conformance.worker import Worker

FREE_TOKENS = 5
NUMBER = "[0-9]{3}"


async def need_late_forms(worker: Worker) -> None:
    if "regex" not in worker.card.capabilities.constraints:
        raise NotOffered(f"{worker.card.id} does not serve regex")
    async with worker.session() as session:
        if not await begins_late(worker, session):
            raise NotOffered(f"{worker.card.id} cannot let a form begin late")


async def free_output(worker: Worker) -> list[int]:
    async with worker.session() as session:
        record = await session.run_one(worker.generate(max_new_tokens=FREE_TOKENS, ignore_eos=True))
    return record.tokens


@check_each({"stream": (True,), "whole": (False,)})
async def the_output_is_free_until_the_text_has_come(worker: Worker, stream: bool) -> None:
    await need_late_forms(worker)
    tokens = await free_output(worker)
    text = worker.tokenizer.decode(tokens)
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(
                max_new_tokens=20,
                stream=stream,
                constraint=work_pb2.Constraint(regex=NUMBER, begins_after=text),
            )
        )
    assert record.tokens[:FREE_TOKENS] == tokens
    if worker.description.engine != "echo":  # echo plays its script, whatever the constraint
        rest = worker.tokenizer.decode(record.tokens[FREE_TOKENS:])
        assert re.fullmatch(NUMBER, rest)
        assert record.finished.reason == work_pb2.FINISH_REASON_STOP


@check
async def a_text_that_does_not_come_lets_the_output_run_to_its_limit(worker: Worker) -> None:
    await need_late_forms(worker)
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(
                max_new_tokens=6, constraint=work_pb2.Constraint(regex=NUMBER, begins_after="never, ever")
            )
        )
    assert len(record.tokens) == 6
    assert record.finished.reason == work_pb2.FINISH_REASON_LENGTH


@check
async def a_form_that_is_wrong_is_refused_although_it_begins_late(worker: Worker) -> None:
    await need_late_forms(worker)
    if worker.description.engine == "echo":
        form = work_pb2.Constraint(json_schema="{not json", begins_after="</think>")
    else:
        form = work_pb2.Constraint(regex="([a", begins_after="</think>")
    async with worker.session() as session:
        record = await session.run_one(worker.generate(constraint=form))
    assert record.failed.code == 3


@check
async def a_text_without_bound_is_refused(worker: Worker) -> None:
    if "regex" not in worker.card.capabilities.constraints:
        raise NotOffered(f"{worker.card.id} does not serve regex")
    form = work_pb2.Constraint(regex=NUMBER, begins_after="x" * 257)
    async with worker.session() as session:
        record = await session.run_one(worker.generate(constraint=form))
    assert record.failed.code == 3
    assert "constraint.begins_after has 257 characters" in record.failed.message
