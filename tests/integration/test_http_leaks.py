"""After much work nothing is left: no task, no socket, no sequence, no permit."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.integration.running_router import running_router, until


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def request(number, *, stream):
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": f"{number} [[len:3]]"}]}


async def leave(port, number):
    """Ask for an endless stream and go: half of the clients before the first byte, half after it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    message = {**request(number, stream=True), "messages": [{"role": "user", "content": "[[hang]]"}]}
    raw = json.dumps(message).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(raw) + raw)
    if number % 2:
        await reader.read(1)
    writer.close()
    await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.timeout(180)  # coverage makes it several times slower
async def test_hundreds_of_requests_one_by_one_and_at_once_leave_nothing(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        path = "/v1/chat/completions"
        assert (await gateway.http.post(path, json=request(0, stream=False))).status_code == 200
        tasks, files = len(asyncio.all_tasks()), open_files()
        for number in range(400):
            answer = await gateway.http.post(path, json=request(number, stream=bool(number % 2)))
            assert answer.status_code == 200
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=gateway.http.base_url, limits=limits, timeout=30) as many:
            posts = [many.post(path, json=request(number, stream=bool(number % 2))) for number in range(200)]
            answers = await asyncio.gather(*posts)
            assert {answer.status_code for answer in answers} == {200}
        await asyncio.gather(*[leave(gateway.http.base_url.port, number) for number in range(50)])
        worker = gateway.router.registry.workers()[0]
        await until(
            lambda: worker.inflight_requests == 0 and echo_worker.servers[url].engine.load().running == 0
        )
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: open_files() <= files + 1)
        assert gateway.router.admission.running == 0
