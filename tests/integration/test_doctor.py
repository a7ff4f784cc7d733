"""smg doctor: each thing that may be wrong is told by its name, with what to do, on real sockets."""

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
import trustme

from smg.cli.doctor.command import examine, parse_target
from smg.cli.main import main
from smg_proto.engine.v1 import card_pb2
from tests.contract.workers.session_double import SessionDouble
from tests.integration.running_router import running_router, until
from tests.tokenizer_dirs import make_tokenizer_dir

# Only what says nothing takes as long.
PATIENCE_S = 30.0


async def findings(url, *, model="", key="", ca_cert=None, timeout_s=PATIENCE_S, **client):
    """The report, and by check the finding that is worst."""
    scheme, target = parse_target(url)
    target = replace(target, ca_cert=ca_cert, timeout_s=timeout_s, **client)
    report = await examine(url, scheme, target, model, key)
    order = ["ok", "note", "warning", "problem"]
    worst = {}
    for finding in sorted(report.findings, key=lambda each: order.index(each.level)):
        worst[finding.check] = finding
        assert finding.advice or finding.level in ("ok", "note"), "what is wrong comes with what to do"
    return report, worst


@asynccontextmanager
async def server(answer, tls=None):
    """A TCP server that reads something and says `answer`; its port."""

    async def serve(reader, writer):
        await reader.read(1)
        if answer:
            writer.write(answer)
        else:
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


@asynccontextmanager
async def double(**changes):
    """A worker that is told what to be; its url."""
    worker = SessionDouble()
    for name, value in changes.items():
        setattr(worker, name, value)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.kill()


async def test_a_worker_that_is_well(echo_worker):
    url = await echo_worker()
    report, worst = await findings(url, model="m")
    assert report.is_well, report.text()
    assert worst.keys() >= {"connection", "transport", "protocol", "health", "version", "model"}
    assert worst.keys() >= {"tokenizer", "template", "session", "load"}
    assert all(finding.level == "ok" for finding in report.findings), report.text()
    without_scheme, _ = await findings(url.removeprefix("grpc://"), model="m")
    assert without_scheme.findings == report.findings


async def test_what_is_wrong_before_a_word_is_said(echo_worker):
    async with server(b"") as port:
        gone = port
        _, worst = await findings(f"grpc://127.0.0.1:{port}", timeout_s=0.3)
        assert "says nothing" in worst["transport"].text
    _, worst = await findings(f"grpc://127.0.0.1:{gone}")
    assert "nothing listens" in worst["connection"].text
    _, worst = await findings("grpc://no-such-host.invalid:50051")
    assert "cannot be resolved" in worst["name"].text
    async with server(b"SSH-2.0-OpenSSH_9.6\r\n") as port:
        _, worst = await findings(f"grpc://127.0.0.1:{port}")
        assert "no gRPC server" in worst["transport"].text
        _, worst = await findings(f"grpcs://127.0.0.1:{port}")
        assert "does not speak TLS" in worst["transport"].text
    async with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        _, worst = await findings(f"grpc://127.0.0.1:{port}")
        assert "HTTP/1 server" in worst["transport"].text
    url = await echo_worker()
    _, worst = await findings(url.replace("grpc", "http"))
    assert "gRPC server answers there" in worst["transport"].text
    _, worst = await findings(url.replace("grpc", "grpcs"))
    assert f"use {url}" in worst["transport"].advice


async def test_tls_and_certificates(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca_cert = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_cert)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(tls)
    async with server(b"", tls) as port:
        _, worst = await findings(f"grpc://127.0.0.1:{port}")
        assert f"use grpcs://127.0.0.1:{port}" in worst["transport"].advice
        _, worst = await findings(f"http://127.0.0.1:{port}")
        assert f"use https://127.0.0.1:{port}" in worst["transport"].advice
        _, worst = await findings(f"grpcs://127.0.0.1:{port}")
        assert "not trusted" in worst["transport"].text
        _, worst = await findings(f"grpcs://localhost:{port}", ca_cert=ca_cert)
        assert "localhost" in worst["transport"].text, "the certificate is for another name"
    key, chain = certificate.private_key_pem, certificate.cert_chain_pems[0]
    credentials = grpc.ssl_server_credentials(
        [(key.bytes(), chain.bytes())], authority.cert_pem.bytes(), require_client_auth=True
    )
    key.write_to_path(tmp_path / "key.pem")
    chain.write_to_path(tmp_path / "chain.pem")
    grpc_server = grpc.aio.server()
    port = grpc_server.add_secure_port("127.0.0.1:0", credentials)
    await grpc_server.start()
    try:
        _, worst = await findings(f"grpcs://127.0.0.1:{port}", ca_cert=ca_cert)
        assert "--client-cert" in worst["protocol"].advice
        ours = {"client_cert": tmp_path / "chain.pem", "client_key": tmp_path / "key.pem"}
        _, worst = await findings(f"grpcs://127.0.0.1:{port}", ca_cert=ca_cert, **ours)
        assert worst["transport"].level == "ok"
        assert "no protocol of an engine" in worst["protocol"].text
    finally:
        await grpc_server.stop(None)


async def test_what_a_worker_may_lack(tmp_path, monkeypatch):
    async with double() as worker:
        _, worst = await findings(worker.url, model="other")
        assert "does not serve 'other'; it serves m" in worst["model"].text
        assert "--model-alias other=m" in worst["model"].advice
        assert "no tokenizer" in worst["tokenizer"].text
        await worker.set_health(serving=False)
        _, worst = await findings(worker.url)
        assert "NOT_SERVING" in worst["health"].text
    async with double(models=()) as worker:
        _, worst = await findings(worker.url)
        assert "serves no model" in worst["model"].text

    async def no_session(requests, context):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many sessions")
        yield

    async def described(request, context):
        card = card_pb2.ModelCard(id="m", tokenizer_sha256="0" * 64)
        return card_pb2.DescribeResponse(models=[card], engine="local", engine_version="0.0.1")

    changes = {"Session": no_session, "Describe": described, "archive": b"no zip"}
    async with double(**changes) as worker:
        _, worst = await findings(worker.url)
        assert "too many sessions" in worst["session"].text
        assert "cannot be downloaded" in worst["tokenizer"].text
        assert "local 0.0.1" in worst["version"].text


async def test_a_model_without_a_template(echo_worker, tmp_path):
    directory = make_tokenizer_dir(tmp_path / "plain")
    config = directory / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": None}))
    url = await echo_worker(model_paths=(str(directory),))
    report, worst = await findings(url)
    assert "no chat template" in worst["template"].text
    assert "--chat-template" in worst["template"].advice
    assert report.is_well, "completions work"


async def test_a_router_that_is_well_through_both_ports(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        http = f"http://127.0.0.1:{gateway.addresses.port}"
        report, worst = await findings(http, model="m")
        assert all(finding.level == "ok" for finding in report.findings if finding.check != "event loop")
        assert worst.keys() >= {"clock", "version", "health", "readiness", "workers", "model", "queue"}
        guessed, _ = await findings(http.removeprefix("http://"), model="m")
        # The event loop is told of once it has been measured, which may be between the two.
        assert [each.check for each in guessed.findings if each.check != "event loop"] == [
            each.check for each in report.findings if each.check != "event loop"
        ]
        report, worst = await findings(f"grpc://{gateway.target}")
        assert report.is_well
        assert "gRPC port of a gateway" in worst["protocol"].text
        assert "all 1 are ready" in worst["workers"].text


async def test_a_router_without_workers_and_with_one_that_is_down():
    async with running_router() as gateway:
        http = f"http://127.0.0.1:{gateway.addresses.port}"
        report, worst = await findings(http)
        assert not report.is_well
        assert "no workers" in worst["workers"].text
        assert "not ready" in worst["readiness"].text
        await gateway.http.post("/workers", json={"url": "grpc://127.0.0.1:1"})
        await until(lambda: "cannot connect" in gateway.router.registry.workers()[0].reason)
        _, worst = await findings(http, model="m")
        assert "none of its 1 workers is ready" in worst["workers"].text
        assert "smg doctor grpc://127.0.0.1:1" in worst["worker"].advice
        assert "no worker serves 'm'" in worst["model"].text


async def test_a_router_whose_queue_is_full(echo_worker):
    url = await echo_worker(step_seconds=0.01)
    admission = {"max_concurrent_requests": 1, "queue_size": 1}
    body = {"model": "m", "messages": [{"role": "user", "content": "[[hang0:600000]]"}]}
    async with running_router(url, admission=admission) as gateway:
        asked = [
            asyncio.ensure_future(gateway.http.post("/v1/chat/completions", json=body)) for _ in range(2)
        ]
        await until(lambda: gateway.router.admission.waiting == 1)
        _, worst = await findings(f"http://127.0.0.1:{gateway.addresses.port}")
        assert "the queue is full" in worst["queue"].text
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_a_router_that_wants_a_key(echo_worker):
    url = await echo_worker()
    keys = {"api_key": "the-key-1", "tenant_api_key": ("acme:tenant-key-2",)}
    async with running_router(url, callers=keys) as gateway:
        http = f"http://127.0.0.1:{gateway.addresses.port}"
        for address in (http, f"grpc://{gateway.target}"):
            for key in ("", "tenant-key-2"):
                report, worst = await findings(address, key=key)
                assert "SMG_API_KEY" in next(
                    each.advice for each in report.findings if "operator only" in each.text
                )
            report, worst = await findings(address, key="the-key-1")
            assert "all 1 are ready" in worst["workers"].text
            assert "the-key-1" not in json.dumps(report.json())


@pytest.mark.parametrize(
    ("head", "check", "text"),
    [
        (b"date: Mon, 01 Jan 2001 00:00:00 GMT\r\n", "clock", "differ by"),
        (b"", "clock", "does not tell its time"),
    ],
)
async def test_what_a_gateways_answers_show(head, check, text):
    page = b'smg_build_info{version="0.0.1",python="3"} 1\n'

    async def serve(reader, writer):
        first = await reader.readline()
        body = {b"/metrics": page, b"/workers": b'{"workers": []}'}.get(first.split(b" ")[1], b"{}")
        length = b"content-length: %d\r\n\r\n" % len(body)
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n" + head + length + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        _, worst = await findings(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    assert text in worst[check].text
    assert "smg 0.0.1" in worst["version"].text


async def test_the_command_tells_people_and_programs(echo_worker, capsys):
    url = await echo_worker()
    assert await asyncio.to_thread(main, ["doctor", url]) == 0
    assert "no problem found" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["doctor", "--json", url, "grpc://127.0.0.1:1"]) == 1
    well, unwell = json.loads(capsys.readouterr().out)
    assert (well["ok"], unwell["ok"]) == (True, False)
    assert unwell["findings"][-1]["check"] == "connection"
    words = ["doctor", "grpcs://x:1", "--ca-cert", "/nowhere.pem"]
    assert await asyncio.to_thread(main, words) == 2
    for wrong in ("ftp://x:1", "grpc://x", "grpc://:1", "grpc://x:99999"):
        assert await asyncio.to_thread(main, ["doctor", wrong]) == 2
        assert wrong in capsys.readouterr().err
