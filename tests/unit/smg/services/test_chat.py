"""ChatService over a real connection: `stream` follows the method, slow and absent clients cost nothing for long."""

import asyncio

import grpc
import pytest

from smg.errors import EngineError
from smg.parsers.events import Content
from smg.pipelines.sinks import ChoiceFinish
from smg_proto.chat.v1 import chat_pb2
from tests.unit.smg.services.grpc_router import head, refusal, router

CREATE = chat_pb2.CreateChatCompletionRequest(chat={"model": "m"})
STREAM = chat_pb2.StreamChatCompletionRequest(chat={"model": "m"})


class Endless:
    """A script that goes on until it is cancelled; each text as soon as the loop comes round."""

    def __init__(self, text):
        self._text = text
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, request, context, sink):
        sink.open(head())
        try:
            while True:
                sink.pieces(0, [Content(self._text)], ())
                sink.flush()
                self.started.set()
                await asyncio.sleep(0)
        finally:
            self.ended.set()


class Silent:
    """A script that says nothing until it is cancelled."""

    def __init__(self):
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, request, context, sink):
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ended.set()


async def test_a_whole_answer():
    async with router() as gateway:
        answer = (await gateway.chats.CreateChatCompletion(CREATE)).completion
        assert answer.choices[0].message.content == "Hello, world"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 2)


async def test_the_pieces_of_a_stream_join_to_the_whole():
    async with router() as gateway:
        chunks = [response.chunk async for response in gateway.chats.StreamChatCompletion(STREAM)]
        assert "".join(chunk.choices[0].delta.content for chunk in chunks) == "Hello, world"
        assert chunks[-1].choices[0].finish_reason == "stop"


async def test_completions_whole_and_in_pieces():
    async with router() as gateway:
        request = {"model": "m", "prompts": [{"text": "a"}]}
        whole = await gateway.chats.CreateCompletion(chat_pb2.CreateCompletionRequest(completion=request))
        call = gateway.chats.StreamCompletion(chat_pb2.StreamCompletionRequest(completion=request))
        parts = [response.chunk async for response in call]
        assert whole.completion.choices[0].text == "Hello, world"
        assert "".join(part.choices[0].text for part in parts) == "Hello, world"


@pytest.mark.parametrize("asked", [False, True])
async def test_stream_is_what_the_method_is_whatever_the_message_says(asked):
    async with router() as gateway:
        chat = {"model": "m", "stream": asked}
        await gateway.chats.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=chat))
        assert [
            each
            async for each in gateway.chats.StreamChatCompletion(
                chat_pb2.StreamChatCompletionRequest(chat=chat)
            )
        ]
        assert [(request.stream, request.model) for request in gateway.chat.requests] == [
            (False, "m"),
            (True, "m"),
        ]


async def test_usage_follows_the_stream_options():
    async with router() as gateway:
        request = chat_pb2.StreamChatCompletionRequest(
            chat={"model": "m", "stream_options": {"include_usage": True}}
        )
        chunks = [response.chunk async for response in gateway.chats.StreamChatCompletion(request)]
        assert (len(chunks[-1].choices), chunks[-1].usage.prompt_tokens) == (0, 5)
        assert not any(chunk.HasField("usage") for chunk in chunks[:-1])


async def test_an_error_after_the_first_chunk_ends_the_stream_with_its_status():
    async def breaks_down(request, context, sink):
        sink.open(head())
        sink.pieces(0, [Content("half")], ())
        sink.fail(EngineError("the worker is lost", engine_code=14))

    async with router(script=breaks_down) as gateway:
        call = gateway.chats.StreamChatCompletion(STREAM)
        assert (await call.read()).chunk.choices[0].delta.content == "half"
        code, message, detail = await refusal(call.read())
        assert (code, message, detail.http_status) == ("UNAVAILABLE", "the worker is lost", 503)


@pytest.mark.parametrize("method", ["CreateChatCompletion", "StreamChatCompletion"])
async def test_a_client_that_leaves_ends_its_answer(method):
    script = Silent()
    async with router(script=script) as gateway:
        call = getattr(gateway.chats, method)(CREATE if method.startswith("Create") else STREAM)
        waiting = asyncio.ensure_future(_swallow(call))
        await script.started.wait()
        call.cancel()
        await script.ended.wait()
        await waiting


@pytest.mark.parametrize("method", ["CreateChatCompletion", "StreamChatCompletion"])
async def test_a_deadline_ends_the_answer(method):
    script = Silent()
    async with router(script=script) as gateway:
        call = getattr(gateway.chats, method)(CREATE if method.startswith("Create") else STREAM, timeout=0.2)
        assert await _swallow(call) is grpc.StatusCode.DEADLINE_EXCEEDED
        await script.ended.wait()


async def _swallow(call):
    """Read a call to its end, whatever it is. Returns its code."""
    try:
        if hasattr(call, "read"):
            while await call.read() is not grpc.aio.EOF:
                pass
        else:
            await call
    except (asyncio.CancelledError, grpc.aio.AioRpcError):
        pass
    return await call.code()


async def test_a_client_that_does_not_read_is_aborted_at_the_bound():
    script = Endless("x" * 4000)
    async with router(script=script, slow_reader_bytes=1 << 20) as gateway:
        call = gateway.chats.StreamChatCompletion(STREAM)
        await script.ended.wait()
        received, code = 0, None
        try:
            async for response in call:
                received += len(response.chunk.choices[0].delta.content)
        except grpc.aio.AioRpcError as error:
            code = error.code()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert received > 0
        await gateway.server.stop(5)
        assert gateway.counts.slow_readers == 1
        assert gateway.counts.calls == {("grpc_chat", 8): 1}


async def test_a_client_that_reads_again_in_time_gets_every_word_in_fewer_chunks():
    words = [f"{number:06d}" for number in range(8_000)]
    complete = asyncio.Event()

    async def talks(request, context, sink):
        sink.open(head())
        for word in words:
            sink.pieces(0, [Content(word)], ())
            await asyncio.sleep(0)
        sink.finish(0, ChoiceFinish("stop"))
        sink.close()
        complete.set()

    async with router(script=talks, slow_reader_bytes=1 << 26) as gateway:
        call = gateway.chats.StreamChatCompletion(STREAM)
        await complete.wait()
        chunks = [response.chunk async for response in call]
        assert "".join(chunk.choices[0].delta.content for chunk in chunks) == "".join(words)
        assert len(chunks) < len(words) / 2


async def test_streams_do_not_wait_for_each_other():
    script = Endless("x" * 1000)

    async def one_is_stuck(request, context, sink):
        if request.user == "slow":
            await script(request, context, sink)
        else:
            sink.open(head())
            sink.pieces(0, [Content("quick")], ())
            sink.finish(0, ChoiceFinish("stop"))
            sink.close()

    async with router(script=one_is_stuck, slow_reader_bytes=1 << 30) as gateway:
        stuck = gateway.chats.StreamChatCompletion(
            chat_pb2.StreamChatCompletionRequest(chat={"model": "m", "user": "slow"})
        )
        await script.started.wait()
        chunks = [response.chunk async for response in gateway.chats.StreamChatCompletion(STREAM)]
        assert chunks[0].choices[0].delta.content == "quick"
        stuck.cancel()
        await script.ended.wait()
