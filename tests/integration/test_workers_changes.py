"""Workers whose server changes under them: another protocol, a graceful goodbye, half a protocol, no answer."""

from __future__ import annotations

import asyncio
import dataclasses

import grpc
import pytest

from smg.errors import EngineError, InvalidRequest
from smg.workers.connected import ConnectionLost
from smg.workers.options import WorkerOptions
from smg.workers.registry import WorkerRegistry
from smg.workers.session import SessionWorker
from smg.workers.sglang_grpc import SglangWorker
from smg_proto.engine.v1 import engine_pb2, work_pb2
from tests.contract.workers.collecting import Collector, ResultCollector, generate, generate_request
from tests.contract.workers.engine_script import HANGS, NORMAL, script
from tests.contract.workers.running import QUICK, watched
from tests.contract.workers.session_double import SessionDouble
from tests.contract.workers.sglang_double import SglangDouble


@pytest.mark.parametrize(("first", "then"), [(SessionDouble, SglangDouble), (SglangDouble, SessionDouble)])
async def test_a_server_of_another_protocol_on_the_same_port_is_found_and_used(first, then):
    registry = WorkerRegistry(QUICK)
    registry.start()
    old, new = first(), then()
    await old.start()
    entry = registry.add(old.url)
    assert await registry.wait_ready(10)
    protocol = entry.protocol
    changed = asyncio.Event()
    registry.on_change(changed.set)
    await old.kill()
    new.port = old.port
    await new.start()
    while entry.protocol in ("", protocol) or not entry.is_ready:
        changed.clear()
        await changed.wait()
    assert (await generate(entry.worker, [NORMAL, 4])).ids == script([NORMAL, 4], 6).ids
    await registry.close()
    await new.kill()


async def test_a_server_that_says_goodbye_may_finish_what_it_has_taken():
    double = SglangDouble()
    await double.start()
    gate = asyncio.Event()
    answer_of = double._answer

    async def slow(request, context):
        async for response in answer_of(request, context):
            yield response
            await gate.wait()

    double._answer = slow
    async with watched(double.url) as watch:
        answer = Collector()
        watch.worker.generate(generate_request([NORMAL, 4]), answer)
        await answer.first_step.wait()
        stopping = asyncio.ensure_future(double.kill(grace_s=20))
        await watch.until(lambda worker: not worker.is_connected)
        assert not answer.done.done()
        assert watch.worker.inflight_requests == 1
        gate.set()
        await answer.done
        await stopping
        assert answer.error is None
        assert answer.ids == script([NORMAL, 4], 6).ids


async def test_an_engine_that_says_goodbye_takes_nothing_new_while_it_finishes():
    double = SessionDouble()
    await double.start()
    async with watched(double.url) as watch:
        answer = Collector()
        sequence = watch.worker.generate(generate_request([HANGS, 4]), answer)
        await answer.first_step.wait()
        stopping = asyncio.ensure_future(double.kill(grace_s=20))
        await watch.until(lambda worker: not worker.is_ready)
        assert "closing the connection" in watch.worker.reason
        assert not answer.done.done()
        double.push(
            engine_pb2.SessionEvent(sequence=[sequence], token=[5], finished=[{"sequence": sequence}])
        )
        await answer.done
        assert answer.error is None
        await stopping


async def test_an_idle_session_of_an_engine_that_says_goodbye_is_not_waited_for():
    double = SessionDouble()
    await double.start()
    async with watched(double.url) as watch:
        stopping = asyncio.ensure_future(double.kill(grace_s=20))
        await watch.until(lambda worker: not worker.is_connected)
        await stopping
        await double.start()
        await watch.until(lambda worker: worker.is_ready)
    await double.kill()


async def test_a_sequence_on_a_leaving_server_can_be_aborted():
    double = SglangDouble()
    await double.start()
    async with watched(double.url) as watch:
        answer = Collector()
        sequence = watch.worker.generate(generate_request([HANGS, 4]), answer)
        await answer.first_step.wait()
        stopping = asyncio.ensure_future(double.kill(grace_s=20))
        await watch.until(lambda worker: not worker.is_connected)
        watch.worker.abort(sequence)
        await double.changes.until(lambda: not double.running)
        await stopping
        assert not answer.done.done()


async def test_an_sglang_server_that_tells_neither_arguments_nor_loads_works():
    double = SglangDouble()
    double.GetServerInfo = double.GetLoads = _unimplemented
    await double.start()
    async with watched(double.url) as watch:
        assert watch.worker.description.max_running == 0
        assert (await generate(watch.worker, [NORMAL, 4])).ids == script([NORMAL, 4], 6).ids
    await double.kill()


async def _unimplemented(_, context):
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "older than that")


async def test_what_sglang_cannot_do_is_refused_at_once_and_leaves_nothing():
    double = SglangDouble()
    await double.start()
    async with watched(double.url) as watch:
        request = generate_request(
            [NORMAL, 4], constraint=work_pb2.Constraint(lark="start: x"), request_id="r"
        )
        with pytest.raises(InvalidRequest, match="'lark'"):
            watch.worker.generate(request, Collector())
        assert watch.worker.inflight_requests == 0
        await generate(watch.worker, [NORMAL, 4], request_id="r", traceparent="00-1-2-01", tracestate="v=1")
        assert double.requests[-1].request_id == "r"
        assert double.metadata[-1]["traceparent"] == "00-1-2-01"
        assert double.metadata[-1]["tracestate"] == "v=1"
    await double.kill()


async def test_a_router_that_closes_tells_the_server_what_to_stop():
    double = SglangDouble()
    await double.start()
    async with watched(double.url) as watch:
        answers = [Collector() for _ in range(3)]
        for answer in answers:
            watch.worker.generate(generate_request([HANGS, 4]), answer)
        await asyncio.gather(*(answer.first_step.wait() for answer in answers))
    # The connection is closed; calls that end stop nothing on some servers, aborts do.
    assert sorted(double.aborts) == sorted(request.request_id for request in double.requests)
    assert all(answer.error is not None for answer in answers)
    await double.kill()


async def test_choices_of_one_request_get_names_of_their_own():
    double = SglangDouble()
    await double.start()
    async with watched(double.url) as watch:
        answers = [Collector() for _ in range(3)]
        for answer in answers:
            watch.worker.generate(generate_request([NORMAL, 4], request_id="r"), answer)
        await asyncio.gather(*(answer.done for answer in answers))
        assert len({request.request_id for request in double.requests}) == 3
    await double.kill()


async def test_a_job_that_fails_is_told_and_one_whose_listener_raises_ends_nothing(caplog):
    double = SglangDouble()
    double.Embed = _unimplemented
    await double.start()
    async with watched(double.url) as watch:
        failed, broken = ResultCollector(), ResultCollector()
        watch.worker.embed(work_pb2.Embed(input_ids=b"\1\0\0\0"), failed)
        with pytest.raises(EngineError, match="older than that"):
            await failed.done

        def raising(_):
            raise ZeroDivisionError("broken listener")

        broken.on_result = raising
        score = work_pb2.Score(
            prefix_ids=b"\1\0\0\0", suffixes=[work_pb2.ScoreSuffix(ids=b"\2\0\0\0", label_ids=[5])]
        )
        watch.worker.score(score, broken)
        with pytest.raises(Exception, match="could not be written"):
            await broken.done
        assert "broken listener" in caplog.text
        assert (await generate(watch.worker, [NORMAL, 4])).error is None
    await double.kill()


@pytest.mark.parametrize("make", [SessionWorker, SglangWorker])
async def test_a_server_that_accepts_and_says_nothing_is_given_up_in_time(make):
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = dataclasses.replace(QUICK, connect_timeout_s=0.05, health_timeout_s=0.05)
    worker = make("w", f"grpc://127.0.0.1:{port}", options)
    with pytest.raises(ConnectionLost, match=r"within|no answer"):
        await worker._serve_once()
    assert not worker.is_connected
    for writer in held:
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_an_engine_that_opens_no_session_is_given_up_in_time():
    class Mute(SessionDouble):
        async def Session(self, requests, context):
            await asyncio.Event().wait()
            yield

    double = Mute()
    await double.start()
    worker = SessionWorker("w", double.url, WorkerOptions(connect_timeout_s=0.2))
    with pytest.raises(ConnectionLost, match=r"no session within 0\.2 s"):
        await worker._serve_once()
    await double.kill()
