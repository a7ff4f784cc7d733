"""The checks of `smg conformance`, on every servicer of ours."""

from __future__ import annotations

import pytest

from smg.conformance.checking import NotOffered
from smg.conformance.run import all_checks

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: f"{check.group}: {check.name}")
async def test_contract(worker, check):
    try:
        await check.run(worker)
    except NotOffered as reason:
        pytest.skip(str(reason))
