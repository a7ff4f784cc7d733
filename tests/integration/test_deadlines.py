"""A request that takes too long ends with 504 or DEADLINE_EXCEEDED, whichever way it came, and its engine is told."""

import json

import grpc
import pytest

from smg_proto.chat.v1 import chat_pb2
from tests.contract.doors.doors import DOORS
from tests.integration.running_router import outcome, running_router, until

BEFORE, AFTER = "[[hang0:600000]]", "[[say:one two]][[hang]]"


def body(text):
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def call_of(gateway, text, *, stream, **options):
    chat = chat_pb2.ChatRequest(model="m", stream=stream)
    chat.messages.add(role="user", text=text)
    if stream:
        return gateway.chats.StreamChatCompletion(chat_pb2.StreamChatCompletionRequest(chat=chat), **options)
    return gateway.chats.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=chat), **options)


def nothing_left(echo_worker, gateway):
    (server,) = echo_worker.servers.values()
    load = server.engine.load()
    admission = gateway.router.admission
    return not (load.running or load.waiting or admission.running or admission.waiting)


@pytest.mark.parametrize("door", DOORS)
async def test_a_request_past_the_router_s_limit_is_told_so(echo_worker, door):
    async with running_router(await echo_worker(), request_timeout_secs=0.1) as gateway:
        refused = await DOORS[door](gateway, body(BEFORE))
        assert (refused.status, refused.code) == (504, "deadline_exceeded")
        assert refused.message == "the request took longer than 0.1 s"
        await until(lambda: nothing_left(echo_worker, gateway))


async def test_a_stream_past_the_router_s_limit_ends_with_an_error(echo_worker):
    async with running_router(await echo_worker(), request_timeout_secs=0.3) as gateway:
        answer = await gateway.http.post("/v1/chat/completions", json={**body(AFTER), "stream": True})
        *_, error, done = [line for line in answer.text.split("\n\n") if line]
        assert answer.status_code == 200
        assert "longer than 0.3 s" in json.loads(error.removeprefix("data: "))["error"]["message"]
        assert done == "data: [DONE]"
        code, message, detail = await outcome(call_of(gateway, AFTER, stream=True))
        assert (code, message) == ("DEADLINE_EXCEEDED", "the request took longer than 0.3 s")
        assert detail.http_status == 504
        await until(lambda: nothing_left(echo_worker, gateway))


@pytest.mark.parametrize("text", [BEFORE, AFTER], ids=["before", "after"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_deadline_of_a_call_ends_its_sequence(echo_worker, stream, text):
    async with running_router(await echo_worker()) as gateway:
        code, _, _ = await outcome(call_of(gateway, text, stream=stream, timeout=0.3))
        assert code == "DEADLINE_EXCEEDED"
        await until(lambda: nothing_left(echo_worker, gateway))


@pytest.mark.parametrize("door", DOORS)
async def test_waiting_in_the_queue_is_part_of_a_request_s_time(echo_worker, door):
    limits = {"request_timeout_secs": 0.2, "admission": {"max_concurrent_requests": 1}}
    async with running_router(await echo_worker(), **limits) as gateway:
        admission = gateway.router.admission
        async with admission.permit():
            refused = await DOORS[door](gateway, body("[[say:x]]"))
        assert (refused.status, refused.code) == (504, "deadline_exceeded")
        assert not admission.waiting
        assert (await DOORS[door](gateway, body("[[say:x]]"))).status == 200


async def test_a_deadline_in_the_queue_frees_the_place_there(echo_worker):
    async with running_router(await echo_worker(), admission={"max_concurrent_requests": 1}) as gateway:
        admission = gateway.router.admission
        async with admission.permit():
            with pytest.raises(grpc.aio.AioRpcError):
                await call_of(gateway, "[[say:x]]", stream=False, timeout=0.1)
            await until(lambda: not admission.waiting)


async def test_a_pause_between_attempts_ends_with_the_time(echo_worker):
    """The worker is away; the next attempt would come long after the request's time is up."""
    settings = {
        "request_timeout_secs": 0.3,
        "retries": {"retry_initial_backoff_ms": 60_000, "retry_max_backoff_ms": 60_000},
    }
    async with running_router(await echo_worker(), **settings) as gateway:
        assert (await DOORS["http"](gateway, body("[[error:UNAVAILABLE:busy]]"))).status == 504
