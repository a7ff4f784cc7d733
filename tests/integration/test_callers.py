"""Who may call what, asked over HTTP, gRPC, and HTTP over gRPC: all doors have the same rules and the same audit log."""

import logging

import grpc
import orjson
import pytest
from google.api import httpbody_pb2

from smg_proto.admin.v1 import admin_pb2
from smg_proto.chat.v1 import chat_pb2
from smg_proto.model.v1 import model_pb2
from tests.integration.running_router import outcome, running_router

BODY = {"model": "m", "messages": [{"role": "user", "content": "[[say:x]]"}]}
CHAT = chat_pb2.CreateChatCompletionRequest(
    chat={"model": "m", "messages": [{"role": "user", "text": "[[say:x]]"}]}
)
REALM = 'Bearer realm="control-plane"'
ROLES = ("a1:Ann:admin:admin-key", "u1:Uwe:user:user-key")
EVERYTHING = {
    "api_key": "shared-key",
    "tenant_api_key": ("red:red-key",),
    "control_plane_api_keys": ROLES,
}


def bearer(key):
    return {"authorization": f"Bearer {key}"} if key else {}


async def statuses(gateway, key):
    """What the key gets of chat, models, GET /workers and POST /flush_cache: over HTTP, gRPC, and HTTP over gRPC."""
    headers, metadata = bearer(key), tuple(bearer(key).items())
    http, admin = gateway.http, gateway.admin
    over_http = [
        (await http.post("/v1/chat/completions", json=BODY, headers=headers)).status_code,
        (await http.get("/v1/models", headers=headers)).status_code,
        (await http.get("/workers", headers=headers)).status_code,
        (await http.post("/flush_cache", headers=headers)).status_code,
    ]
    calls = (
        gateway.chats.CreateChatCompletion(CHAT, metadata=metadata),
        gateway.models.ListModels(model_pb2.ListModelsRequest(), metadata=metadata),
        admin.ListWorkers(admin_pb2.ListWorkersRequest(), metadata=metadata),
        admin.FlushCaches(admin_pb2.FlushCachesRequest(), metadata=metadata),
    )
    codes = {"OK": 200, "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}
    over_grpc = [codes[(await outcome(call))[0]] for call in calls]
    asked = (
        ("POST", "/v1/chat/completions", orjson.dumps(BODY)),
        ("GET", "/v1/models", b""),
        ("GET", "/workers", b""),
        ("POST", "/flush_cache", b""),
    )
    over_edge = [await edge_status(gateway, *each, metadata) for each in asked]
    return over_http, over_grpc, over_edge


async def edge_status(gateway, method, path, body, metadata):
    """The status that a request gets which a proxy carries over gRPC."""
    carried = (("x-envoy-original-method", method), ("x-envoy-original-path", path), *metadata)
    message = httpbody_pb2.HttpBody(content_type="application/json", data=body).SerializeToString()
    call = gateway.channel.unary_stream("/smg.edge.v1.HttpEdgeService/Call")(
        message, metadata=carried, timeout=20
    )
    assert [each async for each in call]
    return int(dict(await call.initial_metadata())["x-http-status"])


# What is configured; by key, the statuses of chat, models, a look at the workers, and a change.
RULES = [
    ({}, {"": [200, 200, 200, 200], "any": [200, 200, 200, 200]}),
    (
        {"api_key": "shared-key"},
        {"": [401, 200, 401, 401], "wrong": [401, 200, 401, 401], "shared-key": [200, 200, 200, 200]},
    ),
    ({"tenant_api_key": ("red:red-key",)}, {"": [401, 200, 401, 401], "red-key": [200, 200, 401, 401]}),
    (
        {"control_plane_api_keys": ROLES},
        {"": [200, 200, 401, 401], "admin-key": [200, 200, 200, 200], "user-key": [200, 200, 200, 403]},
    ),
    (
        EVERYTHING,
        {
            "": [401, 200, 401, 401],
            "shared-key": [200, 200, 401, 401],
            "red-key": [200, 200, 401, 401],
            "admin-key": [401, 200, 200, 200],
            "user-key": [401, 200, 200, 403],
        },
    ),
]


@pytest.mark.parametrize(("configured", "rules"), RULES, ids=["open", "shared", "tenants", "roles", "all"])
async def test_all_doors_open_for_the_same_keys(configured, rules, echo_worker):
    async with running_router(await echo_worker(), callers=configured) as gateway:
        for key, expected in rules.items():
            assert await statuses(gateway, key) == (expected, expected, expected), key


async def test_refusals_have_the_forms_of_the_api():
    async with running_router(callers=EVERYTHING) as gateway:
        http = gateway.http
        serving = await http.post("/v1/chat/completions", content=b"{", headers=bearer("wrong"))
        assert (serving.status_code, serving.content, "www-authenticate" in serving.headers) == (
            401,
            b"",
            False,
        )
        assert serving.headers["x-request-id"].startswith("chatcmpl-")
        unknown = await http.get("/workers", headers=bearer("wrong"))
        assert (unknown.status_code, unknown.headers["www-authenticate"]) == (401, REALM)
        assert unknown.headers["content-type"] == "text/plain; charset=utf-8"
        denied = await http.request("DELETE", "/workers/worker-1", headers=bearer("user-key"))
        assert (denied.status_code, "admin" in denied.text) == (403, True)
        # What is not there is told to anybody, as is a method that a path does not have.
        assert (await http.get("/nope")).status_code == 404
        assert (await http.get("/v1/chat/completions")).status_code == 405


async def test_probes_health_and_reflection_need_no_key():
    async with running_router(callers=EVERYTHING) as gateway:
        for path in (
            "/health",
            "/liveness",
            "/readiness",
            "/metrics",
            "/openapi.json",
            "/loads",
            "/v1/models",
        ):
            assert (await gateway.http.get(path)).status_code != 401, path
        check = gateway.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await check(b"", timeout=10)


@pytest.mark.parametrize("key", ["kéy", "ключ", "key with spaces"])
async def test_keys_of_any_letters_open_over_http(key, echo_worker):
    async with running_router(await echo_worker(), callers={"api_key": key}) as gateway:
        raw = b"Bearer " + key.encode()
        answers = [
            await gateway.http.post("/v1/chat/completions", json=BODY, headers={b"authorization": value})
            for value in (raw, raw + b"x", "Bearer kéy".encode("latin-1"))
        ]
        assert [answer.status_code for answer in answers] == [200, 401, 401]


async def test_a_trusted_header_decides_where_requests_go_and_an_untrusted_one_does_not(echo_worker):
    """consistent_hashing pins a tenant to a worker: the tenant is seen by its effect."""
    urls = [await echo_worker() for _ in range(4)]
    routing = {"policy": "consistent_hashing"}

    async def workers_of(gateway, name):
        used = set()
        for number in range(20):  # all of them at one worker by chance: once in 4 ** 19
            content = f"[[say:x]] {number} " * 8
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            answer = await gateway.http.post("/v1/chat/completions", json=body, headers={name: "team-red"})
            assert answer.status_code == 200
            used.add(answer.headers["x-smg-routed-worker-id"])
        return len(used)

    trusting = {"trust_tenant_header": True, "tenant_header_name": "X-Team"}
    async with running_router(*urls, callers=trusting, routing=routing) as gateway:
        assert await workers_of(gateway, "x-team") == 1
        metadata = (("x-team", "team-red"),)
        call = gateway.chats.CreateChatCompletion(CHAT, metadata=metadata)
        await call
    async with running_router(*urls, callers={"tenant_header_name": "X-Team"}, routing=routing) as gateway:
        assert await workers_of(gateway, "x-team") > 1


async def test_an_admin_call_leaves_a_line_and_a_look_only_at_debug(caplog):
    caplog.set_level(logging.DEBUG, "smg.callers.audit")
    async with running_router(callers=EVERYTHING) as gateway:
        headers = {**bearer("admin-key"), "x-request-id": "mine"}
        await gateway.http.post("/workers", json={"url": "grpc://127.0.0.1:1"}, headers=headers)
        await gateway.http.post("/flush_cache", headers=bearer("user-key"))
        await gateway.http.get("/workers", headers=bearer("wrong"))
        await gateway.http.get("/workers", headers=bearer("user-key"))
        await gateway.http.get("/workers/nobody", headers=bearer("user-key"))
        await gateway.http.post("/v1/chat/completions", json=BODY, headers=bearer("shared-key"))
        metadata = tuple(bearer("admin-key").items())
        await gateway.admin.FlushCaches(admin_pb2.FlushCachesRequest(), metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError):
            await gateway.admin.RemoveWorker(
                admin_pb2.RemoveWorkerRequest(), metadata=tuple(bearer("user-key").items())
            )
    flush, remove = ("/smg.admin.v1.AdminService/" + name for name in ("FlushCaches", "RemoveWorker"))
    audited = [each for each in caplog.records if each.message == "control_plane_audit"]
    told = [
        (each.levelname, each.principal, each.method, each.path, each.status, each.outcome)
        for each in audited
    ]
    assert told == [
        ("INFO", "a1", "POST", "/workers", 202, "success"),
        ("WARNING", "u1", "POST", "/flush_cache", 403, "denied"),
        ("WARNING", "-", "GET", "/workers", 401, "denied"),
        ("DEBUG", "u1", "GET", "/workers", 200, "success"),
        ("INFO", "u1", "GET", "/workers/nobody", 404, "failed"),
        ("INFO", "a1", "GRPC", flush, 0, "success"),
        ("WARNING", "u1", "GRPC", remove, 7, "denied"),
    ]
    first = audited[0]
    assert (first.request_id, first.role, first.auth_method) == ("mine", "admin", "control_plane_key")
    assert all("127.0.0.1:" in each.client for each in audited)


async def test_without_an_audit_nothing_is_told(caplog):
    caplog.set_level(logging.DEBUG, "smg.callers.audit")
    async with running_router(callers={"control_plane_audit_enabled": False}) as gateway:
        assert (await gateway.http.post("/flush_cache")).status_code == 200
        await gateway.admin.FlushCaches(admin_pb2.FlushCachesRequest())
    assert not [each for each in caplog.records if each.message == "control_plane_audit"]
