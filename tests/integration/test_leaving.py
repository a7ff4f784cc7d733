"""A client that leaves leaves nothing behind, on every way in and at every stage of its request."""

import pytest

from benchmarks.faults.leaving import QUIET, RUNS, over_grpc, over_http
from tests.integration.running_router import running_router, until

WAYS = {"http": over_http, "grpc": over_grpc}


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_left_of_a_client_that_has_left(echo_worker, way, is_stream):
    url = await echo_worker()
    load = echo_worker.servers[url].engine.load
    async with running_router(url, admission={"max_concurrent_requests": 2}) as gateway:
        admission = gateway.router.admission
        port = gateway.http.base_url.port if way == "http" else int(gateway.target.rpartition(":")[2])
        for text in (QUIET, RUNS):
            async with WAYS[way](port, text, is_stream=is_stream):
                await until(lambda: load().running == 1)
            await until(lambda: not (load().running or admission.running))
        async with over_http(gateway.http.base_url.port, QUIET, is_stream=False):
            await until(lambda: load().running == 1)
            async with (
                WAYS[way](port, QUIET, is_stream=is_stream),
                WAYS[way](port, QUIET, is_stream=is_stream),
                WAYS[way](port, QUIET, is_stream=is_stream),
            ):
                await until(lambda: admission.waiting == 2)
            # The queue, and the place that one of them held.
            await until(lambda: admission.waiting == 0 and admission.running == 1)
        await until(lambda: not (load().running or load().waiting or admission.running))
        assert gateway.router.registry.workers()[0].worker.inflight_requests == 0
