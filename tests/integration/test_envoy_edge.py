"""The gateway behind a real Envoy that speaks nothing but gRPC to it: deploy/envoy/edge.yaml."""

import asyncio
import json

import grpc
import httpx
import pytest
import pytest_asyncio
from google.api import httpbody_pb2

from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc
from smg_proto.edge.v1 import edge_pb2_grpc
from tests.conftest import EchoWorkers
from tests.integration.running_envoy import address, configuration, running_envoy
from tests.integration.running_router import running_router, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"


def body(text, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edge(tokenizer_dir, tmp_path_factory):
    """A gateway with `.edge`, a client of the Envoy in front of it, `.worker` and Envoy's `.ports`."""
    workers = EchoWorkers(tokenizer_dir)
    url = await workers()
    async with running_router(url, callers={"api_key": "secret"}, max_payload_size=100_000) as gateway:
        found = configuration(
            "edge.yaml",
            {"gateway": [address(gateway.target)]},
            {"max_request_body_size: 536870912": "max_request_body_size: 200000"},
        )
        async with running_envoy(found, tmp_path_factory.mktemp("envoy")) as ports:
            gateway.ports = ports
            gateway.worker = workers.servers[url].engine
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{ports['http']}", headers={"authorization": "Bearer secret"}
            ) as gateway.edge:
                yield gateway
    await workers.stop_all()


def comparable(response):
    """What must not depend on the way: status, headers of ours, body without what is drawn anew."""
    names = ("content-type", "x-smg-error-code", "retry-after", "www-authenticate", "allow", "x-request-id")
    headers = {name: response.headers.get(name) for name in names}
    text = response.text
    if not text:
        del headers["content-type"]  # Envoy gives a body without a type that of JSON, an empty one too
    elif "application/json" in headers["content-type"]:
        value = response.json()
        for name in ("id", "created", "usage"):
            value.pop(name, None)
        text = json.dumps(value)
    return response.status_code, headers, text


REQUESTS = {
    "a chat": ("POST", CHAT, {"json": body("[[say:Grüezi 🙂]]")}),
    "completions": ("POST", "/v1/completions", {"json": {"model": "m", "prompt": "a", "max_tokens": 2}}),
    "models": ("GET", "/v1/models", {}),
    "a model": ("GET", "/v1/models/m", {}),
    "an unknown model": ("GET", "/v1/models/none%2Fsuch", {}),
    "health": ("GET", "/health", {}),
    "readiness": ("GET", "/readiness", {}),
    "openapi": ("GET", "/openapi.json", {}),
    "workers": ("GET", "/workers/none", {}),
    "flush": ("POST", "/flush_cache", {}),
    "a query": ("GET", "/v1/models?path=/workers&data=x", {}),
    "a head": ("HEAD", "/health", {}),
    "an unknown path": ("GET", "/v1/nothing", {}),
    "a wrong method": ("DELETE", "/v1/models", {}),
    "no json": ("POST", CHAT, {"content": b"{", "headers": {"content-type": "application/json"}}),
    "no content type": ("POST", CHAT, {"content": b"{}"}),
    "a bad value": ("POST", CHAT, {"json": body("x", temperature=9)}),
    "no key": ("POST", CHAT, {"json": body("x"), "headers": {"authorization": ""}}),
    "a wrong key": ("GET", "/workers", {"headers": {"authorization": "Bearer no"}}),
    "an id": ("GET", "/v1/models", {"headers": {"x-request-id": "mine-1"}}),
    "an engine's error": ("POST", CHAT, {"json": body("[[error:RESOURCE_EXHAUSTED:full]]")}),
    "a long body": ("POST", CHAT, {"json": body("x" * 101_000)}),
}


async def test_every_answer_is_that_of_the_listener(edge):
    for name, (method, path, options) in REQUESTS.items():
        headers = {"authorization": "Bearer secret", "x-request-id": "same", **options.get("headers", {})}
        options = {**options, "headers": headers}
        ours = await edge.http.request(method, path, **options)
        theirs = await edge.edge.request(method, path, **options)
        assert comparable(theirs) == comparable(ours), name
        assert "x-http-status" not in theirs.headers
        assert "grpc-status" not in theirs.headers


async def test_envoys_own_answers_have_our_form(edge):
    async with httpx.AsyncClient(base_url=edge.edge.base_url) as client:
        too_long = await client.post(CHAT, content=b"x" * 300_000)
        unknown = await client.request("PROPFIND", "/v1/models")
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (413, "request_body_too_large")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")


async def test_without_a_gateway_the_answer_says_so(tmp_path):
    found = configuration("edge.yaml", {"gateway": [("127.0.0.1", 1)]})
    async with running_envoy(found, tmp_path) as ports, httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{ports['http']}/v1/models")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")


async def test_events_pass_one_by_one(edge):
    """The second event is made only after the client has read the first: nobody holds it back."""
    async with edge.edge.stream("POST", CHAT, json=body("[[say:a b c]][[hang]]", stream=True)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-smg-routed-worker-id"]
        async for line in answer.aiter_lines():
            if '"content":"' in line and '"content":""' not in line:
                break
        assert edge.worker.load().running == 1
    await until(lambda: edge.worker.load().running == 0)


async def test_clients_that_leave_stop_their_sequences(edge):
    asking = asyncio.ensure_future(edge.edge.post(CHAT, json=body("[[hang]]")))
    while not edge.worker.load().running:  # noqa: ASYNC110 - a state, for which there is no event
        await asyncio.sleep(0.005)
    asking.cancel()
    await until(lambda: edge.worker.load().running == 0)
    while edge.router.app.tasks:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.005)


async def test_many_streams_equal_their_whole_twins(edge):
    async def pair(number):
        request = body(f"[[say:{'word ' * number}{number}]]")
        whole = await edge.edge.post(CHAT, json=request)
        stream = await edge.edge.post(CHAT, json={**request, "stream": True})
        events = [
            line.removeprefix("data: ") for line in stream.text.splitlines() if line.startswith("data: {")
        ]
        deltas = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events]
        assert "".join(deltas) == whole.json()["choices"][0]["message"]["content"]
        assert stream.text.endswith("data: [DONE]\n\n")

    await asyncio.gather(*map(pair, range(24)))


async def test_typed_calls_pass_through_the_same_port(edge):
    request = chat_pb2.CreateChatCompletionRequest(
        chat=chat_pb2.ChatRequest(
            model="m", messages=[chat_pb2.ChatRequest().messages.add(role="user", text="[[say:typed]]")]
        )
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{edge.ports['http']}") as channel:
        stub = chat_pb2_grpc.ChatServiceStub(channel)
        metadata = (("authorization", "Bearer secret"),)
        answer = await stub.CreateChatCompletion(request, metadata=metadata, timeout=20)
    assert answer.completion.choices[0].message.content == "typed"


async def call_directly(edge, method, messages, path=CHAT):
    """Status, body of a call without Envoy."""
    metadata = (
        ("x-envoy-original-path", path),
        ("x-envoy-original-method", "POST"),
        ("authorization", "Bearer secret"),
    )
    call = method(messages, metadata=metadata)
    data = b"".join([message.data async for message in call])
    head = dict(await call.initial_metadata())
    return int(head["x-http-status"]), data


async def test_a_body_may_come_in_pieces(edge):
    stub = edge_pb2_grpc.HttpEdgeServiceStub(edge.channel)
    whole = json.dumps(body("[[say:pieces]]")).encode()
    for size in (1, 7, len(whole)):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        messages = [httpbody_pb2.HttpBody(content_type="application/json", data=piece) for piece in pieces]
        status, data = await call_directly(edge, stub.Upload, iter(messages))
        assert status == 200
        assert json.loads(data)["choices"][0]["message"]["content"] == "pieces"


async def test_a_body_in_pieces_is_refused_when_it_grows_too_long(edge):
    stub = edge_pb2_grpc.HttpEdgeServiceStub(edge.channel)

    async def without_an_end():
        for _ in range(11):
            yield httpbody_pb2.HttpBody(content_type="application/json", data=b" " * 10_000)
        await asyncio.Event().wait()

    status, data = await call_directly(edge, stub.Upload, without_an_end())
    assert (status, json.loads(data)["error"]["code"]) == (413, "request_body_too_large")


async def test_an_upload_without_a_message_is_an_empty_body(edge):
    stub = edge_pb2_grpc.HttpEdgeServiceStub(edge.channel)
    status, data = await call_directly(edge, stub.Upload, iter(()))
    assert status == 400
    assert json.loads(data)["error"]["code"] == "json_parse_error"


async def test_a_call_without_a_path_is_not_found(edge):
    stub = edge_pb2_grpc.HttpEdgeServiceStub(edge.channel)
    status, data = await call_directly(edge, stub.Call, httpbody_pb2.HttpBody(), path="")
    assert (status, json.loads(data)["error"]["code"]) == (404, "unknown_url")
