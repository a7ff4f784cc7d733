"""Requests at the same time, of all kinds and through all doors, are answered as if each were alone."""

import asyncio

import pytest

from tests.contract.doors.cases import CASES
from tests.contract.doors.doors import DOORS
from tests.contract.doors.test_doors import assert_same_text, gateway

__all__ = ["gateway"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWERED = [case for case in CASES if case.status == 200]


async def test_requests_at_the_same_time_do_not_touch_each_other(gateway):
    assert len(ANSWERED) >= 50
    alone = {case.name: await DOORS["http"](gateway, case.body) for case in ANSWERED}
    asked = [(case, door) for door in DOORS for case in ANSWERED]
    outcomes = await asyncio.gather(*[DOORS[door](gateway, case.body) for case, door in asked])
    for (case, door), outcome in zip(asked, outcomes, strict=True):
        assert outcome.status == 200, (case.name, outcome.message)
        assert_same_text(case, door, alone[case.name], outcome)
