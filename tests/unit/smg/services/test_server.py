"""GrpcServer: one port with everything on it, and an orderly end."""

import asyncio

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from smg.errors import SmgError
from smg.parsers.events import Content
from smg.pipelines.sinks import ChoiceFinish
from smg_proto.chat.v1 import chat_pb2
from tests.unit.smg.services.grpc_router import head, router

STREAM = chat_pb2.StreamChatCompletionRequest(chat={"model": "m"})


async def reflected(channel, **question):
    async def questions():
        yield reflection_pb2.ServerReflectionRequest(**question)

    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(questions())
    return await anext(aiter(call))


async def test_reflection_lists_every_service():
    async with router(api_key="secret") as gateway:
        answer = await reflected(gateway.channel, list_services="")
        names = {service.name for service in answer.list_services_response.service}
        assert names == {
            "smg.chat.v1.ChatService",
            "smg.decision.v1.DecisionService",
            "smg.model.v1.ModelService",
            "smg.admin.v1.AdminService",
            "smg.responses.v1.ConversationsService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }


@pytest.mark.parametrize(
    "symbol", ["smg.chat.v1.ChatService", "smg.admin.v1.AdminService", "grpc.health.v1.Health"]
)
async def test_reflection_describes_a_service(symbol):
    async with router() as gateway:
        answer = await reflected(gateway.channel, file_containing_symbol=symbol)
        assert answer.file_descriptor_response.file_descriptor_proto


async def test_a_port_that_is_taken_is_told_with_its_address():
    async with router() as first, router() as second:
        with pytest.raises(
            SmgError, match=f"127.0.0.1:{first.port} for gRPC: Address already in use"
        ) as caught:
            await second.server.start("127.0.0.1", first.port)
        assert caught.value.code == "port_taken"


async def test_a_message_over_the_limit_is_refused():
    async with router(max_payload_size=10_000) as gateway:
        chat = {"model": "m", "user": "x" * 20_000}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.chats.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=chat))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert gateway.chat.requests == []


async def test_stopping_lets_a_running_answer_end():
    go_on = asyncio.Event()

    async def in_two_parts(request, context, sink):
        sink.open(head())
        sink.pieces(0, [Content("first ")], ())
        await go_on.wait()
        sink.pieces(0, [Content("second")], ())
        sink.finish(0, ChoiceFinish("stop"))
        sink.close()

    async with router(script=in_two_parts) as gateway:
        call = gateway.chats.StreamChatCompletion(STREAM)
        answers = aiter(call)
        texts = [(await anext(answers)).chunk.choices[0].delta.content]
        stopping = asyncio.create_task(gateway.server.stop(30))
        await asyncio.sleep(0)
        go_on.set()
        texts += [response.chunk.choices[0].delta.content async for response in answers]
        assert "".join(texts) == "first second"
        await stopping


async def test_after_the_grace_period_what_runs_is_cut():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def never_ends(request, context, sink):
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with router(script=never_ends) as gateway:
        call = gateway.chats.StreamChatCompletion(STREAM)
        await begun.wait()
        await gateway.server.stop(0.05)
        await ended.wait()
        assert await call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
