"""Keeps what a client wrote from becoming control tokens: finds strings that could, and breaks them with a mark.

The mark is one private-use character that stands in no string of the request and not in the template. It is put into
the strings before the template is rendered and taken out after the rendered text is cut at its control tokens, so the
tokenizer sees the client's own text, as text. What counts, in any mixture of cases:

- a control token spelled inside a string;
- a string that ends with the beginning of one, begins with the end of one, or is the inside of one: what stands next to
  it in the rendered text could complete it.

Control tokens that are not special (`<think>`, `<tool_call>`) keep their meaning where the caller speaks for the model
or its operator: in messages of the roles in TRUSTED_ROLES. Special tokens keep it nowhere.

Not seen is a token that the template itself makes out of harmless strings, with replace() for instance.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest
from smg.prompt.control import any_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from smg.prompt.control import ControlToken

TRUSTED_ROLES = frozenset(("assistant", "system", "developer"))
# Templates may put a role between the halves of a control token (Phi: `<|user|>`).
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "root"))
# Names of the chat and JSON-schema formats, which a template reads or compares with.
_FORMAT_NAMES = frozenset(
    {
        "type",
        "function",
        "name",
        "description",
        "parameters",
        "properties",
        "required",
        "items",
        "enum",
        "strict",
    }
    | {
        "default",
        "role",
        "content",
        "text",
        "id",
        "arguments",
        "tool_calls",
        "tool_call_id",
        "string",
        "number",
    }
    | {"integer", "boolean", "array", "object", "null", "title", "format", "additionalProperties"}
)
_PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))


class _Spellings:
    """Finds where a string has to be broken for one set of control tokens."""

    def __init__(self, texts: Collection[str], exempt: frozenset[str]) -> None:
        self._lowered = tuple({text.lower() for text in texts})
        self._longest = max(map(len, self._lowered), default=0)
        self._openers = tuple({text[0] for text in self._lowered} | {text[0] for text in texts})
        self._closers = tuple({text[-1] for text in self._lowered})
        self._inside = "\0".join(self._lowered)
        self._any = re.compile(any_of(texts), re.IGNORECASE)
        self._exempt = exempt

    def may_break(self, text: str) -> bool:
        """Whether there is anything to break. Quick for the strings that most requests have."""
        for opener in self._openers:
            if opener in text:
                if self._any.search(text):
                    return True
                tail = text[-self._longest :]
                if opener in tail or tail[-1].isspace():
                    return bool(self._breaks(text))
        if text[:1].isspace():
            text = text.lstrip()
        head = text[: self._longest].lower()
        for closer in self._closers:
            if closer in head:
                return bool(self._breaks(text))
        return len(text) < 2 * self._longest and head.strip() in self._inside and bool(self._breaks(text))

    def break_up(self, text: str, mark: str) -> str:
        """The text with the mark wherever it has to be broken."""
        positions = self._breaks(text)
        if not positions:
            return text
        cuts = [0, *sorted(positions), len(text)]
        return mark.join([text[start:end] for start, end in pairwise(cuts)])

    def _breaks(self, text: str) -> set[int]:
        breaks: set[int] = set()
        found = self._any.search(text)
        while found:  # finditer() would miss tokens that overlap
            breaks.add(found.start() + 1)
            found = self._any.search(text, found.start() + 1)
        core = text.strip()
        if not core:
            return breaks
        start = text.index(core[0])
        end = start + len(core)
        tail = core[1 - self._longest :].lower() if self._longest > 1 else ""
        if any(self._is_beginning(tail[n:]) for n in range(len(tail))):
            breaks.add(end)
        head = core[: self._longest - 1].lower()
        if any(self._is_ending(head[: n + 1]) for n in range(len(head))):
            breaks.add(start)
        if not breaks and head == core.lower() and head in self._inside and core not in self._exempt:
            breaks.add(start)
        return breaks

    def _is_beginning(self, part: str) -> bool:
        return part[0] in self._openers and any(
            text.startswith(part) and text != part for text in self._lowered
        )

    def _is_ending(self, part: str) -> bool:
        return part[-1] in self._closers and any(
            text.endswith(part) and text != part for text in self._lowered
        )


class ContentGuard:
    """Breaks control tokens in the strings of requests. Immutable."""

    def __init__(
        self, controls: Iterable[ControlToken], template_text: str, template_names: frozenset[str]
    ) -> None:
        """Guard against these control tokens.

        Args:
            controls: all of them.
            template_text: what the template writes literally; the mark stands in none of it.
            template_names: words that the template knows: it may compare strings with them.
        """
        controls = list(controls)
        exempt = template_names | _FORMAT_NAMES
        self._all = _Spellings([control.text for control in controls], exempt)
        self._special = _Spellings([control.text for control in controls if control.is_special], exempt)
        self._template_text = template_text

    def needs_marks(self, messages: list[dict[str, Any]], *others: Any) -> bool:
        """Whether any string of the request has to be broken."""
        for message in messages:
            may_break = self._for(message).may_break
            for key, value in message.items():
                if key == "role" and isinstance(value, str) and value in _ROLES:
                    continue
                if may_break(value) if type(value) is str else any(map(may_break, _strings(value))):
                    return True
                if key not in _FORMAT_NAMES and may_break(key):
                    return True
        may_break = self._all.may_break
        return any(may_break(text) for other in others if other for text in _strings(other))

    def with_marks(
        self, messages: list[dict[str, Any]], *others: Any
    ) -> tuple[str, list[dict[str, Any]], list[Any]]:
        """The mark, and copies of the request's parts with it wherever something has to be broken.

        Raises:
            InvalidRequest: every private-use character stands in the request.
        """
        used = self._template_text + "\0".join(
            text for part in (messages, *others) for text in _strings(part)
        )
        mark = free_character(used)
        marked = [self._marked_message(message, mark) for message in messages]
        return (
            mark,
            marked,
            [_map_strings(other, lambda text: self._all.break_up(text, mark)) for other in others],
        )

    def _marked_message(self, message: Mapping[str, Any], mark: str) -> dict[str, Any]:
        spellings = self._for(message)
        marked = _map_strings(message, lambda text: spellings.break_up(text, mark))
        if message.get("role") in _ROLES:
            marked["role"] = message["role"]
        return marked

    def _for(self, message: Mapping[str, Any]) -> _Spellings:
        return self._special if message.get("role") in TRUSTED_ROLES else self._all


def free_character(used: str) -> str:
    """A private-use character that stands nowhere in the text.

    Raises:
        InvalidRequest: there is none left.
    """
    for codes in _PRIVATE_USE:
        for code in codes:
            if chr(code) not in used:
                return chr(code)
    raise InvalidRequest(
        "the request uses every private-use character of Unicode; at least one has to be left out"
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from _strings(item)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {
            (change(key) if isinstance(key, str) else key): _map_strings(item, change) for key, item in items
        }
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in cast("list[Any]", value)]
    return value
