"""Turns chat messages into the plain dicts that chat templates read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg_proto.chat.v1 import message_pb2


def template_messages(messages: Iterable[message_pb2.ChatMessage]) -> list[dict[str, Any]]:
    """The conversation as Hugging Face templates expect it.

    Text parts are joined: a template that takes no parts must not print a list. Arguments of earlier calls are
    objects, because templates index and dump them.

    Raises:
        InvalidRequest: a part that cannot be rendered, or arguments that are not JSON.
    """
    return [_message(index, message) for index, message in enumerate(messages)]


def template_tools(tools: Iterable[message_pb2.Tool]) -> list[dict[str, Any]] | None:
    """The tools as the client sent them, or built from their fields; None when there are none."""
    return [_tool(index, tool) for index, tool in enumerate(tools)] or None


def template_variables(kwargs_json: str) -> dict[str, Any]:
    """Extra template variables.

    Raises:
        InvalidRequest: not a JSON object.
    """
    return parse_object(kwargs_json, "chat_template_kwargs") if kwargs_json else {}


def parse_json(text: str, name: str, code: str | None = None) -> Any:
    """Read JSON that travels as text in a message.

    Raises:
        InvalidRequest: not JSON, or nested deeper than can be read; `name` says where it stood.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{name} is not JSON: {error}", code=code, param=name) from error
    except RecursionError:
        raise InvalidRequest(f"{name} is nested too deep to be read", code=code, param=name) from None


def parse_object(text: str, name: str) -> dict[str, Any]:
    """Read a JSON object that travels as text. Raises as parse_json, and for anything but an object."""
    value = parse_json(text, name)
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} is not a JSON object", param=name)
    return cast("dict[str, Any]", value)


def _message(index: int, message: message_pb2.ChatMessage) -> dict[str, Any]:
    kind = message.WhichOneof("content")
    if kind == "text":
        content: str | None = message.text
    elif kind == "parts":
        content = _joined(index, message.parts)
    else:
        # Templates join contents to strings; only beside calls do they expect that there may be none.
        content = None if message.tool_calls else ""
    result: dict[str, Any] = {"role": message.role, "content": content}
    if message.HasField("name"):
        result["name"] = message.name
    if message.HasField("reasoning_content"):
        result["reasoning_content"] = message.reasoning_content
    if message.HasField("tool_call_id"):
        result["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        result["tool_calls"] = [_call(index, number, call) for number, call in enumerate(message.tool_calls)]
    return result


def _joined(index: int, parts: message_pb2.ContentParts) -> str:
    texts: list[str] = []
    for number, part in enumerate(parts.parts):
        kind = part.WhichOneof("kind")
        name = f"messages[{index}].content[{number}]"
        if kind == "text":
            texts.append(part.text)
        elif kind in ("image_url", "video_url", "audio_url", "input_audio"):
            raise InvalidRequest(
                f"{name} is of type {kind}; the model takes text only",
                code="process_messages_failed",
                param=name,
            )
        else:
            raise InvalidRequest(
                f"{name} cannot be rendered; this model takes text parts only",
                code="unsupported_content_part",
                param=name,
            )
    return "".join(texts)


def _call(index: int, number: int, call: message_pb2.ToolCall) -> dict[str, Any]:
    name = f"messages[{index}].tool_calls[{number}].function.arguments"
    arguments: Any = (
        parse_json(call.arguments, name, code="process_messages_failed") if call.arguments else {}
    )
    return {
        "id": call.id,
        "type": call.type or "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _tool(index: int, tool: message_pb2.Tool) -> dict[str, Any]:
    if tool.source_json:
        return parse_object(tool.source_json, f"tools[{index}]")
    function: dict[str, Any] = {"name": tool.name}
    if tool.HasField("description"):
        function["description"] = tool.description
    if tool.parameters_json:
        function["parameters"] = parse_json(tool.parameters_json, f"tools[{index}].function.parameters")
    if tool.HasField("strict"):
        function["strict"] = tool.strict
    return {"type": tool.type or "function", "function": function}
