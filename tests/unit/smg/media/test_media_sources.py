"""Where media come from: data URLs and addresses, within bounds; and what is said when a medium cannot be had."""

import asyncio
import base64
import sys

import pytest

from smg.egress.guard import EgressGuard
from smg.errors import InvalidRequest, Unsupported
from smg.media.data_url import data_url_bytes, is_data_url
from smg.media.fetch import MediaFetcher
from smg.media.process import MediaProcesses, missing_packages
from smg.media.values import MediaLimits, MediaPart


@pytest.mark.parametrize(
    ("url", "content"),
    [
        ("data:image/png;base64,aGVsbG8=", b"hello"),
        ("DATA:;BASE64,aGVsbG8=", b"hello"),
        ("data:,hello%20you", b"hello you"),
        ("data:text/plain;charset=utf-8;base64,aGVsbG8=", b"hello"),
    ],
)
def test_data_urls_are_read(url, content):
    assert is_data_url(url)
    assert data_url_bytes(url, "x", 100) == content


@pytest.mark.parametrize("url", ["data:image/png;base64", "data:;base64,a", "data:;base64,-_==", "data:,"])
def test_malformed_data_urls_are_refused_by_place(url):
    with pytest.raises(InvalidRequest) as caught:
        data_url_bytes(url, "messages[3].content[1]", 100)
    assert caught.value.param == "messages[3].content[1]"


@pytest.mark.parametrize("length", [100, 101])
def test_the_bound_of_bytes_is_exact(length):
    url = f"data:;base64,{base64.b64encode(b'x' * length).decode()}"
    if length == 100:
        assert len(data_url_bytes(url, "x", 100)) == length
    else:
        with pytest.raises(InvalidRequest, match="more than 100 bytes"):
            data_url_bytes(url, "x", 100)


def test_a_long_data_url_is_refused_before_it_is_decoded():
    with pytest.raises(InvalidRequest, match="more than 100 bytes"):
        data_url_bytes("data:;base64," + "!" * 10_000, "x", 100)


async def fetched(guard, url, **limits):
    return await MediaFetcher(guard, MediaLimits(**limits)).fetch(url, "place")


async def test_a_name_is_looked_up_once_and_the_checked_address_is_connected_to():
    """A name that answers with another address the next time gains nothing."""
    lookups = []
    heads = []

    async def lookup(host, port):
        lookups.append((host, port))
        return ["127.0.0.1"] if len(lookups) == 1 else ["169.254.169.254"]

    async def serve(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nimage")
        await writer.drain()
        writer.close()

    guard = EgressGuard("media", allows_private=True, lookup=lookup)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await fetched(guard, f"http://pictures.example:{port}/a") == b"image"
    assert lookups == [("pictures.example", port)]
    assert f"host: pictures.example:{port}" in heads[0].lower()


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "::ffff:127.0.0.1", "169.254.169.254"])
async def test_names_that_lead_inside_are_refused(address):
    async def lookup(host, port):
        return ["93.184.216.34", address]

    guard = EgressGuard("media", allows_private=False, lookup=lookup)
    with pytest.raises(InvalidRequest, match=address) as caught:
        await fetched(guard, "https://pictures.example/a.png")
    assert caught.value.param == "place"


async def test_hosts_off_the_list_are_refused_before_any_lookup():
    async def lookup(host, port):
        raise AssertionError("nobody is to be asked")

    guard = EgressGuard("media", allows_private=False, allowed_hosts=(".example.com",), lookup=lookup)
    with pytest.raises(InvalidRequest, match="not on the list"):
        await fetched(guard, "https://elsewhere.example/a.png")


async def test_a_server_that_says_nothing_is_given_up():
    gone = asyncio.Event()

    async def serve(reader, writer):
        # Never answers; ends when the client gives up.
        await reader.read()
        gone.set()
        writer.close()

    guard = EgressGuard("media", allows_private=True)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(InvalidRequest, match=r"longer than 0\.05 s"):
            await fetched(guard, f"http://127.0.0.1:{port}/a", fetch_timeout_s=0.05)
        await gone.wait()


async def test_without_the_extra_the_operator_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert missing_packages() == ["transformers"]
    part = MediaPart("messages[0].content[0]", "image", "data:,x")
    with pytest.raises(Unsupported, match=r"pip install 'smg\[media\]'") as caught:
        await MediaProcesses(MediaLimits()).prepare(tmp_path, [part], [b"x"])
    assert caught.value.code == "media_extra_missing"
