"""Turns messages as the API has them into the form that one chat template takes.

Templates differ in what they were written for: whether they know the role developer, take content in parts or as text,
print "None" for a content that is null, want the arguments of calls as objects or as text. Each is tried once, when the
template is loaded. Where a trial tells nothing, what most templates take is given.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.prompt.template import ChatTemplate

# Text parts of one message are lines to a template that takes text only.
PART_JOINER = "\n"
_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_WHOLE, _FIRST, _SECOND, _CALLED = "Zq7", "Zq8", "Zq9", "zq6"
_SHORT_ID, _SHORT_CHARS = "call00001", 9
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "t", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
_PLAIN_MEMBERS = 2  # role and content
_PLAIN_ROLES = frozenset(
    ("system", "user", "assistant", "tool")
)  # that every template gets under their names


@dataclass(frozen=True, slots=True)
class Conventions:
    """What one template takes.

    Attributes:
        knows_developer: it names the role; where not, it gets system messages.
        part_roles: roles whose content may be a list of parts.
        list_roles: those among them whose content may be nothing else.
        null_content: what it gets for a content that is null: None, or empty text.
        text_arguments: it wants the arguments of calls as JSON text, not as an object.
        short_ids: it takes ids of calls only if they are of nine letters and digits, as Mistral's do.
    """

    knows_developer: bool = False
    part_roles: frozenset[str] = frozenset()
    list_roles: frozenset[str] = frozenset()
    null_content: str | None = None
    text_arguments: bool = False
    short_ids: bool = False

    def adapted(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages for this template; those given are not changed.

        Fields that are None are left out, and reasoning stands under each name that templates read it by.
        """
        plain = _PLAIN_ROLES - self.list_roles if self.list_roles else _PLAIN_ROLES
        return [
            message
            if len(message) == _PLAIN_MEMBERS
            and type(message.get("content")) is str
            and message.get("role") in plain
            else self._adapted(message)
            for message in messages
        ]

    def _adapted(self, message: dict[str, Any]) -> dict[str, Any]:
        changed = {key: value for key, value in message.items() if value is not None or key == "content"}
        role = changed.get("role")
        if role == "developer" and not self.knows_developer:
            changed["role"] = role = "system"
        if "content" in changed:
            changed["content"] = self._content(role, changed["content"])
        calls: list[dict[str, Any]] | None = changed.get("tool_calls")
        if calls and self.text_arguments:
            changed["tool_calls"] = calls = [_with_text_arguments(call) for call in calls]
        if self.short_ids:
            if calls:
                changed["tool_calls"] = [call | {"id": _short(call.get("id"))} for call in calls]
            if "tool_call_id" in changed:
                changed["tool_call_id"] = _short(changed["tool_call_id"])
        for name in _REASONING_NAMES:
            if name in changed:
                return {"thinking": changed[name], **changed, "reasoning_content": changed[name]}
        return changed

    def _content(self, role: Any, content: Any) -> Any:
        if content is None:
            return self.null_content
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if role in self.list_roles else content
        if isinstance(content, list) and role not in self.part_roles:
            parts = cast("list[dict[str, Any]]", content)
            if all(
                part.get("type", "text") == "text" and isinstance(part.get("text"), str) for part in parts
            ):
                return PART_JOINER.join([part["text"] for part in parts])
        return cast("Any", content)


def conventions_of(
    template: ChatTemplate, variables: Mapping[str, Any], *, max_seconds: float
) -> Conventions:
    """Find out what a template takes.

    Args:
        template: the template.
        variables: what every rendering has: bos_token and the like.
        max_seconds: longest time for one trial.
    """
    trials = _Trials(template, variables, max_seconds)
    part_roles = frozenset(role for role in _ROLES if trials.takes_parts(role))
    null_content, text_arguments = trials.calling_form()
    return Conventions(
        knows_developer="developer" in template.constants,
        part_roles=part_roles,
        list_roles=frozenset(role for role in part_roles if not trials.takes_text(role)),
        null_content=null_content,
        text_arguments=text_arguments,
        short_ids=trials.wants_short_ids(null_content, text_arguments),
    )


def _short(call_id: Any) -> Any:
    """An id of nine letters and digits: the same one for the same id, so that answers find their calls."""
    if not isinstance(call_id, str) or (
        len(call_id) == _SHORT_CHARS and call_id.isascii() and call_id.isalnum()
    ):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_CHARS]


def _with_text_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function: dict[str, Any] = call.get("function") or {}
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, str):
        return call
    return call | {"function": function | {"arguments": json.dumps(arguments, ensure_ascii=False)}}


class _Trials:
    """Renders conversations that nobody had."""

    def __init__(self, template: ChatTemplate, variables: Mapping[str, Any], max_seconds: float) -> None:
        self._template, self._max_seconds = template, max_seconds
        self._scope = {"documents": None, **variables, "add_generation_prompt": True}

    def takes_text(self, role: str) -> bool:
        rendered = self._with_content(role, _WHOLE)
        return rendered is not None and _WHOLE in rendered

    def takes_parts(self, role: str) -> bool:
        """Whether two parts are written, and as what they say: not as a printed list."""
        parts = [{"type": "text", "text": text} for text in (_FIRST, _SECOND)]
        rendered = self._with_content(role, parts)
        if rendered is None or _FIRST not in rendered:
            return False
        between, second, _ = rendered.rpartition(_FIRST)[2].partition(_SECOND)
        return bool(second) and "type" not in between

    def calling_form(self) -> tuple[str | None, bool]:
        """The content beside calls, None where that works, and whether their arguments are text.

        A form works if the call is written and no "None" is; or, where no form makes the template write it, if
        nothing fails.
        """
        trials = [
            (self._calling(content, arguments), content, is_text)
            for is_text, arguments in ((False, {"a": 1}), (True, '{"a": 1}'))
            for content in (None, "")
        ]
        written = [trial for trial in trials if trial[0] is not None and _CALLED in trial[0]]
        written = written or [trial for trial in trials if trial[0] is not None]
        fewest = min(((rendered or "").count("None") for rendered, _, _ in written), default=0)
        for rendered, content, is_text in written:
            if (rendered or "").count("None") == fewest:
                return content, is_text
        return None, False

    def wants_short_ids(self, content: str | None, is_text: bool) -> bool:
        """Whether a conversation with an id of another length is refused for it, and with a short one is not."""
        arguments: Any = '{"a": 1}' if is_text else {"a": 1}
        return (
            self._calling(content, arguments, "call_" + "0" * 24) is None
            and self._calling(content, arguments) is not None
        )

    def _with_content(self, role: str, content: Any) -> str | None:
        message = {"role": role, "content": content}
        question = {"role": "user", "content": "q"}
        if role == "user":
            return self._render([message])
        if role in ("system", "developer"):
            return self._render([message, question])
        if role == "assistant":
            return self._render([question, message, question])
        return self._render([question, _call("", {"a": 1}), message | {"tool_call_id": _SHORT_ID}])

    def _calling(self, content: str | None, arguments: Any, call_id: str = _SHORT_ID) -> str | None:
        question = {"role": "user", "content": "q"}
        answer = {"role": "tool", "content": "r", "tool_call_id": call_id, "name": "f"}
        call = _call(content, arguments, call_id)
        whole = self._render([question, call, answer])
        return self._render([question, call]) if whole is None else whole

    def _render(self, messages: list[dict[str, Any]]) -> str | None:
        tools = [_TOOL] if any("tool_calls" in message for message in messages) else None
        scope: dict[str, Any] = {**self._scope, "messages": messages, "tools": tools}
        try:
            return self._template.render(scope, max_seconds=self._max_seconds)
        except InvalidRequest:
            return None


def _call(content: str | None, arguments: Any, call_id: str = _SHORT_ID) -> dict[str, Any]:
    function = {"name": _CALLED, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": content, "tool_calls": calls}
