"""Turns the pieces of one turn of a model into items: reasoning, one message, and calls.

The client's calls become items as they come. Calls that a server runs are kept for whoever runs them. All items but
reasoning stay open until the turn ends, because only its end tells their status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from smg.parsers.events import CallArguments, CallBroken, CallStart, Content, Reasoning
from smg.responses.items import new_item_id
from smg.responses.reasoning import sealed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.parsers.events import Piece
    from smg.responses.output import Output
    from smg.responses.shapes import Json
    from smg.responses.tools import Origin


class ServerCall(NamedTuple):
    """A complete call of a function that a server runs.

    Attributes:
        call_id: of the call.
        name: as the model knows it.
        origin: what it is.
        arguments: JSON text of one object.
    """

    call_id: str
    name: str
    origin: Origin
    arguments: str


@dataclass(slots=True)
class _Text:
    """A message or reasoning that is open."""

    item_id: str
    place: int
    event: str
    part: str
    before: bytes
    texts: list[str] = field(default_factory=list[str])
    fragments: list[bytes] = field(default_factory=list[bytes])
    logprobs: list[Json] = field(default_factory=list["Json"])

    def text(self) -> str:
        """All of it."""
        self.settle()
        return "".join(self.texts)

    def settle(self) -> None:
        """Read what came as fragments."""
        if self.fragments:
            self.texts.append(orjson.loads(b'"%b"' % b"".join(self.fragments)))
            self.fragments.clear()


@dataclass(slots=True)
class _Call:
    """A call that has begun."""

    start: CallStart
    origin: Origin
    item_id: str = ""
    place: int = -1
    arguments: list[str] = field(default_factory=list[str])
    has_ended: bool = False
    is_broken: bool = False


class Turn:
    """One turn.

    Attributes:
        server_calls: complete calls for servers, in order.
        has_client_calls: some call is the client's to run.
    """

    def __init__(self, output: Output, *, with_logprobs: bool = False) -> None:
        self._output = output
        self._with_logprobs = with_logprobs
        self._message: _Text | None = None
        self._reasoning: _Text | None = None
        self._calls: dict[int, _Call] = {}
        # What the model wrote of calls that are none: content, unless it turns out that the turn was cut there.
        self._broken: list[tuple[_Call, str]] = []
        self.server_calls: list[ServerCall] = []
        self.reasoning_text = ""
        self.message_text = ""

    @property
    def has_client_calls(self) -> bool:
        """Some complete call is the client's to run."""
        return any(call.has_ended and call.place >= 0 for call in self._calls.values())

    def add(self, pieces: Iterable[Piece], logprobs: list[Json] | None = None) -> None:
        """More of the turn.

        Args:
            pieces: of the answer, in order.
            logprobs: of the tokens that brought them, as the API shows them.
        """
        for piece in pieces:
            if isinstance(piece, Content):
                self._content(piece.text, logprobs)
                logprobs = None
            elif isinstance(piece, Reasoning):
                self._write(self._open_reasoning(), piece.text)
            else:
                self._call_piece(piece)

    def fragment(self, fragment: bytes) -> None:
        """More of the message, as the inside of a JSON string."""
        message = self._message
        if message is None or self._reasoning is not None or self._broken:
            message = self._open_message()
        message.fragments.append(fragment)
        self._delta(message, fragment)

    def reasoning_fragment(self, fragment: bytes) -> None:
        """More reasoning, in the same form."""
        reasoning = self._open_reasoning()
        reasoning.fragments.append(fragment)
        self._delta(reasoning, fragment)

    def end(self, *, is_cut: bool = False, has_failed: bool = False) -> None:
        """The turn is over: close what is open, in order.

        Args:
            is_cut: the output was as long as it may be.
            has_failed: generation failed; what is there is part of something.
        """
        if not is_cut and not has_failed:
            self._show_broken()
        self._close_reasoning()
        closing = [(call.place, call) for call in self._calls.values() if call.place >= 0]
        if self._message is not None and (not closing or self._message.place < closing[0][0]):
            self._close_message(has_failed=has_failed)
        for _, call in closing:
            self._close_call(call, has_failed=has_failed)
        self._close_message(has_failed=has_failed)

    def _content(self, text: str, logprobs: list[Json] | None) -> None:
        message = self._open_message()
        if logprobs:
            message.logprobs += logprobs
        self._write(message, text, logprobs)

    def _open_message(self) -> _Text:
        self._show_broken()
        self._close_reasoning()
        if self._message is None:
            item_id = new_item_id("message")
            place = self._output.open({"id": item_id, "type": "message", "role": "assistant", "content": []})
            self._message = self._open_text(item_id, place, "output_text")
        return self._message

    def _open_reasoning(self) -> _Text:
        if self._reasoning is None:
            item_id = new_item_id("reasoning")
            place = self._output.open(
                {"id": item_id, "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
            )
            self._reasoning = self._open_text(item_id, place, "reasoning_text")
        return self._reasoning

    def _open_text(self, item_id: str, place: int, part: str) -> _Text:
        self._output.emit(
            "response.content_part.added",
            {
                "output_index": place,
                "item_id": item_id,
                "content_index": 0,
                "part": {"type": part, "text": ""},
            },
        )
        before = b',"output_index":%d,"item_id":"%b","content_index":0' % (place, item_id.encode())
        return _Text(item_id, place, f"response.{part}", part, before)

    def _write(self, text: _Text, more: str, logprobs: list[Json] | None = None) -> None:
        text.settle()
        text.texts.append(more)
        if self._output.stream is not None:
            self._delta(text, orjson.dumps(more)[1:-1], logprobs)

    def _delta(self, text: _Text, fragment: bytes, logprobs: list[Json] | None = None) -> None:
        stream = self._output.stream
        if stream is None:
            return
        before = text.before
        if logprobs:
            before += b',"logprobs":' + orjson.dumps(logprobs)
        stream.fragment(f"{text.event}.delta", before + b',"delta":"', fragment)

    def _close_text(self, text: _Text) -> tuple[str, Json]:
        """The events that end a part; returns its text and the part in full form."""
        whole = text.text()
        place: Json = {"output_index": text.place, "item_id": text.item_id, "content_index": 0}
        done: Json = {**place, "text": whole}
        part: Json = {"type": text.part, "text": whole}
        if self._with_logprobs and text.part == "output_text":
            done["logprobs"] = part["logprobs"] = text.logprobs
        self._output.emit(f"{text.event}.done", done)
        self._output.emit("response.content_part.done", {**place, "part": part})
        return whole, part

    def _close_message(self, *, has_failed: bool) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        self.message_text, part = self._close_text(message)
        self._output.close(
            message.place,
            {
                "type": "message",
                "id": message.item_id,
                "role": "assistant",
                "content": [{**part, "annotations": []}],
                "status": "in_progress" if has_failed else "completed",
            },
        )

    def _close_reasoning(self) -> None:
        reasoning, self._reasoning = self._reasoning, None
        if reasoning is None:
            return
        text, part = self._close_text(reasoning)
        self.reasoning_text += text
        item: Json = {
            "type": "reasoning",
            "id": reasoning.item_id,
            "summary": [],
            "content": [part],
            "status": "completed",
        }
        if self._output.with_encrypted:
            item["encrypted_content"] = sealed(text)
        self._output.close(reasoning.place, item)

    def _call_piece(self, piece: Piece) -> None:
        if isinstance(piece, CallStart):
            self._begin_call(piece)
        elif isinstance(piece, CallArguments):
            self._more_arguments(self._calls[piece.call], piece.text)
        elif isinstance(piece, CallBroken):
            call = self._calls[piece.call]
            call.is_broken = True
            self._broken.append((call, piece.text))
        elif not isinstance(piece, (Content, Reasoning)):
            self._end_call(self._calls[piece.call])

    def _begin_call(self, start: CallStart) -> None:
        self._show_broken()
        self._close_reasoning()
        origin = self._output.toolbox.origin(start.name)
        call = self._calls[start.call] = _Call(start, origin)
        if origin.kind == "server":
            return
        call.item_id = new_item_id(origin.item_type)
        call.place = self._output.open(self._call_item(call, "", "in_progress"))

    def _more_arguments(self, call: _Call, text: str) -> None:
        call.arguments.append(text)
        if call.origin.kind == "function" and self._output.stream is not None:
            before = b',"output_index":%d,"item_id":"%b","delta":"' % (call.place, call.item_id.encode())
            self._output.stream.fragment(
                "response.function_call_arguments.delta", before, orjson.dumps(text)[1:-1]
            )

    def _end_call(self, call: _Call) -> None:
        call.has_ended = True
        arguments = "".join(call.arguments)
        if call.origin.kind == "server":
            self.server_calls.append(
                ServerCall(call.start.id or "", call.start.name, call.origin, arguments or "{}")
            )
        elif call.origin.kind == "custom":
            self._output.emit(
                "response.custom_tool_call_input.delta",
                {"output_index": call.place, "item_id": call.item_id, "delta": _custom_input(arguments)},
            )

    def _close_call(self, call: _Call, *, has_failed: bool) -> None:
        arguments = "".join(call.arguments)
        status = "completed" if call.has_ended else "in_progress" if has_failed else "incomplete"
        place: Json = {"output_index": call.place, "item_id": call.item_id}
        if call.origin.kind == "custom":
            arguments = _custom_input(arguments) if call.has_ended else ""
            self._output.emit("response.custom_tool_call_input.done", {**place, "input": arguments})
        else:
            self._output.emit("response.function_call_arguments.done", {**place, "arguments": arguments})
        item = self._call_item(call, arguments, status)
        self._output.close(place["output_index"], item)

    @staticmethod
    def _call_item(call: _Call, arguments: str, status: str) -> Json:
        origin = call.origin
        item: Json = {
            "id": call.item_id,
            "type": origin.item_type,
            "call_id": call.start.id or call.item_id,
            "name": origin.name,
            "input" if origin.kind == "custom" else "arguments": arguments,
            "status": status,
        }
        if origin.namespace:
            item["namespace"] = origin.namespace
        return item

    def _show_broken(self) -> None:
        """What looked like a call is content."""
        broken, self._broken = self._broken, []
        for call, text in broken:
            if call.place >= 0 and self._output.stream is None:
                self._output.withdraw(call.place)
                call.place = -1
            self._content(text, None)


def _custom_input(arguments: str) -> str:
    """The text in the arguments of a custom tool; all of them where the model did not keep to the form."""
    try:
        value: Any = orjson.loads(arguments or "{}")
    except ValueError:
        return arguments
    text: Any = cast("Json", value).get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
