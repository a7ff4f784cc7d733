"""DnsSource against a name server: every address is a worker, and an answer that fails changes nothing."""

from __future__ import annotations

import asyncio

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from smg.workers.discovery.dns import DnsSource


class NameServer(asyncio.DatagramProtocol):
    """Answers from `records`: (name, kind) to values. `rcode` answers everything with a fault; None says nothing."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        self.rcode: int | None = dns.rcode.NOERROR
        self.asked = 0

    def connection_made(self, transport) -> None:
        self._transport = transport

    def datagram_received(self, data, address) -> None:
        self.asked += 1
        if self.rcode is None:
            return
        query = dns.message.from_wire(data)
        question = query.question[0]
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        answer.set_rcode(self.rcode)
        if self.rcode == dns.rcode.NOERROR:
            values = self.records.get((name, kind))
            if values:
                answer.answer.append(dns.rrset.from_text(question.name, 5, "IN", kind, *values))
            elif not any(known == name for known, _ in self.records):
                answer.set_rcode(dns.rcode.NXDOMAIN)
        self._transport.sendto(answer.to_wire(), address)

    def close(self) -> None:
        self._transport.close()


@pytest.fixture
async def server():
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        NameServer, local_addr=("127.0.0.1", 0)
    )
    protocol.port = transport.get_extra_info("sockname")[1]
    yield protocol
    protocol.close()


class Watching:
    """A running source. `look` makes it look once more, and returns what it then tells."""

    def __init__(self, server, *names) -> None:
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], server.port
        self.complaints: list[str] = []
        self._told: asyncio.Queue = asyncio.Queue()
        self._hurry = asyncio.Event()
        source = DnsSource(names, 3600, self.complaints.append, resolver=resolver, soon_s=0)
        self._task = asyncio.create_task(source.watch(self._told.put_nowait, self._hurry))

    async def first(self) -> list[str]:
        return [found.url for found in await self._told.get()]

    async def look(self) -> list[str]:
        self._hurry.set()
        return await self.first()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_every_address_of_a_name_is_a_worker_and_changes_are_seen(server):
    server.records["engines.example.", "A"] = ["10.0.0.2", "10.0.0.1"]
    watching = Watching(server, "engines.example:50051")
    assert await watching.first() == ["grpc://10.0.0.1:50051", "grpc://10.0.0.2:50051"]
    server.records["engines.example.", "A"] = ["10.0.0.2", "10.0.0.3"]
    assert await watching.look() == ["grpc://10.0.0.2:50051", "grpc://10.0.0.3:50051"]
    await watching.close()


@pytest.mark.parametrize("rcode", [dns.rcode.SERVFAIL, dns.rcode.REFUSED, dns.rcode.NXDOMAIN])
async def test_a_resolver_that_fails_changes_nothing_and_is_complained_of_once(server, rcode):
    server.records["engines.example.", "A"] = ["10.0.0.1"]
    watching = Watching(server, "engines.example:1")
    await watching.first()
    server.rcode = rcode
    assert await watching.look() == ["grpc://10.0.0.1:1"]
    assert await watching.look() == ["grpc://10.0.0.1:1"]
    assert len(watching.complaints) == 1
    assert "engines.example" in watching.complaints[0]
    server.rcode = dns.rcode.NOERROR
    server.records["engines.example.", "A"] = ["10.0.0.9"]
    assert await watching.look() == ["grpc://10.0.0.9:1"]
    await watching.close()


async def test_addresses_of_the_other_kind_are_asked_for_where_there_are_none_of_the_first(server):
    server.records["six.example.", "AAAA"] = ["fd00::1"]
    server.records["both.example.", "A"] = ["10.0.0.1"]
    server.records["both.example.", "AAAA"] = ["fd00::2"]
    watching = Watching(server, "six.example:1", "both.example:1")
    assert await watching.first() == ["grpc://[fd00::1]:1", "grpc://10.0.0.1:1"]
    await watching.close()


async def test_a_service_tells_hosts_and_ports(server):
    service = "_grpc._tcp.engines.example"
    server.records[service + ".", "SRV"] = ["0 1 50051 a.example.", "0 1 50052 b.example."]
    server.records["a.example.", "A"] = ["10.0.0.1"]
    server.records["b.example.", "A"] = ["10.0.0.1", "10.0.0.2"]
    watching = Watching(server, service)
    assert await watching.first() == [
        "grpc://10.0.0.1:50051", "grpc://10.0.0.1:50052", "grpc://10.0.0.2:50052"
    ]  # fmt: skip
    # Half an answer is none: a host that cannot be looked up keeps what was known.
    del server.records["b.example.", "A"]
    assert len(await watching.look()) == 3
    assert "b.example" in watching.complaints[0]
    await watching.close()


async def test_an_address_is_not_looked_up(server):
    watching = Watching(server, "10.0.0.7:1", "[fd00::1]:2")
    assert await watching.first() == ["grpc://10.0.0.7:1", "grpc://[fd00::1]:2"]
    assert server.asked == 0
    await watching.close()


async def test_one_name_that_fails_does_not_hide_another(server):
    server.records["good.example.", "A"] = ["10.0.0.1"]
    watching = Watching(server, "bad.example:1", "good.example:1")
    assert await watching.first() == ["grpc://10.0.0.1:1"]
    assert watching.complaints == ["bad.example does not exist"]
    await watching.close()
