"""Every test of the contract runs on every protocol."""

from __future__ import annotations

import pytest

from tests.contract.workers.compat_double import CompatDouble
from tests.contract.workers.running import watched
from tests.contract.workers.session_double import SessionDouble
from tests.contract.workers.sglang_double import SglangDouble
from tests.contract.workers.vllm_double import VllmDouble

DOUBLES = {
    "session": SessionDouble,
    "sglang_grpc": SglangDouble,
    "compat": CompatDouble,
    "vllm_grpc": VllmDouble,
}


@pytest.fixture(params=sorted(DOUBLES))
async def double(request):
    """A scripted engine that listens."""
    engine = DOUBLES[request.param]()
    await engine.start()
    yield engine
    await engine.kill()


@pytest.fixture
async def watch(double):
    """A worker that is connected to it, with what to wait for it by."""
    async with watched(double.url) as running:
        yield running


@pytest.fixture
def worker(watch):
    """The worker itself."""
    return watch.worker
