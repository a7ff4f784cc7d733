"""TLS on real sockets: towards clients over HTTP and gRPC, and towards workers; and what happens when it does not fit."""

import asyncio
import os
import ssl
import threading
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import orjson
import pytest
import uvloop

from servicers.tls import TlsFiles
from smg.cli.doctor.command import examine, parse_target
from smg.server import Router
from smg.settings import ListenerSettings, RouterSettings, TlsSettings, WorkerSettings
from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc
from smg_proto.model.v1 import model_pb2, model_pb2_grpc
from tests.certificates import Authority

BODY = {"model": "m", "messages": [{"role": "user", "content": "[[say:over TLS]]"}]}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Another authority, which nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def issued(authority):
    return authority.issue("server", "localhost", "127.0.0.1")


def listening(issued, **more):
    return {"tls_cert_path": issued.certificate, "tls_key_path": issued.key, **more}


class RunningRouter:
    """A router in a thread of its own, on uvloop as in the product, whose TLS is not asyncio's."""

    def __init__(self, settings):
        self.router = Router(settings)
        self._ready, self._loop = Future(), Future()
        self._thread = threading.Thread(target=uvloop.run, args=(self._main(),))

    async def _main(self):
        self._stop = asyncio.Event()
        self._loop.set_result(asyncio.get_running_loop())
        await self.router.run(self._ready.set_result, self._stop)

    async def start(self):
        self._thread.start()
        self.addresses = await asyncio.wrap_future(self._ready)

    async def wait_ready(self):
        waiting = self.router.registry.wait_ready(20)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(waiting, self._loop.result()))

    @property
    def worker(self):
        return self.router.registry.workers()[0]

    async def stop(self):
        if self._thread.is_alive():
            self._loop.result().call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)


@asynccontextmanager
async def router(*urls, is_ready=True, grace_s=5, **tls):
    """A router with these settings of TLS."""
    settings = RouterSettings(
        listener=ListenerSettings(
            host="127.0.0.1",
            port=0,
            grpc_port=0,
            shutdown_grace_period_secs=grace_s,
            idle_connection_timeout_secs=30,
        ),
        workers=WorkerSettings(worker_urls=urls, worker_connect_timeout_secs=2),
        tls=TlsSettings(**tls),
    )
    running = RunningRouter(settings)
    await running.start()
    try:
        assert not is_ready or await running.wait_ready()
        yield running
    finally:
        await running.stop()


def trusting(authority, client=None, latest=None):
    context = ssl.create_default_context(cafile=authority.path)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    if latest is not None:
        context.maximum_version = latest
    return context


def http(running, context):
    return httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{running.addresses.port}", verify=context, timeout=20
    )


def channel(running, authority, client=None):
    own = (Path(client.key).read_bytes(), Path(client.certificate).read_bytes()) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(Path(authority.path).read_bytes(), *own)
    return grpc.aio.secure_channel(f"127.0.0.1:{running.addresses.grpc_port}", credentials)


async def models_of(opened):
    async with opened:
        answer = await model_pb2_grpc.ModelServiceStub(opened).ListModels(
            model_pb2.ListModelsRequest(), timeout=10
        )
        return [model.id for model in answer.models]


async def reason_of(running, wanted):
    """Why the only worker is not ready, once the reason holds the wanted words."""
    async with asyncio.timeout(20):
        while wanted not in running.worker.reason:  # noqa: ASYNC110 - a state, for which there is no event
            await asyncio.sleep(0.01)
    return running.worker.reason


async def test_both_doors_and_the_way_to_the_worker_are_encrypted(echo_worker, authority, issued):
    url = await echo_worker(tls=TlsFiles(issued.certificate, issued.key))
    assert url.startswith("grpcs://")
    async with router(url, **listening(issued), ca_cert_paths=(authority.path,)) as running:
        assert running.addresses.is_tls
        async with http(running, trusting(authority)) as client:
            answer = await client.post("/v1/chat/completions", json=BODY)
            assert answer.json()["choices"][0]["message"]["content"] == "over TLS"
            assert answer.headers["x-smg-routed-worker-id"] == url
            async with client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as stream:
                assert [line async for line in stream.aiter_lines() if line][-1] == "data: [DONE]"
            listed = (await client.get("/workers")).json()["workers"][0]
            assert (listed["url"], listed["is_healthy"]) == (url, True)
        async with channel(running, authority) as opened:
            chats = chat_pb2_grpc.ChatServiceStub(opened)
            message = {"role": "user", "text": "[[say:typed]]"}
            request = chat_pb2.CreateChatCompletionRequest(chat={"model": "m", "messages": [message]})
            assert "typed" in str(await chats.CreateChatCompletion(request, timeout=20))


async def test_a_large_body_and_a_long_answer_pass_whole(echo_worker, authority, issued):
    url = await echo_worker(tls=TlsFiles(issued.certificate, issued.key), max_context=200_000)
    tls = listening(issued, ca_cert_paths=(authority.path,))
    async with router(url, **tls) as running, http(running, trusting(authority)) as client:
        filler = {"role": "system", "content": "word " * 5_000}
        body = {
            **BODY,
            "messages": [filler, {"role": "user", "content": "[[len:1000]]"}],
            "max_tokens": 1000,
        }
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.json()["usage"]["completion_tokens"] == 1000
        body["stream"], body["stream_options"] = True, {"include_usage": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = [line async for line in stream.aiter_lines() if line]
        assert '"completion_tokens":1000' in lines[-2]


async def test_plain_http_on_the_port_is_told_so_and_harms_nobody(authority, issued):
    async with router(is_ready=False, **listening(issued)) as running:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{running.addresses.port}/health")
            assert (answer.status_code, "HTTPS" in answer.text) == (400, True)
            big = await client.post(f"http://127.0.0.1:{running.addresses.port}/x", content=b"x" * 1_000_000)
            assert big.status_code == 400
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.addresses.grpc_port}") as plain:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await model_pb2_grpc.ModelServiceStub(plain).ListModels(
                    model_pb2.ListModelsRequest(), timeout=10
                )
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        async with http(running, trusting(authority)) as client:
            assert (await client.get("/liveness")).status_code == 200


async def test_the_doctor_hears_tls_although_plain_http_is_answered_too(authority, issued):
    async with router(is_ready=False, **listening(issued)) as running:
        authority_of_url = f"127.0.0.1:{running.addresses.port}"
        told: dict[str, tuple[str, str, str]] = {}
        for scheme, ca_cert in (("https", authority.path), ("https", None), ("http", None)):
            url = f"{scheme}://{authority_of_url}"
            kind, target = parse_target(url)
            report = await examine(url, kind, replace(target, ca_cert=ca_cert), "", "")
            finding = next(each for each in report.findings if each.check == "transport")
            told[f"{scheme} {ca_cert is not None}"] = (finding.level, finding.text, finding.advice)
        assert told["https True"][0] == "ok"
        assert "not trusted" in told["https False"][1]
        assert told["http False"][2] == f"use https://{authority_of_url}"


async def test_who_says_nothing_is_closed_after_the_bound(issued):
    async with router(is_ready=False, **listening(issued), tls_handshake_timeout_secs=0.2) as running:
        for opening in (b"", b"\x16", b"\x16\x03\x01\x02\x00"):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.addresses.port)
            writer.write(opening)
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            writer.close()


async def test_clients_must_show_a_certificate_where_that_is_wanted(authority, stranger, issued):
    known, unknown = authority.issue("client", "client"), stranger.issue("client", "client")
    tls = listening(issued, tls_client_ca_paths=(authority.path,))
    async with router(is_ready=False, **tls) as running:
        async with http(running, trusting(authority, known)) as client:
            assert (await client.get("/liveness")).status_code == 200
        for wrong in (None, unknown):
            for latest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                async with http(running, trusting(authority, wrong, latest)) as client:
                    with pytest.raises(httpx.TransportError):
                        await client.get("/liveness")
        # No worker: the answer is UNAVAILABLE with our words, and not a connection that fails.
        with pytest.raises(grpc.aio.AioRpcError, match="no models available"):
            await models_of(channel(running, authority, known))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await models_of(channel(running, authority))
        assert "no models available" not in caught.value.details()


async def test_a_router_without_certificate_is_not_let_in_by_a_worker_that_wants_one(
    echo_worker, authority, stranger, issued
):
    url = await echo_worker(tls=TlsFiles(issued.certificate, issued.key, (authority.path,)))
    own = authority.issue("router", "router")
    shown = {"client_cert_path": own.certificate, "client_key_path": own.key}
    async with router(url, ca_cert_paths=(authority.path,), **shown) as running:
        assert running.worker.is_ready
    wrong = stranger.issue("router", "router")
    shown = {"client_cert_path": wrong.certificate, "client_key_path": wrong.key}
    for others in ({}, shown):
        async with router(url, is_ready=False, ca_cert_paths=(authority.path,), **others) as running:
            reason = await reason_of(running, "certificate")
            assert "--client-cert-path" in reason


async def test_what_is_wrong_with_a_workers_certificate_is_told(echo_worker, authority, stranger):
    foreign = stranger.issue("worker", "127.0.0.1")
    named = authority.issue("named", "engine.internal")
    foreign_url = await echo_worker(tls=TlsFiles(foreign.certificate, foreign.key))
    named_url = await echo_worker(tls=TlsFiles(named.certificate, named.key))
    plain_url = (await echo_worker()).replace("grpc://", "grpcs://")
    trust = {"ca_cert_paths": (authority.path,)}
    for url, words in (
        (foreign_url, "the certificate is not trusted"),
        (named_url, "127.0.0.1"),
        (plain_url, "does not speak TLS"),
    ):
        async with router(url, is_ready=False, **trust) as running:
            await reason_of(running, words)
    # The name that the certificate bears may be told, for workers behind addresses that change.
    async with router(named_url, **trust, worker_tls_server_name="engine.internal") as running:
        assert running.worker.is_ready


async def test_a_plain_address_of_a_worker_in_tls_says_what_may_be_wrong(echo_worker, issued):
    url = await echo_worker(tls=TlsFiles(issued.certificate, issued.key))
    async with router(url.replace("grpcs://", "grpc://"), is_ready=False) as running:
        assert "grpcs://" in await reason_of(running, "grpcs://")


def peer_certificate(port, authority):
    return ssl.get_server_certificate(("127.0.0.1", port), ca_certs=authority.path, timeout=10)


async def test_a_new_certificate_is_shown_without_a_restart(authority):
    issued = authority.issue("renewed", "localhost", "127.0.0.1")
    async with router(is_ready=False, **listening(issued)) as running:
        ports = (running.addresses.port, running.addresses.grpc_port)
        before = [await asyncio.to_thread(peer_certificate, port, authority) for port in ports]
        async with http(running, trusting(authority)) as client:
            assert (await client.get("/liveness")).status_code == 200
            authority.issue("renewed", "localhost", "127.0.0.1")
            for path in (issued.certificate, issued.key):
                os.utime(path, ns=(0, 1))
            assert running.router._tls.refresh()
            after = [await asyncio.to_thread(peer_certificate, port, authority) for port in ports]
            assert before[0] == before[1] != after[0] == after[1]
            # A connection that is open goes on.
            assert (await client.get("/liveness")).status_code == 200


async def test_an_idle_client_does_not_hold_up_the_end(authority, issued):
    async with router(is_ready=False, grace_s=60, **listening(issued)) as running:
        # It keeps its connection open, and does not read: it never agrees to the end.
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", running.addresses.port, ssl=trusting(authority), server_hostname="localhost"
        )
        writer.write(b"GET /liveness HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.transport.pause_reading()
        async with asyncio.timeout(30):
            await running.stop()
        writer.transport.abort()


async def test_a_worker_in_tls_that_dies_is_replaced_in_mid_stream(echo_worker, authority, issued):
    files = TlsFiles(issued.certificate, issued.key)
    urls = [await echo_worker(tls=files, step_seconds=0.01) for _ in range(2)]
    body = {**BODY, "messages": [{"role": "user", "content": "[[len:40]]"}], "temperature": 0, "stream": True}
    tls = listening(issued, ca_cert_paths=(authority.path,))
    async with router(*urls, **tls) as running, http(running, trusting(authority)) as client:
        while len(running.router.registry.snapshots("m")) < 2:  # noqa: ASYNC110 - a state, for which there is no event
            await asyncio.sleep(0.01)

        async def said(after_first=None):
            texts = []
            async with client.stream("POST", "/v1/chat/completions", json=body) as stream:
                async for line in stream.aiter_lines():
                    if '"content":"' in line:
                        texts.append(orjson.loads(line[6:])["choices"][0]["delta"]["content"])
                    if len(texts) == 5 and after_first is not None:
                        await after_first(stream.headers["x-smg-routed-worker-id"])
                        after_first = None
            return "".join(texts)

        undisturbed = await said()
        assert await said(echo_worker.stop) == undisturbed
        assert len(undisturbed) > 40
