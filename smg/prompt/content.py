"""Keeps what a client wrote from becoming control tokens: finds strings that could, and breaks them with a mark.

The mark is one private-use character that stands in no string of the request and not in the template. It is put into
the strings before the template is rendered and taken out after the rendered text is cut at its control tokens, so the
tokenizer sees the client's own text, as text. What counts, in any mixture of cases:

- a control token spelled inside a string;
- a string that ends with the beginning of one: what follows in the rendered text could complete it;
- a string that begins with the end of one, or is the inside of one, where the template writes the beginning of a control
  token right before something of the request (`'<|' + message.role + '|>'`, `<{{ name }}>`).

Control tokens that are not special (`<think>`, `<tool_call>`) keep their meaning where the caller speaks for the model
or its operator: in messages of the roles in TRUSTED_ROLES. Special tokens keep it nowhere.

Not seen is a token that the template itself makes out of harmless strings, with replace() for instance.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import orjson

from smg.errors import InvalidRequest
from smg.prompt.reference import not_unicode
from smg.prompt.spellings import Spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from smg.prompt.control import ControlToken

TRUSTED_ROLES = frozenset(("assistant", "system", "developer"))
# Templates may put a role between the halves of a control token (Phi: `<|user|>`).
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "root"))
# Names of the chat and JSON-schema formats, which a template reads or compares with.
# fmt: off
_FORMAT_NAMES = frozenset((
    "type", "function", "name", "description", "parameters", "properties", "required", "items", "enum", "strict",
    "default", "role", "content", "text", "id", "arguments", "tool_calls", "tool_call_id", "string", "number", "integer",
    "boolean", "array", "object", "null", "title", "format", "additionalProperties",
))
# fmt: on
_SURROGATE = re.compile("[\ud800-\udfff]")
_PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))


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
        special = [control.text for control in controls if control.is_special]
        every = [control.text for control in controls]
        self._all = Spellings(every, template_text=template_text, exempt=exempt)
        self._special = Spellings(special, template_text=template_text, exempt=exempt)
        self._template_text = template_text

    def needs_marks(self, messages: list[dict[str, Any]], *others: Any) -> bool:
        """Whether any string of the request has to be broken."""
        for message in messages:
            may_break = self._for(message).may_break
            for key, value in message.items():
                if key == "role" and isinstance(value, str) and value in _ROLES:
                    continue
                if may_break(value) if type(value) is str else any(map(may_break, strings_in(value))):
                    return True
                if key not in _FORMAT_NAMES and may_break(key):
                    return True
        return any(self._may_break_in(other) for other in others if other)

    def _may_break_in(self, value: Any) -> bool:
        if not self._all.is_joined:
            # Without the first character of a control token nothing has to be broken, and a JSON text of many strings
            # is searched faster than they are.
            try:
                text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
            except (
                TypeError
            ) as error:  # half a character, or what only Python's json can say, such as 1 << 64
                _refuse_surrogates(value, error)
                return any(map(self._all.may_break, strings_in(value)))
            if not any(opener in text for opener in self._all.openers):
                return False
        return any(map(self._all.may_break, strings_in(value)))

    def with_marks(
        self, messages: list[dict[str, Any]], *others: Any
    ) -> tuple[str, list[dict[str, Any]], list[Any]]:
        """The mark, and copies of the request's parts with it wherever something has to be broken.

        Raises:
            InvalidRequest: every private-use character stands in the request.
        """
        parts = (messages, *others)
        used = "\0".join([self._template_text, *(text for part in parts for text in strings_in(part))])
        mark = free_character(used)
        marked_messages = [self._marked_message(message, mark) for message in messages]
        marked_others = [
            _mapstrings_in(other, lambda text: self._all.break_up(text, mark)) for other in others
        ]
        return mark, marked_messages, marked_others

    def _marked_message(self, message: Mapping[str, Any], mark: str) -> dict[str, Any]:
        spellings = self._for(message)
        marked = _mapstrings_in(message, lambda text: spellings.break_up(text, mark))
        if message.get("role") in _ROLES:
            marked["role"] = message["role"]
        return marked

    def _for(self, message: Mapping[str, Any]) -> Spellings:
        return self._special if message.get("role") in TRUSTED_ROLES else self._all


def free_character(used: str) -> str:
    """A private-use character that stands nowhere in the text.

    Raises:
        InvalidRequest: there is none left.
    """
    first = chr(_PRIVATE_USE[0][0])
    if first not in used:
        return first
    taken = set(used)
    for codes in _PRIVATE_USE:
        for code in codes:
            if chr(code) not in taken:
                return chr(code)
    raise InvalidRequest(
        "the request uses every private-use character of Unicode; at least one has to be left out"
    )


def _refuse_surrogates(value: Any, cause: Exception) -> None:
    """Nothing, unless a string in the value has half of a character, which neither UTF-8 nor JSON can say.

    Raises:
        InvalidRequest: one has.
    """
    for text in strings_in(value):
        if _SURROGATE.search(text):
            raise not_unicode(text) from cause


def strings_in(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield str(key)
            yield from strings_in(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from strings_in(item)


def _mapstrings_in(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {
            (change(key) if isinstance(key, str) else key): _mapstrings_in(item, change)
            for key, item in items
        }
    if isinstance(value, list | tuple):
        return [_mapstrings_in(item, change) for item in cast("list[Any]", value)]
    return value
