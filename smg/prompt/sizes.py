"""Bounds on what single operations of a chat template make: tells how long it would be before it is made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from jinja2.filters import do_batch, do_center, do_format, do_indent, make_attrgetter, sync_do_slice
from jinja2.utils import pass_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jinja2 import Environment

MAX_MADE = 16 << 20  # characters of a text, or items of a list
MAX_REPEATED = 1 << 20  # length of what `*`, `**`, padding and format strings make; bits of a number
# Methods and filters whose numbers say how long the result becomes.
_PADDING_METHODS = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes"))
_PADDING_FILTERS: dict[str, Callable[..., Any]] = {
    "center": do_center,
    "batch": do_batch,
    "slice": sync_do_slice,
}
_PERCENT_WIDTHS = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(\d+|\*)?(?:\.(\d+|\*))?")
_BRACE_FORMATS = re.compile(r"\{[^{}:]*:([^{}]*)(\{)?")
_NUMBERS = re.compile(r"\d+")


class RenderError(Exception):
    """A bound is reached; the message says which."""


def check_made(value: Any) -> Any:
    """The value. Raises RenderError if it has grown too long."""
    if type(value) in (str, list, tuple) and len(value) > MAX_MADE:
        msg = f"made something longer than {MAX_MADE}"
        raise RenderError(msg)
    return value


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Raise RenderError if `left operator right` would be too long."""
    if operator == "%":
        if isinstance(left, str):
            args = cast("tuple[Any, ...]", right) if isinstance(right, tuple) else (right,)
            _check_percent(left, args)
        return
    if isinstance(left, int) and isinstance(right, int):
        times = abs(right) if operator == "**" else 1
        bits = left.bit_length() * times if operator == "**" else left.bit_length() + right.bit_length()
        _check_repeated(bits, operator)
    elif hasattr(left, "__len__") or hasattr(right, "__len__"):
        _check_repeated(_size(left) * _size(right), operator)


def check_call(called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments with which a method may be called. Raises RenderError if its result would be too long."""
    text = getattr(called, "__self__", None)
    if isinstance(text, str | bytes | int):
        name = called.__name__
        if name in _PADDING_METHODS:
            _check_padding(name, (*args, *kwargs.values()))
        elif name == "replace" and len(args) >= 2 and isinstance(text, str):
            _check_replaced(text, args[0], args[1])
        elif name == "join" and len(args) == 1 and isinstance(text, str):
            return (_bounded_texts(args[0], text),)
        return args
    formatted = getattr(getattr(called, "__wrapped__", None), "__self__", None)
    if isinstance(formatted, str):  # str.format, as the sandbox wraps it
        _check_braces(formatted, (*args, *kwargs.values()))
    return args


def _padded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def limited(value: Any, *args: Any, **kwargs: Any) -> Any:
        _check_padding(name, (*args, *kwargs.values()))
        return original(value, *args, **kwargs)

    return limited


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
    lines = str(s).count("\n") + 1
    _check_repeated(lines * (width if isinstance(width, int) else len(width)), "indent")
    return do_indent(s, width, first, blank)


def _format(value: Any, *args: Any, **kwargs: Any) -> Any:
    _check_percent(str(value), (*args, *kwargs.values()))
    return do_format(value, *args, **kwargs)


def _replace(s: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = str(s), str(old), str(new)
    _check_replaced(text, old, new)
    return text.replace(old, new, -1 if count is None else count)


@pass_environment
def _join(environment: Environment, value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    separator = str(d)
    return separator.join(_bounded_texts(map(str, value), separator))


MADE_BY_FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _padded(name, original) for name, original in _PADDING_FILTERS.items()},
    "indent": _indent,
    "format": _format,
    "replace": _replace,
    "join": _join,
}
"""Filters in place of Jinja's own of the same names, equal but for the bounds; text is never escaped here."""


def _size(operand: Any) -> float:
    if hasattr(operand, "__len__"):
        return len(operand)
    return abs(operand) if isinstance(operand, int | float) else 1


def _check_repeated(size: float, how: str) -> None:
    if size > MAX_REPEATED:
        msg = f"made something longer than {MAX_REPEATED} with `{how}`"
        raise RenderError(msg)


def _check_padding(name: str, args: Iterable[Any]) -> None:
    _check_repeated(max((arg for arg in args if isinstance(arg, int)), default=0), name)


def _check_percent(pattern: str, args: Iterable[Any]) -> None:
    widths = [width for found in _PERCENT_WIDTHS.findall(pattern) for width in found if width]
    _check_widths(widths, args if "*" in widths else ())


def _check_braces(pattern: str, args: Iterable[Any]) -> None:
    formats: list[tuple[str, str]] = _BRACE_FORMATS.findall(pattern)
    widths = [width for spec, _ in formats for width in _NUMBERS.findall(spec)]
    _check_widths(widths, args if any(nested for _, nested in formats) else ())


def _check_widths(widths: Iterable[str], chosen: Iterable[Any]) -> None:
    """Widths in a format string, and numbers among its arguments where these may be widths."""
    written = sum(int(width[:9]) for width in widths if width != "*")
    _check_repeated(written + sum(abs(arg) for arg in chosen if isinstance(arg, int)), "format")


def _check_replaced(text: str, old: Any, new: Any) -> None:
    if isinstance(old, str) and isinstance(new, str) and len(new) > len(old):
        grown = len(text) + text.count(old) * (len(new) - len(old))
        if grown > MAX_MADE:
            msg = f"made something longer than {MAX_MADE} with `replace`"
            raise RenderError(msg)


def _bounded_texts(items: Iterable[Any], separator: str) -> list[Any]:
    texts: list[Any] = []
    size = 0
    for item in items:
        texts.append(item)
        size += len(separator) + (len(item) if isinstance(item, str) else 0)
        if size > MAX_MADE:
            msg = f"made something longer than {MAX_MADE} with `join`"
            raise RenderError(msg)
    return texts
