"""Every call gets its id and its caller; every error becomes a status with its detail, and is counted once."""

import asyncio
import contextlib
import logging

import grpc
import pytest

from smg.errors import InvalidRequest, Overloaded
from smg_proto.admin.v1 import admin_pb2
from smg_proto.chat.v1 import chat_pb2
from smg_proto.model.v1 import model_pb2
from tests.unit.smg.services.grpc_router import refusal, router

CREATE = chat_pb2.CreateChatCompletionRequest(chat={"model": "m"})
STREAM = chat_pb2.StreamChatCompletionRequest(chat={"model": "m"})


def bearer(key):
    return (("authorization", f"Bearer {key}"),)


async def fails(request, context, sink):
    raise InvalidRequest("temperature is 9; allowed is from 0 to 2", param="temperature")


async def is_full(request, context, sink):
    raise Overloaded("full", code="admission_queue_full", retry_after_s=2)


async def breaks(request, context, sink):
    raise ZeroDivisionError("a secret of the code")


async def test_an_error_of_the_pipeline_comes_with_its_words_from_every_method():
    async with router(script=fails) as gateway:
        for call in (
            gateway.chats.CreateChatCompletion(CREATE),
            gateway.chats.StreamChatCompletion(STREAM).read(),
            gateway.chats.CreateCompletion(chat_pb2.CreateCompletionRequest()),
            gateway.chats.StreamCompletion(chat_pb2.StreamCompletionRequest()).read(),
        ):
            code, message, detail = await refusal(call)
            assert (code, message) == ("INVALID_ARGUMENT", "temperature is 9; allowed is from 0 to 2")
            assert (detail.code, detail.type, detail.param, detail.http_status) == (
                "400",
                "invalid_request_error",
                "temperature",
                400,
            )
        assert gateway.counts.calls == {("grpc_chat", 3): 2, ("grpc_completions", 3): 2}


async def test_a_time_to_come_back_reaches_the_client():
    async with router(script=is_full) as gateway:
        code, _, detail = await refusal(gateway.chats.CreateChatCompletion(CREATE))
        assert (code, detail.code, detail.retry_after_s) == ("RESOURCE_EXHAUSTED", "admission_queue_full", 2)


@pytest.mark.parametrize("streams", [False, True])
async def test_what_nobody_expected_is_logged_and_told_without_its_words(streams, caplog):
    async with router(script=breaks) as gateway:
        metadata = (("x-request-id", "my-id"),)
        call = (
            gateway.chats.StreamChatCompletion(STREAM, metadata=metadata).read()
            if streams
            else gateway.chats.CreateChatCompletion(CREATE, metadata=metadata)
        )
        with caplog.at_level(logging.ERROR):
            code, message, detail = await refusal(call)
        assert (code, message) == ("INTERNAL", "internal error; request id my-id")
        assert detail.http_status == 500
        [record] = [record for record in caplog.records if record.name.startswith("smg.")]
        assert "a secret of the code" in record.exc_text


@pytest.mark.parametrize("streams", [False, True])
async def test_a_wait_that_somebody_else_cancelled_does_not_leave_the_client_waiting(streams, caplog):
    async def waits_in_vain(request, context, sink):
        shared = asyncio.get_running_loop().create_future()
        shared.cancel()
        await shared

    async with router(script=waits_in_vain) as gateway:
        call = (
            gateway.chats.StreamChatCompletion(STREAM).read()
            if streams
            else gateway.chats.CreateChatCompletion(CREATE)
        )
        with caplog.at_level(logging.CRITICAL):
            code, message, _ = await refusal(call)
        assert (code, message[:15]) == ("INTERNAL", "internal error;")


async def test_a_message_that_is_no_message_is_the_clients_fault():
    async with router() as gateway:
        call = gateway.channel.unary_unary("/smg.chat.v1.ChatService/CreateChatCompletion")
        code, message, detail = await refusal(call(b"\xff\xff\xff"))
        assert (code, detail.code) == ("INVALID_ARGUMENT", "json_parse_error")
        assert message.startswith("the message cannot be parsed")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("my-id", True),
        ("x" * 128, True),
        ("x" * 129, False),  # too long
        ("has space", False),  # would break logs
        (None, False),
    ],
)
async def test_the_request_id_is_the_clients_own_where_it_is_usable(sent, kept):
    async with router() as gateway:
        call = gateway.chats.CreateChatCompletion(
            CREATE, metadata=() if sent is None else (("x-request-id", sent),)
        )
        answered = dict(await call.initial_metadata())["x-request-id"]
        await call
        [context] = gateway.chat.contexts
        assert answered == context.request_id
        assert (answered == sent) is kept
        assert context.is_client_id is kept
        assert kept or answered.startswith("chatcmpl-")


async def test_trace_and_routing_key_travel_with_the_call():
    async with router() as gateway:
        trace = f"00-{'a' * 32}-{'b' * 16}-01"
        metadata = (("traceparent", trace), ("tracestate", "v=1"), ("x-smg-routing-key", "user-7"))
        await gateway.chats.CreateChatCompletion(CREATE, metadata=metadata)
        [context] = gateway.chat.contexts
        assert (context.traceparent, context.tracestate, context.routing_key) == (trace, "v=1", "user-7")


async def test_a_refusal_carries_the_request_id_too():
    async with router(api_key="secret") as gateway:
        call = gateway.chats.CreateChatCompletion(CREATE, metadata=(("x-request-id", "my-id"),))
        assert dict(await call.initial_metadata())["x-request-id"] == "my-id"
        code, _, detail = await refusal(call)
        assert (code, detail.code, detail.http_status) == ("UNAUTHENTICATED", "unauthenticated", 401)
        assert gateway.chat.requests == []
        assert gateway.counts.calls == {("grpc_chat", 16): 1}


async def test_a_tenants_key_tells_who_asks():
    async with router(tenants=[("acme", "k1"), ("blue", "k2")]) as gateway:
        await gateway.chats.CreateChatCompletion(CREATE, metadata=bearer("k2"))
        stream = gateway.chats.StreamChatCompletion(STREAM, metadata=bearer("k1"))
        assert [chunk async for chunk in stream]
        assert [context.caller.tenant for context in gateway.chat.contexts] == ["blue", "acme"]


async def test_a_refused_stream_is_refused_before_its_message():
    async with router(api_key="secret") as gateway:
        code, *_ = await refusal(gateway.chats.StreamChatCompletion(STREAM, metadata=bearer("wrong")).read())
        assert code == "UNAUTHENTICATED"


# Key shown, keys configured, and what opens: chat, model list, one model, administration.
SHARED, TENANT = {"api_key": "shared"}, {"tenants": [("acme", "tenant")]}
ACCESS = [
    ("", {}, (True, True, True, True)),  # nothing configured: open
    ("", SHARED, (False, True, True, False)),
    ("shared", SHARED, (True, True, True, True)),
    ("", TENANT, (False, True, True, False)),
    ("tenant", TENANT, (True, True, True, False)),
    ("tenant", {**SHARED, **TENANT}, (True, True, True, False)),
    ("shared", {**SHARED, **TENANT}, (True, True, True, True)),
]


@pytest.mark.parametrize(("key", "configured", "opens"), ACCESS)
async def test_who_may_call_what(key, configured, opens):
    async with router(**configured) as gateway:
        metadata = bearer(key) if key else ()
        calls = (
            gateway.chats.CreateChatCompletion(CREATE, metadata=metadata),
            gateway.models.ListModels(model_pb2.ListModelsRequest(), metadata=metadata),
            gateway.models.GetModel(model_pb2.GetModelRequest(id="m"), metadata=metadata),
            gateway.admin.ListWorkers(admin_pb2.ListWorkersRequest(), metadata=metadata),
        )
        assert tuple([await _is_answered(call) for call in calls]) == opens


async def _is_answered(call):
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call
    code = await call.code()
    assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED)
    return code is grpc.StatusCode.OK


async def test_calls_that_succeed_are_counted_as_such():
    async with router() as gateway:
        await gateway.chats.CreateChatCompletion(CREATE)
        assert [chunk async for chunk in gateway.chats.StreamChatCompletion(STREAM)]
        await gateway.admin.ListLoads(admin_pb2.ListLoadsRequest())
        await gateway.server.stop(5)
        assert gateway.counts.calls == {("grpc_chat", 0): 2, ("grpc_admin", 0): 1}


async def test_a_method_that_does_not_exist_is_unimplemented():
    async with router(api_key="secret") as gateway:
        call = gateway.channel.unary_unary("/smg.chat.v1.ChatService/Nothing")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
