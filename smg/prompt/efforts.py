"""Finds the effort levels that a chat template knows: the strings that it compares `reasoning_effort` with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

EFFORT_VARIABLE = "reasoning_effort"
_COMPARING_TESTS = frozenset(("eq", "equalto", "==", "ne", "!=", "in"))


def compared_efforts(tree: nodes.Template) -> frozenset[str]:
    """The strings, also where the effort is compared under another name that it was given before."""
    names = {EFFORT_VARIABLE}
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and _mentions(assignment.node, names):
            names.add(assignment.target.name)
    return frozenset(constant for compared in _comparisons(tree, names) for constant in _strings(compared))


def _comparisons(tree: nodes.Template, names: set[str]) -> Iterator[nodes.Node]:
    """What the names are compared with, or looked up in."""
    for compare in tree.find_all(nodes.Compare):
        sides = [compare.expr, *(operand.expr for operand in compare.ops)]
        if any(_mentions(side, names) for side in sides):
            yield from (side for side in sides if not _mentions(side, names))
    for test in tree.find_all(nodes.Test):
        if test.name in _COMPARING_TESTS and _mentions(test.node, names):
            yield from test.args
    for item in tree.find_all(nodes.Getitem):
        if isinstance(item.node, nodes.Dict) and _mentions(item.arg, names):
            yield from (pair.key for pair in item.node.items)


def _mentions(node: nodes.Node, names: set[str]) -> bool:
    found = [node] if isinstance(node, nodes.Name) else node.find_all(nodes.Name)
    return any(name.name in names for name in found)


def _strings(node: nodes.Node) -> Iterator[str]:
    constants = [node] if isinstance(node, nodes.Const) else node.find_all(nodes.Const)
    yield from (constant.value for constant in constants if isinstance(constant.value, str))
