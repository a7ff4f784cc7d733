"""Turns a chat into text with the model's Jinja template, in a sandbox and within bounds.

The environment is the one that Hugging Face's apply_chat_template gives a template, so that a template renders here as
it did where the model was trained. What it may cost is bounded (sandbox.py).
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.utils import Namespace, pass_context

from smg.errors import InvalidRequest
from smg.prompt.efforts import compared_efforts
from smg.prompt.sandbox import (
    BUDGET_VARIABLE,
    MAX_OUTPUT_CHARS,
    MAX_SECONDS,
    Budget,
    TemplateEnvironment,
    too_much,
)
from smg.prompt.sizes import RenderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2.parser import Parser
    from jinja2.runtime import Context, Macro

MARK_VARIABLE = "_content_mark"
"""Name under which the mark that breaks control tokens in content (content.py) reaches the tojson filter."""
_CLOCK = "strftime_now"
_MAX_INDENT = 256
_MAX_REASON_CHARS = 200


class ChatTemplate:
    """One compiled template. Immutable, safe to use from several threads.

    Attributes:
        text: everything that the template can write literally, parts separated by NUL.
        names: every name, attribute and string constant in it.
        constants: the string constants among them.
        variables: the variables that it reads and does not set itself.
        efforts: the strings that it compares `reasoning_effort` with.
        is_steady: it writes the same for the same variables, whatever the time.
    """

    def __init__(
        self,
        source: str,
        *,
        max_output_chars: int = MAX_OUTPUT_CHARS,
        max_seconds: float = MAX_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
    ) -> None:
        """Compile.

        Args:
            source: Jinja source.
            max_output_chars: longest text that a rendering may make.
            max_seconds: longest time that a rendering may take.
            now: the time that strftime_now() shows.

        Raises:
            ValueError: the source is not valid Jinja.
        """
        environment = _environment(now, max_output_chars)
        try:
            tree = environment.parse(source)
            self._describe(tree)
            environment.bound_loops(tree)
            self._template = environment.from_string(tree)
        except jinja2.TemplateSyntaxError as error:
            msg = f"the chat template is not valid Jinja: line {error.lineno}: {error.message}"
            raise ValueError(msg) from error
        # A context copies the globals for each rendering, slowly, unless it gets a dict that it may keep.
        self._globals = dict(environment.globals)
        self._max_output_chars = max_output_chars
        self._max_seconds = max_seconds

    def _describe(self, tree: nodes.Template) -> None:
        """Set the attributes. Before compiling, which folds constants into others in the tree."""
        literals = [node.data for node in tree.find_all(nodes.TemplateData)]
        constants = [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
        self.text = "\0".join([*literals, *constants])
        self.constants = frozenset(constants)
        self.names = frozenset([*constants, *(node.attr for node in tree.find_all(nodes.Getattr))])
        self.efforts = compared_efforts(tree)
        self.variables = frozenset(meta.find_undeclared_variables(tree))
        # Filters may also be named by a constant, as in map('random').
        by_chance = "random" in constants or any(
            node.name == "random" for node in tree.find_all(nodes.Filter)
        )
        by_clock = any(node.name == _CLOCK for node in tree.find_all(nodes.Name))
        self.is_steady = not by_clock and not by_chance

    def render(self, variables: dict[str, Any], *, max_seconds: float | None = None) -> str:
        """Render.

        Args:
            variables: what the template reads.
            max_seconds: longest time; None for the template's own bound.

        Raises:
            InvalidRequest: the template refused the chat (its own message), failed on it, or ran into a bound.
        """
        budget = Budget(self._max_seconds if max_seconds is None else max_seconds)
        scope = {**self._globals, **variables, "range": budget.range, BUDGET_VARIABLE: budget}
        context = self._template.new_context(scope, shared=True)
        try:
            return self._collect(self._template.root_render_func(context))
        except RenderError as error:
            raise InvalidRequest(f"the chat template {error}") from None
        except SecurityError as error:
            raise InvalidRequest(
                f"the chat template tried what its sandbox forbids: {_said(error)}"
            ) from error
        except _Refusal as error:
            raise InvalidRequest(str(error) or "the chat template refuses this conversation") from None
        except jinja2.UndefinedError as error:
            raise InvalidRequest(
                f"the chat template needs something that the request lacks: {_said(error)}"
            ) from error
        except RecursionError:
            raise InvalidRequest("the chat template recursed too deeply") from None
        except TypeError as error:
            raise InvalidRequest(f"the chat template failed on this request: {_said(error)}") from error
        except Exception as error:  # a template's expressions can raise whatever Python's can
            # What others say may quote the template's own strings.
            raise InvalidRequest(
                f"the chat template failed on this request with {type(error).__name__}"
            ) from error

    def _collect(self, chunks: Iterator[str]) -> str:
        parts: list[str] = []
        size = 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > self._max_output_chars:
                raise too_much(self._max_output_chars)
        return "".join(parts)


def _said(error: Exception) -> str:
    """What an error says that names types and members; a name may be of any length."""
    return str(error)[:_MAX_REASON_CHARS]


class _Refusal(jinja2.TemplateError):
    """The template called raise_exception()."""


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

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        members: dict[str, Any] = dict(*args, **kwargs)
        for name in members:
            _check_member(name)
        super().__init__(members)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_member(name)
        super().__setitem__(name, value)


def _check_member(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        msg = f"namespace attributes cannot begin with an underscore, got {name!r}"
        raise SecurityError(msg)


class _Dict:
    """dict() without the methods of the class, which would change any dict that they are given."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _environment(now: Callable[[], datetime], max_output_chars: int) -> TemplateEnvironment:
    environment = TemplateEnvironment(
        max_output_chars, trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    cast("dict[str, Any]", environment.filters)["tojson"] = _to_json

    def strftime_now(pattern: str) -> str:
        return now().strftime(pattern)

    cast("dict[str, Any]", environment.globals).update(
        raise_exception=_raise_exception,
        strftime_now=strftime_now,
        namespace=_TemplateNamespace,
        dict=_Dict(),
    )
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
    if isinstance(indent, int) and indent > _MAX_INDENT:
        msg = f"indented JSON by more than {_MAX_INDENT}"
        raise RenderError(msg)
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if not ensure_ascii:
        return text
    # The mark has to stay a character, or it could not be taken out again.
    mark = context.resolve(MARK_VARIABLE)
    return re.sub(
        r"[^\x00-\x7f]", lambda char: char[0] if char[0] == mark else json.dumps(char[0])[1:-1], text
    )
