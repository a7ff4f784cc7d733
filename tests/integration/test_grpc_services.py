"""The typed services through the real router and a real echo engine: the same answers and refusals as over HTTP."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from smg_proto.admin.v1 import admin_pb2
from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc
from smg_proto.model.v1 import model_pb2
from tests.integration.running_router import outcome, running_router, until

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNICODE = "Grüße, 世界 🙂 e\u0301"


def chat(text, **fields):
    return {"model": "m", "messages": [{"role": "user", "text": text}], **fields}


def create(text, **fields):
    return chat_pb2.CreateChatCompletionRequest(chat=chat(text, **fields))


def stream(text, **fields):
    return chat_pb2.StreamChatCompletionRequest(chat=chat(text, **fields))


def texts_of(chunks):
    """Text by choice."""
    texts = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.delta.content
    return texts


async def streamed(gateway, request):
    return [response.chunk async for response in gateway.chats.StreamChatCompletion(request)]


def running(echo_worker, url):
    return echo_worker.servers[url].engine.load().running


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("[[say:Hello, world]]", {}),
        (f"[[say:{UNICODE}]]", {}),  # characters of several tokens
        ("[[len:200]]", {}),
        ("[[len:50]][[chunk:7]]", {"n": 3}),
        ("[[say:one two END three]]", {"sampling": {"stop": ["END"]}}),
        ("[[len:100]]", {"sampling": {"max_completion_tokens": 5}}),
        ("[[say:]]", {}),
    ],
)
async def test_the_pieces_of_a_stream_join_to_the_whole_answer(echo_worker, text, fields):
    async with running_router(await echo_worker()) as gateway:
        whole = (await gateway.chats.CreateChatCompletion(create(text, **fields))).completion
        options = {"include_usage": True}
        chunks = await streamed(gateway, stream(text, stream_options=options, **fields))
        assert texts_of(chunks) == {choice.index: choice.message.content for choice in whole.choices}
        ends = {
            part.index: part for chunk in chunks for part in chunk.choices if part.HasField("finish_reason")
        }
        for choice in whole.choices:
            end = ends[choice.index]
            assert (end.finish_reason, end.matched_stop) == (choice.finish_reason, choice.matched_stop)
        usage, expected = chunks[-1].usage, whole.usage
        # The second request finds the prompt in the engine's cache.
        expected.cached_tokens = usage.cached_tokens
        assert usage == expected


async def test_an_answer_says_over_grpc_what_it_says_over_http(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        body = {"model": "m", "messages": [{"role": "user", "content": "[[len:30]]"}], "temperature": 0}
        over_http = (await gateway.http.post("/v1/chat/completions", json=body)).json()
        answer = (await gateway.chats.CreateChatCompletion(create("[[len:30]]"))).completion
        [choice] = over_http["choices"]
        assert answer.choices[0].message.content == choice["message"]["content"]
        assert answer.choices[0].finish_reason == choice["finish_reason"]
        assert answer.choices[0].matched_stop.token_id == choice["matched_stop"]
        assert answer.usage.completion_tokens == over_http["usage"]["completion_tokens"]
        assert answer.usage.prompt_tokens == over_http["usage"]["prompt_tokens"]


async def test_log_probabilities_come_with_every_token(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        request = {"logprobs": True, "top_logprobs": 2}
        whole = (await gateway.chats.CreateChatCompletion(create("[[len:20]]", **request))).completion
        chunks = await streamed(gateway, stream("[[len:20]]", **request))
        entries = whole.choices[0].logprobs.content
        assert "".join(entry.token for entry in entries).startswith("w0 w1")
        assert all(len(entry.top_logprobs) == 2 for entry in entries)
        assert [entry for chunk in chunks for entry in chunk.choices[0].logprobs.content] == list(entries)


async def test_text_completions_whole_and_in_pieces(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        prompts = [{"text": "[[say:first]]"}, {"text": "[[say:second]]"}]
        request = {"model": "m", "prompts": prompts, "n": 2}
        whole = await gateway.chats.CreateCompletion(chat_pb2.CreateCompletionRequest(completion=request))
        call = gateway.chats.StreamCompletion(chat_pb2.StreamCompletionRequest(completion=request))
        texts = {}
        async for response in call:
            for choice in response.chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
        assert texts == {choice.index: choice.text for choice in whole.completion.choices}
        assert [text[:5] for text in texts.values()] == ["first", "first", "secon", "secon"] or len(
            texts
        ) == 4


# A bad request as protobuf and as JSON.
REFUSALS = [
    pytest.param({"sampling": {"temperature": 9}}, {"temperature": 9}, id="range"),
    pytest.param({"n": 99}, {"n": 99}, id="n"),
    pytest.param({"top_logprobs": 3}, {"top_logprobs": 3}, id="cross-field"),
    pytest.param({"model": "nobody"}, {"model": "nobody"}, id="model"),
    pytest.param({"messages": []}, {"messages": []}, id="no messages"),
    pytest.param(
        {"messages": [{"role": "user", "text": "[[error:INVALID_ARGUMENT:not like this]]"}]},
        {"messages": [{"role": "user", "content": "[[error:INVALID_ARGUMENT:not like this]]"}]},
        id="engine",
    ),
    pytest.param(
        {"messages": [{"role": "user", "text": "word " * 9000}]},
        {"messages": [{"role": "user", "content": "word " * 9000}]},
        id="context",
    ),
    pytest.param(
        {"messages": [{"role": "user", "parts": {"parts": [{"image_url": {"url": "http://x/y.png"}}]}}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}
            ]
        },
        id="image",
    ),
]


@pytest.mark.parametrize(("fields", "members"), REFUSALS)
async def test_a_refusal_has_the_words_that_it_has_over_http(echo_worker, fields, members):
    async with running_router(await echo_worker()) as gateway:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **members}
        over_http = await gateway.http.post("/v1/chat/completions", json=body)
        expected = over_http.json()["error"]
        for call in (
            gateway.chats.CreateChatCompletion(create("hi", **fields)),
            gateway.chats.StreamChatCompletion(stream("hi", **fields)),
        ):
            _, message, detail = await outcome(call)
            assert (detail.http_status, detail.type, message) == (
                over_http.status_code,
                expected["type"],
                expected["message"],
            )
            assert detail.code == str(expected["code"])
            # Validation answers over HTTP have no param at all; the message names the field.
            if expected.get("param"):
                assert detail.param == expected["param"]


async def test_an_engine_that_fails_in_the_middle_ends_the_stream_with_a_status(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        call = gateway.chats.StreamChatCompletion(
            stream("[[len:50]][[errorafter:3:INTERNAL:the engine broke]]")
        )
        first = await call.read()
        assert first.chunk.choices[0].delta.content
        code, message, detail = await outcome(call)
        assert (code, message, detail.http_status) == ("INTERNAL", "the engine broke", 500)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_leaves_frees_the_engine(echo_worker, is_stream):
    url = await echo_worker()
    async with running_router(url) as gateway:
        call = (
            gateway.chats.StreamChatCompletion(stream("[[hang]]"))
            if is_stream
            else gateway.chats.CreateChatCompletion(create("[[hang]]"))
        )
        reading = asyncio.ensure_future(call.read() if is_stream else outcome(call))
        await until(lambda: running(echo_worker, url) == 1)
        call.cancel()
        await until(lambda: running(echo_worker, url) == 0)
        await asyncio.gather(reading, return_exceptions=True)
        assert await call.code() is grpc.StatusCode.CANCELLED
        [worker] = gateway.router.registry.workers()
        assert worker.inflight_requests == 0


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_deadline_frees_the_engine(echo_worker, is_stream):
    url = await echo_worker()
    async with running_router(url) as gateway:
        method = gateway.chats.StreamChatCompletion if is_stream else gateway.chats.CreateChatCompletion
        code, *_ = await outcome(method((stream if is_stream else create)("[[hang]]"), timeout=0.5))
        assert code == "DEADLINE_EXCEEDED"
        await until(lambda: running(echo_worker, url) == 0)


async def test_a_client_that_does_not_read_loses_its_answer_and_frees_the_engine(echo_worker):
    url = await echo_worker(echo_endless=True, max_context=1_000_000)
    # The client's own gRPC takes 64 KiB ahead of its reader, in place of up to 4 MiB.
    options = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
    async with (
        running_router(url, slow_reader_bytes=4096) as gateway,
        grpc.aio.insecure_channel(gateway.target, options=options) as channel,
    ):
        request = stream("talk", sampling={"max_completion_tokens": 900_000})
        call = chat_pb2_grpc.ChatServiceStub(channel).StreamChatCompletion(request)
        await until(lambda: running(echo_worker, url) == 1)
        await until(lambda: running(echo_worker, url) == 0)
        code, _, detail = await outcome(call)
        assert (code, detail.code) == ("RESOURCE_EXHAUSTED", "slow_reader")


async def test_many_streams_at_a_time_each_get_their_own_answer(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        prompts = [f"[[say:answer number {number}]]" for number in range(32)]
        answers = await asyncio.gather(*(streamed(gateway, stream(prompt)) for prompt in prompts))
        assert [texts_of(chunks)[0] for chunks in answers] == [f"answer number {n}" for n in range(32)]


async def test_half_of_the_clients_leave_and_the_others_stay(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        calls = [gateway.chats.StreamChatCompletion(stream(f"[[hang]] {number}")) for number in range(16)]
        await asyncio.gather(*(call.read() for call in calls))
        assert running(echo_worker, url) == 16
        for call in calls[::2]:
            call.cancel()
        await until(lambda: running(echo_worker, url) == 8)
        await asyncio.gather(*(call.read() for call in calls[1::2]))
        for call in calls[1::2]:
            call.cancel()
        await until(lambda: running(echo_worker, url) == 0)


async def test_health_follows_the_workers(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        watch = health_pb2_grpc.HealthStub(gateway.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        assert (await outcome(gateway.chats.CreateChatCompletion(create("hi"))))[0] == "OK"
        await echo_worker.stop(url)
        assert (await watch.read()).status == NOT_SERVING
        assert (await outcome(gateway.chats.CreateChatCompletion(create("hi"))))[0] in (
            "UNAVAILABLE",
            "NOT_FOUND",
        )
        await echo_worker(port=int(url.rpartition(":")[2]))
        assert (await watch.read()).status == SERVING
        assert (await outcome(gateway.chats.CreateChatCompletion(create("hi"))))[0] == "OK"
        watch.cancel()


async def test_reflection_lists_the_services(echo_worker):
    async with running_router(await echo_worker()) as gateway:

        async def question():
            yield reflection_pb2.ServerReflectionRequest(list_services="")

        call = reflection_pb2_grpc.ServerReflectionStub(gateway.channel).ServerReflectionInfo(question())
        names = {service.name for service in (await anext(aiter(call))).list_services_response.service}
        assert {"smg.chat.v1.ChatService", "smg.model.v1.ModelService", "smg.admin.v1.AdminService"} <= names


async def test_keys_open_over_grpc_what_they_open_over_http(echo_worker):
    callers = {"api_key": "shared", "tenant_api_key": ("acme:tenant",)}
    async with running_router(await echo_worker(), callers=callers) as gateway:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        for key in ("", "wrong", "tenant", "shared"):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            over_http = (
                await gateway.http.post("/v1/chat/completions", json=body, headers=headers)
            ).status_code
            code, *_ = await outcome(
                gateway.chats.CreateChatCompletion(create("hi"), metadata=tuple(headers.items()))
            )
            assert (code == "OK") is (over_http == 200)
            assert (code == "UNAUTHENTICATED") is (over_http == 401)


async def test_models_and_workers_are_those_that_were_started(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        [model] = (await gateway.models.ListModels(model_pb2.ListModelsRequest())).models
        assert (model.id, model.ready_workers, "generate" in model.capabilities) == ("m", 1, True)
        [worker] = (await gateway.admin.ListWorkers(admin_pb2.ListWorkersRequest())).workers
        assert (worker.url, worker.protocol, worker.state) == (url, "session", admin_pb2.WORKER_STATE_READY)
        [flushed] = (await gateway.admin.FlushCaches(admin_pb2.FlushCachesRequest())).results
        assert (flushed.worker_id, flushed.error) == (worker.id, "")


async def test_a_draining_worker_finishes_its_stream_and_goes(echo_worker):
    first, second = await echo_worker(), await echo_worker()
    async with running_router(first) as gateway:
        call = gateway.chats.StreamChatCompletion(stream("[[len:40]][[delay:5]]"))
        chunks = [(await call.read()).chunk]
        added = (await gateway.admin.AddWorker(admin_pb2.AddWorkerRequest(url=second))).worker
        [old] = [each for each in gateway.router.registry.workers() if each.id != added.id]
        await gateway.admin.RemoveWorker(admin_pb2.RemoveWorkerRequest(id=old.id, drain=True))
        while (response := await call.read()) is not grpc.aio.EOF:
            chunks.append(response.chunk)
        assert texts_of(chunks)[0] == " ".join(f"w{number}" for number in range(40))
        await until(lambda: [each.id for each in gateway.router.registry.workers()] == [added.id])
        assert await gateway.router.registry.wait_ready(20)
        assert (await outcome(gateway.chats.CreateChatCompletion(create("hi"))))[0] == "OK"


async def test_a_router_that_stops_lets_a_stream_end(echo_worker):
    async with running_router(await echo_worker(), shutdown_grace_period_secs=30) as gateway:
        call = gateway.chats.StreamChatCompletion(stream("[[len:30]][[delay:5]]"))
        chunks = [(await call.read()).chunk]
        gateway.stop.set()
        while (response := await call.read()) is not grpc.aio.EOF:
            chunks.append(response.chunk)
        assert texts_of(chunks)[0] == " ".join(f"w{number}" for number in range(30))


async def test_calls_are_counted_by_route(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        await gateway.chats.CreateChatCompletion(create("hi"))
        await outcome(gateway.chats.CreateChatCompletion(create("hi", n=99)))
        text = (await gateway.http.get("/metrics")).text
        assert 'smg_requests_total{model="m",outcome="ok",route="grpc_chat"} 1.0' in text
        assert 'smg_grpc_responses_total{code="0",route="grpc_chat"} 1.0' in text
        assert 'smg_grpc_responses_total{code="3",route="grpc_chat"} 1.0' in text
