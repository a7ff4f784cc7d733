"""deploy/envoy/mesh.yaml on a real Envoy, before two gateways: who gets in, where requests go, what clients see."""

import asyncio
import json
import shutil
import ssl
from http import HTTPStatus
from types import SimpleNamespace

import grpc
import httpx
import pytest
import pytest_asyncio
import websockets
from cryptography.hazmat.primitives.asymmetric import rsa

from smg.services.methods import ENDPOINT_SERVICE, METHODS
from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc
from smg_proto.model.v1 import model_pb2
from tests.conftest import EchoWorkers
from tests.integration.running_envoy import DEPLOY, ENVOY
from tests.integration.running_mesh import Credentials, running_gateway, running_mesh, token

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
FOR_ANYBODY = {"/health", "/health/live", "/liveness", "/readiness", "/openapi.json", "/openapi.yaml"}
# Open at the gateway, for those who watch it; not for everybody outside.
FOR_OPERATORS = {"/loads", "/metrics"}


def body(text, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def bearer(value):
    return {"authorization": f"Bearer {value}"}


ALICE, BOB, OPERATOR = bearer(token()), bearer(token("bob")), bearer(token("olga", "smg-operators"))


@pytest.fixture(scope="module")
def credentials(tmp_path_factory):
    return Credentials(tmp_path_factory.mktemp("certs"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(tokenizer_dir):
    workers = EchoWorkers(tokenizer_dir)
    yield workers
    await workers.stop_all()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(credentials, workers, tmp_path_factory):
    """`.gateways`, two with an engine each, `.client` of the mesh in front of them, without a token, `.channel` and `.port`."""
    urls = [await workers(), await workers()]
    async with (
        running_gateway(credentials, urls[0]) as first,
        running_gateway(credentials, urls[1]) as second,
        running_mesh(credentials, [first, second], tmp_path_factory.mktemp("envoy")) as running,
        httpx.AsyncClient(base_url=running.url, verify=running.context, timeout=30) as client,
        channel(credentials, running.port) as typed,
    ):
        running.client, running.gateways, running.channel = client, (first, second), typed
        running.engines = [workers.servers[url].engine for url in urls]
        await taken_in(running.admin, 2)
        yield running


def channel(credentials, port):
    return grpc.aio.secure_channel(
        f"localhost:{port}", grpc.ssl_channel_credentials(credentials.authority.text())
    )


async def taken_in(admin, count):
    """Wait until Envoy uses exactly so many gateways."""
    async with httpx.AsyncClient(base_url=admin) as client:
        while True:
            found = (await client.get("/clusters?format=json")).json()["cluster_statuses"]
            (gateways,) = [each for each in found if each["name"] == "gateway"]
            health = [host["health_status"] for host in gateways.get("host_statuses", ())]
            if sum(not each.get("failed_active_health_check") for each in health) == count:
                return
            await asyncio.sleep(0.01)


def routes(gateway):
    """Every route of the gateway's table, with a path that it matches."""
    table = gateway.router.app.routes
    methods = [*table._exact.values(), *(methods for _, methods in table._patterns)]
    for route in (route for each in methods for route in each.values()):
        path = route.path.replace("{model*}", "x").replace("{id}", "x").replace("{item_id}", "y")
        yield route, path


def seen(response):
    names = ("x-smg-error-code", "x-request-id", "allow")
    return response.status_code, [response.headers.get(name) for name in names]


@pytest.mark.parametrize("name", ["edge.yaml", "mesh.yaml", "eds.yaml"])
async def test_envoy_takes_each_file_as_it_is(credentials, tmp_path, name):
    """The other tests give it what PyYAML makes of the file."""
    folder = tmp_path / "envoy"
    shutil.copytree(DEPLOY, folder)
    (folder / "certs").symlink_to(credentials.folder)
    command = (ENVOY, "--mode", "validate", "-c", name, "--use-dynamic-base-id")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    assert b"deprecated" not in told.lower()


async def test_every_route_is_served_to_those_for_whom_it_is(mesh):
    gateway = mesh.gateways[0]
    for route, path in routes(gateway):

        async def ask(client, headers, route=route, path=path):
            content = {"headers": {**headers, "content-type": "application/json", "x-request-id": "same"}}
            if route.method in ("POST", "PUT"):
                content["content"] = b"{}"
            return await client.request(route.method, path, **content)

        what = f"{route.method} {path}"
        operators_only = route.access == "admin" or route.path in FOR_OPERATORS
        wanted = seen(await ask(gateway.http, {}))
        assert wanted[1][1] == "same", what
        if route.path in FOR_ANYBODY:
            assert seen(await ask(mesh.client, {})) == wanted, what
        else:
            assert (await ask(mesh.client, {})).status_code == 401, what
        if operators_only:
            assert (await ask(mesh.client, ALICE)).status_code == 403, what
        else:
            assert seen(await ask(mesh.client, ALICE)) == wanted, what
        assert seen(await ask(mesh.client, OPERATOR)) == wanted, what


async def call(mesh, name, headers):
    """Code of a call with an empty message, and whether the gateway itself answered."""
    metadata = tuple(headers.items())
    made = mesh.channel.unary_stream(name)(b"", metadata=metadata, timeout=20)
    try:
        async for _ in made:
            pass
    except grpc.aio.AioRpcError as error:
        # What a refusal in one piece brings along counts as the end of the call.
        known = {**dict(error.initial_metadata() or ()), **dict(error.trailing_metadata() or ())}
        return error.code(), "x-request-id" in known
    return grpc.StatusCode.OK, "x-request-id" in dict(await made.initial_metadata())


async def test_every_typed_method_is_served_to_those_for_whom_it_is(mesh):
    for name, method in METHODS.items():
        if ENDPOINT_SERVICE in name:
            continue
        assert await call(mesh, name, {}) == (grpc.StatusCode.UNAUTHENTICATED, False), name
        if method.access == "admin":
            assert await call(mesh, name, ALICE) == (grpc.StatusCode.PERMISSION_DENIED, False), name
        else:
            assert (await call(mesh, name, ALICE))[1], name
        assert (await call(mesh, name, OPERATOR))[1], name


async def test_methods_that_would_go_around_the_rules_are_not_there(mesh):
    """The edge's service believes its caller about the path; endpoints are the mesh's own business."""
    claims = {"x-envoy-original-path": "/workers", "x-envoy-original-method": "GET"}
    for name in (
        "/smg.edge.v1.HttpEdgeService/Call",
        f"/{ENDPOINT_SERVICE}/StreamEndpoints",
    ):
        code, by_gateway = await call(mesh, name, {**OPERATOR, **claims})
        assert (code, by_gateway) == (grpc.StatusCode.UNIMPLEMENTED, False)
    for path in ("/v1/%2e%2e/workers", "/v1/../workers", "//workers", "/v1/..%2fworkers"):
        url = httpx.URL(mesh.url, raw_path=path.encode())
        assert (await mesh.client.get(url, headers=ALICE)).status_code in (403, 404)


async def test_what_a_client_claims_to_be_counts_for_nothing(mesh):
    made = await mesh.client.post(
        "/v1/conversations", json={}, headers={**ALICE, "x-smg-tenant-id": "bob", "x-smg-routing-key": "k"}
    )
    path = f"/v1/conversations/{made.json()['id']}"
    key = {"x-smg-routing-key": "k"}
    assert (await mesh.client.get(path, headers={**ALICE, **key})).status_code == 200
    for headers in (BOB, {**BOB, "x-smg-tenant-id": "alice"}):
        assert (await mesh.client.get(path, headers={**headers, **key})).status_code == 404


REFUSED = {
    "none": ({}, 401),
    "garbage": (bearer("x.y.z"), 401),
    "expired": (bearer(token(exp=1)), 401),
    "another issuer": (bearer(token(iss="https://other.example.com")), 401),
    "another key": (bearer(token(key=rsa.generate_private_key(65537, 2048))), 401),
    "another audience": (bearer(token(audience="mail")), 403),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_tokens_that_open_nothing_are_refused_in_our_form(mesh, name):
    headers, status = REFUSED[name]
    answer = await mesh.client.post(CHAT, json=body("x"), headers=headers)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["type"] == HTTPStatus(status).phrase
    assert error["code"] == {401: "unauthorized", 403: "forbidden"}[status]
    assert error["message"]
    assert error["param"] is None


async def test_pages_of_allowed_origins_may_call(mesh):
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    for origin, is_allowed in (("https://app.example.com", True), ("https://evil.test", False)):
        preflight = await mesh.client.options(CHAT, headers={"origin": origin, **ask})
        answer = await mesh.client.get("/v1/models", headers={**ALICE, "origin": origin})
        assert answer.status_code == 200
        for each in (preflight, answer):
            assert each.headers.get("access-control-allow-origin") == (origin if is_allowed else None)


async def test_browsers_speak_grpc_web(mesh):
    answer = await mesh.client.post(
        "/smg.model.v1.ModelService/ListModels",
        content=b"\0" * 5,
        headers={**ALICE, "content-type": "application/grpc-web+proto", "x-grpc-web": "1"},
    )
    assert answer.status_code == 200
    length = int.from_bytes(answer.content[1:5], "big")
    models = model_pb2.ListModelsResponse.FromString(answer.content[5 : 5 + length]).models
    assert [model.id for model in models] == ["m"]
    assert b"grpc-status:0" in answer.content[5 + length :]


def chat_request(text):
    chat = chat_pb2.ChatRequest(model="m")
    chat.messages.add(role="user", text=text)
    return chat


async def test_typed_calls_pass_with_their_deadlines(mesh):
    stub = chat_pb2_grpc.ChatServiceStub(mesh.channel)
    metadata = tuple(ALICE.items())
    request = chat_pb2.CreateChatCompletionRequest(chat=chat_request("[[say:typed]]"))
    answer = await stub.CreateChatCompletion(request, metadata=metadata, timeout=20)
    assert answer.completion.choices[0].message.content == "typed"
    request = chat_pb2.CreateChatCompletionRequest(chat=chat_request("[[hang]]"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CreateChatCompletion(request, metadata=metadata, timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    while any(engine.load().running for engine in mesh.engines):  # noqa: ASYNC110 - a state without an event
        await asyncio.sleep(0.005)


async def test_events_pass_one_by_one_over_http_2_and_leaving_ends_the_work(mesh):
    async with (
        httpx.AsyncClient(
            base_url=mesh.url, verify=mesh.context, http2=True, headers=ALICE, timeout=30
        ) as client,
        client.stream("POST", CHAT, json=body("[[say:a b c]][[hang]]", stream=True)) as answer,
    ):
        assert answer.http_version == "HTTP/2"
        async for line in answer.aiter_lines():
            if '"content":"' in line and '"content":""' not in line:
                break
        assert sum(engine.load().running for engine in mesh.engines) == 1
    while any(engine.load().running for engine in mesh.engines):  # noqa: ASYNC110 - a state without an event
        await asyncio.sleep(0.005)


async def engine_behind(mesh, key):
    """Address of the engine of the gateway that a routing key leads to."""
    answer = await mesh.client.get("/workers", headers={**OPERATOR, "x-smg-routing-key": key})
    return answer.json()["workers"][0]["url"]


KEYS = [f"conversation-{number}" for number in range(40)]


async def test_a_routing_key_leads_to_one_gateway(mesh):
    first = [await engine_behind(mesh, key) for key in KEYS]
    assert [await engine_behind(mesh, key) for key in KEYS] == first
    assert len(set(first)) == 2


async def test_a_gateway_that_leaves_ends_its_streams_and_gets_nothing_new(
    mesh, credentials, workers, tmp_path
):
    """It says that it is not ready, Envoy turns to the other, and only then it closes."""
    url = await workers(step_seconds=0.01)
    async with (
        running_gateway(credentials, url, shutdown_delay_secs=1) as leaving,
        running_mesh(credentials, [mesh.gateways[0], leaving], tmp_path) as running,
        httpx.AsyncClient(base_url=running.url, verify=running.context, timeout=30) as client,
    ):
        await taken_in(running.admin, 2)
        pair = SimpleNamespace(client=client)
        (key, *_) = [key for key in KEYS if await engine_behind(pair, key) == url]
        headers = {**ALICE, "x-smg-routing-key": key}
        async with client.stream(
            "POST", CHAT, json=body("[[len:60]]", stream=True), headers=headers
        ) as answer:
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith("data: {")
            leaving.stop.set()
            await taken_in(running.admin, 1)
            assert url not in [await engine_behind(pair, each) for each in KEYS]
            events = [line async for line in lines if line]
        assert events[-1] == "data: [DONE]"
        assert json.loads(events[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "stop"


async def test_an_edge_that_is_drained_ends_its_streams(mesh, credentials, tmp_path):
    async with (
        running_mesh(credentials, mesh.gateways, tmp_path) as running,
        httpx.AsyncClient(base_url=running.url, verify=running.context, timeout=30) as client,
        httpx.AsyncClient(base_url=running.admin) as admin,
    ):
        await taken_in(running.admin, 2)
        request = body("[[say:one two three]][[delay:50]]", stream=True)
        async with client.stream("POST", CHAT, json=request, headers=ALICE) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            drained = await admin.post("/drain_listeners?graceful&skip_exit")
            assert drained.status_code == 200
            assert [line async for line in lines if line][-1] == "data: [DONE]"


async def test_each_tenant_has_a_bucket(mesh, credentials, tmp_path):
    replace = {
        "max_tokens: 1000, tokens_per_fill: 500, fill_interval: 1s": "max_tokens: 2, tokens_per_fill: 1, fill_interval: 3600s"
    }
    async with (
        running_mesh(credentials, mesh.gateways, tmp_path, replace) as running,
        httpx.AsyncClient(base_url=running.url, verify=running.context, timeout=30) as client,
        channel(credentials, running.port) as typed,
    ):
        await taken_in(running.admin, 2)
        answers = [await client.get("/v1/models", headers=ALICE) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].headers["retry-after"] == "1"
        assert answers[2].json()["error"]["code"] == "rate_limited"
        code, _ = await call(SimpleNamespace(channel=typed), "/smg.model.v1.ModelService/ListModels", ALICE)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.get("/v1/models", headers=BOB)).status_code == 200


async def test_gateways_and_edge_know_each_other(mesh, credentials, tmp_path):
    """A gateway with another name is not spoken to, and a gateway speaks to nobody who shows nothing."""
    async with (
        running_gateway(credentials, name="other.smg.internal") as other,
        running_mesh(credentials, [other], tmp_path) as running,
        httpx.AsyncClient(base_url=running.url, verify=running.context, timeout=30) as client,
    ):
        answer = await client.get("/v1/models", headers=ALICE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
        assert answer.headers["retry-after"] == "1"
    port = mesh.gateways[0].addresses.port
    async with httpx.AsyncClient(verify=credentials.trusting()) as stranger:
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            await stranger.get(f"https://127.0.0.1:{port}/health")


async def test_a_mesh_without_an_engine_can_be_told_of_one(mesh, credentials, workers, tmp_path):
    """No gateway is ready, and clients hear why from it."""
    async with (
        running_gateway(credentials) as gateway,
        running_mesh(credentials, [gateway], tmp_path) as running,
        httpx.AsyncClient(base_url=running.url, verify=running.context, timeout=30) as client,
    ):
        answer = await client.get("/v1/models", headers=ALICE)
        theirs = await gateway.http.get("/v1/models")
        assert (answer.status_code, answer.text) == (503, theirs.text)
        added = await client.post("/workers", json={"url": await workers()}, headers=OPERATOR)
        assert added.status_code == 202
        while (await client.post(CHAT, json=body("x"), headers=ALICE)).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_websockets_reach_the_http_listener(mesh, credentials, tmp_path):
    """What would listen there: it sees who calls, and not the token."""
    heads = []

    async def talk(connection):
        heads.append(connection.request.headers)
        async for message in connection:
            await connection.send(f"heard {message}")

    def readiness(connection, request):
        return connection.respond(HTTPStatus.OK, "") if request.path == "/readiness" else None

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=credentials.authority.path)
    tls = credentials.gateway_tls()
    context.load_cert_chain(tls["tls_cert_path"], tls["tls_key_path"])
    context.verify_mode = ssl.CERT_REQUIRED
    async with websockets.serve(talk, "127.0.0.1", 0, ssl=context, process_request=readiness) as server:
        port = server.sockets[0].getsockname()[1]
        double = SimpleNamespace(target=mesh.gateways[0].target, addresses=SimpleNamespace(port=port))
        async with running_mesh(credentials, [double], tmp_path) as running:
            url = f"wss://localhost:{running.port}/v1/realtime?model=m"
            with pytest.raises(websockets.InvalidStatus) as caught:
                await websockets.connect(url, ssl=running.context)
            assert caught.value.response.status_code == 401
            headers = {**ALICE, "x-smg-tenant-id": "bob"}
            async with websockets.connect(url, ssl=running.context, additional_headers=headers) as client:
                await client.send("hello")
                assert await client.recv() == "heard hello"
    assert heads[0].get_all("x-smg-tenant-id") == ["alice"]
    assert "authorization" not in heads[0]
