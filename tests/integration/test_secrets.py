"""No key gets out: not into logs at level debug, nor metrics, nor answers, whatever is asked with whatever key."""

import asyncio
import logging
import os
import ssl
import sys
from pathlib import Path

import grpc
import httpx

from servicers.tls import TlsFiles
from smg_proto.admin.v1 import admin_pb2, admin_pb2_grpc
from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc
from tests.certificates import Authority
from tests.integration.running_router import outcome, running_router

ROOT = Path(__file__).resolve().parents[2]
SHARED, RED, BLUE, ADMIN, USER, STRANGE = (
    f"{name}-5ecret-{number:08x}"
    for number, name in enumerate(("shr", "red", "blu", "adm", "usr", "non"), 0x7E57)
)
# The last one is nobody's: it is not blacked out in logs because it is known, it must not get there at all.
KEYS = (SHARED, RED, BLUE, ADMIN, USER, STRANGE)
CALLERS = {
    "api_key": SHARED,
    "tenant_api_key": (f"red:{RED}", f"blue:{BLUE}"),
    "control_plane_api_keys": (f"a:Ann:admin:{ADMIN}", f"u:Uwe:user:{USER}"),
    "trust_tenant_header": True,
}
BODIES = (
    {"model": "m", "messages": [{"role": "user", "content": "[[say:x]]"}]},
    {"model": "m", "messages": [{"role": "user", "content": "[[say:x]]"}], "stream": True},
    {"model": "m", "messages": []},
    {"model": "m", "messages": [{"role": "user", "content": "[[error:INTERNAL:broken]]"}]},
    {"model": "nobody", "messages": [{"role": "user", "content": "x"}]},
)
PATHS = (
    ("GET", "/workers"), ("GET", "/workers/worker-1"), ("GET", "/workers/nobody"), ("POST", "/workers"),
    ("PUT", "/workers/worker-1"), ("GET", "/get_loads"), ("GET", "/loads"), ("GET", "/config"), ("GET", "/metrics"),
    ("GET", "/health"), ("GET", "/readiness"), ("GET", "/openapi.json"), ("GET", "/v1/models"),
    ("GET", "/v1/models/m"), ("POST", "/flush_cache"), ("PATCH", "/workers"), ("GET", "/nowhere"),
)  # fmt: skip


async def ask_everything(http, channel):
    """Ask everything with every key, in every place for a key. Returns all that was answered, as one text."""
    told = []
    for key in KEYS:
        for headers in (
            {"authorization": f"Bearer {key}", "x-smg-tenant-id": "t"},
            {"authorization": key, "x-api-key": key},
        ):
            told += [await http.post("/v1/chat/completions", json=body, headers=headers) for body in BODIES]
            told += [await http.request(method, path, headers=headers) for method, path in PATHS]
        told.append(
            await http.get("/v1/models", params={"api_key": key}, headers={"authorization": "Bearer"})
        )
    told.append(await http.get("/metrics"))
    texts = [f"{answer.status_code} {answer.headers} {answer.text}" for answer in told]
    for key in KEYS:
        metadata = (("authorization", f"Bearer {key}"),)
        message = {"role": "user", "text": "[[say:x]]"}
        request = chat_pb2.CreateChatCompletionRequest(chat={"model": "m", "messages": [message]})
        admin = admin_pb2_grpc.AdminServiceStub(channel)
        calls = (
            chat_pb2_grpc.ChatServiceStub(channel).CreateChatCompletion(request, metadata=metadata),
            admin.ListWorkers(admin_pb2.ListWorkersRequest(), metadata=metadata),
            admin.AddWorker(admin_pb2.AddWorkerRequest(url="nonsense"), metadata=metadata),
        )
        texts += [str(await outcome(call)) for call in calls]
    return "\n".join(texts)


def found(text, secrets=KEYS):
    return [secret for secret in secrets if secret in text]


async def test_nothing_is_blacked_out_because_nothing_is_told(echo_worker, caplog):
    """Without the log's own guard: no record holds a key. Records of the test's own client are left out."""
    caplog.set_level(logging.DEBUG)
    async with running_router(await echo_worker(), callers=CALLERS) as gateway:
        answers = await ask_everything(gateway.http, gateway.channel)
        state = repr(gateway.router._settings) + str(gateway.router._settings)
    records = [each for each in caplog.records if each.name.split(".")[0] not in ("httpx", "httpcore")]
    assert any(each.message == "control_plane_audit" for each in records)
    logged = "\n".join(f"{each.getMessage()} {vars(each)}" for each in records)
    assert (found(answers), found(logged), found(state)) == ([], [], [])


async def test_the_command_lets_no_key_out(echo_worker, tmp_path):
    """The real command at level debug, with keys from flags, environment and file, and TLS everywhere."""
    authority = Authority(tmp_path / "ca")
    own, router = authority.issue("own", "127.0.0.1"), authority.issue("router", "router")
    private = [own.private_text(), router.private_text()]
    url = await echo_worker(tls=TlsFiles(own.certificate, own.key, (authority.path,)))
    config = tmp_path / "smg.yaml"
    config.write_text(f"callers: {{tenant_api_key: ['red:{RED}', {{tenant: blue, key: {BLUE}}}]}}\n")
    words = [
        "launch", "--config", str(config), "--host", "127.0.0.1", "--port", "0", "--grpc-port", "0",
        "--worker-urls", url, "--api-key", SHARED, "--trust-tenant-header", "--log-level", "debug", "--access-log", "--log-json",
        "--tls-cert-path", own.certificate, "--tls-key-path", own.key, "--ca-cert-paths", authority.path,
        "--client-cert-path", router.certificate, "--client-key-path", router.key,
    ]  # fmt: skip
    environment = {
        **os.environ,  # noqa: TID251 -- for a child
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}",
        "SMG_CONTROL_PLANE_API_KEYS": f"a:Ann A:admin:{ADMIN}, u:Uwe:user:{USER}",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "smg", *words, env=environment, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    reading = asyncio.create_task(process.stderr.read())
    try:
        ready = (await process.stdout.readline()).decode().split()
        assert [word.partition(":")[0] for word in ready] == ["ready", "https", "grpcs"]
        context = ssl.create_default_context(cafile=authority.path)
        credentials = grpc.ssl_channel_credentials(authority.text())
        async with (
            httpx.AsyncClient(base_url=ready[1], verify=context, timeout=20) as http,
            grpc.aio.secure_channel(ready[2].removeprefix("grpcs://"), credentials) as channel,
        ):
            while (await http.get("/readiness")).status_code != 200:  # noqa: ASYNC110 - told over HTTP only
                await asyncio.sleep(0.05)
            answers = await ask_everything(http, channel)
    finally:
        process.terminate()
        logged = (await reading).decode()
        rest = (await process.stdout.read()).decode()
        await process.wait()
    assert "control_plane_audit" in logged
    secrets = (*KEYS, *private)
    assert (found(answers, secrets), found(logged, secrets), found(rest, secrets)) == ([], [], [])
    assert process.returncode == 0
