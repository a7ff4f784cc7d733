"""Turns chat messages into the plain dicts that chat templates read."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest
from smg.pipelines.media import NO_MEDIA
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.pipelines.media import MediaTaker
    from smg_proto.chat.v1 import message_pb2

UNSUPPORTED_PART = "unsupported_content_part"
_log = logging.getLogger(__name__)
_CHOICES = {
    options_pb2.ToolChoice.MODE_NONE: "none",
    options_pb2.ToolChoice.MODE_REQUIRED: "required",
}


def template_messages(
    messages: Iterable[message_pb2.ChatMessage], media: MediaTaker = NO_MEDIA, *, shows_tools: bool = False
) -> list[dict[str, Any]]:
    """The conversation, nothing added or left out; the builder fits it to the template.

    Arguments of earlier calls are objects, because templates index and dump them.

    Args:
        messages: the conversation.
        media: gets the media of the conversation; takes none unless given.
        shows_tools: tools that messages declare are shown; else they are dropped, with a warning.

    Raises:
        InvalidRequest: a part that cannot be rendered, or arguments that are not JSON.
    """
    result = [_message(index, message, media) for index, message in enumerate(messages)]
    declaring = [index for index, message in enumerate(result) if "tools" in message]
    for index in declaring:
        declared: str = result[index].pop("tools")
        if shows_tools:
            result[index]["tools"] = parse_json(declared, f"messages[{index}].tools")
    if declaring and not shows_tools:
        _log.warning("tools on %d messages are dropped: only Kimi models take them there", len(declaring))
    return result


def template_tools(tools: Iterable[message_pb2.Tool]) -> list[dict[str, Any]] | None:
    """The tools as the client sent them, or built from their fields; None when there are none."""
    return [_tool(index, tool) for index, tool in enumerate(tools)] or None


def template_tool_choice(choice: options_pb2.ToolChoice) -> str | dict[str, Any]:
    """The tool choice as clients write it; "auto" where they did not."""
    mode = _CHOICES.get(choice.mode, "auto")
    if choice.is_allowed_tools:
        allowed = [{"type": "function", "name": name} for name in choice.allowed_names]
        return {"type": "allowed_tools", "mode": mode, "tools": allowed}
    if choice.mode == options_pb2.ToolChoice.MODE_FUNCTION:
        return {"type": "function", "function": {"name": choice.name}}
    return mode


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


def _message(index: int, message: message_pb2.ChatMessage, media: MediaTaker) -> dict[str, Any]:
    result: dict[str, Any] = {
        "role": message.role,
        "content": message.text or _content(index, message, media),
    }
    if message.HasField("name"):
        result["name"] = message.name
    if message.tool_calls:
        result["tool_calls"] = [_call(index, number, call) for number, call in enumerate(message.tool_calls)]
    if message.HasField("reasoning_content"):
        result["reasoning_content"] = message.reasoning_content
    if message.HasField("tool_call_id"):
        result["tool_call_id"] = message.tool_call_id
    if message.tools_json:
        result["tools"] = message.tools_json
    return result


def _content(
    index: int, message: message_pb2.ChatMessage, media: MediaTaker
) -> str | list[dict[str, Any]] | None:
    kind = message.WhichOneof("content")
    if kind == "text":
        return message.text
    if kind == "parts":
        parts = enumerate(message.parts.parts)
        return [_part(f"messages[{index}].content[{n}]", part, media) for n, part in parts]
    if message.tool_calls:
        return None
    # Templates join contents to strings; only beside calls do they expect that there may be none. What the model
    # said in place of an answer is what the turn holds, and no template knows the field.
    return message.refusal


def _part(name: str, part: message_pb2.ContentPart, media: MediaTaker) -> dict[str, Any]:
    kind = part.WhichOneof("kind")
    if kind == "text":
        return {"type": "text", "text": part.text}
    if kind in ("image_url", "video_url", "audio_url", "input_audio"):
        return media.take(kind, part, name)
    raise InvalidRequest(
        f"{name} cannot be rendered; its type is not known here, or its payload is malformed",
        code=UNSUPPORTED_PART,
        param=name,
    )


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
        source = parse_object(tool.source_json, f"tools[{index}]")
        function: Any = source.get("function")
        if isinstance(function, dict) and cast("dict[str, Any]", function).get("parameters") is None:
            # A function without parameters takes none; templates look into the schema without asking.
            return source | {"function": cast("dict[str, Any]", function) | {"parameters": {}}}
        return source
    built: dict[str, Any] = {"name": tool.name}
    if tool.HasField("description"):
        built["description"] = tool.description
    name = f"tools[{index}].function.parameters"
    built["parameters"] = parse_json(tool.parameters_json, name) if tool.parameters_json else {}
    if tool.HasField("strict"):
        built["strict"] = tool.strict
    return {"type": tool.type or "function", "function": built}
