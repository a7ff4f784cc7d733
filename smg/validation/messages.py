"""Rules of a conversation's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.validation.texts import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import message_pb2

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# Roles whose messages need nothing but text.
SPEAKERS = frozenset(("system", "developer", "user", "assistant"))
MAX_MESSAGE_FAULTS = 8
MAX_MESSAGES = 20_000


def messages_faults(messages: Sequence[message_pb2.ChatMessage]) -> list[Fault]:
    """Check every message; a few faults are enough."""
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
        return [(f"{name}.role", f"{name}.role is {shown(role)}; allowed are {', '.join(ROLES)}")]
    kind = message.WhichOneof("content")
    is_empty = kind is None or (not message.text if kind == "text" else not message.parts.parts)
    if role == "user" and is_empty:
        return [(f"{name}.content", f"{name}.content is empty; a user message needs text or parts")]
    if kind is None and role in ("tool", "function", "developer"):
        return [(f"{name}.content", f"{name}.content is missing; a {role} message needs one")]
    if role == "tool" and not message.HasField("tool_call_id"):
        return [(f"{name}.tool_call_id", f"{name}.tool_call_id is missing; it names the call answered")]
    return []
