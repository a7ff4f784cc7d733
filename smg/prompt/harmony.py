"""Writes a chat in Harmony, the format of gpt-oss models, from its messages, tools and variables.

It stands in the place of a chat template where the vocabulary has Harmony's tokens. The layout is that of OpenAI's
library openai-harmony 0.0.8 and of the format's guide (cookbook.openai.com, "OpenAI harmony response format"): a system
message of its own, the request's system and developer messages as instructions of one developer message, which also
declares the tools; calls and their results in the commentary channel; reasoning of earlier turns only since the last
final answer.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest
from smg.prompt.conventions import PART_JOINER, Conventions
from smg.prompt.efforts import EFFORT_VARIABLE
from smg.prompt.typescript import type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

TOKENS = frozenset(
    ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>")
)
STOP_TOKENS = ("<|return|>", "<|call|>")
FORCED_VARIABLE = "_forced_call"
"""The call that must come: the function's name, or "" for an array of calls. The prompt ends where its JSON begins."""
BUILD_FAILED = "harmony_build_failed"
CONVENTIONS = Conventions(knows_developer=True)

_EFFORTS = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_CUTOFF = "Knowledge cutoff: 2024-06"
_CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
_CALLS_GO = "Calls to these tools must go to the commentary channel: 'functions'."
_GUIDING = frozenset(("system", "developer"))
_JSON_HEADER = "<|channel|>commentary <|constrain|>json<|message|>"


def is_harmony(control_texts: Iterable[str]) -> bool:
    """Whether a vocabulary with these control tokens is Harmony's."""
    return frozenset(control_texts) >= TOKENS


def clamped_effort(effort: Any) -> str:
    """One of the three levels that Harmony knows; medium for what is no level."""
    return _EFFORTS.get(effort, "medium") if isinstance(effort, str) else "medium"


class HarmonyTemplate:
    """As ChatTemplate; immutable.

    Attributes:
        text, names, constants, variables, efforts, is_steady: as ChatTemplate has them.
    """

    text = "\0".join((*sorted(TOKENS), _IDENTITY, _CUTOFF, _CHANNELS, _CALLS_GO, "assistant", "functions."))
    names = frozenset(("functions", "assistant", "commentary", "analysis", "final", "json", EFFORT_VARIABLE))
    constants = frozenset(("developer", "system", "assistant", "user", "tool"))
    variables = frozenset(("response_format",))
    efforts = frozenset[str]()
    is_steady = False  # it writes the date

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now().astimezone()) -> None:
        """Args: now tells the current date."""
        self._now = now

    def render(self, variables: dict[str, Any], *, max_seconds: float | None = None) -> str:  # noqa: ARG002 - linear
        """Render.

        Raises:
            InvalidRequest: harmony_build_failed: a result answers no call, or a content is no text.
        """
        messages: list[dict[str, Any]] = variables["messages"]
        tools: list[dict[str, Any]] = variables.get("tools") or []
        guiding = next(
            (n for n, each in enumerate(messages) if each.get("role") not in _GUIDING), len(messages)
        )
        parts = [self._system(variables, has_tools=bool(tools))]
        instructions = [_text(n, each) for n, each in enumerate(messages[:guiding])]
        developer = _developer(
            "\n\n".join(filter(None, instructions)), tools, variables.get("response_format")
        )
        if developer:
            parts.append(_message("developer", developer))
        parts += _conversation(messages, guiding)
        if variables.get("add_generation_prompt"):
            parts.append("<|start|>assistant" + _forced(variables.get(FORCED_VARIABLE)))
        return "".join(parts)

    def _system(self, variables: Mapping[str, Any], *, has_tools: bool) -> str:
        identity = variables.get("model_identity")
        lines = [
            identity if isinstance(identity, str) else _IDENTITY,
            _CUTOFF,
            f"Current date: {self._now():%Y-%m-%d}",
            "",
            f"Reasoning: {clamped_effort(variables.get(EFFORT_VARIABLE))}",
            "",
            _CHANNELS,
        ]
        return _message("system", "\n".join([*lines, _CALLS_GO] if has_tools else lines))


def _message(header: str, content: str, end: str = "<|end|>") -> str:
    return f"<|start|>{header}<|message|>{content}{end}"


def _forced(name: Any) -> str:
    if not isinstance(name, str):
        return ""
    return f" to=functions.{name}{_JSON_HEADER}" if name else _JSON_HEADER


def _developer(instructions: str, tools: list[dict[str, Any]], answer: Any) -> str:
    sections: list[str] = []
    if instructions:
        sections.append(f"# Instructions\n\n{instructions}")
    if tools:
        declared = "".join(map(_declaration, tools))
        sections.append(
            f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{declared}}} // namespace functions"
        )
    if isinstance(answer, dict) and (form := _answer_form(cast("dict[str, Any]", answer))):
        sections.append(f"# Response Formats\n\n{form}")
    return "\n\n".join(sections)


def _declaration(tool: dict[str, Any]) -> str:
    function: dict[str, Any] = tool.get("function") or tool
    description: Any = function.get("description")
    lines = (
        [f"// {line}" for line in description.split("\n")]
        if isinstance(description, str) and description
        else []
    )
    parameters: Any = function.get("parameters")
    taken = f"(_: {type_of(parameters)})" if parameters else "()"
    return "\n".join([*lines, f"type {function.get('name')} = {taken} => any;", "", ""])


def _answer_form(answer: dict[str, Any]) -> str:
    if answer.get("type") != "json_schema":
        return ""
    named: dict[str, Any] = answer.get("json_schema") or {}
    description = named.get("description")
    told = f"// {description}\n" if isinstance(description, str) and description else ""
    schema = json.dumps(named.get("schema"), ensure_ascii=False, separators=(",", ":"))
    return f"## {named.get('name')}\n\n{told}{schema}"


def _conversation(messages: list[dict[str, Any]], start: int) -> Iterator[str]:
    """Everything behind the messages that open the conversation."""
    finals = [
        n for n, each in enumerate(messages) if each.get("role") == "assistant" and not each.get("tool_calls")
    ]
    # Reasoning led to the answer that followed it; only what no answer has followed is still of use.
    last_final = finals[-1] if finals else -1
    names: dict[str, str] = {}
    for number in range(start, len(messages)):
        message = messages[number]
        role = message.get("role")
        if role == "assistant":
            yield from _assistant(number, message, names, shows_reasoning=number > last_final)
        elif role in ("tool", "function"):
            yield _result(number, message, names)
        elif role in _GUIDING:
            yield _message("developer", f"# Instructions\n\n{_text(number, message)}")
        else:
            yield _message("user", _text(number, message))


def _assistant(
    number: int, message: dict[str, Any], names: dict[str, str], *, shows_reasoning: bool
) -> Iterator[str]:
    reasoning = message.get("reasoning_content")
    if shows_reasoning and isinstance(reasoning, str) and reasoning:
        yield _message("assistant<|channel|>analysis", reasoning)
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    text = _text(number, message)
    if not calls:
        yield _message("assistant<|channel|>final", text)
        return
    if text:
        yield _message("assistant<|channel|>commentary", text)
    for call in calls:
        function: dict[str, Any] = call.get("function") or {}
        name = str(function.get("name"))
        names[str(call.get("id"))] = name
        arguments = json.dumps(function.get("arguments") or {}, ensure_ascii=False, separators=(",", ":"))
        header = f"assistant to=functions.{name}<|channel|>commentary <|constrain|>json"
        yield _message(header, arguments, "<|call|>")


def _result(number: int, message: dict[str, Any], names: Mapping[str, str]) -> str:
    call_id = message.get("tool_call_id")
    name = message.get("name") if message.get("role") == "function" else names.get(str(call_id))
    if not isinstance(name, str):
        raise _failed(number, f"No function call found for call_id: {str(call_id)[:80]}")
    return _message(f"functions.{name} to=assistant<|channel|>commentary", _text(number, message))


def _text(number: int, message: dict[str, Any]) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = [
        part.get("text") if isinstance(part, dict) else None for part in cast("list[dict[str, Any]]", content)
    ]
    if not all(isinstance(text, str) for text in texts):
        raise _failed(number, "its content has parts that are no text; this model takes text only")
    return PART_JOINER.join(cast("list[str]", texts))


def _failed(number: int, why: str) -> InvalidRequest:
    return InvalidRequest(f"messages[{number}]: {why}", code=BUILD_FAILED, param=f"messages[{number}]")
