"""Rules of a chat request, on the protobuf, so that HTTP and gRPC callers get the same answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from smg.validation.rules import CHAT, CHAT_SAMPLING, raise_faults, range_faults, set_fields
from smg.validation.sampling import rid_faults, sampling_faults
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smg_proto.chat.v1 import chat_pb2, message_pb2

Fault = tuple[str, str]
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# Roles whose messages need nothing but text.
SPEAKERS = frozenset(("system", "developer", "user", "assistant"))
MAX_MESSAGE_FAULTS = 8
MAX_MESSAGES = 20_000
THINKING_TYPES = ("enabled", "disabled", "adaptive")


def validate_chat(request: chat_pb2.ChatRequest) -> None:
    """Check every rule that needs no model.

    Raises:
        InvalidRequest: one or more rules are broken; the message names them all.
    """
    fields = set_fields(request)
    sampling = set_fields(fields["sampling"]) if "sampling" in fields else {}
    faults = range_faults(fields, CHAT)
    if sampling:
        faults += range_faults(sampling, CHAT_SAMPLING)
        faults += sampling_faults(sampling)
    if "rid" in fields:
        faults += rid_faults(fields["rid"])
    if "model" not in fields:
        faults.append(("model", "model is empty; name a model of GET /v1/models"))
    faults += _messages_faults(fields.get("messages", ()))
    if "stream_options" in fields and not request.stream:
        faults.append(("stream_options", "stream_options is set; it is allowed only with stream: true"))
    if "top_logprobs" in fields and not fields.get("logprobs"):
        faults.append(("top_logprobs", "top_logprobs is set; it is allowed only with logprobs: true"))
    if "tools" in fields or "tool_choice" in fields:
        faults += _tool_faults(request)
    if "response_format" in fields:
        faults += _format_faults(fields["response_format"], sampling)
    if "thinking" in fields:
        faults += _thinking_faults(fields["thinking"])
    raise_faults(faults)


def _messages_faults(messages: Sequence[message_pb2.ChatMessage]) -> list[Fault]:
    if not messages:
        return [("messages", "messages is empty; at least one message is needed")]
    if len(messages) > MAX_MESSAGES:
        return [("messages", f"messages has {len(messages)} messages; at most {MAX_MESSAGES} are allowed")]
    faults: list[Fault] = []
    for index, message in enumerate(messages):
        # The common message, text from somebody who may speak, is done with one look.
        if message.text and message.role in SPEAKERS:
            continue
        faults += _message_faults(index, message)
        if len(faults) >= MAX_MESSAGE_FAULTS:
            break
    return faults


def _message_faults(index: int, message: message_pb2.ChatMessage) -> list[Fault]:
    role = message.role
    name = f"messages[{index}]"
    if role not in ROLES:
        return [(f"{name}.role", f"{name}.role is {role[:40]!r}; allowed are {', '.join(ROLES)}")]
    kind = message.WhichOneof("content")
    is_empty = kind is None or (not message.text if kind == "text" else not message.parts.parts)
    if role == "user" and is_empty:
        return [(f"{name}.content", f"{name}.content is empty; a user message needs text or parts")]
    if kind is None and role in ("tool", "function", "developer"):
        return [(f"{name}.content", f"{name}.content is missing; a {role} message needs one")]
    if role == "tool" and not message.HasField("tool_call_id"):
        return [(f"{name}.tool_call_id", f"{name}.tool_call_id is missing; it names the call answered")]
    return []


def _tool_faults(request: chat_pb2.ChatRequest) -> list[Fault]:
    names = {tool.name for tool in request.tools}
    faults: list[Fault] = [
        (f"tools[{index}].function.name", f"tools[{index}].function.name is empty")
        for index, tool in enumerate(request.tools)
        if not tool.name
    ]
    if not request.HasField("tool_choice"):
        return faults
    choice = request.tool_choice
    modes = options_pb2.ToolChoice
    if choice.mode not in modes.Mode.values():
        faults.append(("tool_choice.mode", f"tool_choice.mode is {choice.mode}; no such value"))
    if choice.mode in (modes.MODE_REQUIRED, modes.MODE_FUNCTION) or choice.is_allowed_tools:
        if not names:
            faults.append(("tool_choice", "tool_choice asks for a call, and tools is empty"))
        elif choice.mode == modes.MODE_FUNCTION and choice.name not in names:
            faults.append(("tool_choice", f"tool_choice names {choice.name!r}; tools has {_listed(names)}"))
        unknown = [name for name in choice.allowed_names if name not in names]
        if names and unknown:
            faults.append(("tool_choice", f"tool_choice allows {unknown[0]!r}; tools has {_listed(names)}"))
    return faults


def _format_faults(answer: options_pb2.ResponseFormat, sampling: Mapping[str, Any]) -> list[Fault]:
    types = options_pb2.ResponseFormat
    faults: list[Fault] = []
    if answer.type not in types.Type.values():
        faults.append(("response_format.type", f"response_format.type is {answer.type}; no such value"))
    if answer.type == types.TYPE_JSON_SCHEMA:
        if not answer.name:
            faults.append(("response_format.json_schema.name", "response_format.json_schema.name is empty"))
        if not _is_json_object(answer.schema_json):
            name = "response_format.json_schema.schema"
            faults.append((name, f"{name} is not a JSON object"))
    constraint = next((name for name in ("regex", "ebnf") if name in sampling), None)
    if constraint and answer.type in (types.TYPE_JSON_SCHEMA, types.TYPE_JSON_OBJECT):
        faults.append((constraint, f"{constraint} is set together with a JSON response_format; set only one"))
    return faults


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _thinking_faults(thinking: options_pb2.Thinking) -> list[Fault]:
    if not thinking.HasField("type") or thinking.type in THINKING_TYPES:
        return []
    allowed = ", ".join(THINKING_TYPES)
    return [("thinking.type", f"thinking.type is {thinking.type[:40]!r}; allowed are {allowed}")]


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)[:10])
