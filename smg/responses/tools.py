"""What the tools of a response mean: which functions the model sees, and what a call of each of them is.

A model knows functions by one flat name. Members of a namespace are `<namespace>.<name>` to it, custom tools are
functions of one string; what it calls is told in the client's own terms again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from smg.errors import InvalidRequest, MalformedRequest
from smg.responses.shapes import (
    Json,
    as_object,
    kind_of,
    names_of,
    objects,
    one_of,
    optional,
    required,
    texts,
)
from smg.validation.texts import shown
from smg_proto.chat.v1 import message_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_TOOLS = 4096
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_APPROVALS = ("always", "never")
# Types of built-in tools by the type of the item that a call of them is; dated names are the same tools.
BUILTIN_ITEMS: Mapping[str, str] = MappingProxyType(
    {
        "web_search_preview": "web_search_call",
        "code_interpreter": "code_interpreter_call",
        "file_search": "file_search_call",
        "image_generation": "image_generation_call",
    }
)
_ACCEPTED = frozenset(
    (
        *BUILTIN_ITEMS,
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview_2025_03_11",
        "computer",
        "computer_use_preview",
        "shell",
        "apply_patch",
    )
)
_KNOWN = _ACCEPTED | {"function", "custom", "namespace", "mcp", "local_shell"}
_CUSTOM_PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The raw payload to pass to this custom tool."}
    },
    "required": ["input"],
    "additionalProperties": False,
}

OriginKind = Literal["function", "custom", "server"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a function that the model sees really is.

    Attributes:
        kind: "function" and "custom" are the client's to run, "server" is ours.
        name: the client's or the server's own name for it.
        namespace: it is a member of; empty for none.
        server_label: the server that runs it; empty for the client's.
        item_type: of the item that a call of it becomes.
    """

    kind: OriginKind
    name: str
    namespace: str = ""
    server_label: str = ""
    item_type: str = "function_call"


@dataclass(slots=True)
class Toolbox:
    """The functions of one response.

    Attributes:
        functions: what the model sees, in order.
        origins: what each is, by the name that the model sees.
    """

    functions: list[message_pb2.Tool] = field(default_factory=list[message_pb2.Tool])
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])

    def origin(self, name: str) -> Origin:
        """What a called function is; one that was not declared is taken for the client's."""
        return self.origins.get(name) or Origin("function", name)

    def add(self, function: Json, origin: Origin) -> None:
        """One more function, as chat templates read it."""
        name: str = function["name"]
        tool = message_pb2.Tool(
            type="function", name=name, source_json=_text({"type": "function", "function": function})
        )
        if function.get("description") is not None:
            tool.description = function["description"]
        if function.get("parameters") is not None:
            tool.parameters_json = _text(function["parameters"])
        if function.get("strict") is not None:
            tool.strict = function["strict"]
        self.functions.append(tool)
        self.origins[name] = origin

    def server_names(self, label: str) -> list[str]:
        """The functions of one server."""
        return [name for name, origin in self.origins.items() if origin.server_label == label]


def checked_tools(tools: list[Any]) -> list[Json]:
    """The tools of a request.

    Raises:
        MalformedRequest: one has a wrong shape, or is of no known kind.
        InvalidRequest: one breaks a rule.
    """
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(
            f"tools: tools has {len(tools)} tools; at most {MAX_TOOLS} are allowed", param="tools"
        )
    checked = [as_object(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    for index, tool in enumerate(checked):
        _check(f"tools[{index}]", tool)
    _check_labels(checked)
    return checked


def client_tools(tools: list[Json]) -> Toolbox:
    """The functions and custom tools of a request, as the model sees them."""
    box = Toolbox()
    for tool in tools:
        if tool["type"] == "namespace":
            for member in tool["tools"]:
                _add(box, member, tool["name"])
        else:
            _add(box, tool, "")
    return box


def shown_tools(tools: list[Json]) -> list[Json]:
    """The tools as a response shows them: nothing that is secret."""
    return [_shown(tool) for tool in tools]


def _add(box: Toolbox, tool: Json, namespace: str) -> None:
    kind = tool["type"]
    if kind not in ("function", "custom"):
        return
    name: str = tool["name"]
    function: Json = {"name": f"{namespace}.{name}" if namespace else name}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    if kind == "custom":
        function["parameters"] = _CUSTOM_PARAMETERS
        function["strict"] = False
        origin = Origin("custom", name, namespace, item_type="custom_tool_call")
    else:
        function["parameters"] = tool.get("parameters") or {}
        if tool.get("strict") is not None:
            function["strict"] = tool["strict"]
        origin = Origin("function", name, namespace)
    box.add(function, origin)


def _shown(tool: Json) -> Json:
    if tool["type"] == "function":
        return {**tool, "parameters": tool.get("parameters") or {}}
    if tool["type"] == "mcp" and ("authorization" in tool or "headers" in tool):
        # Keys to other people's servers: whoever reads a stored response need not have them.
        return {name: value for name, value in tool.items() if name not in ("authorization", "headers")}
    return tool


def _check(where: str, tool: Json) -> None:
    kind = one_of(required(tool, "type", where, str), _KNOWN, f"{where}.type")
    check = _CHECKS.get(kind)
    if check is not None:
        check(where, tool)


def _function(where: str, tool: Json) -> None:
    name = required(tool, "name", where, str)
    optional(tool, "description", where, str)
    optional(tool, "strict", where, bool)
    if not name:
        raise InvalidRequest(f"{where}.name: a function needs a name", param=f"{where}.name")
    parameters: Any = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidRequest(
            f"{where}.parameters: invalid_type: parameters is {kind_of(parameters)}; it must be a JSON object",
            param=f"{where}.parameters",
        )


def _custom(where: str, tool: Json) -> None:
    if not required(tool, "name", where, str):
        raise InvalidRequest(f"{where}.name: a custom tool needs a name", param=f"{where}.name")
    optional(tool, "description", where, str)
    if tool.get("format") is None:
        return
    place = f"{where}.format"
    form = as_object(tool["format"], place)
    kind = one_of(required(form, "type", place, str), ("text", "grammar"), f"{place}.type")
    if kind == "grammar":
        one_of(required(form, "syntax", place, str), ("lark", "regex"), f"{place}.syntax")
        required(form, "definition", place, str)


def _namespace(where: str, tool: Json) -> None:
    name = required(tool, "name", where, str)
    optional(tool, "description", where, str)
    if not name:
        raise InvalidRequest(f"{where}.name: a namespace needs a name", param=f"{where}.name")
    for number, entry in enumerate(objects(tool.get("tools"), f"{where}.tools")):
        place = f"{where}.tools[{number}]"
        kind = one_of(required(entry, "type", place, str), ("function", "custom"), f"{place}.type")
        (_function if kind == "function" else _custom)(place, entry)


def _mcp(where: str, tool: Json) -> None:
    label = required(tool, "server_label", where, str)
    if not _LABEL.match(label):
        raise InvalidRequest(
            f"{where}.server_label: the label is {shown(label)}; it must start with a letter and contain only "
            "letters, digits, '-' and '_'",
            param=f"{where}.server_label",
        )
    for name in ("server_url", "connector_id", "authorization", "server_description"):
        optional(tool, name, where, str)
    if tool.get("server_url") and tool.get("connector_id"):
        raise MalformedRequest(
            f"{where} has both server_url and connector_id; only one of them may be set", param=where
        )
    if tool.get("headers") is not None:
        headers = as_object(tool["headers"], f"{where}.headers")
        texts(list(headers.values()), f"{where}.headers")
    _check_filter(f"{where}.allowed_tools", tool.get("allowed_tools"))
    approval: Any = tool.get("require_approval")
    place = f"{where}.require_approval"
    if isinstance(approval, str):
        one_of(approval, _APPROVALS, place)
    elif approval is not None:
        for name, names in as_object(approval, place).items():
            one_of(name, _APPROVALS, place)
            _check_filter(f"{place}.{name}", names)


def _check_filter(where: str, value: Any) -> None:
    """A list of names, or {"read_only": …, "tool_names": […]}."""
    if value is None:
        return
    if isinstance(value, list):
        texts(cast("list[Any]", value), where)
        return
    entry = as_object(value, where)
    optional(entry, "read_only", where, bool)
    names: Any = entry.get("tool_names")
    texts(names if names is not None else [], f"{where}.tool_names")


def _local_shell(where: str, tool: Json) -> None:
    del tool
    raise InvalidRequest(
        f"{where} is of type local_shell, which is not supported", code="tool_not_supported", param=where
    )


_CHECKS: Mapping[str, Callable[[str, Json], None]] = MappingProxyType(
    {
        "function": _function,
        "custom": _custom,
        "namespace": _namespace,
        "mcp": _mcp,
        "local_shell": _local_shell,
    }
)


def _check_labels(tools: list[Json]) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool["type"] != "mcp":
            continue
        label: str = tool["server_label"]
        if label.lower() in seen:
            place = f"tools[{index}].server_label"
            raise InvalidRequest(
                f"{place}: the label {shown(label)} is used twice; labels must be unique, ignoring case "
                f"({names_of(seen)})",
                param=place,
            )
        seen.add(label.lower())


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
