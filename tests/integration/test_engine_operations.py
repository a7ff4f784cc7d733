"""AdminService reaches through a router to an engine: adapters and profiles, and engines that have none."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from servicers.base import EngineOptions
from servicers.echo.engine import EchoEngine
from servicers.serve import start_server
from servicers.sglang.servicer import SglangEngine
from servicers.sglang.settings import settings_from_options
from smg_proto.admin.v1 import admin_pb2
from tests.contract.servicers.sglang_stand_in import StandInPackage
from tests.integration.running_router import running_router

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tokenizer_dir):
    """A router over SGLang's servicer and an echo engine, with the ids of both workers by engine."""
    options = EngineOptions(
        (str(tokenizer_dir),), ("m",), max_context=512, engine_args=(("enable_lora", True),)
    )
    engines = [
        SglangEngine(settings_from_options(options), StandInPackage()),
        EchoEngine(EngineOptions((str(tokenizer_dir),), ("e",))),
    ]
    servers = [await start_server(engine) for engine in engines]
    async with running_router(*(server.url for server in servers)) as running:
        workers = (await running.admin.ListWorkers(admin_pb2.ListWorkersRequest())).workers
        running.ids = {worker.models[0].id: worker.id for worker in workers}
        yield running
    for server in servers:
        await server.stop(0)


async def refusal(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def test_an_adapter_is_loaded_served_and_unloaded(gateway):
    load = admin_pb2.LoadLoraRequest(worker_id=gateway.ids["m"], name="poet", path="/adapters/poet")
    answer = await gateway.admin.LoadLora(load)
    assert list(answer.worker.models[0].loras) == ["poet"]
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 2,
        "lora_path": "poet",
    }
    assert (await gateway.http.post("/v1/chat/completions", json=body)).status_code == 200
    unload = admin_pb2.UnloadLoraRequest(worker_id=gateway.ids["m"], name="poet")
    assert not (await gateway.admin.UnloadLora(unload)).worker.models[0].loras
    code, why = await refusal(gateway.admin.UnloadLora(unload))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "no such adapter" in why


async def test_a_profile_is_recorded(gateway):
    worker = gateway.ids["m"]
    await gateway.admin.StartProfile(admin_pb2.StartProfileRequest(worker_id=worker, output_dir="/profiles"))
    await gateway.admin.StopProfile(admin_pb2.StopProfileRequest(worker_id=worker))
    code, why = await refusal(gateway.admin.StopProfile(admin_pb2.StopProfileRequest(worker_id=worker)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "not in progress" in why


async def test_an_engine_without_adapters_or_profiles_says_so(gateway):
    worker = gateway.ids["e"]
    for call in (
        gateway.admin.LoadLora(admin_pb2.LoadLoraRequest(worker_id=worker, name="a", path="/a")),
        gateway.admin.UnloadLora(admin_pb2.UnloadLoraRequest(worker_id=worker, name="a")),
        gateway.admin.StartProfile(admin_pb2.StartProfileRequest(worker_id=worker)),
        gateway.admin.StopProfile(admin_pb2.StopProfileRequest(worker_id=worker)),
    ):
        code, why = await refusal(call)
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert "engine echo" in why


async def test_what_is_wrong_with_a_request_is_named(gateway):
    code, why = await refusal(
        gateway.admin.LoadLora(admin_pb2.LoadLoraRequest(worker_id="nobody", name="a", path="/a"))
    )
    assert (code, "nobody" in why) == (grpc.StatusCode.NOT_FOUND, True)
    code, why = await refusal(
        gateway.admin.LoadLora(admin_pb2.LoadLoraRequest(worker_id=gateway.ids["m"], name="a"))
    )
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "path is empty; allowed: some text")
