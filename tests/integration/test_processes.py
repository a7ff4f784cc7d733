"""`smg launch --processes N`: one port, one set of numbers, one drain; a process that dies is started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import grpc.aio
import httpx
import pytest
import pytest_asyncio

from smg_proto.admin.v1 import admin_pb2, admin_pb2_grpc
from tests.conftest import EchoWorkers

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


SESSIONS = "smg_worker_connections_total{"


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Launched:
    """A router of two processes."""

    def __init__(self, process: asyncio.subprocess.Process, http_url: str, grpc_url: str) -> None:
        self.process = process
        self.url = http_url
        self.grpc = grpc_url.removeprefix("grpc://")

    @property
    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def ask(self, method: str, path: str, **fields) -> httpx.Response:
        """Each request on a connection of its own, so that the kernel chooses a process for it."""
        async with httpx.AsyncClient(base_url=self.url, timeout=30, verify=False) as client:
            return await client.request(method, path, **fields)

    async def metrics(self) -> dict[str, float]:
        lines = (await self.ask("GET", "/metrics")).text.splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}

    async def until(self, is_so) -> None:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if await is_so():
                        return
                await asyncio.sleep(0.02)

    async def until_ready(self) -> None:
        """Both processes tell their numbers, and both have a session to the worker."""

        async def are_ready() -> bool:
            numbers = await self.metrics()
            sessions = sum(value for name, value in numbers.items() if name.startswith(SESSIONS))
            return (numbers["smg_router_processes"], sessions) == (2, 2)

        await self.until(are_ready)


@contextlib.asynccontextmanager
async def launched(worker_url: str, *, waits: bool = True):
    words = ("launch", "--worker-urls", worker_url, "--host", "127.0.0.1", "--port", "0", "--grpc-port", "0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "smg", *words, "--processes", "2", "--history-backend", "none"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    line = (await process.stdout.readline()).decode()
    assert line.startswith("ready "), (line, (await process.stderr.read()).decode())
    try:
        router = Launched(process, *line.split()[1:])
        if waits:
            await router.until_ready()
        yield router
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker_url(tokenizer_dir):
    workers = EchoWorkers(tokenizer_dir)
    yield await workers(model_ids=("m",), model_paths=(str(tokenizer_dir),))
    await workers.stop_all()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router(worker_url):
    async with launched(worker_url) as running:
        yield running


def chat(text: str, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


async def test_requests_on_either_process_are_counted_together(router):
    answers = await asyncio.gather(
        *(router.ask("POST", "/v1/chat/completions", json=chat("[[say:hello]]")) for _ in range(24))
    )
    assert {answer.status_code for answer in answers} == {200}
    numbers = await router.metrics()
    chats = {
        name: value
        for name, value in numbers.items()
        if name.startswith("smg_requests_total{") and 'model="m"' in name
    }
    assert sum(chats.values()) == 24
    assert numbers["smg_router_processes"] == 2
    assert len(router.children) == 2


async def test_workers_cannot_be_changed_in_one_process_of_several(router):
    refusals = [
        await router.ask("POST", "/workers", json={"url": "grpc://127.0.0.1:1"}),
        await router.ask("DELETE", "/workers/w1"),
        await router.ask("PUT", "/workers/w1", json={"draining": True}),
    ]
    assert [answer.status_code for answer in refusals] == [501] * 3
    assert all("several processes" in answer.json()["error"] for answer in refusals)
    async with grpc.aio.insecure_channel(router.grpc) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        assert len((await stub.ListWorkers(admin_pb2.ListWorkersRequest())).workers) == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.AddWorker(admin_pb2.AddWorkerRequest(url="grpc://127.0.0.1:1"))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_process_that_dies_is_started_again(router):
    before = router.children
    os.kill(before[0], signal.SIGKILL)

    async def is_new() -> bool:
        return len(router.children) == 2 and before[0] not in router.children

    await router.until(is_new)
    await router.until_ready()
    assert before[1] in router.children
    assert (await router.ask("POST", "/v1/chat/completions", json=chat("[[say:hello]]"))).status_code == 200


async def test_a_signal_drains_all_processes_together(worker_url):
    async with (
        launched(worker_url) as router,
        httpx.AsyncClient(base_url=router.url, timeout=30, verify=False) as client,
    ):
        body = chat("[[delay:20]][[len:25]]", stream=True, max_tokens=25)
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            await anext(lines)
            router.process.terminate()
            rest = [line async for line in lines if line.startswith("data: ")]
        assert rest[-1] == "data: [DONE]"
        reasons = [json.loads(line[6:])["choices"][0]["finish_reason"] for line in rest[:-1]]
        assert reasons[-1] in ("length", "stop")
        assert await router.process.wait() == 0


async def test_the_processes_end_when_the_one_that_started_them_is_killed(worker_url):
    async with launched(worker_url, waits=False) as router:
        children = router.children
        router.process.kill()

        async def are_gone() -> bool:
            return not any(map(is_running, children))

        await router.until(are_gone)
