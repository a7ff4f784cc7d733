"""Turns a chat body into the protobuf ChatRequest. Nothing is judged here but shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gateway.openai.json_text import json_text
from gateway.openai.sampling import sampling_options, set_scalars, stream_options
from smg.errors import InvalidRequest, MalformedRequest
from smg_proto.chat.v1 import chat_pb2, message_pb2, options_pb2

if TYPE_CHECKING:
    from gateway.openai.shapes import ChatShape, MessageShape, ResponseFormatShape, ToolShape

_MODES = {
    "none": options_pb2.ToolChoice.MODE_NONE,
    "auto": options_pb2.ToolChoice.MODE_AUTO,
    "required": options_pb2.ToolChoice.MODE_REQUIRED,
}
_FORMATS = {
    "text": options_pb2.ResponseFormat.TYPE_TEXT,
    "json_object": options_pb2.ResponseFormat.TYPE_JSON_OBJECT,
    "json_schema": options_pb2.ResponseFormat.TYPE_JSON_SCHEMA,
}
MAX_EFFORT = 64
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
        MalformedRequest: a tool choice or content part of no known shape.
        InvalidRequest: a JSON schema that is not an object.
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
    tools = shape.get("tools")
    if tools:
        request.tools.extend(map(_tool, tools, data["tools"]))
    choice = shape.get("tool_choice")
    if choice is not None:
        request.tool_choice.CopyFrom(_tool_choice(choice))
    answer_format = shape.get("response_format")
    if answer_format is not None:
        request.response_format.CopyFrom(_response_format(answer_format))
    _thinking(shape, request)
    for name in ("chat_template_kwargs", "metadata"):
        value = shape.get(name)
        if value:
            setattr(request, f"{name}_json", json_text(value))
    request.modalities.extend(shape.get("modalities") or ())


def _message(index: int, shape: MessageShape) -> message_pb2.ChatMessage:
    role, content = shape["role"], shape.get("content")
    message = message_pb2.ChatMessage(role=role)
    if isinstance(content, str):
        message.text = content
    elif content is not None:
        message.parts.SetInParent()
        message.parts.parts.extend(_part(part) for part in content)
    elif role not in _CONTENT_OPTIONAL:
        raise _missing(f"messages[{index}].content", f"a {role} message needs one")
    if len(shape) > _PLAIN_MESSAGE_MEMBERS or role == "tool":
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
    for call in shape.get("tool_calls") or ():
        function = call["function"]
        message.tool_calls.add(
            id=call.get("id", ""),
            type=call.get("type", "function"),
            name=function["name"],
            arguments=function.get("arguments") or "",
        )
    if shape.get("tools") is not None:
        message.tools_json = json_text(shape.get("tools"))


def _missing(name: str, why: str) -> MalformedRequest:
    return MalformedRequest(f"{name} is missing; {why}", param=name)


def _part(part: dict[str, Any]) -> message_pb2.ContentPart:
    """A content part; one whose type or payload we do not know is kept as JSON for whoever does."""
    kind = part.get("type")
    payload = part.get(kind) if isinstance(kind, str) else None
    if kind == "text" and isinstance(payload, str):
        return message_pb2.ContentPart(text=payload)
    if kind in ("image_url", "video_url", "audio_url") and isinstance(payload, dict):
        media = cast("dict[str, Any]", payload)
        url, detail = media.get("url"), media.get("detail")
        if isinstance(url, str) and (detail is None or isinstance(detail, str)):
            extra = {key: value for key, value in media.items() if key not in ("url", "detail")}
            url_message = message_pb2.MediaUrl(url=url, detail=detail)
            if extra:
                url_message.extra_json = json_text(extra)
            part_message = message_pb2.ContentPart()
            getattr(part_message, kind).CopyFrom(url_message)
            return part_message
    if kind == "input_audio" and isinstance(payload, dict):
        audio = cast("dict[str, Any]", payload)
        if isinstance(audio.get("data"), str) and isinstance(audio.get("format"), str):
            return message_pb2.ContentPart(
                input_audio=message_pb2.InputAudio(data=audio["data"], format=audio["format"])
            )
    return message_pb2.ContentPart(other_json=json_text(part))


def _tool(shape: ToolShape, source: Any) -> message_pb2.Tool:
    function = shape["function"]
    tool = message_pb2.Tool(
        type=shape["type"],
        name=function["name"],
        description=function.get("description"),
        strict=function.get("strict"),
        source_json=json_text(source),
    )
    if function.get("parameters") is not None:
        tool.parameters_json = json_text(function.get("parameters"))
    return tool


def _tool_choice(choice: str | dict[str, Any]) -> options_pb2.ToolChoice:
    if isinstance(choice, str):
        if choice not in _MODES:
            raise MalformedRequest(
                f"tool_choice is {choice[:40]!r}; allowed are none, auto, required, a function object or allowed_tools",
                param="tool_choice",
            )
        return options_pb2.ToolChoice(mode=_MODES[choice])
    kind, name = choice.get("type"), _function_name(choice)
    if kind == "function" and name is not None:
        return options_pb2.ToolChoice(mode=options_pb2.ToolChoice.MODE_FUNCTION, name=name)
    if kind == "allowed_tools":
        # OpenAI nests mode and tools one level deeper than the specification here; both are taken.
        inner: Any = choice.get("allowed_tools", choice)
        members = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
        mode, tools = members.get("mode", "auto"), members.get("tools")
        if mode in ("auto", "required") and isinstance(tools, list):
            names = [_function_name(tool) for tool in cast("list[Any]", tools)]
            if all(name is not None for name in names):
                return options_pb2.ToolChoice(
                    mode=_MODES[mode],
                    allowed_names=[name for name in names if name is not None],
                    is_allowed_tools=True,
                )
    raise MalformedRequest(
        "tool_choice is an object of no known form; allowed are "
        '{"type": "function", "function": {"name": ...}} and {"type": "allowed_tools", "mode": ..., "tools": [...]}',
        param="tool_choice",
    )


def _function_name(value: Any) -> str | None:
    """Name of {"type": "function", "function": {"name"}} or {"type": "function", "name"}; None for others."""
    if not isinstance(value, dict):
        return None
    entry = cast("dict[str, Any]", value)
    function = entry.get("function", entry)
    name = cast("dict[str, Any]", function).get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _response_format(shape: ResponseFormatShape) -> options_pb2.ResponseFormat:
    answer = options_pb2.ResponseFormat(type=_FORMATS[shape["type"]])
    if shape["type"] != "json_schema":
        return answer
    named = shape.get("json_schema")
    if named is None:
        raise _missing("response_format.json_schema", "it is needed with type json_schema")
    if "schema" not in named:
        raise _missing("response_format.json_schema.schema", "it is needed with type json_schema")
    schema = named["schema"]
    if not isinstance(schema, dict):
        raise InvalidRequest(
            "response_format.json_schema.schema must be a JSON object",
            param="response_format.json_schema.schema",
        )
    answer.name = named["name"]
    answer.schema_json = json_text(schema)
    for name in ("strict", "description"):
        if named.get(name) is not None:
            setattr(answer, name, named.get(name))
    return answer


def _thinking(shape: ChatShape, request: chat_pb2.ChatRequest) -> None:
    effort = shape.get("reasoning_effort")
    if effort is not None:
        request.reasoning_effort = f"{effort:g}" if isinstance(effort, float) else str(effort)[:MAX_EFFORT]
    thinking = shape.get("thinking")
    if thinking is not None:
        request.thinking.SetInParent()
        for name in ("type", "effort", "keep", "clear_thinking"):
            if thinking.get(name) is not None:
                setattr(request.thinking, name, thinking.get(name))
