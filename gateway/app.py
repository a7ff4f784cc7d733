"""The ASGI application: reads a request, finds its handler, and sees to it that every request is answered.

What a handler raises becomes an HTTP answer here and nowhere else. A client that leaves, or reads too slowly,
cancels the task that answers it; whatever that task waits for ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never, Protocol

from gateway.errors import error_answer
from gateway.one_write import ABORT
from gateway.reply import AsgiReply, watch_disconnect
from gateway.request import HttpRequest, header_map, request_context
from smg.errors import BodyTooLarge, InternalError, MethodNotAllowed, SmgError, WorkerUnavailable

if TYPE_CHECKING:
    from gateway.reply import Receive, Send
    from gateway.routes import Route, RouteTable
    from gateway.sse import KeepAlive
    from smg.types.callers import CallerDirectory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost.

    Attributes:
        max_body_bytes: longest request body.
        max_held_bytes: most bytes held back for a slow client.
        max_stall_s: longest wait for a client to read the end of its answer.
        id_headers: headers that may carry a request id, in lower case; the first usable one wins.
        access_log: log a line per request.
    """

    max_body_bytes: int
    max_held_bytes: int
    max_stall_s: float
    id_headers: tuple[bytes, ...]
    access_log: bool = False


class Observer(Protocol):
    """Counts what the listener does."""

    def http_response(self, route: str, status: int) -> None:
        """A request was answered; 499 for a client that left."""
        ...

    def slow_reader_aborted(self) -> None:
        """A client was dropped because it did not read."""
        ...


class GatewayApp:
    """The application: what every exchange shares."""

    def __init__(
        self,
        routes: RouteTable,
        callers: CallerDirectory,
        keep_alive: KeepAlive,
        limits: Limits,
        observer: Observer,
    ) -> None:
        self.routes = routes
        self.callers = callers
        self.keep_alive = keep_alive
        self.limits = limits
        self.observer = observer

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope. Life span is the server's business; web sockets are refused."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1002, "reason": "no such path"})
            return
        await _Exchange(self, scope, receive, send).run()


class _Exchange:
    """One request and its answer."""

    def __init__(self, app: GatewayApp, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._task = asyncio.current_task()
        self._started_at = asyncio.get_running_loop().time()
        self._is_gone = False
        self._route_name = "unknown"
        self._headers = header_map(scope["headers"])
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        self._raw_path = raw_path.partition(b"?")[0].decode("latin-1")
        self._context = request_context(
            self._headers, app.limits.id_headers, app.routes.id_prefix(self._raw_path)
        )
        self._reply = AsgiReply(send, app.limits.max_held_bytes, self._gone)

    async def run(self) -> None:
        status = 499
        try:
            status = await self._answered()
        except asyncio.CancelledError:
            if not self._is_gone or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self._app.keep_alive.discard(self._reply)
            if not self._reply.is_ended:
                self._reply.close()
            if self._reply.is_too_slow:
                self._app.observer.slow_reader_aborted()
                self._cut()
            self._app.observer.http_response(self._route_name, status)
            if self._app.limits.access_log:
                self._log(status)
            # The reply knows us and we know the task that runs us: cycles, for which memory would wait.
            self._task = None
            self._reply.forget()

    def _cut(self) -> None:
        """Cut the connection: closing it would wait for a client that does not read."""
        abort = self._scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort()

    def _log(self, status: int) -> None:
        fields = {
            "request_id": self._context.request_id,
            "method": self._scope["method"],
            "path": self._raw_path[:200],
            "status": status,
            "duration_ms": round((asyncio.get_running_loop().time() - self._started_at) * 1000, 1),
        }
        logger.info("request", extra=fields)

    async def _answered(self) -> int:
        try:
            await self._handle()
        except SmgError as error:
            return self._fail(error)
        except asyncio.CancelledError:
            if self._is_gone or self._task is None or self._task.cancelling():
                raise
            # Something that was waited for was cancelled, not this request: it must be answered all the same.
            logger.exception("request %s waited for something that was cancelled", self._context.request_id)
            return self._fail(WorkerUnavailable("what the request waited for was stopped; try again"))
        except Exception:
            logger.exception("request %s failed", self._context.request_id)
            return self._fail(InternalError(f"internal error; request id {self._context.request_id}"))
        await self._reply.drained(self._app.limits.max_stall_s)
        return self._reply.status

    async def _handle(self) -> None:
        method: str = self._scope["method"]
        route, parameters = self._app.routes.find(method, self._raw_path)
        self._route_name = route.name
        self._identify(route)
        body = await self._body()
        request = HttpRequest(
            method=method,
            path=self._scope["path"],
            raw_path=self._raw_path,
            query=self._scope["query_string"].decode("latin-1"),
            headers=self._headers,
            body=body,
            context=self._context,
            parameters=parameters,
        )
        watch_disconnect(self._receive, self._gone)
        await route.handler(request, self._reply)

    def _identify(self, route: Route) -> None:
        """Find out who asks, before anything of the body is read."""
        callers = self._app.callers
        if route.access == "open" or callers.is_open:
            return
        authorization = self._headers.get(b"authorization", b"").decode("latin-1")
        if route.access == "admin":
            caller = callers.identify_admin(authorization)
        else:
            caller = callers.identify(authorization)
        self._context = self._context._replace(caller=caller)

    async def _body(self) -> bytes:
        """The whole body.

        Raises:
            BodyTooLarge: more bytes than the setting allows, declared or sent.
        """
        limit = self._app.limits.max_body_bytes
        declared = self._headers.get(b"content-length", b"0")
        if len(declared) > 18 or (declared.isdigit() and int(declared) > limit):
            raise BodyTooLarge(
                f"the body has {declared.decode('latin-1')[:40]} bytes; at most {limit} are allowed"
            )
        message = await self._receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if message["type"] == "http.disconnect":
                await self._left()
            return body
        pieces, size = [body], len(body)
        while message.get("more_body"):
            message = await self._receive()
            if message["type"] == "http.disconnect":
                await self._left()
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                raise BodyTooLarge(f"the body has more than {limit} bytes; no more are allowed")
        return b"".join(pieces)

    async def _left(self) -> Never:
        """The client has left before its request was complete."""
        self._gone()
        await asyncio.Event().wait()
        raise AssertionError

    def _gone(self) -> None:
        """The client has left, was dropped, or has its whole answer."""
        if self._reply.is_ended and not self._reply.is_dropped:
            return
        self._is_gone = True
        if self._task is not None and not self._task.done():
            self._task.cancel()

    def _fail(self, error: SmgError) -> int:
        status, headers, body = error_answer(error)
        if self._reply.is_started:
            # Nothing sensible can follow what was written: the connection is closed, which a client notices.
            return status
        if isinstance(error, MethodNotAllowed) and error.param:
            headers.append((b"allow", error.param.encode()))
        headers.append((b"content-length", b"%d" % len(body)))
        headers.append((b"x-request-id", self._context.request_id.encode()))
        self._reply.start(status, headers)
        self._reply.end(body)
        return status
