"""The application: finds a request's handler, and sees to it that every request is answered.

What a handler raises becomes an HTTP answer here and nowhere else. A client that leaves, or reads too slowly,
cancels the task that answers it; whatever that task waits for ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from gateway.cors import is_preflight
from gateway.errors import error_answer
from gateway.request import HttpRequest, request_context, split_target
from smg.callers.audit import AdminCall
from smg.callers.directory import check_role
from smg.errors import BodyTooLarge, InternalError, MethodNotAllowed, SmgError, WorkerUnavailable
from smg.telemetry.access import log_http
from smg.telemetry.server_timing import timing_of_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.arriving import ArrivingRequest
    from gateway.cors import Cors
    from gateway.reply import ExchangeReply
    from gateway.routes import Route, RouteTable
    from gateway.sse import KeepAlive
    from smg.callers.audit import AuditLog
    from smg.callers.directory import CallerDirectory
    from smg.pipelines.admission import Admission
    from smg.types.context import RequestContext

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
        key_headers: headers that may carry a routing key, likewise.
        tells_timing: errors of the models' endpoints say in Server-Timing what took how long.
    """

    max_body_bytes: int
    max_held_bytes: int
    max_stall_s: float
    id_headers: tuple[bytes, ...]
    access_log: bool = False
    key_headers: tuple[bytes, ...] = (b"x-smg-routing-key",)
    tells_timing: bool = False


class Observer(Protocol):
    """Counts what the listener does."""

    def http_response(self, route: str, status: int) -> None:
        """A request was answered; 499 for a client that left."""
        ...

    def error_answered(self, route: str, code: str) -> None:
        """A request was answered with an error of this code."""
        ...

    def slow_reader_aborted(self) -> None:
        """A client was dropped because it did not read."""
        ...


class Connection(Protocol):
    """The connection, as far as an exchange sees it."""

    def client(self) -> str:
        """The address of the other side; empty when it is not known."""
        ...

    def new_reply(self, max_held_bytes: int, on_drop: Callable[[], None]) -> ExchangeReply:
        """Where the exchange writes its answer.

        Args:
            max_held_bytes: most bytes to hold back for a slow client before it is dropped.
            on_drop: called once when the client is too slow.
        """
        ...

    def close(self) -> None:
        """Close when the client has read what was written, or has had its time."""
        ...

    def abort(self) -> None:
        """Close now."""
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
        audit: AuditLog | None = None,
        cors: Cors | None = None,
        admission: Admission | None = None,
    ) -> None:
        """Build it.

        Args:
            routes: who answers what.
            callers: who may ask.
            keep_alive: keeps quiet streams open.
            limits: what a client may cost.
            observer: counts.
            audit: told of every request for an operator's path; None tells nobody.
            cors: which pages may ask from a browser; None says nothing to browsers.
            admission: who may run and who waits; everybody runs when None.
        """
        self.cors = cors
        self.routes = routes
        self.admission = admission
        self.callers = callers
        self.audit = audit
        self.keep_alive = keep_alive
        self.limits = limits
        self.observer = observer
        self.tenant_header = callers.tenant_header.encode()
        # Running requests; the event loop itself does not keep a task alive.
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, request: ArrivingRequest, connection: Connection) -> Exchange:
        """Take a request whose head is here; its answer has ended already if that was enough to refuse it."""
        exchange = Exchange(self, request, connection)
        try:
            exchange.admit()
        except SmgError as error:
            exchange.refuse(error)
        return exchange


class Exchange:
    """One request and its answer.

    Attributes:
        reply: the answer.
        max_body_bytes: longest body that is taken.
    """

    __slots__ = (
        "reply", "max_body_bytes",
        "_app", "_request", "_connection", "_raw_path", "_query", "_context", "_route", "_parameters", "_task",
        "_started_at", "_has_begun", "_is_gone", "_is_over",
    )  # fmt: skip

    def __init__(self, app: GatewayApp, request: ArrivingRequest, connection: Connection) -> None:
        limits = app.limits
        self.max_body_bytes = limits.max_body_bytes
        self.reply = connection.new_reply(limits.max_held_bytes, self._dropped)
        self._app = app
        self._request = request
        self._connection: Connection | None = connection
        self._raw_path = self._query = ""
        self._context: RequestContext
        self._route: Route | None = None
        self._parameters: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._started_at = monotonic() if limits.access_log or limits.tells_timing else 0.0
        self._has_begun = self._is_gone = self._is_over = False

    def admit(self) -> None:
        """Find the route and who asks, before anything of the body is read.

        Raises:
            SmgError: the request is refused for its head.
        """
        app, request = self._app, self._request
        raw_path, self._query = split_target(request.url)
        self._raw_path = raw_path
        if app.cors is not None:
            self.reply.extra_headers = app.cors.answer(request.headers.get(b"origin", b""))
        try:
            route, self._parameters = app.routes.find(request.method, raw_path)
        except SmgError as error:
            prefix = app.routes.id_prefix(raw_path)
            self._context = request_context(request.headers, app.limits.id_headers, prefix)
            if app.cors is None or not isinstance(error, MethodNotAllowed) or not is_preflight(request):
                raise
            app.cors.answer_preflight(request, self.reply, error.param or "")
            self._end(200)
            return
        self._route = route
        self._context = request_context(
            request.headers, app.limits.id_headers, route.id_prefix, app.limits.key_headers
        )
        if route.access == "admin" or (app.callers.looks_at_serving and route.access == "serving"):
            self._identify(route)
        declared = request.headers.get(b"content-length")
        if declared is not None and (
            len(declared) > 18 or (declared.isdigit() and int(declared) > self.max_body_bytes)
        ):
            length = declared.decode("latin-1")[:40]
            raise BodyTooLarge(f"the body has {length} bytes; at most {self.max_body_bytes} are allowed")

    def refuse(self, error: SmgError) -> None:
        """Answer without a handler."""
        self._end(self._fail(error))

    def start(self, body: bytes) -> None:
        """The whole request is here: answer it."""
        task = self._task = asyncio.get_running_loop().create_task(self._run(body))
        self._app.tasks.add(task)

    def refuse_body(self) -> None:
        """The body is longer than allowed."""
        self.refuse(BodyTooLarge(f"the body has more than {self.max_body_bytes} bytes; no more are allowed"))

    def write_comment(self) -> None:
        """Write something that means nothing, if the answer is a stream of events."""
        self._app.keep_alive.ping(self.reply)

    def left(self) -> None:
        """The client has left."""
        if self.reply.is_ended:
            # It has its whole answer, or does not want the rest.
            self.reply.close()
        else:
            self.reply.close()
            self._dropped()

    def _dropped(self) -> None:
        """Nobody reads the answer any more."""
        self._is_gone = True
        if self._task is None:
            self._end(499)
        elif self._has_begun:
            # A task that is cancelled before its first step never runs, not even its end.
            self._task.cancel()

    async def _run(self, body: bytes) -> None:
        status = 499
        self._has_begun = True
        try:
            if not self._is_gone:
                status = await self._answered(body)
        except asyncio.CancelledError:
            if not self._is_gone or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self._end(status)

    def _end(self, status: int) -> None:
        """Everything is said."""
        app, reply, connection = self._app, self.reply, self._connection
        if self._is_over or connection is None:
            return
        self._is_over = True
        app.keep_alive.discard(reply)
        if reply.is_too_slow:
            app.observer.slow_reader_aborted()
            # Closing would wait for a client that does not read.
            connection.abort()
        elif not reply.is_ended:
            # A client notices that the end is missing.
            connection.close()
        app.observer.http_response(self._route_name, status)
        if reply.meter is not None:
            reply.meter.answered(status)
        if app.limits.access_log:
            self._log(status)
        if app.audit is not None and self._route is not None and self._route.access == "admin":
            self._audit(app.audit, status, connection.client())
        if self._task is not None:
            app.tasks.discard(self._task)
        # We know the task that runs us, and the connection knows us: cycles, for which memory would wait.
        self._task = self._connection = None
        reply.forget()

    @property
    def _route_name(self) -> str:
        return self._route.name if self._route is not None else "unknown"

    def _log(self, status: int) -> None:
        meter, context = self.reply.meter, self._context
        log_http(
            self._request.method,
            self._route.name if self._route is not None else None,
            self._raw_path,
            status,
            monotonic() - self._started_at,
            context.request_id,
            context.caller.tenant,
            meter.log_fields() if meter is not None else {},
        )

    def _audit(self, audit: AuditLog, status: int, client: str) -> None:
        method = self._request.method
        outcome = "success" if status < 400 else "denied" if status in (401, 403) else "failed"
        call = AdminCall(method, self._raw_path, client, status, outcome, _is_read(method))
        audit.record(call, self._context)

    async def _answered(self, body: bytes) -> int:
        route, request, raw_path, reply = self._route, self._request, self._raw_path, self.reply
        assert route is not None  # noqa: S101 - admit() has found it
        path = unquote(raw_path) if "%" in raw_path else raw_path
        try:
            http_request = HttpRequest(
                request.method, path, raw_path, self._query, request.headers, body, self._context, self._parameters,
                monotonic(),
            )  # fmt: skip
            admission = self._app.admission if route.is_admitted else None
            if admission is not None and not admission.enter_now():
                await admission.wait()
            try:
                await route.handler(http_request, reply)
                if reply.is_ended:
                    await reply.drained(self._app.limits.max_stall_s)
            finally:
                if admission is not None:
                    admission.leave()
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
        if not reply.is_ended:
            logger.error("request %s: the handler has not ended its answer", self._context.request_id)
            return self._fail(InternalError(f"internal error; request id {self._context.request_id}"))
        return reply.status

    def _identify(self, route: Route) -> None:
        app, headers = self._app, self._request.headers
        authorization = headers.get(b"authorization", b"")
        if route.access == "admin":
            caller = app.callers.identify_admin(authorization)
        else:
            caller = app.callers.identify(authorization, headers.get(app.tenant_header, b""))
        self._context = self._context._replace(caller=caller)
        if route.access == "admin":
            check_role(caller, is_read=_is_read(self._request.method))

    def _fail(self, error: SmgError) -> int:
        write = self._route.failure if self._route is not None else error_answer
        status, headers, body = write(error)
        self._app.observer.error_answered(self._route_name, error.code)
        if self.reply.is_started:
            # Nothing sensible can follow what was written: the connection is closed, which a client notices.
            return status
        if isinstance(error, MethodNotAllowed) and error.param:
            headers.append((b"allow", error.param.encode()))
        headers.append((b"content-length", b"%d" % len(body)))
        headers.append((b"x-request-id", self._context.request_id.encode()))
        if self._app.limits.tells_timing and self._route is not None and self._route.is_admitted:
            headers.append((b"server-timing", self._error_timing()))
        self.reply.start(status, headers)
        self.reply.end(body)
        return status

    def _error_timing(self) -> bytes:
        meter = self.reply.meter
        if meter is not None:
            return meter.error_timing()
        # It had no place among the running ones yet.
        return timing_of_error(self._started_at, 0.0, 0.0, 0.0, monotonic())


def _is_read(method: str) -> bool:
    return method in ("GET", "HEAD")
