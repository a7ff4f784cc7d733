"""Kimi (Moonshot AI): tools declared on messages, and usage in every stream. K3 has fixed sampling and effort levels.

The template shows such tools where they stand; they join the request's own for the tool choice, its constraint and the
reading of calls.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic_core import from_json

from smg.profiles.base import MAX_FAULTS, Adapted, Profile, adaptive_faults, fill_sampling
from smg.validation.rules import set_fields
from smg.validation.texts import shown
from smg_proto.chat.v1 import chat_pb2, message_pb2

if TYPE_CHECKING:
    from smg.validation.texts import Fault

MAX_NAME_CHARS = 256
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECLARING = frozenset(("system", "developer"))
_REFUSING = frozenset(("user", "assistant"))
K3_EFFORTS = ("low", "high", "max")
# The first is what an omitted option gets.
_K3_SAMPLING: dict[str, tuple[float, ...]] = {
    "temperature": (1.0, 0.6, 0.0),
    "top_p": (0.95,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
}


class Kimi(Profile):
    """All Kimi models."""

    name = "kimi"
    pattern: ClassVar[re.Pattern[str] | None] = re.compile("kimi|moonshot")
    tells_usage = True
    shows_message_tools = True

    def faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """The rules of tools on messages."""
        faults: list[Fault] = []
        names = {tool.name for tool in request.tools}
        for index, message in enumerate(request.messages):
            if message.tools_json and len(faults) < MAX_FAULTS:
                faults += _message_faults(f"messages[{index}]", message, names)
        return faults

    def adapt(self, request: chat_pb2.ChatRequest) -> Adapted:
        """The prompt is made without the messages' tools at the top: their messages show them."""
        prompt = super().adapt(request).request
        declared: list[message_pb2.Tool] = []
        for message in prompt.messages:
            if not message.tools_json:
                continue
            if message.role in _DECLARING:
                declared += map(_tool, from_json(message.tools_json))
            else:
                message.tools_json = ""
        if not declared:
            return Adapted(prompt, prompt)
        joined = chat_pb2.ChatRequest()
        joined.CopyFrom(prompt)
        joined.tools.extend(declared)
        return Adapted(joined, prompt)


class KimiK3(Kimi):
    """The K3 models."""

    name = "kimi_k3"
    pattern: ClassVar[re.Pattern[str] | None] = re.compile("kimi[-_]k3")

    def faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """The fixed sampling options and the thinking control."""
        faults: list[Fault] = []
        sampling = set_fields(request.sampling)
        for name, allowed in _K3_SAMPLING.items():
            value: float | None = sampling.get(name)
            if value is not None and value not in allowed:
                values = ", ".join(f"{each:g}" for each in sorted(allowed))
                faults.append((name, f"{name} is {value:g}; allowed for this model: {values}"))
        if request.HasField("n") and request.n != 1:
            faults.append(("n", f"n is {request.n}; allowed for this model: 1"))
        faults += adaptive_faults(request)
        effort = request.thinking.effort
        if request.thinking.HasField("effort") and effort not in K3_EFFORTS:
            sentence = f"thinking.effort is {shown(effort)}"
            faults.append(
                ("thinking.effort", f"{sentence}; allowed for this model are {', '.join(K3_EFFORTS)}")
            )
        return faults + super().faults(request)

    def rewrite(self, request: chat_pb2.ChatRequest) -> None:
        """The contract's values for what is omitted."""
        fill_sampling(request, **{name: allowed[0] for name, allowed in _K3_SAMPLING.items()})
        request.n = 1


def _message_faults(where: str, message: message_pb2.ChatMessage, names: set[str]) -> list[Fault]:
    """Args: names: of the functions declared so far; those of this message are added."""
    field = f"{where}.tools"
    if message.role in _REFUSING:
        sentence = f"{field} stands on a {message.role} message"
        return [(field, f"{sentence}; tools may be declared on system and developer messages")]
    if message.role not in _DECLARING:
        return []
    try:
        tools: Any = from_json(message.tools_json, allow_inf_nan=False)
    except ValueError as error:
        return [(field, f"{field} is not JSON: {error}")]
    if not isinstance(tools, list):
        return [(field, f"{field} is no list; it must be a list of tools")]
    if tools and (message.text or message.parts.parts):
        return [(field, f"{field} stands beside content; a message has tools or content, not both")]
    faults: list[Fault] = []
    for number, tool in enumerate(cast("list[Any]", tools)):
        if fault := _tool_fault(f"{field}[{number}]", tool, names):
            faults.append(fault)
        if len(faults) == MAX_FAULTS:
            break
    return faults


def _tool_fault(where: str, tool: Any, names: set[str]) -> Fault | None:
    entry = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    kind, function = entry.get("type"), entry.get("function")
    if isinstance(kind, str) and kind != "function":
        return (f"{where}.type", f"{where}.type is {shown(kind)}; only function is allowed")
    members = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
    name = members.get("name")
    texts = (members.get("description"), members.get("strict"))
    if (
        not isinstance(kind, str)
        or not isinstance(name, str)
        or not isinstance(texts[0], str | None)
        or not isinstance(texts[1], bool | None)
    ):
        return (where, f'{where} is no tool; it must be {{"type": "function", "function": {{"name": …}}}}')
    field = f"{where}.function.name"
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        allowed = f"letters, digits and _, no digit first, at most {MAX_NAME_CHARS} characters"
        return (field, f"{field} is {shown(name)}; allowed are {allowed}")
    if name in names:
        return (field, f"{field} is {shown(name)}, which is declared already; every name may stand once")
    names.add(name)
    return None


def _tool(entry: dict[str, Any]) -> message_pb2.Tool:
    function: dict[str, Any] = entry["function"]
    tool = message_pb2.Tool(
        type="function",
        name=function["name"],
        description=function.get("description"),
        strict=function.get("strict"),
        source_json=json.dumps(entry, ensure_ascii=False),
    )
    if function.get("parameters") is not None:
        tool.parameters_json = json.dumps(function["parameters"], ensure_ascii=False)
    return tool
