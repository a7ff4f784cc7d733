"""Constraint.begins_after: the output is free until its text has come. What is then enforced is the engine's part."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio

from smg_proto.engine.v1 import work_pb2
from tests.contract.servicers.conftest import begins_late

pytestmark = pytest.mark.asyncio(loop_scope="session")

FREE_TOKENS = 5
NUMBER = "[0-9]{3}"


@pytest_asyncio.fixture(loop_scope="session")
async def needs_late_forms(worker):
    if "regex" not in worker.card.capabilities.constraints:
        pytest.skip(f"{worker.card.id} does not serve regex")
    async with worker.session() as session:
        if not await begins_late(worker, session):
            pytest.skip(f"{worker.card.id} cannot let a form begin late")


async def free_output(worker) -> list[int]:
    async with worker.session() as session:
        record = await session.run_one(worker.generate(max_new_tokens=FREE_TOKENS, ignore_eos=True))
    return record.tokens


@pytest.mark.usefixtures("needs_late_forms")
@pytest.mark.parametrize("stream", [True, False])
async def test_the_output_is_free_until_the_text_has_come(worker, stream):
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


@pytest.mark.usefixtures("needs_late_forms")
async def test_a_text_that_does_not_come_lets_the_output_run_to_its_limit(worker):
    async with worker.session() as session:
        record = await session.run_one(
            worker.generate(
                max_new_tokens=6, constraint=work_pb2.Constraint(regex=NUMBER, begins_after="never, ever")
            )
        )
    assert len(record.tokens) == 6
    assert record.finished.reason == work_pb2.FINISH_REASON_LENGTH


@pytest.mark.usefixtures("needs_late_forms")
async def test_a_form_that_is_wrong_is_refused_although_it_begins_late(worker):
    if worker.description.engine == "echo":
        form = work_pb2.Constraint(json_schema="{not json", begins_after="</think>")
    else:
        form = work_pb2.Constraint(regex="([a", begins_after="</think>")
    async with worker.session() as session:
        record = await session.run_one(worker.generate(constraint=form))
    assert record.failed.code == 3


async def test_a_text_without_bound_is_refused(worker):
    form = work_pb2.Constraint(regex=NUMBER, begins_after="x" * 257)
    async with worker.session() as session:
        record = await session.run_one(worker.generate(constraint=form))
    assert record.failed.code == 3
    assert record.failed.message == "constraint.begins_after has 257 characters; allowed: at most 256"
