"""JSON shapes of what goes wrong: instead of an answer, or in the middle of a stream."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class ChatStreamFailure(TypedDict):
    """What went wrong after a chat stream had begun."""

    message: str
    type: Literal["internal_error"]


class ChatStreamError(TypedDict):
    """The event before the last of a chat stream that failed."""

    error: ChatStreamFailure


class TextStreamFailure(TypedDict):
    """What went wrong after a text completion stream had begun."""

    message: str
    type: Literal["stream_error"]


class TextStreamError(TypedDict):
    """The event before the last of a text completion stream that failed."""

    error: TextStreamFailure


class RequestFault(TypedDict):
    """A body that was refused: of the wrong shape ("json_parse_error"), or against a rule (400)."""

    message: str
    type: Literal["invalid_request_error"]
    code: Literal["json_parse_error", 400]


class RequestError(TypedDict):
    """Answer to a body that was refused."""

    error: RequestFault


class Failure(TypedDict):
    """What went wrong: the reason phrase of the status, and a word for programs."""

    type: str
    code: str
    message: str
    param: None


class GatewayError(TypedDict):
    """Every other error. The X-SMG-Error-Code header repeats the code."""

    error: Failure
