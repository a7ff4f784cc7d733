"""Request bodies of the OpenAI API on their way through parsing and rules, without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gateway.errors import error_answer
from gateway.openai.chat_request import chat_request
from gateway.openai.completion_request import completion_request
from gateway.openai.parse import parse_body
from gateway.openai.shapes import CHAT, COMPLETION
from gateway.request import HttpRequest
from smg.errors import SmgError
from smg.types.context import RequestContext
from smg.validation.chat import validate_chat
from smg.validation.completion import validate_completion

if TYPE_CHECKING:
    from smg_proto.chat.v1 import chat_pb2, completion_pb2

JSON = b"application/json"
USER = {"role": "user", "content": "hi"}


def http(body: object, content_type: bytes | None = JSON) -> HttpRequest:
    """A request with a body: bytes as they are, anything else as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {} if content_type is None else {b"content-type": content_type}
    return HttpRequest("POST", "/", "/", "", headers, raw, RequestContext("r"), {})


def read_chat(body: object, content_type: bytes | None = JSON) -> chat_pb2.ChatRequest:
    """The message of a chat body; its rules are not checked."""
    return chat_request(*parse_body(http(body, content_type), CHAT))


def read_completion(body: object, content_type: bytes | None = JSON) -> completion_pb2.CompletionRequest:
    """The message of a completion body; its rules are not checked."""
    return completion_request(parse_body(http(body, content_type), COMPLETION)[0])


def chat(**fields: Any) -> chat_pb2.ChatRequest:
    """The message of a valid chat body with these members."""
    return read_chat({"model": "m", "messages": [USER], **fields})


def completion(**fields: Any) -> completion_pb2.CompletionRequest:
    """The message of a valid completion body with these members."""
    return read_completion({"model": "m", "prompt": "x", **fields})


def chat_refusal(body: object, content_type: bytes | None = JSON) -> SmgError | None:
    """The error with which a chat body is refused; None for one that is taken."""
    try:
        validate_chat(read_chat(body, content_type))
    except SmgError as error:
        return error
    return None


def completion_refusal(body: object, content_type: bytes | None = JSON) -> SmgError | None:
    """The error with which a completion body is refused; None for one that is taken."""
    try:
        validate_completion(read_completion(body, content_type))
    except SmgError as error:
        return error
    return None


def error_body(error: SmgError) -> dict[str, Any]:
    """The HTTP answer to a body at fault; checks that it is a short 400 in the API's own form for such faults."""
    status, headers, body = error_answer(error)
    assert status == 400
    assert len(body) < 4096
    assert not [name for name, _ in headers if name == b"x-smg-error-code"]
    answer = json.loads(body, parse_constant=_fail)
    assert list(answer) == ["error"]
    assert answer["error"].keys() == {"message", "type", "code"}
    assert answer["error"]["type"] == "invalid_request_error"
    return answer["error"]


def _fail(constant: str) -> None:
    """NaN and Infinity are not JSON."""
    raise AssertionError(constant)
