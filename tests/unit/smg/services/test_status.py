"""error_status: every error of the tree gets its own code and the words that it has over HTTP."""

import grpc
import orjson
import pytest
from google.rpc import status_pb2

from gateway.errors import error_answer
from smg import errors
from smg.errors import EngineError, InvalidRequest, Overloaded, SmgError
from smg.services.status import MAX_MESSAGE_BYTES, error_status, status_code
from smg_proto.errors.v1 import errors_pb2

# Class, code, HTTP status, type: the tree's own drawing, written out.
TREE = [
    (errors.InvalidRequest, "INVALID_ARGUMENT", 400, "invalid_request_error"),
    (errors.MalformedRequest, "INVALID_ARGUMENT", 400, "invalid_request_error"),
    (errors.ContextTooLong, "INVALID_ARGUMENT", 400, "Bad Request"),
    (errors.DecisionsRefused, "INVALID_ARGUMENT", 400, "Bad Request"),
    (errors.DecisionsTooLarge, "INVALID_ARGUMENT", 413, "Request Entity Too Large"),
    (errors.UnsupportedMediaType, "INVALID_ARGUMENT", 415, "Unsupported Media Type"),
    (errors.UnsupportedSurface, "INVALID_ARGUMENT", 422, "Unprocessable Entity"),
    (errors.InvalidInclude, "INVALID_ARGUMENT", 400, "Bad Request"),
    (errors.ItemTaken, "INVALID_ARGUMENT", 400, "Bad Request"),
    (errors.Unauthenticated, "UNAUTHENTICATED", 401, "Unauthorized"),
    (errors.PermissionDenied, "PERMISSION_DENIED", 403, "Forbidden"),
    (errors.ControlPlaneUnauthenticated, "UNAUTHENTICATED", 401, "Unauthorized"),
    (errors.ControlPlaneDenied, "PERMISSION_DENIED", 403, "Forbidden"),
    (errors.NotFound, "NOT_FOUND", 404, "Not Found"),
    (errors.ModelNotFound, "NOT_FOUND", 404, "Not Found"),
    (errors.MethodNotAllowed, "UNIMPLEMENTED", 405, "Method Not Allowed"),
    (errors.RequestTimeout, "DEADLINE_EXCEEDED", 408, "Request Timeout"),
    (errors.AlreadyExists, "ALREADY_EXISTS", 409, "Conflict"),
    (errors.BodyTooLarge, "INVALID_ARGUMENT", 413, "Request Entity Too Large"),
    (errors.DependencyFailed, "FAILED_PRECONDITION", 424, "Failed Dependency"),
    (errors.Overloaded, "RESOURCE_EXHAUSTED", 429, "Too Many Requests"),
    (errors.HeadTooLarge, "INVALID_ARGUMENT", 431, "Request Header Fields Too Large"),
    (errors.ClientGone, "CANCELLED", 499, "Client Closed Request"),
    (errors.InternalError, "INTERNAL", 500, "Internal Server Error"),
    (errors.StorageFailed, "INTERNAL", 500, "Internal Server Error"),
    (errors.MissingPackage, "INTERNAL", 500, "Internal Server Error"),
    (errors.BadConfiguration, "INTERNAL", 500, "Internal Server Error"),
    (errors.PortTaken, "INTERNAL", 500, "Internal Server Error"),
    (errors.BadTlsFile, "INTERNAL", 500, "Internal Server Error"),
    (errors.Unsupported, "UNIMPLEMENTED", 501, "Not Implemented"),
    (errors.WorkerUnavailable, "UNAVAILABLE", 503, "Service Unavailable"),
    (errors.DeadlineExceeded, "DEADLINE_EXCEEDED", 504, "Gateway Timeout"),
]


def detail_of(error):
    status = error_status(error)
    [(key, data)] = status.trailing_metadata
    assert key == "grpc-status-details-bin"
    message = status_pb2.Status.FromString(data)
    assert message.code == status.code.value[0]
    assert message.message == status.details
    detail = errors_pb2.ApiError()
    assert message.details[0].Unpack(detail)
    return status, detail


def all_classes(cls=SmgError):
    return {cls, *(each for child in cls.__subclasses__() for each in all_classes(child))}


def test_the_table_has_every_class_of_the_tree():
    listed = {row[0] for row in TREE} | {SmgError, EngineError, errors.QuestionFailed, errors.UnusableScores}
    assert {each for each in all_classes() if each.__module__ == "smg.errors"} == listed


@pytest.mark.parametrize(
    ("kind", "code", "http_status"),
    [
        ("invalid_question", "INVALID_ARGUMENT", 422),
        ("max_length_exceeded", "INVALID_ARGUMENT", 400),
        ("invalid_model_output", "INTERNAL", 500),
        ("unavailable", "UNAVAILABLE", 503),
        ("deadline_exceeded", "DEADLINE_EXCEEDED", 504),
    ],
)
def test_what_failed_a_question_decides_its_status(kind, code, http_status):
    status, detail = detail_of(errors.QuestionFailed("why", question_error=kind, question="q"))
    assert (status.code, detail.http_status) == (grpc.StatusCode[code], http_status)


def test_unusable_scores_are_a_bad_gateways():
    status, detail = detail_of(errors.UnusableScores("why"))
    assert (status.code, detail.http_status, detail.code) == (
        grpc.StatusCode.INTERNAL,
        502,
        "invalid_decisions_response",
    )


@pytest.mark.parametrize(
    ("cls", "code", "http_status", "kind"), TREE, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_class_has_its_code_and_its_words(cls, code, http_status, kind):
    status, detail = detail_of(cls("what is wrong", param="messages[0].role"))
    assert status.code is grpc.StatusCode[code]
    assert status.details == "what is wrong"
    assert (detail.http_status, detail.type, detail.param) == (http_status, kind, "messages[0].role")
    assert detail.code == cls.default_code
    assert detail.HasField("retry_after_s") is (cls.default_retry_after_s is not None)


# Their HTTP answers are empty, or plain text.
NOT_JSON = (errors.Unauthenticated, errors.ControlPlaneDenied)


@pytest.mark.parametrize("cls", [row[0] for row in TREE if not issubclass(row[0], NOT_JSON)])
def test_code_and_type_are_those_of_the_http_answer(cls):
    error = cls("what is wrong")
    http_status, _, body = error_answer(error)
    answer = orjson.loads(body)["error"]
    _, detail = detail_of(error)
    assert (detail.http_status, detail.type, detail.code) == (
        http_status,
        answer["type"],
        str(answer["code"]),
    )


def test_a_time_to_come_back_is_passed_on():
    _, detail = detail_of(Overloaded("full", code="admission_queue_full", retry_after_s=0))
    assert (detail.code, detail.HasField("retry_after_s"), detail.retry_after_s) == (
        "admission_queue_full",
        True,
        0,
    )


@pytest.mark.parametrize(
    ("engine_code", "code", "http_status"),
    [
        (3, "INVALID_ARGUMENT", 400),
        (14, "UNAVAILABLE", 503),
        (15, "DATA_LOSS", 500),
        (0, "UNKNOWN", 500),  # a failure cannot be OK
        (99, "UNKNOWN", 500),  # no code at all
    ],
)
def test_an_engines_own_code_decides(engine_code, code, http_status):
    status, detail = detail_of(EngineError("from the engine", engine_code=engine_code))
    assert status.code is grpc.StatusCode[code]
    assert detail.http_status == http_status
    assert detail.code == "start_generation_failed"


@pytest.mark.parametrize("letter", ["x", "é", "漢", "🙂"])
def test_a_long_message_is_cut_between_characters(letter):
    status = error_status(InvalidRequest(letter * 5000))
    data = status.details.encode()
    assert len(data) <= MAX_MESSAGE_BYTES + len("…".encode())
    assert set(status.details) == {letter, "…"}


def test_the_code_alone_is_the_same():
    assert status_code(errors.NotFound("x")) is grpc.StatusCode.NOT_FOUND
