"""Jinja's sandbox for chat templates, with what a rendering may cost bounded: its time and the size of what it makes.

Templates come with the model and are trusted not to be malicious, but not to be right; and clients choose how much text
goes through them. Time is looked at in every turn of every loop and at every call, for a loop that writes nothing is
seen by nobody else. Size is looked at where a few characters could make any number: repetition, padding, joins,
replacements, format strings, and variables that grow by what they held before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from jinja2 import nodes, pass_context
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from smg.prompt.sizes import MADE_BY_FILTERS, RenderError, check_call, check_made, check_operator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2.runtime import Context

MAX_OUTPUT_CHARS = 16 << 20
MAX_SECONDS = 5.0
MAX_RANGE_STEPS = 100_000  # of all range() calls of one rendering

BUDGET_VARIABLE = "_rendering_budget"
"""Name under which the Budget of a rendering stands in its variables; no variable of a request may have it."""

_WATCHED, _MADE = "_watched", "_made"
_DICT_ATTRIBUTES = frozenset(dir(dict))
_LOOP_ATTRIBUTES = frozenset(
    ("first", "last", "index", "index0", "length", "revindex", "previtem", "nextitem")
)


class Budget:
    """What one rendering may still cost."""

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._until = time.monotonic() + max_seconds
        self._steps_left = MAX_RANGE_STEPS

    def check(self) -> None:
        """Raises RenderError when the time is up."""
        if time.monotonic() > self._until:
            msg = f"took more than {self._max_seconds:g} seconds"
            raise RenderError(msg)

    def watched(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, with a look at the clock before each."""
        for item in items:
            self.check()
            yield item

    def range(self, *bounds: int) -> range:
        """Python's, with one budget for the whole rendering: loops nest, and what they cost multiplies."""
        steps = range(*bounds)
        self._steps_left -= len(steps)
        if self._steps_left < 0:
            msg = f"looped over more than {MAX_RANGE_STEPS} numbers"
            raise RenderError(msg)
        return steps


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with bounds."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def __init__(self, max_output_chars: int, **options: Any) -> None:
        super().__init__(**options)
        self._max_chars = max_output_chars
        # Generated code joins with it what macros and blocks have written.
        self.concat = self._joined
        filters = cast("dict[str, Any]", self.filters)
        filters.update({_WATCHED: _watched, _MADE: check_made, **MADE_BY_FILTERS})
        # Text of any length out of one number, and no chat needs it.
        cast("dict[str, Any]", self.globals).pop("lipsum")

    def bound_loops(self, tree: nodes.Template) -> None:
        """Change a parsed template so that its loops are watched and what it gathers in variables is bounded."""
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = _filtered(cast("nodes.Expr", loop.iter), _WATCHED)
        for assignment in list(tree.find_all(nodes.Assign)):
            value = assignment.node
            growing = (nodes.Add, nodes.Concat)
            if isinstance(value, growing) or next(value.find_all(growing), None) is not None:
                assignment.node = _filtered(cast("nodes.Expr", value), _MADE)
        tree.set_environment(self)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Jinja's rule, by a shorter way for what templates mostly ask for."""
        # Chats are dicts, and `message.role` on a dict raises and catches an exception in the general way.
        kind = cast("Any", type(obj))
        if kind is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        if kind is LoopContext and attribute in _LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] -- positional here and in the base, under mangled names
        """A call out of a template. Raises RenderError."""
        budget: Budget = context.parent[BUDGET_VARIABLE]
        budget.check()
        args = check_call(obj, args, kwargs)
        return check_made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """One of intercepted_binops. Raises RenderError."""
        check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _joined(self, chunks: Iterable[str]) -> str:
        written = list(chunks)
        if sum(map(len, written)) > self._max_chars:
            raise too_much(self._max_chars)
        return "".join(written)


def too_much(max_chars: int) -> RenderError:
    """The error of a template that writes more than it may."""
    return RenderError(f"wrote more than {max_chars} characters")


def _filtered(value: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


@pass_context
def _watched(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    budget: Budget = context.parent[BUDGET_VARIABLE]
    return budget.watched(items)
