"""MiniMax: root messages, a history whose calls are all answered, and calls without tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from smg.profiles.base import MAX_FAULTS, Profile
from smg.validation.texts import read_object, shown

if TYPE_CHECKING:
    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import chat_pb2, message_pb2


class MiniMax(Profile):
    """All MiniMax models."""

    name = "minimax"
    pattern: ClassVar[re.Pattern[str] | None] = re.compile("minimax|abab")
    scans_calls = True

    def faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """The rules of calls in the history."""
        history = _History()
        for index, message in enumerate(request.messages):
            if message.tool_calls:
                history.calls(f"messages[{index}].tool_calls", message)
            elif message.role == "tool" and message.HasField("tool_call_id"):
                history.answer(f"messages[{index}].tool_call_id", message.tool_call_id)
            if len(history.faults) >= MAX_FAULTS:
                break
        else:
            history.end()
        return history.faults

    def rewrite(self, request: chat_pb2.ChatRequest) -> None:
        """Root messages go to the front, in order, as system messages."""
        if not any(message.role == "root" for message in request.messages):
            return
        messages = sorted(request.messages, key=lambda message: message.role != "root")
        del request.messages[:]
        request.messages.extend(messages)
        for message in request.messages:
            if message.role != "root":
                break
            message.role = "system"


class _History:
    """Which calls were made, and which of them still wait for their answer."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._known: set[str] = set()
        # By id: where the call stands.
        self._pending: dict[str, str] = {}

    def calls(self, where: str, message: message_pb2.ChatMessage) -> None:
        """A message makes calls."""
        for number, call in enumerate(message.tool_calls):
            name = f"{where}[{number}]"
            if call.id in self._known:
                fault = f"{name}.id is {shown(call.id)}, which an earlier call has; every id may stand once"
                self.faults.append((f"{name}.id", fault))
            self._known.add(call.id)
            self._pending[call.id] = name
            field = f"{name}.function.arguments"
            if call.arguments.strip():
                self.faults += read_object(call.arguments, field)[1]

    def answer(self, field: str, call_id: str) -> None:
        """A tool message answers a call."""
        if self._pending.pop(call_id, None) is None:
            fault = f"{field} is {shown(call_id)}; no call with that id waits for an answer"
            self.faults.append((field, fault))

    def end(self) -> None:
        """No message is left."""
        for call_id, where in self._pending.items():
            fault = f"{where} has the id {shown(call_id)}, which no tool message answers"
            self.faults.append((where, fault))
