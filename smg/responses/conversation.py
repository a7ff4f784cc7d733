"""Turns items into the messages of a chat: the input, earlier turns, and what the tools have answered.

What a model said in one go (reasoning, text, calls) becomes one message of the assistant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from smg.errors import InvalidRequest
from smg.responses.input_items import MEDIA_PARTS
from smg.responses.reasoning import unsealed
from smg_proto.chat.v1 import message_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.responses.shapes import Json

# Records of what a server did; the model has seen them as something else, or not at all.
_SILENT = frozenset(
    (
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "item_reference",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
    )
)

_DEVELOPER = "Developer instructions:\n"
_CALLS = frozenset(("function_call", "custom_tool_call"))
_UNFINISHED = frozenset(("incomplete", "in_progress"))


def dotted(item: Json) -> str:
    """The name of a call as the model knows it."""
    namespace = item.get("namespace")
    return f"{namespace}.{item['name']}" if namespace else item["name"]


class ChatMessages:
    """Messages in the making.

    Attributes:
        messages: what is there so far.
    """

    def __init__(self) -> None:
        self.messages: list[message_pb2.ChatMessage] = []
        self._reasoning: list[str] = []
        # The message of the assistant that further calls belong to.
        self._open: message_pb2.ChatMessage | None = None

    def instruct(self, instructions: str) -> None:
        """What the model is told first."""
        self.messages.append(message_pb2.ChatMessage(role="system", text=instructions))

    def add(self, items: Iterable[Json]) -> None:
        """More items.

        Raises:
            InvalidRequest: an item that no chat can hold.
        """
        for item in items:
            self._add(item)

    def check_answers(self) -> None:
        """See that every answer belongs to a call before it; gpt-oss models are told the function, not the id.

        Raises:
            InvalidRequest: one answers nothing.
        """
        calls: set[str] = set()
        for message in self.messages:
            calls.update(call.id for call in message.tool_calls)
            if message.role == "tool" and message.tool_call_id not in calls:
                raise InvalidRequest(
                    f"No function call found for call_id: {message.tool_call_id[:80]}",
                    code="harmony_build_failed",
                    param="input",
                )

    def said(self, reasoning: str, text: str) -> None:
        """What the model has said before the calls of a turn."""
        if reasoning:
            self._open = None
            self._reasoning.append(reasoning)
        if text:
            self._add({"type": "message", "role": "assistant", "content": text})

    def answered_call(self, call_id: str, name: str, arguments: str, output: str) -> None:
        """A call that has its answer."""
        self._call(call_id, name, arguments)
        self._answer(call_id, output)

    def _add(self, item: Json) -> None:
        kind = item["type"]
        if item.get("status") in _UNFINISHED and kind in _CALLS:
            # Its arguments were cut off: no template can show them, and nobody has answered it.
            return
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reason(item)
        elif kind == "function_call":
            self._call(item["call_id"], dotted(item), item["arguments"])
        elif kind == "custom_tool_call":
            self._call(item["call_id"], dotted(item), _custom_arguments(item["input"]))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._answer(item["call_id"], _output_text(item))
        elif kind == "mcp_call":
            self.answered_call(item.get("id") or "mcp", item["name"], item["arguments"], _mcp_output(item))
        elif kind not in _SILENT:
            raise InvalidRequest(
                f"an input item of type {kind} cannot be shown to this model", code="convert_request_failed",
                param="input",
            )  # fmt: skip

    def _message(self, item: Json) -> None:
        role = item["role"]
        content: Any = item["content"]
        if role == "developer":
            # Templates seldom know the role; said in words, every model knows whose instructions these are.
            role = "system"
            text = content if isinstance(content, str) else "".join(map(_part_text, content))
            content = _DEVELOPER + text
        message = message_pb2.ChatMessage(role=role)
        if isinstance(content, str):
            message.text = content
        elif len(content) == 1 and content[0]["type"] not in MEDIA_PARTS:
            message.text = _part_text(content[0])
        else:
            message.parts.SetInParent()
            message.parts.parts.extend(map(_part, content))
        if role == "assistant":
            self._take_reasoning(message)
            self._open = message
        else:
            self._end_turn()
        self.messages.append(message)

    def _reason(self, item: Json) -> None:
        content: Any = item.get("content") or ()
        text = content if isinstance(content, str) else "".join(map(_part_text, content))
        if not text and item.get("encrypted_content"):
            text = unsealed(item["encrypted_content"]) or ""
        if text:
            self._open = None
            self._reasoning.append(text)

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        if self._open is None:
            self._open = message_pb2.ChatMessage(role="assistant")
            self._take_reasoning(self._open)
            self.messages.append(self._open)
        self._open.tool_calls.add(id=call_id, type="function", name=name, arguments=arguments)

    def _answer(self, call_id: str, text: str) -> None:
        self._end_turn()
        self.messages.append(message_pb2.ChatMessage(role="tool", tool_call_id=call_id, text=text))

    def _take_reasoning(self, message: message_pb2.ChatMessage) -> None:
        if self._reasoning:
            message.reasoning_content = "".join(self._reasoning)
            self._reasoning.clear()

    def _end_turn(self) -> None:
        self._open = None
        # Reasoning that led to nothing belongs to no message.
        self._reasoning.clear()


def _part(part: Json) -> message_pb2.ContentPart:
    kind = part["type"]
    if kind == "input_image":
        url: Any = part.get("image_url")
        if isinstance(url, str) and url:
            return message_pb2.ContentPart(image_url=message_pb2.MediaUrl(url=url, detail=part.get("detail")))
    elif kind == "input_audio":
        audio: Any = part.get("input_audio")
        if isinstance(audio, dict):
            return message_pb2.ContentPart(
                input_audio=message_pb2.InputAudio(
                    data=str(audio.get("data", "")),  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
                    format=str(audio.get("format", "")),  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
                )
            )
    elif kind not in MEDIA_PARTS:
        return message_pb2.ContentPart(text=_part_text(part))
    raise InvalidRequest(
        f"a content part of type {kind} cannot be shown to this model", code="convert_request_failed",
        param="input",
    )  # fmt: skip


def _part_text(part: Json) -> str:
    return part["refusal"] if part["type"] == "refusal" else part["text"]


def _output_text(item: Json) -> str:
    output: Any = item["output"]
    if isinstance(output, str):
        return output
    for part in output:
        if part["type"] in MEDIA_PARTS:
            raise InvalidRequest(
                f"the output of call {item['call_id'][:80]} has a part of type {part['type']}; "
                "this model takes text parts only",
                code="convert_request_failed",
                param="input",
            )
    return "".join(map(_part_text, output))


def _mcp_output(item: Json) -> str:
    error: Any = item.get("error")
    if error:
        return str(error.get("content") or error.get("message") or "the tool failed")
    return item.get("output") or ""


def _custom_arguments(text: str) -> str:
    return orjson.dumps({"input": text}).decode()
