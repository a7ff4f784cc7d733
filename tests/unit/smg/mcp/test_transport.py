"""GuardedTransport: connections go to checked addresses, redirects too, and answers are bounded."""

import httpx2
import pytest

from smg.egress.guard import EgressGuard
from smg.errors import InvalidRequest
from smg.mcp.transport import GuardedTransport

NAMES = {"good.example": ["8.8.8.8"], "inside.example": ["10.0.0.1"]}


def client(answer, most=1000, **fields):
    async def lookup(host, port):
        return NAMES[host]

    guard = EgressGuard("server_url", allows_private=False, lookup=lookup)
    transport = GuardedTransport(guard, most, httpx2.MockTransport(answer))
    return httpx2.AsyncClient(transport=transport, **fields)


async def test_the_connection_goes_to_the_address_and_the_name_stays_in_the_request():
    seen = []

    def answer(request):
        seen.append((request.url.host, request.headers["host"], request.extensions["sni_hostname"]))
        return httpx2.Response(200, json={})

    async with client(answer) as http:
        await http.get("https://good.example/mcp")
    assert seen == [("8.8.8.8", "good.example", "good.example")]


async def test_a_redirect_into_the_inside_is_refused():
    def answer(request):
        return httpx2.Response(307, headers={"location": "http://inside.example/"})

    async with client(answer, follow_redirects=True) as http:
        with pytest.raises(InvalidRequest):
            await http.get("https://good.example/mcp")


async def test_an_answer_is_read_up_to_its_bound():
    async def body():
        yield b"x" * 600
        yield b"x" * 401

    async with client(lambda _: httpx2.Response(200, content=body())) as http:
        with pytest.raises(httpx2.StreamError, match="too long"):
            await http.get("https://good.example/mcp")


async def test_a_message_that_cannot_be_sent_is_answered_with_an_error():
    def answer(request):
        raise httpx2.ReadError("gone")

    async with client(answer) as http:
        got = await http.post("https://good.example/mcp", json={})
        with pytest.raises(httpx2.ReadError):
            await http.get("https://good.example/mcp")
    assert got.status_code == 502
    assert "gone" in got.json()["error"]["message"]


async def test_an_answer_that_breaks_off_ends_no_session():
    async def body():
        yield b"{"
        raise httpx2.RemoteProtocolError("cut")

    async with client(lambda _: httpx2.Response(200, content=body())) as http:
        with pytest.raises(httpx2.StreamError, match="cut"):
            await http.get("https://good.example/mcp")
