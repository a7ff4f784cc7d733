"""Every error that a caller can see, as one tree.

    SmgError
    ├── InvalidRequest          400  a rule is broken                      INVALID_ARGUMENT
    │   ├── MalformedRequest    400  not JSON, or of the wrong shape       INVALID_ARGUMENT
    │   ├── ContextTooLong      400  more tokens than the model takes      INVALID_ARGUMENT
    │   ├── InvalidInclude      400  a field that cannot be included        INVALID_ARGUMENT
    │   ├── ItemTaken           400  the conversation has the item         INVALID_ARGUMENT
    │   └── DecisionsRefused    400  a decisions request as a whole        INVALID_ARGUMENT
    │       ├── DecisionsTooLarge     413  bytes                           INVALID_ARGUMENT
    │       ├── UnsupportedMediaType  415  coding or content type          INVALID_ARGUMENT
    │       └── UnsupportedSurface    422  not this model's                INVALID_ARGUMENT
    ├── Unauthenticated         401  no key, or an unknown one             UNAUTHENTICATED
    │   └── ControlPlaneUnauthenticated  the same, where only keys of the control plane open
    ├── PermissionDenied        403  a key without the right               PERMISSION_DENIED
    │   └── ControlPlaneDenied  403  a control-plane key whose role is too low
    ├── NotFound                404  no such thing                         NOT_FOUND
    │   └── ModelNotFound       404  no worker serves the model            NOT_FOUND
    ├── MethodNotAllowed        405  wrong HTTP method                     UNIMPLEMENTED
    ├── RequestTimeout          408  the request itself did not arrive     DEADLINE_EXCEEDED
    ├── AlreadyExists           409  it is there                           ALREADY_EXISTS
    ├── BodyTooLarge            413  more bytes than the setting allows    INVALID_ARGUMENT
    ├── DependencyFailed        424  a server that is needed is not there  FAILED_PRECONDITION
    ├── Overloaded              429  over a limit                          RESOURCE_EXHAUSTED
    ├── HeadTooLarge            431  more bytes or headers than allowed    INVALID_ARGUMENT
    ├── ClientGone              499  the caller left                       CANCELLED
    ├── QuestionFailed               a question ended the request       by its kind, see there
    ├── InternalError           500  our fault                             INTERNAL
    │   ├── StorageFailed       500  the history store does not answer     INTERNAL
    │   ├── MissingPackage           an extra is not installed; told at start, never to a caller
    │   ├── BadConfiguration         a file that a setting names is wrong; told at start, never to a caller
    │   ├── PortTaken                an address cannot be listened on; told at start, never to a caller
    │   └── BadTlsFile               a certificate or key cannot be used; told at start, never to a caller
    ├── Unsupported             501  not served here                       UNIMPLEMENTED
    ├── WorkerUnavailable       503  no worker can take it now             UNAVAILABLE
    ├── DeadlineExceeded        504  took too long                         DEADLINE_EXCEEDED
    └── EngineError                  the engine's own status, mapped
        └── UnusableScores      502  scores that no answer can be made of

Code raises these; smg/services turns them into gRPC statuses and gateway/errors.py into HTTP answers, both from
the class attributes below, and nothing else does.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar, Self

# google.rpc.Code numbers: this module stays free of grpc so that every layer may import it.
CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS = 1, 2, 3, 4, 5, 6
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE = 7, 8, 9, 10, 11
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS, UNAUTHENTICATED = 12, 13, 14, 15, 16

# google.rpc.Code to HTTP status, as in google/rpc/code.proto; UNKNOWN and DATA_LOSS are 500 by omission.
HTTP_STATUS: dict[int, int] = {
    CANCELLED: 499,
    INVALID_ARGUMENT: 400,
    DEADLINE_EXCEEDED: 504,
    NOT_FOUND: 404,
    ALREADY_EXISTS: 409,
    PERMISSION_DENIED: 403,
    RESOURCE_EXHAUSTED: 429,
    FAILED_PRECONDITION: 400,
    ABORTED: 409,
    OUT_OF_RANGE: 400,
    UNIMPLEMENTED: 501,
    UNAVAILABLE: 503,
    UNAUTHENTICATED: 401,
}


VALIDATION_CODES = frozenset(("400", "json_parse_error"))


class SmgError(Exception):
    """Base of every error that a caller can see.

    Attributes:
        message: what was wrong, the value, and what is allowed; shown to the caller.
        code: machine-readable word, the same over HTTP and gRPC.
        param: the request field at fault in dotted form, or None.
        retry_after_s: seconds after which trying again makes sense, or None when nobody can tell.
    """

    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[int] = INTERNAL
    is_retryable: ClassVar[bool] = False
    default_code: ClassVar[str] = "internal_error"
    default_retry_after_s: ClassVar[int | None] = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param
        self.retry_after_s = self.default_retry_after_s if retry_after_s is None else retry_after_s

    def about(self, subject: str) -> Self:
        """The same error with its subject before the message. A new one: an error may end several requests."""
        error = type(self).__new__(type(self), self.message)
        error.__dict__.update(self.__dict__)
        error.message = f"{subject}: {self.message}"
        error.args = (error.message,)
        return error

    @property
    def status(self) -> int:
        """HTTP status of this very error; the class's own unless the error carries another."""
        return self.http_status

    @property
    def grpc_status(self) -> int:
        """google.rpc.Code of this very error."""
        return self.grpc_code

    @property
    def type(self) -> str:
        """The word that clients read as error.type: the reason phrase of the HTTP status."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return "Client Closed Request" if self.status == ClientGone.http_status else "Error"


class InvalidRequest(SmgError):
    """A range or cross-field rule is broken. Its code is the number 400, as the OpenAI-compatible API has it."""

    http_status = 400
    grpc_code = INVALID_ARGUMENT
    default_code = "400"

    @property
    def is_validation(self) -> bool:
        """A fault of shape or range, which the API tells in a form of its own."""
        return self.code in VALIDATION_CODES

    @property
    def type(self) -> str:
        """As for every error, but for faults of shape and range."""
        return "invalid_request_error" if self.is_validation else super().type


class MalformedRequest(InvalidRequest):
    """The body is not JSON, or not of the request's shape."""

    default_code = "json_parse_error"


class ContextTooLong(InvalidRequest):
    """The prompt is longer than the model's context."""

    default_code = "context_length_exceeded"


class InvalidInclude(InvalidRequest):
    """Something is to be included that cannot be."""

    default_code = "invalid_value"


class ItemTaken(InvalidRequest):
    """The conversation has an item of that id already."""

    default_code = "item_already_in_conversation"


class Unauthenticated(SmgError):
    """No key, or one that is not known."""

    http_status = 401
    grpc_code = UNAUTHENTICATED
    default_code = "unauthenticated"


class ControlPlaneUnauthenticated(Unauthenticated):
    """No key of the control plane, or one that is not known there."""


class PermissionDenied(SmgError):
    """A known key that lacks the right."""

    http_status = 403
    grpc_code = PERMISSION_DENIED
    default_code = "permission_denied"


class ControlPlaneDenied(PermissionDenied):
    """A key of the control plane whose role does not allow it."""


class NotFound(SmgError):
    """There is no such thing."""

    http_status = 404
    grpc_code = NOT_FOUND
    default_code = "not_found"


class ModelNotFound(NotFound):
    """No worker serves the model."""

    default_code = "model_not_found"


class MethodNotAllowed(SmgError):
    """The path exists, with other methods."""

    http_status = 405
    grpc_code = UNIMPLEMENTED
    default_code = "method_not_allowed"


class RequestTimeout(SmgError):
    """The client began a request and did not send the rest of it."""

    http_status = 408
    grpc_code = DEADLINE_EXCEEDED
    default_code = "request_timeout"


class AlreadyExists(SmgError):
    """It is there already."""

    http_status = 409
    grpc_code = ALREADY_EXISTS
    default_code = "already_exists"


class BodyTooLarge(SmgError):
    """The body has more bytes than the setting allows."""

    http_status = 413
    grpc_code = INVALID_ARGUMENT
    default_code = "request_body_too_large"


class DependencyFailed(SmgError):
    """A server that the request names cannot be reached."""

    http_status = 424
    grpc_code = FAILED_PRECONDITION
    default_code = "dependency_failed"


class Overloaded(SmgError):
    """The caller, or the gateway, is over a limit."""

    http_status = 429
    grpc_code = RESOURCE_EXHAUSTED
    is_retryable = True
    default_code = "overloaded"


class HeadTooLarge(SmgError):
    """The head of the request has more bytes or headers than allowed."""

    http_status = 431
    grpc_code = INVALID_ARGUMENT
    default_code = "request_head_too_large"


class ClientGone(SmgError):
    """The caller left before the answer was complete."""

    http_status = 499
    grpc_code = CANCELLED
    default_code = "client_gone"


class InternalError(SmgError):
    """A fault of the gateway; the code names the step."""


class StorageFailed(InternalError):
    """The history store cannot be reached, or does not answer in time. What was asked for has not happened."""

    default_code = "storage_error"


class MissingPackage(InternalError):
    """What a setting asks for needs a package that is not installed. Ends the start; no caller ever sees it."""

    default_code = "missing_package"


class BadConfiguration(InternalError):
    """A file that a setting names cannot be used. Ends the start; no caller ever sees it."""

    default_code = "bad_configuration"


class PortTaken(InternalError):
    """An address cannot be listened on. Ends the start of the router; no caller ever sees it."""

    default_code = "port_taken"


class BadTlsFile(InternalError):
    """A file for TLS cannot be used. Ends the start of the router; no caller ever sees it."""

    default_code = "bad_tls_file"


class Unsupported(SmgError):
    """A thing that is well formed and not served here."""

    http_status = 501
    grpc_code = UNIMPLEMENTED
    default_code = "unsupported"


class WorkerUnavailable(SmgError):
    """Workers serve the model and none can take the request now."""

    http_status = 503
    grpc_code = UNAVAILABLE
    is_retryable = True
    default_code = "no_available_workers"
    # Connections and breakers change within about as long.
    default_retry_after_s = 1


class DeadlineExceeded(SmgError):
    """It took longer than the caller or a setting allows."""

    http_status = 504
    grpc_code = DEADLINE_EXCEEDED
    default_code = "deadline_exceeded"


class EngineError(SmgError):
    """What an engine answered instead of tokens: its own gRPC code decides the status.

    A worker that is lost or cannot be reached is an EngineError with UNAVAILABLE.
    """

    default_code = "start_generation_failed"

    def __init__(
        self, message: str, *, engine_code: int, can_retry: bool = False, code: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.engine_code = engine_code
        self.can_retry = can_retry

    @property
    def status(self) -> int:
        """HTTP status that the engine's code maps to."""
        return HTTP_STATUS.get(self.engine_code, 500)

    @property
    def grpc_status(self) -> int:
        """The engine's own code."""
        return self.engine_code


class UnusableScores(EngineError):
    """An engine's scores cannot be turned into answers: some are missing, or are no probabilities."""

    default_code = "invalid_decisions_response"

    def __init__(self, message: str) -> None:
        """Args: message: what is wrong with them."""
        super().__init__(message, engine_code=INTERNAL)

    @property
    def status(self) -> int:
        """A bad gateway's, whatever the engine's code is."""
        return 502


# What failed a question, to HTTP status and google.rpc.Code.
QUESTION_ERRORS: dict[str, tuple[int, int]] = {
    "invalid_question": (422, INVALID_ARGUMENT),
    "max_length_exceeded": (400, INVALID_ARGUMENT),
    "scan_budget_exceeded": (400, INVALID_ARGUMENT),
    "invalid_input": (400, INVALID_ARGUMENT),
    "invalid_model_output": (500, INTERNAL),
    "unavailable": (503, UNAVAILABLE),
    "deadline_exceeded": (504, DEADLINE_EXCEEDED),
}


class QuestionFailed(SmgError):
    """A question of a request failed, and with it the request, as System One clients expect.

    Attributes:
        question_error: a key of QUESTION_ERRORS.
        question: its id.
        reason: a fixed word; empty where there is none.
        state: name of its entry in a batch; empty where there is none.
        failed: (id, message) of every question that failed.
    """

    default_code = "question_failed"

    def __init__(
        self,
        message: str,
        *,
        question_error: str,
        question: str,
        reason: str = "",
        state: str = "",
        failed: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.question_error = question_error
        self.question = question
        self.reason = reason
        self.state = state
        self.failed = failed or ((question, message),)

    @property
    def status(self) -> int:
        """By what failed."""
        return QUESTION_ERRORS.get(self.question_error, (500, INTERNAL))[0]

    @property
    def grpc_status(self) -> int:
        """By what failed."""
        return QUESTION_ERRORS.get(self.question_error, (500, INTERNAL))[1]


class DecisionsRefused(InvalidRequest):
    """A decisions request as a whole is refused.

    Attributes:
        reason: a fixed word that never holds request data; empty where there is none.
        limit: the bound that was broken; None where it is none.
        question: id of the question at fault; empty where it is none.
        state: name of its entry in a batch; empty where there is none.
    """

    default_code = "invalid_request"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        reason: str = "",
        limit: int | None = None,
        question: str = "",
        state: str = "",
    ) -> None:
        super().__init__(message, code=code, param=param)
        self.reason = reason
        self.limit = limit
        self.question = question
        self.state = state


class DecisionsTooLarge(DecisionsRefused):
    """The body, as sent or decoded, has more bytes than the setting allows."""

    http_status = 413
    default_code = "request_too_large"


class UnsupportedMediaType(DecisionsRefused):
    """The body is of a kind, or in a coding, that is not read here."""

    http_status = 415
    default_code = "unsupported_media_type"


class UnsupportedSurface(DecisionsRefused):
    """The model does not serve this endpoint."""

    http_status = 422
    default_code = "unsupported_surface"
