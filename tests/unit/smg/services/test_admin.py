"""AdminService: the registry's workers as clients see and change them."""

import pytest

from smg_proto.admin.v1 import admin_pb2
from tests.unit.smg.services.grpc_router import SILENT_URL, refusal, router


async def listed(gateway):
    return list((await gateway.admin.ListWorkers(admin_pb2.ListWorkersRequest())).workers)


async def test_workers_are_listed_with_all_that_is_known():
    async with router(workers=2) as gateway:
        await gateway.registry.wait_ready(10)
        first, second = await listed(gateway)
        assert [first.id, second.id] == ["worker-1", "worker-2"]
        assert (first.url, first.protocol, first.engine) == ("grpc://127.0.0.1:1", "session", "echo 1.0")
        assert first.state == admin_pb2.WORKER_STATE_READY
        assert [model.id for model in first.models] == ["m"]
        assert first.load.kv_capacity_tokens == 100
        assert first.added_at.seconds > 1_700_000_000


async def test_the_order_is_that_of_the_numbers():
    async with router(workers=11) as gateway:
        assert [worker.id for worker in await listed(gateway)] == [
            f"worker-{number}" for number in range(1, 12)
        ]


async def test_one_worker_and_a_lost_one():
    async with router() as gateway:
        gateway.opened["worker-1"].set_up(False)
        answer = await gateway.admin.GetWorker(admin_pb2.GetWorkerRequest(id="worker-1"))
        assert (answer.worker.state, answer.worker.reason) == (admin_pb2.WORKER_STATE_CONNECTING, "lost")


async def test_an_unknown_worker_is_not_found():
    async with router() as gateway:
        for call in (
            gateway.admin.GetWorker(admin_pb2.GetWorkerRequest(id="worker-9")),
            gateway.admin.RemoveWorker(admin_pb2.RemoveWorkerRequest(id="worker-9")),
        ):
            code, message, detail = await refusal(call)
            assert (code, message, detail.param) == ("NOT_FOUND", "Worker worker-9 not found", "id")


async def test_a_worker_is_added_with_its_labels():
    async with router() as gateway:
        request = admin_pb2.AddWorkerRequest(url="grpc://127.0.0.1:77", labels={"zone": "a"})
        added = (await gateway.admin.AddWorker(request)).worker
        assert (added.url, added.labels["zone"], added.state) == (
            "grpc://127.0.0.1:77",
            "a",
            admin_pb2.WORKER_STATE_CONNECTING,
        )
        assert [worker.id for worker in await listed(gateway)] == ["worker-1", added.id]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("grpc://127.0.0.1:1", "ALREADY_EXISTS"),
        ("ftp://127.0.0.1:1", "INVALID_ARGUMENT"),
        ("grpc://127.0.0.1", "INVALID_ARGUMENT"),
        ("", "INVALID_ARGUMENT"),
    ],
)
async def test_an_address_that_cannot_be_added_is_refused(url, code):
    async with router() as gateway:
        refused, _, detail = await refusal(gateway.admin.AddWorker(admin_pb2.AddWorkerRequest(url=url)))
        assert (refused, detail.param) == (code, "url")


async def test_removing_takes_a_worker_away_at_once():
    async with router(workers=2) as gateway:
        gateway.opened["worker-1"].inflight = 3
        await gateway.admin.RemoveWorker(admin_pb2.RemoveWorkerRequest(id="worker-1"))
        assert [worker.id for worker in await listed(gateway)] == ["worker-2"]


async def test_draining_lets_running_work_end_first():
    async with router() as gateway:
        worker = gateway.opened["worker-1"]
        worker.inflight = 1
        await gateway.admin.RemoveWorker(admin_pb2.RemoveWorkerRequest(id="worker-1", drain=True))
        [draining] = await listed(gateway)
        assert (draining.state, draining.inflight_requests) == (admin_pb2.WORKER_STATE_DRAINING, 1)
        worker.inflight = 0
        worker.on_load_change()
        assert await listed(gateway) == []


async def test_caches_are_flushed_everywhere_and_each_failure_is_told():
    async with router(workers=3) as gateway:
        gateway.opened["worker-2"].flush_error = "the engine is busy"
        gateway.opened["worker-3"].flush_is_lost = True
        gateway.registry.add(SILENT_URL)
        answer = await gateway.admin.FlushCaches(admin_pb2.FlushCachesRequest())
        results = {each.worker_id: each.error for each in answer.results}
        assert results.pop("worker-4")
        assert results == {
            "worker-1": "",
            "worker-2": "the engine is busy",
            "worker-3": "the connection was lost meanwhile",
        }
        assert [worker.flushes for worker in gateway.opened.values()] == [1, 1, 1]


async def test_loads_are_those_of_connected_workers():
    async with router(workers=2) as gateway:
        gateway.opened["worker-1"].inflight = 4
        gateway.opened["worker-2"].set_up(False)
        loads = (await gateway.admin.ListLoads(admin_pb2.ListLoadsRequest())).loads
        assert [(each.worker_id, each.load.running, each.inflight_requests) for each in loads] == [
            ("worker-1", 4, 4)
        ]
