"""Turns a chat body into the protobuf ChatRequest. Nothing is judged here but shapes."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from gateway.openai.content_part import content_part
from gateway.openai.explain import shown
from gateway.openai.json_text import json_text
from gateway.openai.sampling import sampling_options, set_scalars, stream_options
from gateway.openai.tool_request import tool_choice_of, tools_of
from smg.errors import InvalidRequest, MalformedRequest
from smg_proto.chat.v1 import chat_pb2, message_pb2, options_pb2

if TYPE_CHECKING:
    from gateway.openai.shapes import ChatShape, MessageShape, ResponseFormatShape

_FORMATS = {
    "text": options_pb2.ResponseFormat.TYPE_TEXT,
    "json_object": options_pb2.ResponseFormat.TYPE_JSON_OBJECT,
    "json_schema": options_pb2.ResponseFormat.TYPE_JSON_SCHEMA,
}
_SCHEMA = "response_format.json_schema.schema"
_PLAIN_MESSAGE_MEMBERS = 2
_CONTENT_OPTIONAL = frozenset(("system", "assistant"))
_PLAIN = frozenset(
    (
        "n",
        "logprobs",
        "top_logprobs",
        "parallel_tool_calls",
        "continue_final_message",
        "separate_reasoning",
        "stream_reasoning",
        "return_hidden_states",
        "return_audio",
        "rid",
        "user",
    )
)
# Members that few requests have; the others skip all that looks at them.
_RARE = frozenset(
    (
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "response_format",
        "reasoning_effort",
        "thinking",
        "chat_template_kwargs",
        "metadata",
        "modalities",
    )
)


def chat_request(shape: ChatShape, data: dict[str, Any]) -> chat_pb2.ChatRequest:
    """The request as protobuf.

    Args:
        shape: the checked body.
        data: the same body as plain JSON; tools are kept as they were sent.

    Raises:
        MalformedRequest: a tool choice of no known form, a content that is missing, or a number beyond every float.
        InvalidRequest: a JSON schema that is not an object, or an allowed_tools mode that there is not.
    """
    request = chat_pb2.ChatRequest(
        model=shape["model"],
        messages=[_message(index, message) for index, message in enumerate(shape["messages"])],
        sampling=sampling_options(shape),
        stream=bool(shape.get("stream")),
    )
    set_scalars(request, shape, _PLAIN)
    options = shape.get("stream_options")
    if options is not None:
        request.stream_options.CopyFrom(stream_options(options))
    if _RARE & shape.keys():
        _rare(request, shape, data)
    return request


def _rare(request: chat_pb2.ChatRequest, shape: ChatShape, data: dict[str, Any]) -> None:
    request.tools.extend(tools_of(shape, data))
    choice = tool_choice_of(shape)
    if choice is not None:
        request.tool_choice.CopyFrom(choice)
    answer_format = shape.get("response_format")
    if answer_format is not None:
        request.response_format.CopyFrom(_response_format(answer_format))
    _thinking(shape, request)
    for name in ("chat_template_kwargs", "metadata"):
        value = shape.get(name)
        if value:
            setattr(request, f"{name}_json", json_text(value, name))
    request.modalities.extend(shape.get("modalities") or ())


def _message(index: int, shape: MessageShape) -> message_pb2.ChatMessage:
    role, content = shape["role"], shape.get("content")
    message = message_pb2.ChatMessage(role=role)
    if isinstance(content, str):
        message.text = content
    elif content is not None:
        message.parts.SetInParent()
        message.parts.parts.extend(
            content_part(part, f"messages[{index}].content[{number}]") for number, part in enumerate(content)
        )
    elif role not in _CONTENT_OPTIONAL:
        raise _missing(f"messages[{index}].content", f"a {role} message needs one")
    if len(shape) > _PLAIN_MESSAGE_MEMBERS or "content" not in shape or role == "tool":
        _message_extras(index, shape, message)
    return message


def _message_extras(index: int, shape: MessageShape, message: message_pb2.ChatMessage) -> None:
    """Everything of a message but role and content."""
    call_id = shape.get("tool_call_id")
    if call_id is not None:
        message.tool_call_id = call_id
    elif message.role == "tool":
        raise _missing(f"messages[{index}].tool_call_id", "it names the call answered")
    name = shape.get("name")
    if name is not None:
        message.name = name
    reasoning = shape.get("reasoning_content")
    if reasoning is None:
        reasoning = shape.get("reasoning")
    if reasoning is not None:
        message.reasoning_content = reasoning
    refusal = shape.get("refusal")
    if refusal is not None:
        message.refusal = refusal
    for call in shape.get("tool_calls") or ():
        function = call["function"]
        message.tool_calls.add(
            id=call.get("id") or "",
            type=call.get("type") or "function",
            name=function["name"],
            arguments=function.get("arguments") or "",
        )
    if shape.get("tools") is not None:
        message.tools_json = json_text(shape.get("tools"), f"messages[{index}].tools")


def _missing(name: str, why: str) -> MalformedRequest:
    return MalformedRequest(f"{name} is missing; {why}", param=name)


def _response_format(shape: ResponseFormatShape) -> options_pb2.ResponseFormat:
    answer = options_pb2.ResponseFormat(type=_FORMATS[shape["type"]])
    if shape["type"] != "json_schema":
        return answer
    named = shape.get("json_schema")
    if named is None:
        raise _missing("response_format.json_schema", "it is needed with type json_schema")
    schema: Any = named["schema"]
    if not isinstance(schema, dict):
        raise InvalidRequest(
            f"{_SCHEMA} is {shown(schema)}; it must be a JSON object, {{}} for any value", param=_SCHEMA
        )
    answer.name = named["name"]
    answer.schema_json = json_text(schema, _SCHEMA)
    for name in ("strict", "description"):
        if named.get(name) is not None:
            setattr(answer, name, named.get(name))
    return answer


def _thinking(shape: ChatShape, request: chat_pb2.ChatRequest) -> None:
    effort = shape.get("reasoning_effort")
    if effort is not None:
        request.reasoning_effort = effort if isinstance(effort, str) else _decimal(effort)
    thinking = shape.get("thinking")
    if thinking is not None:
        request.thinking.SetInParent()
        for name in ("type", "effort", "keep", "clear_thinking"):
            if thinking.get(name) is not None:
                setattr(request.thinking, name, thinking.get(name))


def _decimal(number: float) -> str:
    """A number's digits, without an exponent."""
    return format(Decimal(repr(number)), "f")
