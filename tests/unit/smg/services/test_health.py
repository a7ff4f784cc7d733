"""HealthService: readiness as grpc.health.v1 tells it, now and as it changes."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from smg.services.methods import ADMIN_SERVICE, CHAT_SERVICE, MODEL_SERVICE
from tests.unit.smg.services.grpc_router import router

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def asking(name):
    return health_pb2.HealthCheckRequest(service=name)


async def test_without_a_ready_worker_only_administration_serves():
    async with router(workers=0, api_key="secret") as gateway:
        health = health_pb2_grpc.HealthStub(gateway.channel)
        told = {
            name: (await health.Check(asking(name))).status
            for name in ("", CHAT_SERVICE, MODEL_SERVICE, ADMIN_SERVICE)
        }
        assert told == {
            "": NOT_SERVING,
            CHAT_SERVICE: NOT_SERVING,
            MODEL_SERVICE: NOT_SERVING,
            ADMIN_SERVICE: SERVING,
        }


async def test_a_name_that_is_not_here_is_not_found_and_may_be_watched():
    async with router() as gateway:
        health = health_pb2_grpc.HealthStub(gateway.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(asking("nothing"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch = health.Watch(asking("nothing"))
        assert (await watch.read()).status == UNKNOWN
        watch.cancel()


async def test_a_watcher_hears_of_every_change_and_of_the_end():
    async with router() as gateway:
        health = health_pb2_grpc.HealthStub(gateway.channel)
        following = asyncio.create_task(gateway.server.follow(gateway.registry))
        watch = health.Watch(asking(CHAT_SERVICE))
        assert (await watch.read()).status == SERVING
        [worker] = gateway.opened.values()
        worker.set_up(False)
        assert (await watch.read()).status == NOT_SERVING
        assert (await health.Check(asking(""))).status == NOT_SERVING
        worker.set_up(True)
        assert (await watch.read()).status == SERVING
        stopping = asyncio.create_task(gateway.server.stop(30))
        assert (await watch.read()).status == NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        await stopping
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_what_is_no_change_is_not_told():
    async with router() as gateway:
        health = health_pb2_grpc.HealthStub(gateway.channel)
        watch = health.Watch(asking(""))
        assert (await watch.read()).status == SERVING
        following = asyncio.create_task(gateway.server.follow(gateway.registry))
        [worker] = gateway.opened.values()
        for _ in range(3):
            worker.set_up(True)
            # A round trip, in which a watcher would hear of it.
            await health.Check(asking(""))
        worker.set_up(False)
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
