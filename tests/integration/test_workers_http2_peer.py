"""Our HTTP/2 client against the `h2` package as the server: it raises on whatever RFC 9113 does not allow."""

from __future__ import annotations

import asyncio

import h2.config
import h2.connection
import h2.events
import h2.settings

from smg.workers.address import Address
from smg.workers.http2.connecting import connect
from smg.workers.options import WorkerOptions


class StrictServer(asyncio.Protocol):
    """Echoes the body of every call as its one message, slowly opening its windows."""

    def __init__(self) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.bodies: dict[int, bytes] = {}
        self.resets: list[int] = []
        self.heads: dict[int, dict[str, str]] = {}
        self.faults: list[Exception] = []

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.h2.local_settings = h2.settings.Settings(
            client=False, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 20_000}
        )
        self.h2.initiate_connection()
        transport.write(self.h2.data_to_send())

    def data_received(self, data) -> None:
        try:
            for event in self.h2.receive_data(data):
                self._take(event)
        except Exception as fault:  # noqa: BLE001 - the test looks at it
            self.faults.append(fault)
            self.transport.close()
            return
        self.transport.write(self.h2.data_to_send())

    def _take(self, event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self.heads[event.stream_id] = dict(event.headers)
            self.bodies[event.stream_id] = b""
        elif isinstance(event, h2.events.DataReceived):
            self.bodies[event.stream_id] += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self._answer(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.resets.append(event.stream_id)

    def _answer(self, stream: int) -> None:
        if self.bodies[stream][5:] == b"hang":
            return
        # h2 indexes headers into its table, and with Huffman coding: a different peer from gRPC's own library.
        self.h2.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        body = self.bodies[stream]
        for begin in range(0, len(body), 16_384):
            self.h2.send_data(stream, body[begin : begin + 16_384])
        self.h2.send_headers(stream, [("grpc-status", "0"), ("grpc-message", "fine")], end_stream=True)


async def test_a_strict_peer_finds_nothing_wrong():
    servers: list[StrictServer] = []

    def made():
        servers.append(StrictServer())
        return servers[-1]

    listening = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connection = await connect(Address("grpc", "127.0.0.1", port), WorkerOptions())
    # Until the server's settings have come, a client may count on the default window; h2 does not forgive that.
    await connection.ask("/s/M", b"first", 10)
    bodies = [
        bytes([index]) * length for index, length in enumerate((0, 1, 100, 16_380, 19_999, 70_000, 300_000))
    ]
    for _ in range(3):
        answers = await asyncio.gather(*(connection.ask("/s/M", body, 10) for body in bodies))
        assert servers[0].faults == []
        assert [list(messages) for messages, _ in answers] == [[body] for body in bodies]
        assert {(status.code, status.message) for _, status in answers} == {(0, "fine")}
    _, status = await connection.ask("/s/M", b"hang", 0.01)
    assert status.code != 0
    await connection.ask("/s/M", b"after the reset", 10)
    connection.close()
    listening.close()
    await listening.wait_closed()
    (server,) = servers
    assert server.faults == []
    assert len(server.resets) == 1
    assert server.heads[1][":method"] == "POST"
