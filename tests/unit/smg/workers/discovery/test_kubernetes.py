"""KubernetesSource against an API server: ready pods are workers, whatever happens to the watch."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from smg.workers.discovery.base import SourceFailed
from smg.workers.discovery.kubernetes import KubernetesSource, workers_of
from smg.workers.discovery.kubernetes_api import PodApi
from tests.unit.smg.workers.discovery.kubernetes_double import KubernetesDouble, pod


@pytest.fixture
async def server():
    double = KubernetesDouble()
    await double.start()
    yield double
    await double.stop()


class Watching:
    """A running source; `until` waits for what it tells."""

    def __init__(self, server, account_dir, **options) -> None:
        api = PodApi(server.url, "prod", "app=engine", account_dir)
        self.told = [["nothing yet"]]
        self.found = []
        self._changed = asyncio.Event()
        self.source = KubernetesSource(api, 50051, **{"rewatch_s": 0, **options})
        self.task = asyncio.create_task(self.source.watch(self._tell, asyncio.Event()))

    def _tell(self, found) -> None:
        self.found = found
        self.told.append([each.url for each in found])
        self._changed.set()

    async def until(self, *urls) -> None:
        await self.when(lambda _: self.told[-1] == list(urls))

    async def when(self, condition) -> None:
        while not condition(self.found):
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def watching(server, tmp_path):
    running = Watching(server, tmp_path)
    yield running
    await running.close()


ONE, TWO = "grpc://10.0.0.1:50051", "grpc://10.0.0.2:50051"


@pytest.mark.parametrize(
    ("each", "urls"),
    [
        (pod("a", "10.0.0.1"), [ONE]),
        (pod("a", "fd00::1"), ["grpc://[fd00::1]:50051"]),
        (pod("a"), []),
        (pod("a", "10.0.0.1", ready=False), []),
        (pod("a", "10.0.0.1", phase="Pending"), []),
        (pod("a", "10.0.0.1", phase="Succeeded"), []),
        (pod("a", "10.0.0.1", ending=True), []),
        (pod("a", "10.0.0.1", annotations={"smg.ai/worker-ports": "1, 2"}), ["grpc://10.0.0.1:1", "grpc://10.0.0.1:2"]),
        (pod("a", "10.0.0.1", annotations={"smg.ai/worker-ports": "one"}), [ONE]),
        (pod("a", "10.0.0.1", annotations={"smg.ai/worker-ports": "99999"}), [ONE]),
        ({}, []),
        ({"metadata": None, "status": {"podIP": 7, "phase": "Running", "conditions": "x"}}, []),
    ],
)  # fmt: skip
def test_which_pods_are_workers(each, urls):
    assert [found.url for found in workers_of(each, 50051)] == urls


async def test_a_worker_has_the_pod_s_labels_name_and_uid(server, watching):
    server.put(pod("a", "10.0.0.1", uid="u1", labels={"app": "engine", "zone": "z"}))
    await watching.until(ONE)
    assert watching.found[0].identity == "u1"
    assert dict(watching.found[0].labels) == {
        "app": "engine", "zone": "z", "smg.ai/pod-name": "a", "smg.ai/pod-namespace": "prod"
    }  # fmt: skip
    query = server.requests[0]
    assert (query["path"], query["labelSelector"]) == ("/api/v1/namespaces/prod/pods", "app=engine")


async def test_pods_come_change_and_go(server, watching):
    await watching.until()
    await server.until(server.watches)
    server.put(pod("a", "10.0.0.1", ready=False))
    server.put(pod("b", "10.0.0.2"))
    await watching.until(TWO)
    server.put(pod("a", "10.0.0.1"))
    await watching.until(ONE, TWO)
    server.put(pod("b", "10.0.0.2", ending=True))
    await watching.until(ONE)
    server.drop("uid-a")
    await watching.until()
    # All of it on one watch.
    assert (len(server.lists()), len(server.watches())) == (1, 1)


async def test_a_pod_that_takes_over_an_address_is_another_worker(server, watching):
    server.put(pod("a", "10.0.0.1", uid="u1"))
    await watching.until(ONE)
    await server.until(server.watches)
    server.put(pod("a", "10.0.0.1", uid="u2"))
    server.drop("u1")
    await watching.when(lambda found: [each.identity for each in found] == ["u2"])


async def test_a_long_list_comes_in_pages(server, tmp_path):
    server.page_size = 2
    for number in range(5):
        server.put(pod(f"p{number}", f"10.0.0.{number}"))
    watching = Watching(server, tmp_path)
    await watching.until(*(f"grpc://10.0.0.{number}:50051" for number in range(5)))
    assert len(server.lists()) == 3
    await watching.close()


async def test_a_watch_that_ends_goes_on_from_its_last_version(server, watching):
    await server.until(server.watches)
    server.put(pod("a", "10.0.0.1"))
    await watching.until(ONE)
    server.bookmark()
    last = str(server.version)
    server.end_watches()
    await server.until(lambda: len(server.watches()) > 1)
    assert server.watches()[1]["resourceVersion"] == last
    assert server.watches()[1]["allowWatchBookmarks"] == "true"
    server.put(pod("b", "10.0.0.2"))
    await watching.until(ONE, TWO)
    assert len(server.lists()) == 1


async def test_a_version_that_is_gone_is_listed_anew(server, watching):
    await server.until(server.watches)
    # Nobody tells of it: the watch has missed it.
    server.pods["u"] = pod("a", "10.0.0.1")
    server.gone()
    await watching.until(ONE)
    await server.until(lambda: len(server.watches()) > 1)
    server.refuse = [410]
    server.pods["v"] = pod("b", "10.0.0.2")
    server.end_watches()
    await watching.until(ONE, TWO)
    assert len(server.lists()) == 3


async def test_the_list_is_read_anew_now_and_then(server, tmp_path):
    watching = Watching(server, tmp_path, relist_s=0)
    server.pods["u"] = pod("a", "10.0.0.1")
    await watching.until(ONE)
    await watching.close()


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
async def test_a_refusal_is_told_in_words(server, watching, status):
    await server.until(server.watches)
    server.refuse = [status]
    server.end_watches()
    with pytest.raises(SourceFailed, match=f"answers {status}"):
        await watching.task


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"type": "ADDED"}', '{"type": "ERROR", "object": {"code": 500}}']
)
async def test_what_is_no_event_ends_the_watch(server, watching, line):
    await server.until(server.watches)
    server.send(line)
    with pytest.raises(SourceFailed, match="watch"):
        await watching.task


async def test_a_server_that_is_away_is_told(tmp_path):
    api = PodApi("http://127.0.0.1:1", None, "app=engine", tmp_path)
    with pytest.raises(SourceFailed, match="cannot be reached"):
        await api.list()
    await api.close()


async def test_what_is_no_kubernetes_is_told(tmp_path):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    api = PodApi(f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}", None, "a", tmp_path)
    with pytest.raises(SourceFailed, match="does not answer like a Kubernetes API"):
        await api.list()
    await api.close()
    other.close()
    await other.wait_closed()


async def test_a_token_that_is_rotated_is_read_again_and_never_logged(server, tmp_path, caplog):
    caplog.set_level("DEBUG")
    (tmp_path / "token").write_text("first-t0ken\n")
    server.token = "first-t0ken"
    watching = Watching(server, tmp_path)
    await server.until(server.watches)
    server.token = "second-t0ken"
    (tmp_path / "token").write_text("second-t0ken\n")
    server.put(pod("a", "10.0.0.1"))
    await watching.until(ONE)
    server.end_watches()
    await server.until(lambda: len(server.watches()) > 1)
    tokens = [query["token"] for query in server.requests]
    assert tokens == ["first-t0ken", "first-t0ken", "second-t0ken"]
    await watching.close()
    assert "t0ken" not in caplog.text


async def test_the_cluster_s_authority_is_trusted_and_no_other(tmp_path):
    authority, server = trustme.CA(), KubernetesDouble()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    await server.start(ssl=context)
    api = PodApi(server.url, None, "app=engine", tmp_path)
    (tmp_path / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    with pytest.raises(SourceFailed, match="certificate verify failed"):
        await api.list()
    # It is rotated: the next request trusts the new one.
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem.bytes())
    assert await api.list() == ([], "100")
    assert server.requests[0]["path"] == "/api/v1/pods"
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(SourceFailed, match=r"ca\.crt holds no certificates"):
        await api.list()
    await api.close()
    await server.stop()
