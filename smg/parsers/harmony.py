"""Turns an answer in Harmony, the format of gpt-oss models, into pieces: channels into reasoning, content and calls.

    <|channel|>analysis<|message|>…<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{…}<|call|>

The prompt ends with `<|start|>assistant`, so an answer begins inside the header of its first message. What the channels
are: `analysis` is reasoning; a message to a recipient, in whatever channel, is a call; all else, `final` and the
commentary to nobody that may come before calls, is content. Source: OpenAI's guide of the format, and openai-harmony.

The end token of an answer is the engine's to take away, so a message that is not closed is complete unless the answer
was cut. A call whose arguments are no JSON object is given back as its text, without its header.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from smg.parsers.events import Content, Reasoning
from smg.parsers.markers import Markers
from smg.parsers.pieces import PieceList
from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.json_scan import JsonScanner

if TYPE_CHECKING:
    from smg.parsers.events import Piece

HARMONY = "harmony"
"""Name of the format, of calls and of reasoning."""
FINAL_HEADER = "<|channel|>final<|message|>"
_START, _END, _MESSAGE, _CHANNEL = "<|start|>", "<|end|>", "<|message|>", "<|channel|>"
_CONSTRAIN, _CALL, _RETURN = "<|constrain|>", "<|call|>", "<|return|>"
_MARKS = (_START, _END, _MESSAGE, _CHANNEL, _CONSTRAIN, _CALL, _RETURN)
_FINDER = Markers(_MARKS)
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_NOBODY = frozenset(("assistant", "user", "all", "final"))
# Longer ones are none: the model does not write Harmony, and what it wrote is content.
MAX_HEADER_CHARS = 1024

_Body = Literal["header", "content", "reasoning", "call"]


class HarmonyParser:
    """State of one choice, with the interface of OutputParser.

    Attributes:
        openers, lane, is_reasoning, markup: as OutputParser.
    """

    markup: tuple[str, ...] = _MARKS
    openers: frozenset[str] = _FINDER.openers

    def __init__(
        self,
        *,
        takes_calls: bool,
        separates: bool = True,
        is_open: bool = False,
        max_calls: int | None = None,
        hold_reasoning: bool = False,
    ) -> None:
        """Make one.

        Args:
            takes_calls: messages to recipients are calls; else content.
            separates: tell reasoning from content; else it is content.
            is_open: the answer begins inside a final message, not in a header.
            max_calls: calls behind so many complete ones are dropped. None for any number.
            hold_reasoning: give each block of reasoning out in one piece.
        """
        self._takes_calls = takes_calls
        self._separates = separates
        self._left = max_calls
        self._block: list[str] | None = [] if hold_reasoning else None
        self._body: _Body = "content" if is_open else "header"
        self._header: list[str] = []
        self._header_chars = 0
        self._held = ""
        self._out = PieceList()
        self._writer = CallWriter()
        self._scanner = JsonScanner()

    @property
    def is_reasoning(self) -> bool:
        """What comes next stands inside of reasoning."""
        return self._body == "reasoning"

    @property
    def lane(self) -> Literal["content", "reasoning"] | None:
        """As OutputParser."""
        if self._held or self._body not in ("content", "reasoning"):
            return None
        if self._body == "content" or not self._separates:
            return "content"
        return "reasoning" if self._block is None else None

    def feed(self, text: str) -> list[Piece]:
        """Take the next text, of any length; returns what is certain."""
        lane = self.lane
        if text and lane is not None and not _FINDER.may_begin_in(text):
            return [Content(text)] if lane == "content" else [Reasoning(text)]
        text, self._held = self._held + text, ""
        at = 0
        while at < len(text):
            found = _FINDER.find(text, at)
            end = found.start() if found is not None else _FINDER.safe_end(text, at)
            if at < end:
                self._text(text[at:end])
            if found is None:
                self._held = text[end:]
                break
            self._mark(found.group())
            at = found.end()
        return self._out.take()

    def finish(self, *, is_cut: bool) -> list[Piece]:
        """The text is over. Called once, and nothing is fed after it.

        Args:
            is_cut: something else than the model ended it. A call that may lack its end does not count then.
        """
        held, self._held = self._held, ""
        if held:
            self._text(held)
        if self._body == "header" and _CHANNEL not in self._header:
            self._out.content("".join(self._header))
        self._end_body(is_cut=is_cut)
        return self._out.take()

    def _text(self, text: str) -> None:
        if self._body == "content":
            self._out.content(text)
        elif self._body == "reasoning":
            self._reasoning(text)
        elif self._body == "call":
            self._arguments(text)
        else:
            self._header.append(text)
            self._header_chars += len(text)
            if self._header_chars > MAX_HEADER_CHARS:
                self._out.content("".join(part for part in self._header if part not in _MARKS))
                self._begin("content")

    def _mark(self, mark: str) -> None:
        if mark == _MESSAGE:
            if self._body == "header":
                self._begin_message()
        elif mark in (_CHANNEL, _CONSTRAIN) and self._body == "header":
            self._header.append(mark)
        elif mark in (_START, _CHANNEL):
            self._end_body(is_cut=False)
            self._begin("header")
            if mark == _CHANNEL:
                self._header.append(mark)
        elif mark != _CONSTRAIN:
            self._end_body(is_cut=False)
            self._begin("content")

    def _begin(self, body: _Body) -> None:
        self._body = body
        self._header = []
        self._header_chars = 0

    def _begin_message(self) -> None:
        header = "".join(self._header)
        recipient = _RECIPIENT.search(header)
        name = recipient[1].removeprefix("functions.") if recipient is not None else ""
        if name and name not in _NOBODY and self._takes_calls:
            self._begin("call")
            self._scanner = JsonScanner()
            if self._left != 0:
                self._writer.start(name)
                self._give_calls()
            return
        channel = header.partition(_CHANNEL)[2].lstrip()
        self._begin("reasoning" if channel.startswith("analysis") and not name else "content")

    def _reasoning(self, text: str) -> None:
        if not self._separates:
            self._out.content(text)
        elif self._block is None:
            self._out.reasoning(text)
        else:
            self._block.append(text)

    def _arguments(self, text: str) -> None:
        if self._left == 0:
            return
        self._writer.read(text)
        if self._writer.is_broken:
            return
        out: list[str] = []
        at = 0
        if self._scanner.is_fresh and text.strip()[:1] not in ("", "{"):
            self._writer.break_off()
        elif not self._scanner.is_done:
            at = self._scanner.feed(text, 0, out)
            self._writer.arguments("".join(out))
        if self._scanner.is_broken or (self._scanner.is_done and text[at:].strip()):
            self._writer.break_off()
        self._give_calls()

    def _end_body(self, *, is_cut: bool) -> None:
        if self._block:
            self._out.reasoning("".join(self._block))
            self._block.clear()
        if self._body != "call" or self._left == 0:
            return
        if self._scanner.is_fresh and not self._writer.is_broken and not is_cut:
            # A function that takes nothing is called with nothing.
            self._writer.arguments("{}")
        elif not self._scanner.is_done:
            self._writer.break_off()
        if not self._writer.is_broken and self._left is not None:
            self._left -= 1
        self._writer.end()
        self._give_calls()

    def _give_calls(self) -> None:
        for piece in self._writer.take():
            self._out.add(piece)
