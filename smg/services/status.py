"""Turns the error tree into gRPC statuses: google.rpc.Status with smg.errors.v1.ApiError as its detail.

The words in the detail are those that the same error has over HTTP. A client refuses metadata over 8 KiB, and a
message travels twice (percent-encoded and in the detail), so a long one is cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from google.rpc import status_pb2
from grpc_status import rpc_status

from smg.errors import UNKNOWN
from smg_proto.errors.v1 import errors_pb2

if TYPE_CHECKING:
    from smg.errors import SmgError

MAX_MESSAGE_BYTES = 1500
MAX_PARAM_BYTES = 200
CUT = "…"

_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def error_status(error: SmgError) -> grpc.Status:
    """The status that a client gets for an error."""
    code = status_code(error)
    status = status_pb2.Status(code=code.value[0], message=_cut(error.message, MAX_MESSAGE_BYTES))
    status.details.add().Pack(api_error(error))
    return rpc_status.to_status(status)


def status_code(error: SmgError) -> grpc.StatusCode:
    """The gRPC code of an error. An engine's code that is none, or no error, counts as UNKNOWN."""
    code = _CODES.get(error.grpc_status, grpc.StatusCode.UNKNOWN)
    return _CODES[UNKNOWN] if code is grpc.StatusCode.OK else code


def api_error(error: SmgError) -> errors_pb2.ApiError:
    """The detail of an error."""
    detail = errors_pb2.ApiError(
        code=error.code,
        type=error.type,
        param=_cut(error.param or "", MAX_PARAM_BYTES),
        http_status=error.status,
    )
    if error.retry_after_s is not None:
        detail.retry_after_s = error.retry_after_s
    return detail


def _cut(text: str, most_bytes: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    return data[:most_bytes].decode("utf-8", "ignore") + CUT
