"""Runs the MCP server of the tests in the test's own process, on a port of its own."""

import asyncio
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import uvicorn

from tests.integration.mcp_tools import make_server


@asynccontextmanager
async def running_mcp(*, transport="streamable"):
    """`.url`, `.calls` (name and arguments of each call of a tool) and `.headers` (of each HTTP request).

    The connection of a call of the tool `drop` is cut.
    """
    calls, headers = [], []
    server = make_server(calls)
    app = server.streamable_http_app() if transport == "streamable" else server.sse_app()

    async def remembering(scope, receive, send):
        async def read():
            message = await receive()
            if b'"name":"drop"' in message.get("body", b"").replace(b" ", b""):
                # The connection of uvicorn's request: what a server does that dies.
                receive.__self__.transport.abort()
            return message

        if scope["type"] == "http":
            headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, read, send)

    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    config = uvicorn.Config(remembering, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    listener = uvicorn.Server(config)
    listener.install_signal_handlers = lambda: None
    serving = asyncio.create_task(listener.serve(sockets=[bound]))
    path = "mcp" if transport == "streamable" else "sse"
    try:
        yield SimpleNamespace(url=f"http://127.0.0.1:{port}/{path}", calls=calls, headers=headers)
    finally:
        listener.should_exit = listener.force_exit = True
        await serving
        bound.close()
