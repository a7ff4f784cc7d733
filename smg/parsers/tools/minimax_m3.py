"""Calls whose arguments are elements named by their keys, nested as deep as the values, each tag behind a mark.

With @ for the mark ]<]minimax[>[ : @<tool_call>@<invoke name="f">@<city>Paris@</city>@<tags>@<item>a@</item>@</tags>
@</invoke>@</tool_call>. Source: SGLang's and vLLM's tests of MiniMax-M3. An element with elements inside is an array where
the schema says so or all are called `item`, else an object, in which a name that comes twice has an array. What a text
means is told in text_arguments.py. White space between tags is dropped.

An argument that the schema says is a string goes out as it comes, others when they are complete.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smg.parsers.markers import Markers
from smg.parsers.tools.argument_types import STRING, UNKNOWN, ArgumentTypes, types_of
from smg.parsers.tools.heads import Head, HeadShape
from smg.parsers.tools.json_scan import MAX_DEPTH
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls
from smg.parsers.tools.text_arguments import TextArguments, json_of, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema
    from smg.parsers.tools.call_writer import CallWriter

_MARK = "]<]minimax[>["
_LAYOUT = Layout(
    begins=(f"{_MARK}<tool_call>",),
    ends=(f"{_MARK}</tool_call>",),
    item=f"{_MARK}<invoke",
    item_end=f"{_MARK}</invoke>",
    reads_end=True,
)
_NAME = HeadShape(">", stops="<")
_NAME_PATTERN = re.compile(r"""\s+name=["']?(?P<name>[^"'\s>]+)["']?\s*>""")
_BETWEEN = HeadShape(_MARK, only_space=True)
_TAG = HeadShape(">", stops=" \t\r\n]")
_TAG_PATTERN = re.compile(r"<(?P<closes>/?)(?P<name>[^<>/]+)>")
_MARKERS = Markers((_MARK,))


class _Element:
    """A value that is being read."""

    __slots__ = ("inner", "name", "texts")

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts: list[str] = []
        self.inner: list[_Element] = []

    def json(self, value_types: frozenset[str], types: ArgumentTypes) -> str:
        """The value; types, of what stands inside."""
        if not self.inner:
            return json_of("".join(self.texts), value_types)
        written = [
            (each.name, each.json(types.of(each.name), types.inside(each.name))) for each in self.inner
        ]
        if "array" in value_types or (
            "object" not in value_types and all(name == "item" for name, _ in written)
        ):
            return "[" + ",".join(value for _, value in written) + "]"
        values: dict[str, list[str]] = {}
        for name, value in written:
            values.setdefault(name, []).append(value)
        return "{" + ",".join(f"{quoted(name)}:{_one_or_all(each)}" for name, each in values.items()) + "}"


def _one_or_all(values: list[str]) -> str:
    return values[0] if len(values) == 1 else "[" + ",".join(values) + "]"


class _NestedCall:
    """A Payload."""

    def __init__(self, tools: Sequence[ToolSchema], writer: CallWriter) -> None:
        self.is_done = self.is_broken = False
        self._tools = tools
        self._writer = writer
        self._types = ArgumentTypes({})
        self._arguments: TextArguments | None = None
        self._head: Head | None = Head(_NAME)
        self._open: list[_Element] = []
        self._is_string = False  # the outermost of them goes out as it comes
        self._held: str = ""  # may become the mark

    def feed(self, text: str, start: int) -> int:
        """As Payload."""
        at, end = start, len(text)
        while at < end and not (self.is_done or self.is_broken):
            at = self._read_text(text, at) if self._head is None else self._read_head(self._head, text, at)
        return at

    def _read_head(self, head: Head, text: str, start: int) -> int:
        at = head.feed(text, start)
        if head.is_broken:
            self.is_broken = True
        elif head.mark == _MARK:
            self._head = Head(_TAG)
        elif head.mark:
            if self._arguments is None:
                self._start(head.text)
            else:
                self._take_tag(head.text, self._arguments)
            self._head = None if self._holds_text() else Head(_BETWEEN)
        return at

    def _holds_text(self) -> bool:
        """What comes next may be any text, not only white space."""
        return self._is_string or (bool(self._open) and not self._open[-1].inner)

    def _start(self, text: str) -> None:
        found = _NAME_PATTERN.fullmatch(text)
        if found is None:
            self.is_broken = True
            return
        self._types = types_of(self._tools, found["name"])
        self._writer.start(found["name"])
        self._arguments = TextArguments(self._writer, self._types, trims_newlines=False)

    def _take_tag(self, text: str, arguments: TextArguments) -> None:
        found = _TAG_PATTERN.fullmatch(text)
        if found is None:
            self.is_broken = True
        elif found["closes"]:
            self._close(found["name"], arguments)
        elif (
            self._is_string or len(self._open) >= MAX_DEPTH or (self._open and self._has_text(self._open[-1]))
        ):
            self.is_broken = True
        else:
            self._open.append(_Element(found["name"]))
            if len(self._open) == 1:
                self._is_string = self._types.of(found["name"]) == STRING
                if self._is_string:
                    arguments.begin(found["name"])

    def _close(self, name: str, arguments: TextArguments) -> None:
        if not self._open:
            self.is_done = name == "invoke"
            self.is_broken = not self.is_done
            if self.is_done:
                arguments.end()
            return
        element = self._open.pop()
        if element.name != name:
            self.is_broken = True
        elif self._open:
            self._open[-1].inner.append(element)
        elif self._is_string:
            arguments.end_value()
            self._is_string = False
        else:
            value_types = self._types.of(name) or UNKNOWN
            arguments.nested(name, element.json(value_types, self._types.inside(name)))

    @staticmethod
    def _has_text(element: _Element) -> bool:
        return any(text.strip() for text in element.texts)

    def _read_text(self, text: str, start: int) -> int:
        before = 0
        if self._held:
            text, before, start = self._held + text[start:], len(self._held) - start, 0
            self._held = ""
        found = _MARKERS.find(text, start)
        end = found.start() if found is not None else _MARKERS.safe_end(text, start)
        if self._is_string and self._arguments is not None:
            self._arguments.text(text[start:end])
        else:
            self._open[-1].texts.append(text[start:end])
        if found is None:
            self._held = text[end:]
            return len(text) - before
        self._head = Head(_TAG)
        return found.end() - before


class MinimaxM3Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(_LAYOUT, lambda writer: _NestedCall(tools, writer))
