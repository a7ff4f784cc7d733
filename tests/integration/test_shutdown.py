"""A router that is told to stop: what runs is finished, what takes too long is told so, and engines are left idle."""

import asyncio
import contextlib
import json

import grpc

from smg_proto.chat.v1 import chat_pb2
from tests.contract.doors.doors import DOORS
from tests.integration.running_router import outcome, running_router, until

PATH = "/v1/chat/completions"


def body(text, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


async def begun(lines):
    """Read a stream up to its first text."""
    async for line in lines:
        if '"content":"w' in line:
            return


async def nobody_listens(port):
    """Wait until connections are refused: the listener needs a turn of the loop to close."""
    with contextlib.suppress(ConnectionError):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()


async def test_running_streams_finish_and_nobody_new_is_taken(echo_worker):
    url = await echo_worker(step_seconds=0.01)
    load = echo_worker.servers[url].engine.load
    async with running_router(url, shutdown_grace_period_secs=30) as gateway:
        async with gateway.http.stream("POST", PATH, json=body("[[len:80]]", stream=True)) as answer:
            lines = answer.aiter_lines()
            await begun(lines)
            whole = asyncio.create_task(DOORS["grpc"](gateway, body("[[len:80]]")))
            await until(lambda: load().running == 2)
            gateway.stop.set()
            await until(lambda: gateway.router.is_draining)
            await nobody_listens(gateway.http.base_url.port)
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"stop"' in rest[-2]
        assert (await whole).choices[0].finish == "stop"


async def test_what_outlasts_the_grace_period_is_told_so_and_stopped(echo_worker):
    url = await echo_worker()
    load = echo_worker.servers[url].engine.load
    async with running_router(url, shutdown_grace_period_secs=0.2) as gateway:
        stream = asyncio.create_task(gateway.http.post(PATH, json=body("[[say:x]][[hang]]", stream=True)))
        others = [
            asyncio.create_task(DOORS[door](gateway, body("[[hang0:600000]]")))
            for door in ("http", "grpc", "grpc stream")
        ]
        await until(lambda: load().running == 4)
        gateway.stop.set()
        *_, error, done = [line for line in (await stream).text.split("\n\n") if line]
        assert json.loads(error.removeprefix("data: "))["error"]["message"] == "the gateway is shutting down"
        assert done == "data: [DONE]"
        for refused in await asyncio.gather(*others):
            assert (refused.status, refused.code) == (503, "shutting_down")
        await until(lambda: load().running == 0)


async def test_who_waits_in_the_queue_is_told_so_as_well(echo_worker):
    limits = {"admission": {"max_concurrent_requests": 1}}
    async with running_router(await echo_worker(), shutdown_grace_period_secs=0.1, **limits) as gateway:
        admission = gateway.router.admission
        async with admission.permit():
            waiting = asyncio.create_task(DOORS["http"](gateway, body("[[say:x]]")))
            await until(lambda: admission.waiting)
            gateway.stop.set()
            refused = await waiting
        assert (refused.status, refused.code) == (503, "shutting_down")


async def test_load_balancers_get_time_to_notice(echo_worker):
    """Readiness is off at once; until the delay is over everything is served all the same."""
    async with running_router(await echo_worker(), shutdown_delay_secs=600) as gateway:
        gateway.stop.set()
        await until(lambda: gateway.router.is_draining)
        assert (await gateway.http.get("/readiness")).status_code == 503
        assert (await DOORS["http"](gateway, body("[[say:x]]"))).status == 200
        assert (await DOORS["grpc"](gateway, body("[[say:x]]"))).status == 200
        gateway.task.cancel()


async def test_calls_that_come_while_draining_are_refused(echo_worker):
    url = await echo_worker()
    async with running_router(url, shutdown_grace_period_secs=30) as gateway:
        chat = chat_pb2.ChatRequest(model="m", stream=True)
        chat.messages.add(role="user", text="[[hang]]")
        call = gateway.chats.StreamChatCompletion(chat_pb2.StreamChatCompletionRequest(chat=chat))
        await call.read()
        gateway.stop.set()
        await until(lambda: gateway.router.is_draining)
        async with grpc.aio.insecure_channel(gateway.target) as channel:
            hello = channel.unary_unary("/smg.model.v1.ModelService/ListModels")
            # gRPC itself cancels a call that it has taken in the very moment in which it stops.
            while (code := (await outcome(hello(b"", timeout=10)))[0]) in ("OK", "CANCELLED"):
                pass
        assert code == "UNAVAILABLE"
        call.cancel()
