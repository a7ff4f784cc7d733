"""A listener with handlers of a test's own, and raw bytes over its sockets."""

import asyncio
from contextlib import asynccontextmanager

import httpx

from gateway.app import GatewayApp, Limits
from gateway.listener import HttpListener, bind
from gateway.routes import Route, RouteTable
from gateway.sse import KeepAlive
from smg.callers.directory import CallerDirectory


class Counts:
    """An observer that remembers."""

    def __init__(self):
        self.responses = []
        self.errors = []
        self.slow = 0
        self.changed = asyncio.Event()

    def http_response(self, route, status):
        self.responses.append((route, status))
        self.changed.set()

    def error_answered(self, route, code):
        self.errors.append((route, code))

    def slow_reader_aborted(self):
        self.slow += 1
        self.changed.set()


async def echo(request, reply):
    """Answers with the body."""
    headers = [
        (b"content-length", b"%d" % len(request.body)),
        (b"x-request-id", request.context.request_id.encode()),
    ]
    reply.start(200, headers)
    reply.end(request.body)


def gateway(*routes, callers=None, counts=None, max_body_bytes=100, max_held_bytes=1000, max_stall_s=5.0):
    """Args: routes: (method, path, handler) and perhaps who may call."""
    table = [
        Route(method, path, handler, path.strip("/") or "root", *(access or ("open",)), "x")
        for method, path, handler, *access in routes
    ]
    return GatewayApp(
        RouteTable(table),
        callers or CallerDirectory(),
        KeepAlive(0),
        Limits(max_body_bytes, max_held_bytes, max_stall_s, (b"x-request-id", b"x-trace-id")),
        counts or Counts(),
    )


@asynccontextmanager
async def listening(app, idle_s=60, grace_s=20):
    """The port of a listener, which is stopped at the end."""
    with bind("127.0.0.1", 0) as bound:
        listener = HttpListener(app, bound, idle_s)
        serving = asyncio.create_task(listener.run())
        await listener.wait_started()
        try:
            yield bound.getsockname()[1]
        finally:
            listener.stop(grace_s)
            await serving


@asynccontextmanager
async def client(app):
    """An HTTP client of a listener, without the system's certificates: to load them takes longer than most tests."""
    async with (
        listening(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as http,
    ):
        yield http


async def exchange(port, raw):
    """Send bytes, return everything that comes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    try:
        return await reader.read()
    finally:
        writer.close()
