"""bind and HttpListener: sockets that answer without delay, and words for those that cannot be had."""

import asyncio
import socket

import httpx
import pytest

from gateway.listener import HttpListener, bind
from smg.errors import PortTaken
from tests.unit.gateway.serving import echo, gateway


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


@pytest.fixture
async def waiting():
    """A running listener whose handler waits: the listener, its task, its URL, and two events."""
    running, free = asyncio.Event(), asyncio.Event()

    async def wait(request, reply):
        running.set()
        await free.wait()
        await echo(request, reply)

    with bind("127.0.0.1", 0) as bound:
        listener = HttpListener(gateway(("POST", "/", wait)), bound, 60)
        serving = asyncio.create_task(listener.run())
        await listener.wait_started()
        yield listener, serving, f"http://127.0.0.1:{bound.getsockname()[1]}/", running, free


async def test_a_running_request_ends_before_the_listener_does(waiting):
    listener, serving, url, running, free = waiting
    async with httpx.AsyncClient(verify=False) as http:
        asking = asyncio.create_task(http.post(url, content=b"ok"))
        await running.wait()
        listener.stop(5)
        await asyncio.sleep(0)
        assert not serving.done()
        free.set()
        answer = await asking
        assert (answer.text, answer.headers["connection"]) == ("ok", "close")
        await serving


async def test_the_grace_period_ends_what_does_not_end(waiting, caplog):
    listener, serving, url, running, _ = waiting
    async with httpx.AsyncClient(verify=False) as http:
        asking = asyncio.create_task(http.post(url))
        await running.wait()
        listener.stop(0.05)
        await serving
        with pytest.raises(httpx.RemoteProtocolError):
            await asking
    assert "1 requests were still running" in caplog.text


async def test_cancelling_the_listener_cuts_its_connections(waiting):
    _, serving, url, running, _ = waiting
    async with httpx.AsyncClient(verify=False) as http:
        asking = asyncio.create_task(http.post(url))
        await running.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with pytest.raises(httpx.RemoteProtocolError):
            await asking


async def test_an_idle_connection_does_not_hold_up_the_end(waiting):
    listener, serving, url, _, free = waiting
    free.set()
    async with httpx.AsyncClient(verify=False) as http:
        await http.post(url)
        listener.stop(3600)
        await serving
