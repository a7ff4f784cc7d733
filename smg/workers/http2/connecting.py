"""Opens connections to workers, encrypted or not."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from smg.tls.worker import HTTP_2, handshake_fault
from smg.workers.http2.connection import Connection

if TYPE_CHECKING:
    from smg.workers.address import Address
    from smg.workers.options import WorkerOptions


async def connect(address: Address, options: WorkerOptions) -> Connection:
    """Open a connection. The server's settings may come later.

    Raises:
        OSError: nobody answers, or not in TLS where that is wanted, or somebody whose certificate is not trusted.
        TimeoutError: it took too long.
    """
    async with asyncio.timeout(options.connect_timeout_s):
        if address.is_tls:
            return await _connect_tls(address, options)
        connection = Connection(address.target, options)
        await asyncio.get_running_loop().create_connection(lambda: connection, address.host, address.port)
        return connection


async def _connect_tls(address: Address, options: WorkerOptions) -> Connection:
    tls = options.tls
    if tls is None:
        raise ConnectionError("no TLS is set up for workers")
    connection = Connection(tls.server_name or address.target, options, is_tls=True)
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: connection,
            address.host,
            address.port,
            ssl=await tls.context(),
            server_hostname=tls.server_name or address.host,
            ssl_handshake_timeout=options.connect_timeout_s,
        )
    except ssl.SSLError as error:
        raise ConnectionError(handshake_fault(error)) from error
    protocol = transport.get_extra_info("ssl_object").selected_alpn_protocol()
    if protocol != HTTP_2:
        connection.close()
        raise ConnectionError("the server speaks TLS, and does not agree on HTTP/2 (ALPN h2)")
    return connection
