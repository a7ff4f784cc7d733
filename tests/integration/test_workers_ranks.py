"""Data-parallel ranks of an SGLang server, used one by one."""

from __future__ import annotations

import dataclasses

from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb

from smg.policies import make_policy
from smg.policies.base import RouteRequest
from smg.workers.registry import WorkerRegistry
from tests.contract.workers.collecting import Collector, generate_request
from tests.contract.workers.engine_script import HANGS
from tests.contract.workers.running import QUICK
from tests.contract.workers.sglang_double import SglangDouble
from tests.integration.running_router import running_router, until

AWARE = dataclasses.replace(QUICK, is_dp_aware=True, load_interval_s=0.01)


class RankedDouble(SglangDouble):
    """Three ranks, each with a load of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.server_args = {"dp_size": 3, "max_running_requests": 30}
        self.loads = {0: 1, 1: 2, 2: 3}

    async def GetLoads(self, request, context):
        loads = [pb.SchedulerLoad(dp_rank=rank, num_running_reqs=load) for rank, load in self.loads.items()]
        return pb.GetLoadsResponse(loads=loads)


async def test_each_rank_is_a_worker_with_its_own_load(tmp_path):
    double = RankedDouble()
    await double.start()
    registry = WorkerRegistry(AWARE)
    registry.start()
    entry = registry.add(double.url)
    assert await registry.wait_ready(10, "m")
    pictures = registry.snapshots("m")
    assert [(each.url, each.running, each.saturation) for each in pictures] == [
        (f"{double.url}@{rank}", rank + 1, (rank + 1) / 10) for rank in range(3)
    ]
    worker = registry.place("m", make_policy("least_load"), RouteRequest("m"))
    assert worker.url == f"{double.url}@0"
    answer = Collector()
    sequence = worker.generate(generate_request([HANGS, 1]), answer)
    await answer.first_step.wait()
    assert double.requests[-1].data_parallel_rank == 0
    assert double.requests[-1].HasField("data_parallel_rank")
    assert [each.inflight_requests for each in registry.snapshots("m")] == [1, 0, 0]
    assert entry.inflight_requests == 1
    double.loads[0] = 9
    await until(lambda: registry.snapshots("m")[0].running == 9)
    worker.abort(sequence)
    assert [each.inflight_requests for each in registry.snapshots("m")] == [0, 0, 0]
    await registry.close()
    await double.kill()


async def test_without_the_setting_the_server_chooses():
    double = RankedDouble()
    await double.start()
    registry = WorkerRegistry(QUICK)
    registry.start()
    registry.add(double.url)
    assert await registry.wait_ready(10, "m")
    picture = registry.snapshots("m")[0]
    assert (len(registry.snapshots("m")), picture.url, picture.running) == (1, double.url, 6)
    answer = Collector()
    registry.place("m", make_policy("least_load"), RouteRequest("m")).generate(
        generate_request([HANGS, 1]), answer
    )
    await answer.first_step.wait()
    assert not double.requests[-1].HasField("data_parallel_rank")
    await registry.close()
    await double.kill()


async def test_loads_are_told_by_rank():
    double = RankedDouble()
    await double.start()
    async with running_router(fleet={"dp_aware": True}) as gateway:
        gateway.router.registry.add(double.url)
        assert await gateway.router.registry.wait_ready(10, "m")
        told = (await gateway.http.get("/get_loads")).json()
        rows = [(row["worker"], row["dp_rank"], row["num_running_reqs"]) for row in told["loads"]]
        assert rows == [(double.url, rank, rank + 1) for rank in range(3)]
        assert (told["dp_rank_count"], told["aggregate"]["total_running_reqs"]) == (3, 6)
    await double.kill()
