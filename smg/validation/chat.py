"""Rules of a chat request, on the protobuf, so that HTTP and gRPC callers get the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.validation.messages import messages_faults
from smg.validation.rules import CHAT, CHAT_SAMPLING, raise_faults, range_faults, set_fields
from smg.validation.sampling import rid_faults, sampling_faults
from smg.validation.schema import schema_faults
from smg.validation.texts import read_object, shown
from smg.validation.tools import is_forced, tool_faults
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import chat_pb2

THINKING_TYPES = ("enabled", "disabled", "adaptive")
# A level's name, or the digits of a budget.
MAX_EFFORT_CHARS = 64
_FORMATS = options_pb2.ResponseFormat
_CONSTRAINTS = ("regex", "ebnf")
# Template variables that are the request itself. One that came in by the side door would replace it, or do nothing.
RESERVED_VARIABLES = frozenset(
    ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize")
)


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
    faults += messages_faults(fields.get("messages", ()))
    if "stream_options" in fields and not request.stream:
        faults.append(("stream_options", "stream_options is set; it is allowed only with stream: true"))
    if "top_logprobs" in fields and not fields.get("logprobs"):
        faults.append(("top_logprobs", "top_logprobs is set; it is allowed only with logprobs: true"))
    if _RARE & fields.keys():
        faults += _rare_faults(request, fields, sampling)
    raise_faults(faults)


_RARE = frozenset(
    ("tools", "tool_choice", "response_format", "thinking", "reasoning_effort", "chat_template_kwargs_json")
)


def _rare_faults(
    request: chat_pb2.ChatRequest, fields: Mapping[str, Any], sampling: Mapping[str, Any]
) -> list[Fault]:
    """Rules of members that few requests have."""
    faults = tool_faults(request)
    constraint = next((name for name in _CONSTRAINTS if name in sampling), None)
    if constraint is not None and is_forced(request):
        sentence = f"{constraint} is set together with a tool_choice that asks for a call"
        faults.append((constraint, f"{sentence}; set only one"))
    if "response_format" in fields:
        faults += _format_faults(fields["response_format"], constraint)
    if "thinking" in fields:
        faults += _thinking_faults(fields["thinking"])
    faults += _effort_faults("reasoning_effort", request.reasoning_effort)
    if request.chat_template_kwargs_json:
        faults += _variable_faults(request.chat_template_kwargs_json)
    return faults


def _format_faults(answer: options_pb2.ResponseFormat, constraint: str | None) -> list[Fault]:
    faults: list[Fault] = []
    if answer.type not in _FORMATS.Type.values():
        faults.append(("response_format.type", f"response_format.type is {answer.type}; no such value"))
    if answer.type == _FORMATS.TYPE_JSON_SCHEMA:
        if not answer.name:
            name = "response_format.json_schema.name"
            faults.append((name, f"{name} is empty; a schema needs a name"))
        faults += schema_faults(answer.schema_json, "response_format.json_schema.schema")
    if constraint and answer.type in (_FORMATS.TYPE_JSON_SCHEMA, _FORMATS.TYPE_JSON_OBJECT):
        faults.append((constraint, f"{constraint} is set together with a JSON response_format; set only one"))
    return faults


def _thinking_faults(thinking: options_pb2.Thinking) -> list[Fault]:
    faults = _effort_faults("thinking.effort", thinking.effort)
    if thinking.HasField("type") and thinking.type not in THINKING_TYPES:
        allowed = ", ".join(THINKING_TYPES)
        faults.append(("thinking.type", f"thinking.type is {shown(thinking.type)}; allowed are {allowed}"))
    return faults


def _effort_faults(name: str, effort: str) -> list[Fault]:
    if len(effort) <= MAX_EFFORT_CHARS:
        return []
    return [(name, f"{name} has {len(effort)} characters; at most {MAX_EFFORT_CHARS} are allowed")]


def _variable_faults(text: str) -> list[Fault]:
    name = "chat_template_kwargs"
    variables, faults = read_object(text, name)
    reserved = sorted(RESERVED_VARIABLES & variables.keys())
    if reserved:
        names = ", ".join(sorted(RESERVED_VARIABLES))
        faults.append((name, f"{name} has {reserved[0]!r}; allowed are all names but {names}"))
    return faults
