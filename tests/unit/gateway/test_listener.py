"""bind and HttpListener: sockets that answer without delay, and words for those that cannot be had."""

import asyncio
import socket

import httpx
import pytest

from gateway.listener import HttpListener, bind
from smg.errors import PortTaken


def test_a_taken_port_is_told_with_its_address():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1"])
def test_an_address_that_is_not_ours_is_told(host):
    with pytest.raises(PortTaken, match=host):
        bind(host, 0)


def test_the_socket_says_that_it_is_tcp_so_that_asyncio_switches_nagle_off():
    with bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


async def test_a_running_request_ends_before_the_listener_does():
    async def app(scope, receive, send):
        await receive()
        running.set()
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    running = asyncio.Event()
    bound = bind("127.0.0.1", 0)
    listener = HttpListener(app, bound, 60)
    serving = asyncio.create_task(listener.run())
    await listener.wait_started()
    async with httpx.AsyncClient() as http:
        asking = asyncio.create_task(http.get(f"http://127.0.0.1:{bound.getsockname()[1]}/"))
        await running.wait()
        listener.stop(5)
        assert (await asking).text == "ok"
        await serving
    bound.close()
