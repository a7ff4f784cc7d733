"""EgressGuard: where a URL of a client may lead, whatever way it is written, and whatever a name says at what time."""

import pytest

from smg.egress.guard import EgressGuard
from smg.errors import InvalidRequest


def guard(*addresses, private=False, hosts=()):
    async def lookup(host, port):
        return list(addresses)

    return EgressGuard("server_url", allows_private=private, allowed_hosts=hosts, lookup=lookup)


NEVER = [
    "http://169.254.169.254/latest",  # metadata of clouds
    "http://[fe80::1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",  # the same through NAT64
    "http://2852039166/",  # and as one number
    "http://0xa9fea9fe/",
    "http://0.0.0.0/",
    "http://[::]/",
    "http://224.0.0.1/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "http:///path",
    "http://user:password@example.com/",
    "http://example.com:99999/",
    "no url",
]
PRIVATE = [
    "http://127.0.0.1/",
    "http://2130706433/",
    "http://127.1/",
    "http://10.0.0.1:8080/mcp",
    "http://192.168.1.1/",
    "http://[::1]/",
    "http://[fd00::1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://100.64.0.1/",
]


@pytest.mark.parametrize("url", NEVER)
def test_some_places_are_never_reached(url):
    with pytest.raises(InvalidRequest) as caught:
        guard(private=True).check_url(url)
    assert caught.value.param == "server_url"


@pytest.mark.parametrize("url", PRIVATE)
def test_private_addresses_are_as_the_operator_decides(url):
    guard(private=True).check_url(url)
    with pytest.raises(InvalidRequest):
        guard().check_url(url)


async def test_every_address_of_a_name_must_be_allowed():
    assert await guard("8.8.8.8", "2001:4860:4860::8888").resolve("https://a.example/mcp") == [
        "8.8.8.8",
        "2001:4860:4860::8888",
    ]
    for addresses in (("8.8.8.8", "10.0.0.1"), ("169.254.169.254",), ("::1",)):
        with pytest.raises(InvalidRequest):
            await guard(*addresses).resolve("https://a.example/mcp")


def test_a_list_of_hosts_allows_nothing_else():
    only = guard(hosts=("mcp.example", ".team.example"))
    only.check_url("https://MCP.example/x")
    only.check_url("https://a.team.example/x")
    for url in ("https://other.example/", "https://xmcp.example/", "https://8.8.8.8/"):
        with pytest.raises(InvalidRequest):
            only.check_url(url)
