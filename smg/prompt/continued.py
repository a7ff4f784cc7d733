"""Renders a chat whose last message the model is to go on with, as Hugging Face's continue_final_message does.

A tag is put behind the last message's text, and the rendered prompt ends where the tag is found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from smg.errors import InvalidRequest
from smg.prompt.content import free_character, strings_in

if TYPE_CHECKING:
    from smg.prompt.harmony import HarmonyTemplate
    from smg.prompt.template import ChatTemplate


class OpenMessage(NamedTuple):
    """A rendered prompt, and the text in which it ends."""

    rendered: str
    final_text: str


def render_open(template: ChatTemplate | HarmonyTemplate, scope: dict[str, Any], mark: str) -> OpenMessage:
    """Render up to the end of the last message's text.

    Args:
        template: the template.
        scope: its variables, with `messages`.
        mark: the mark that stands in the messages; empty for none.

    Raises:
        InvalidRequest: the last message has no text or has calls, or the template refuses, changes or drops it.
    """
    messages: list[dict[str, Any]] = scope["messages"]
    final = _final_text(messages)
    variables = {name: value for name, value in scope.items() if name != "messages"}
    used = "\0".join([template.text, mark, *strings_in(messages), *strings_in(variables)])
    tag = free_character(used) * 2
    # Templates that trim take the blank too; so it tells whether they would have trimmed the text.
    tagged = [*messages[:-1], _with_final_text(messages[-1], f"{final}{tag} ")]
    rendered = template.render({**scope, "messages": tagged, "add_generation_prompt": False})
    before, found, after = rendered.rpartition(tag)
    if not found or final.strip() not in rendered:
        raise _refused("the chat template changes or leaves out the last message, so it cannot be continued")
    text = before if after.startswith(" ") else before.rstrip()
    # A template may show the messages elsewhere too.
    return OpenMessage(text.replace(f"{tag} ", "").replace(tag, "") if tag in text else text, final)


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"continue_final_message: {why}", param="continue_final_message")


def _final_text(messages: list[dict[str, Any]]) -> str:
    last = messages[-1] if messages else {}
    if last.get("tool_calls"):
        raise _refused("the last message has tool calls, which cannot be continued; leave them out")
    content: Any = last.get("content")
    if isinstance(content, list):
        texts = [part["text"] for part in cast("list[dict[str, Any]]", content) if "text" in part]
        content = texts[-1] if texts else None
    if not isinstance(content, str):
        raise _refused("the last message has no text to continue")
    return content


def _with_final_text(message: dict[str, Any], text: str) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = message["content"]
    if isinstance(content, str):
        return message | {"content": text}
    last = max(n for n, part in enumerate(content) if "text" in part)
    return message | {"content": [*content[:last], content[last] | {"text": text}, *content[last + 1 :]]}
