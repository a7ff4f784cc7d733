"""Turns a chat into text with the model's Jinja template, in a sandbox and within bounds.

The environment is the one that Hugging Face's apply_chat_template gives a template, so that a template renders here as
it did where the model was trained. Templates come with the model and are trusted not to be malicious, but not to be
right: what they print, how long they loop and how long they take is bounded.
"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2.parser import Parser
    from jinja2.runtime import Context, Macro

MAX_OUTPUT_CHARS = 16 << 20
MAX_SECONDS = 5.0
MAX_RANGE_STEPS = 100_000  # of all range() calls of one rendering
MAX_REPEATED = 1 << 20  # length of what `*` makes
_CHUNKS_PER_CHECK = 64

MARK_VARIABLE = "_content_mark"
"""Name under which the mark that breaks control tokens in content (content.py) reaches the tojson filter."""


_DICT_ATTRIBUTES = frozenset(dir(dict))
_LOOP_ATTRIBUTES = frozenset(
    ("first", "last", "index", "index0", "length", "revindex", "previtem", "nextitem")
)


class RenderError(Exception):
    """A bound is reached; the message says which."""


class ChatTemplate:
    """One compiled template. Immutable, safe to use from several threads.

    Attributes:
        text: everything that the template can write literally, parts separated by NUL.
        names: every name, attribute and string constant in it.
    """

    def __init__(
        self,
        source: str,
        *,
        max_output_chars: int = MAX_OUTPUT_CHARS,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
    ) -> None:
        """Compile.

        Args:
            source: Jinja source.
            max_output_chars: longest text that a rendering may make.
            now: the time that strftime_now() shows.

        Raises:
            ValueError: the source is not valid Jinja.
        """
        environment = _environment(now)
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            msg = f"the chat template is not valid Jinja: line {error.lineno}: {error.message}"
            raise ValueError(msg) from error
        # A context copies the globals for each rendering, slowly, unless it gets a dict that it may keep.
        self._globals = dict(environment.globals)
        self._max_output_chars = max_output_chars
        literals = [node.data for node in tree.find_all(nodes.TemplateData)]
        constants = [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
        self.text = "\0".join([*literals, *constants])
        self.names = frozenset([*constants, *(node.attr for node in tree.find_all(nodes.Getattr))])

    def render(self, variables: dict[str, Any]) -> str:
        """Render.

        Raises:
            InvalidRequest: the template refused the chat (its own message), failed on it, or ran into a bound.
        """
        scope = {**self._globals, **variables, "range": _Range().range}
        context = self._template.new_context(scope, shared=True)
        try:
            return self._collect(self._template.root_render_func(context))
        except RenderError as error:
            raise InvalidRequest(f"the chat template {error}") from None
        except SecurityError as error:
            raise InvalidRequest(f"the chat template tried what its sandbox forbids: {error}") from error
        except _Refusal as error:
            raise InvalidRequest(str(error)) from None
        except jinja2.UndefinedError as error:
            raise InvalidRequest(
                f"the chat template needs something that the request lacks: {error}"
            ) from error
        except RecursionError:
            raise InvalidRequest("the chat template recursed too deeply") from None
        except Exception as error:  # a template's expressions can raise whatever Python's can
            raise InvalidRequest(
                f"the chat template failed on this request: {type(error).__name__}: {error}"
            ) from error

    def _collect(self, chunks: Iterator[str]) -> str:
        parts: list[str] = []
        size = 0
        until = time.monotonic() + MAX_SECONDS
        for count, chunk in enumerate(chunks):
            parts.append(chunk)
            size += len(chunk)
            if size > self._max_output_chars:
                msg = f"wrote more than {self._max_output_chars} characters"
                raise RenderError(msg)
            if count % _CHUNKS_PER_CHECK == 0 and time.monotonic() > until:
                msg = f"took more than {MAX_SECONDS:g} seconds"
                raise RenderError(msg)
        return "".join(parts)


class _Refusal(jinja2.TemplateError):
    """The template called raise_exception()."""


class _Range:
    """range() with a budget for the whole rendering: loops nest, and what they cost multiplies."""

    def __init__(self) -> None:
        self._left = MAX_RANGE_STEPS

    def range(self, *bounds: int) -> range:
        steps = range(*bounds)
        self._left -= len(steps)
        if self._left < 0:
            msg = f"looped over more than {MAX_RANGE_STEPS} numbers"
            raise RenderError(msg)
        return steps


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with `*` and `**` bounded too: either makes any amount of memory out of two numbers."""

    intercepted_binops = frozenset(["*", "**"])

    def getattr(self, obj: Any, attribute: str) -> Any:
        # Chats are dicts, and `message.role` on a dict raises and catches an exception in the general way.
        kind = cast("Any", type(obj))
        if kind is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        if kind is LoopContext and attribute in _LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        size, times = _size(left), _size(right)
        repeats = hasattr(left, "__len__") or hasattr(right, "__len__")
        if (repeats and size * times > MAX_REPEATED) or (
            operator == "**" and max(size, times) > MAX_RANGE_STEPS
        ):
            msg = f"made something longer than {MAX_REPEATED} with `{operator}`"
            raise RenderError(msg)
        return super().call_binop(context, operator, left, right)


def _size(operand: Any) -> float:
    return len(operand) if hasattr(operand, "__len__") else abs(operand)


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what the assistant said, for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return caller()


class _TemplateNamespace(Namespace):
    """Jinja's namespace() without names that begin with an underscore, which lead into Python's insides."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            msg = f"namespace attributes cannot begin with an underscore, got {name!r}"
            raise SecurityError(msg)
        super().__setitem__(name, value)


def _environment(now: Callable[[], datetime]) -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    cast("dict[str, Any]", environment.filters)["tojson"] = _to_json

    def strftime_now(pattern: str) -> str:
        return now().strftime(pattern)

    names = cast("dict[str, Any]", environment.globals)
    names.update(raise_exception=_raise_exception, strftime_now=strftime_now, namespace=_TemplateNamespace)
    return environment


def _raise_exception(message: str) -> None:
    raise _Refusal(message)


@pass_context
def _to_json(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without Jinja's HTML escapes, as templates of language models expect it."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if not ensure_ascii:
        return text
    # The mark has to stay a character, or it could not be taken out again.
    mark = context.resolve(MARK_VARIABLE)
    return re.sub(
        r"[^\x00-\x7f]", lambda char: char[0] if char[0] == mark else json.dumps(char[0])[1:-1], text
    )


_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")


def with_reasoning_names(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without fields that are None, and with their reasoning under each name that templates read it by."""
    return [_normalized(message) for message in messages]


def _normalized(message: dict[str, Any]) -> dict[str, Any]:
    if None in message.values():
        message = {key: value for key, value in message.items() if value is not None}
    for name in _REASONING_NAMES:
        if name in message:
            return {"thinking": message[name], **message, "reasoning_content": message[name]}
    return message
