"""What every call of the typed services goes through: identity and ids first, then the method, then its status.

An error becomes a status here and nowhere else. A caller that is refused is refused before its message is read. The
request id goes back as initial metadata, with whatever outcome.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from smg.callers.audit import AdminCall
from smg.callers.directory import check_role
from smg.errors import (
    CANCELLED,
    HTTP_STATUS,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    InternalError,
    MalformedRequest,
    SmgError,
)
from smg.services.call import (
    ARRIVED_AT,
    CONTEXT,
    METER,
    REQUEST_ID,
    ROUTED_WORKER,
    ROUTING_REASON,
    metadata_map,
    request_context,
)
from smg.services.methods import METHODS
from smg.services.rpc import ServerInterceptor, unparsed, unparsed_duplex, unread
from smg.services.status import error_status, status_code
from smg.services.streams import LOST, LostWait, SlowReader, is_own_cancellation
from smg.telemetry.access import log_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from smg.callers.audit import AuditLog
    from smg.callers.directory import CallerDirectory
    from smg.pipelines.admission import Admission
    from smg.services.methods import Method
    from smg.services.rpc import Context, Continuation, Handler
    from smg.types.context import PlacementNote

logger = logging.getLogger(__name__)

# A status queues behind what a client has not read yet; nobody waits for a client that does not read at all.
STATUS_WAIT_S = 5.0


class Observer(Protocol):
    """Counts calls."""

    def grpc_response(self, route: str, code: int) -> None:
        """A call has ended, with this google.rpc.Code."""
        ...

    def error_answered(self, route: str, code: str) -> None:
        """A call was answered with an error of this code."""
        ...

    def slow_reader_aborted(self) -> None:
        """A stream was ended because its client did not read."""
        ...


class Uncounted:
    """Counts nothing."""

    def grpc_response(self, route: str, code: int) -> None:
        """Ignore a call."""

    def error_answered(self, route: str, code: str) -> None:
        """Ignore an error."""

    def slow_reader_aborted(self) -> None:
        """Ignore a stream."""


class CallInterceptor(ServerInterceptor):
    """Gives a call its ids and its caller."""

    def __init__(
        self,
        callers: CallerDirectory,
        id_keys: Sequence[str],
        routing_keys: Sequence[str] = ("x-smg-routing-key",),
    ) -> None:
        """Prepare.

        Args:
            callers: knows the keys.
            id_keys: metadata keys that may carry a request id, in lower case; the first usable one wins.
            routing_keys: metadata keys that may carry a routing key, likewise.
        """
        self._routing_keys = routing_keys
        self._callers = callers
        self._id_keys = id_keys

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Set the call's context.

        Raises:
            Unauthenticated: the key does not open the method.
            PermissionDenied: the key's role is too low for it.
        """
        method = METHODS.get(handler_call_details.method)
        if method is not None:
            self._set_context(method, metadata_map(handler_call_details.invocation_metadata))
        return await continuation(handler_call_details)

    def _set_context(self, method: Method, metadata: dict[str, str]) -> None:
        context = request_context(metadata, self._id_keys, method.id_prefix, self._routing_keys)
        # The refusal of a caller carries the request id, too.
        CONTEXT.set(context)
        callers = self._callers
        authorization = metadata.get("authorization", "").encode()
        if method.access == "admin":
            caller = callers.identify_admin(authorization)
            CONTEXT.set(context._replace(caller=caller))
            check_role(caller, is_read=method.is_read)
        elif method.access == "serving" and callers.looks_at_serving:
            asserted = metadata.get(callers.tenant_header, "").encode()
            CONTEXT.set(context._replace(caller=callers.identify(authorization, asserted)))


class StatusInterceptor(ServerInterceptor):
    """Turns what a call raises into its status. Stands before CallInterceptor."""

    def __init__(
        self,
        observer: Observer,
        audit: AuditLog | None = None,
        admission: Admission | None = None,
        *,
        access_log: bool = False,
    ) -> None:
        """Prepare.

        Args:
            observer: counts.
            audit: told of every call of an operator's method; None tells nobody.
            admission: who may run and who waits; everybody runs when None.
            access_log: log a line per call.
        """
        self._observer = observer
        self._audit = audit
        self._admission = admission
        self._access_log = access_log

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Wrap the method's handler."""
        method = METHODS.get(handler_call_details.method)
        if method is None:
            return await continuation(handler_call_details)
        admission = self._admission if method.is_admitted else None
        call = _Call(
            handler_call_details.method,
            method,
            self._observer,
            self._audit,
            admission,
            access_log=self._access_log,
        )
        try:
            handler = await continuation(handler_call_details)
        except SmgError as error:
            return unread(call.refusing(error))
        if handler is None:
            return None
        if cast("Any", handler).request_streaming:
            return unparsed_duplex(call.answering(handler))
        return unparsed(handler, call.answering(handler))


class _Call:
    """One call, from its first to its last byte."""

    def __init__(
        self,
        name: str,
        method: Method,
        observer: Observer,
        audit: AuditLog | None,
        admission: Admission | None,
        *,
        access_log: bool,
    ) -> None:
        self._name = name
        self._method = method
        self._observer = observer
        self._audit = audit if method.access == "admin" else None
        self._admission = admission
        self._access_log = access_log
        self._started_at = monotonic() if access_log else 0.0

    def answering(self, handler: Handler) -> Callable[[Any, Context], Coroutine[Any, Any, Any]]:
        """Does what the method does, and gives every error its status. A stream of requests arrives as an iterator."""
        behavior: Any = handler.unary_unary or handler.unary_stream or handler.stream_stream
        parse: Callable[[bytes], Any] = cast("Any", handler).request_deserializer

        async def answer(data: bytes | AsyncIterator[bytes], context: Context) -> Any:
            code = CANCELLED
            ARRIVED_AT.set(monotonic())
            try:
                await context.send_initial_metadata(((REQUEST_ID, CONTEXT.get().request_id),))
                if self._admission is None:
                    result = await _guarded(behavior, _parsed(data, parse), context)
                else:
                    async with self._admission.permit():
                        result = await _guarded(behavior, _parsed(data, parse), context)
                if (note := CONTEXT.get().note) is not None:
                    context.set_trailing_metadata(_placement(note))
                code = grpc.StatusCode.OK.value[0]
            except grpc.aio.BaseError:
                # gRPC's own: the client has gone, or the server stops. There is nobody to tell.
                raise
            except Exception as error:  # noqa: BLE001 - this is the one place that tells the client
                fault = _as_fault(error)
                code = status_code(fault).value[0]
            else:
                return result
            finally:
                self._end(code, context)
            self._observer.error_answered(self._method.route, fault.code)
            if isinstance(fault, SlowReader):
                self._observer.slow_reader_aborted()
            await _abort(context, fault)
            return None

        return answer

    def refusing(self, error: SmgError) -> Callable[[object, Context], Coroutine[Any, Any, None]]:
        """Answers with an error."""

        async def refuse(_: object, context: Context) -> None:
            self._end(status_code(error).value[0], context)
            self._observer.error_answered(self._method.route, error.code)
            await context.send_initial_metadata(((REQUEST_ID, CONTEXT.get().request_id),))
            await _abort(context, error)

        return refuse

    def _end(self, code: int, context: Context) -> None:
        """The call has ended with this google.rpc.Code; its status may still be on the way."""
        request = CONTEXT.get()
        self._observer.grpc_response(self._method.route, code)
        meter = METER.get()
        if meter is not None:
            meter.answered(HTTP_STATUS.get(code, 500) if code else 200)
        if self._access_log:
            duration_s = monotonic() - self._started_at
            log_grpc(
                self._name,
                self._method.route,
                code,
                duration_s,
                request.request_id,
                request.caller.tenant,
                meter.log_fields() if meter is not None else {},
            )
        if self._audit is not None:
            denied = code in (UNAUTHENTICATED, PERMISSION_DENIED)
            outcome = "success" if code == 0 else "denied" if denied else "failed"
            call = AdminCall("GRPC", self._name, context.peer(), code, outcome, self._method.is_read)
            self._audit.record(call, request)


def _placement(note: PlacementNote) -> tuple[tuple[str, str], ...]:
    """What a caller that asked is told of where its request went."""
    return ((ROUTED_WORKER, note.worker_url), (ROUTING_REASON, note.reason))


async def _guarded(behavior: Any, request: Any, context: Context) -> Any:
    try:
        return await behavior(request, context)
    except asyncio.CancelledError as error:
        if is_own_cancellation():
            raise
        raise LostWait(LOST) from error


async def _each_parsed(data: AsyncIterator[bytes], parse: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    async for each in data:
        yield _parsed(each, parse)


def _parsed(data: bytes | AsyncIterator[bytes], parse: Callable[[bytes], Any]) -> Any:
    """The message, or the messages as they come.

    Raises:
        MalformedRequest: the bytes are none of the method's request type.
    """
    if not isinstance(data, bytes):
        return _each_parsed(data, parse)
    try:
        return parse(data)
    except DecodeError as error:
        raise MalformedRequest(f"the message cannot be parsed: {error}") from error


def _as_fault(error: Exception) -> SmgError:
    if isinstance(error, SmgError):
        return error
    request_id = CONTEXT.get().request_id
    logger.error("request %s failed", request_id, exc_info=error)
    return InternalError(f"internal error; request id {request_id}")


async def _abort(context: Context, error: SmgError) -> None:
    status = error_status(error)
    try:
        async with asyncio.timeout(STATUS_WAIT_S):
            await context.abort(status.code, status.details, status.trailing_metadata)
    except TimeoutError:
        logger.debug("request %s: the client does not read its status", CONTEXT.get().request_id)
