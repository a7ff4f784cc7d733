r"""Turns a grammar in GBNF or W3C-like EBNF into llguidance's Lark dialect.

    root ::= item ("," item)*          rules; the first to be matched is `root`
    item ::= "a\n" | 'b' | [^a-z\]] | .  literals, character classes, any character but a newline
    x?  x*  x+  x{2}  x{2,}  x{2,5}    repetitions; # comment, (* comment *)

A rule ends where the next `name ::=` begins, so alternatives may stand on lines of their own. Rules that refer to
no rule that refers back become Lark terminals, which the lexer matches as one regular expression: fast, and exact
inside a terminal; between terminals the longest match wins. Formats: llama.cpp grammars/README.md; EBNF of W3C XML.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_DEPTH = 100
"""Deepest nesting of groups."""
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*|\(\*.*?\*\))
    |(?P<rule>[A-Za-z_][\w-]*)(?=\s*::=)
    |(?P<name>[A-Za-z_][\w-]*)
    |(?P<define>::=)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<class>\[\^?(?:[^\]\\\n]|\\.)+\])
    |(?P<repeat>[?*+]|\{\s*\d+\s*(?:,\s*\d*\s*)?\})
    |(?P<mark>[|().])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|([^\\])", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_MAX_CODE_POINT = 0x10FFFF


class EbnfError(ValueError):
    """The text is not a grammar of this kind."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


@dataclasses.dataclass(slots=True)
class _Rule:
    name: str
    references: set[str]
    body: str
    """Lark text with references as \\0name\\0."""


def ebnf_to_lark(text: str) -> str:
    """Convert a grammar.

    Raises:
        EbnfError: with the line and what was found there.
    """
    rules = _Parser(list(_tokens(text))).rules()
    if "root" not in rules:
        raise EbnfError(f"there is no rule 'root'; rules: {', '.join(list(rules)[:20]) or 'none'}")
    for rule in rules.values():
        for name in sorted(rule.references - rules.keys()):
            raise EbnfError(f"rule {rule.name!r} refers to {name!r}, which is not defined")
    terminals = _terminals(rules)
    names = {
        name: "start" if name == "root" else f"T{i}" if name in terminals else f"r{i}"
        for i, name in enumerate(rules)
    }
    lines = [f"{names[rule.name]}: {_fill(rule.body, names)}" for rule in rules.values()]
    return "\n".join(["%llguidance {}", *lines, ""])


def _fill(body: str, names: dict[str, str]) -> str:
    pieces = body.split("\0")
    pieces[1::2] = [names[name] for name in pieces[1::2]]
    return "".join(pieces)


def _terminals(rules: dict[str, _Rule]) -> set[str]:
    """Rules from which no way leads back to themselves; not `root`, which Lark wants as a rule."""
    found: set[str] = set()
    while True:
        more = {name for name, rule in rules.items() if name not in found and rule.references <= found}
        more.discard("root")
        if not more:
            return found
        found |= more


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise EbnfError(f"line {line}: unexpected {text[position : position + 20]!r}")
        if match.lastgroup != "space":
            yield _Token(match.lastgroup, match.group(), line)
        line += match.group().count("\n")
        position = match.end()
    yield _Token("end", "the end", line)


class _Parser:
    """Recursive descent over tokens; writes Lark text as it goes."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._references: set[str] = set()

    def rules(self) -> dict[str, _Rule]:
        rules: dict[str, _Rule] = {}
        while self._peek().kind != "end":
            name = self._take("rule", "a rule, `name ::= ...`")
            self._take("define", "'::='")
            if name.text in rules:
                raise EbnfError(f"line {name.line}: rule {name.text!r} is defined twice")
            self._references = set()
            body = self._alternatives()
            rules[name.text] = _Rule(name.text, self._references, body)
        return rules

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, kind: str, wanted: str) -> _Token:
        token = self._peek()
        if token.kind != kind:
            raise EbnfError(f"line {token.line}: expected {wanted}, found {token.text!r}")
        self._next += 1
        return token

    def _is_mark(self, text: str) -> bool:
        token = self._peek()
        return token.kind == "mark" and token.text == text

    def _alternatives(self) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise EbnfError(f"line {self._peek().line}: groups are nested more than {MAX_DEPTH} deep")
        parts = [self._sequence()]
        while self._is_mark("|"):
            self._next += 1
            parts.append(self._sequence())
        self._depth -= 1
        return " | ".join(parts)

    def _sequence(self) -> str:
        parts: list[str] = []
        while (item := self._item()) is not None:
            if self._peek().kind == "repeat":
                item = f"({item}){_repeat(self._peek())}"
                self._next += 1
            parts.append(item)
        return " ".join(parts) or '""'

    def _item(self) -> str | None:
        token = self._peek()
        if self._is_mark("("):
            self._next += 1
            inner = self._alternatives()
            if not self._is_mark(")"):
                raise EbnfError(f"line {self._peek().line}: expected ')', found {self._peek().text!r}")
            self._next += 1
            return f"({inner})"
        write = _WRITERS.get(token.text if token.kind == "mark" else token.kind)
        if write is None:
            return None
        self._next += 1
        if token.kind == "name":
            self._references.add(token.text)
        return write(token)


def _repeat(token: _Token) -> str:
    """A repetition as Lark writes it."""
    bounds = re.findall(r"\d+", token.text)
    if len(bounds) == 2 and int(bounds[0]) > int(bounds[1]):
        raise EbnfError(
            f"line {token.line}: {token.text} asks for at least {bounds[0]} and at most {bounds[1]}"
        )
    return re.sub(r"\s", "", token.text)


def _characters(text: str, line: int) -> Iterator[tuple[str, bool]]:
    """Each character that the text stands for, and whether it was escaped."""
    for match in _ESCAPE.finditer(text):
        two, four, eight, short, plain = match.groups()
        code = two or four or eight
        if code is None:
            yield (plain, False) if short is None else (_SHORT.get(short, short), True)
            continue
        value = int(code, 16)
        if value > _MAX_CODE_POINT or 0xD800 <= value <= 0xDFFF:
            raise EbnfError(f"line {line}: {match.group()} is not a character")
        yield chr(value), True


def _regex_character(character: str) -> str:
    return character if character.isalnum() and character.isascii() else f"\\x{{{ord(character):X}}}"


def _write_text(token: _Token) -> str:
    characters = [character for character, _ in _characters(token.text[1:-1], token.line)]
    return "/" + "".join(map(_regex_character, characters)) + "/" if characters else '""'


def _write_class(token: _Token) -> str:
    inner = token.text[1:-1]
    negation, inner = ("^", inner[1:]) if inner.startswith("^") else ("", inner)
    characters = list(_characters(inner, token.line))
    pieces: list[str] = []
    for place, (character, is_escaped) in enumerate(characters):
        is_range = character == "-" and not is_escaped and 0 < place < len(characters) - 1
        if is_range and characters[place - 1][0] > characters[place + 1][0]:
            raise EbnfError(f"line {token.line}: a range in {token.text} runs backwards")
        pieces.append("-" if is_range else _regex_character(character))
    return f"/[{negation}{''.join(pieces)}]/"


_WRITERS: dict[str, Callable[[_Token], str]] = {
    "text": _write_text,
    "class": _write_class,
    "name": lambda token: f"\0{token.text}\0",
    ".": lambda _: "/./",
}
