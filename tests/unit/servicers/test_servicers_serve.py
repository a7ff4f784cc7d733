"""start_server: what a router sees while the engine loads, runs, drains, and when the router itself is too slow."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from servicers.limits import SessionLimits
from servicers.serve import CannotListen, start_server
from servicers.session import SERVICE
from smg_proto.engine.v1 import card_pb2, engine_pb2, engine_pb2_grpc
from tests.unit.servicers.fakes import RemoteControlledEngine, generate, read_to_end

UNAVAILABLE, RESOURCE_EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
Health = health_pb2.HealthCheckResponse


@asynccontextmanager
async def connect(url: str):
    async with grpc.aio.insecure_channel(url.removeprefix("grpc://")) as channel:
        yield channel, engine_pb2_grpc.EngineServiceStub(channel)


async def open_session(stub, *items):
    """A session that has read Ready, and has sent its work."""
    call = stub.Session()
    assert (await call.read()).HasField("ready")
    if items:
        await call.write(engine_pb2.SessionRequest(generate=items))
    return call


async def free_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        return server.sockets[0].getsockname()[1]


async def test_a_loading_engine_is_not_serving_and_then_is():
    engine = RemoteControlledEngine(loads_first=False)
    port = await free_port()
    starting = asyncio.create_task(start_server(engine, port=port))
    async with connect(f"grpc://127.0.0.1:{port}") as (channel, stub):
        await channel.channel_ready()
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICE):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == Health.NOT_SERVING
        for call in (stub.Describe(card_pb2.DescribeRequest()), stub.GetLoad(card_pb2.GetLoadRequest())):
            assert await call.code() is UNAVAILABLE
            assert "loading" in await call.details()
        assert (await read_to_end(stub.Session()))[:2] == ([], UNAVAILABLE)
        engine.may_start.set()
        server = await starting
        answer = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == Health.SERVING
        assert (await stub.Describe(card_pb2.DescribeRequest())).models[0].id == "m"
    await server.stop(0)


async def test_an_engine_that_cannot_start_leaves_nothing_behind():
    class Broken(RemoteControlledEngine):
        async def start(self) -> None:
            raise ValueError("no such model")

    engine, port = Broken(), await free_port()
    with pytest.raises(ValueError, match="no such model"):
        await start_server(engine, port=port)
    assert engine.is_stopped
    server = await start_server(RemoteControlledEngine(), port=port)
    await server.stop(0)


async def test_a_busy_port_is_named_with_the_reason():
    server = await start_server(RemoteControlledEngine())
    port = int(server.url.rpartition(":")[2])
    engine = RemoteControlledEngine()
    with pytest.raises(CannotListen, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use"):
        await start_server(engine, port=port)
    await server.stop(0)


async def test_an_address_of_another_machine_is_refused():
    with pytest.raises(CannotListen, match=r"203\.0\.113\.1"):
        await start_server(RemoteControlledEngine(), host="203.0.113.1")


async def test_draining_lets_what_runs_end_and_then_says_unavailable():
    engine = RemoteControlledEngine()
    server = await start_server(engine)
    async with connect(server.url) as (channel, stub):
        busy = await open_session(stub, generate(1))
        idle = await open_session(stub)
        await engine.arrived.wait()
        stopping = asyncio.create_task(server.stop(30.0))
        assert (await read_to_end(idle))[:2] == ([], UNAVAILABLE)
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=SERVICE)
        )
        assert answer.status == Health.NOT_SERVING
        await busy.write(engine_pb2.SessionRequest(generate=[generate(2)]))
        refused = await busy.read()
        assert (refused.failed[0].sequence, refused.failed[0].code) == (2, 14)
        assert (await read_to_end(stub.Session()))[:2] == ([], UNAVAILABLE)
        engine.emit_token(token=7)
        engine.finish()
        [token, end], code, details = await read_to_end(busy)
        assert list(token.token) == [7]
        assert end.finished[0].sequence == 1
        assert (code, details) == (UNAVAILABLE, "the engine is shutting down")
        await stopping
    assert engine.is_stopped
    assert len(engine.closed) == 2


@pytest.mark.parametrize("way", ["grace", "cut"])
async def test_what_outlasts_the_grace_is_cut(way):
    engine = RemoteControlledEngine()
    server = await start_server(engine)
    async with connect(server.url) as (_, stub):
        session = await open_session(stub, generate(1))
        await engine.arrived.wait()
        stopping = asyncio.create_task(server.stop(0.0 if way == "grace" else 3600.0))
        if way == "cut":
            await asyncio.sleep(0)
            server.cut()
        assert (await read_to_end(session))[1] is UNAVAILABLE
        await stopping
    assert engine.is_stopped
    assert engine.closed == engine.sessions


async def test_a_router_that_goes_away_closes_its_session():
    engine = RemoteControlledEngine()
    server = await start_server(engine)
    async with connect(server.url) as (_, stub):
        await open_session(stub, generate(1))
        await engine.arrived.wait()
    async with asyncio.timeout(10):
        await engine.has_closed.wait()
    assert engine.closed == engine.sessions
    engine.emit_token()  # goes nowhere, and must not raise
    await server.stop(0)


async def test_a_router_that_does_not_read_loses_its_session_and_only_that():
    engine = RemoteControlledEngine()
    limits = SessionLimits(max_unsent_bytes=1_000_000, max_unsent_events=1000)
    server = await start_server(engine, limits=limits)
    async with connect(server.url) as (_, stub):
        slow = await open_session(stub, generate(1))
        await engine.arrived.wait()
        large = engine_pb2.SessionEvent(sequence=[1], count=[100_000], token=[2**31] * 100_000)
        async with asyncio.timeout(20):
            while not engine.closed:
                engine.sessions[0].emit(large)
                await asyncio.sleep(0)
        reads = await open_session(stub, generate(1))
        await reads.write(engine_pb2.SessionRequest(abort=[1]))
        assert (await reads.read()).finished[0].sequence == 1
        _, code, details = await read_to_end(slow)
        assert code is RESOURCE_EXHAUSTED
        assert "does not read" in details
    await server.stop(0)


async def test_sessions_are_bounded():
    server = await start_server(RemoteControlledEngine(), limits=SessionLimits(max_sessions=1))
    async with connect(server.url) as (_, stub):
        first = await open_session(stub)
        assert (await read_to_end(stub.Session()))[1] is RESOURCE_EXHAUSTED
        await first.done_writing()
        assert await first.code() is grpc.StatusCode.OK
        await open_session(stub)
    await server.stop(0)


async def test_the_load_comes_by_itself_while_work_runs():
    engine = RemoteControlledEngine()
    engine.current_load = card_pb2.Load(running=1, steps=3)
    server = await start_server(engine, limits=SessionLimits(load_interval_s=0.01))
    async with connect(server.url) as (_, stub):
        session = await open_session(stub, generate(1))
        for _ in range(2):
            assert (await session.read()).load.steps == 3
    await server.stop(0)


async def test_a_model_without_tokenizer_has_no_fingerprint_and_no_archive():
    server = await start_server(RemoteControlledEngine())
    async with connect(server.url) as (_, stub):
        description = await stub.Describe(card_pb2.DescribeRequest())
        assert description.models[0].tokenizer_sha256 == ""
        call = stub.GetTokenizer(card_pb2.GetTokenizerRequest())
        assert await call.code() is grpc.StatusCode.NOT_FOUND
    await server.stop(0)


async def test_every_server_has_its_own_instance_id():
    names = set()
    for _ in range(2):
        server = await start_server(RemoteControlledEngine())
        async with connect(server.url) as (_, stub):
            names.add((await stub.Describe(card_pb2.DescribeRequest())).instance_id)
        await server.stop(0)
    assert len(names) == 2
