"""The list of checks, and how a module adds to it.

A check is a coroutine that is given the engine under test and asserts; its name is a sentence about behaviour. What an
engine does not offer is no fault: the check raises NotOffered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from smg.conformance.worker import Worker

    Run = Callable[..., Awaitable[None]]


class NotOffered(Exception):
    """The engine does not offer what the check is about. The text says what."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        group: module of the check, for instance "generate".
        name: a sentence, with the case behind it where there are several.
        run: raises AssertionError where the promise is not kept, NotOffered where it is not given.
    """

    group: str
    name: str
    run: Callable[[Worker], Awaitable[None]]


CHECKS: list[Check] = []
"""All checks of the modules that are imported, in order."""


def check(run: Run) -> Run:
    """Add a coroutine to the checks."""
    _add(run, "", ())
    return run


def check_each(cases: Mapping[str, Sequence[object]]) -> Callable[[Run], Run]:
    """Add a coroutine once for each case, which is its further arguments by name of the case."""

    def add(run: Run) -> Run:
        for name, arguments in cases.items():
            _add(run, name, arguments)
        return run

    return add


def cases(*values: object) -> dict[str, tuple[object, ...]]:
    """Cases of one argument, named by its value."""
    return {str(value): (value,) for value in values}


def _add(run: Run, case: str, arguments: Sequence[object]) -> None:
    words = run.__name__.replace("_", " ")
    group = run.__module__.rpartition(".")[2].replace("_", " ")
    name = f"{words} [{case}]" if case else words
    CHECKS.append(Check(group, name, partial(_call, run, tuple(arguments))))


async def _call(run: Run, arguments: tuple[object, ...], worker: Worker) -> None:
    await run(worker, *arguments)


class Near:
    """Equal to numbers that differ by at most so much."""

    def __init__(self, expected: float | Sequence[float], slack: float) -> None:
        self._expected = expected
        self._slack = slack

    __hash__ = None  # pyright: ignore[reportAssignmentType] -- compared, never kept

    def __eq__(self, other: object) -> bool:
        mine, theirs = _numbers(self._expected), _numbers(other)
        return len(mine) == len(theirs) and all(
            math.isclose(one, two, rel_tol=0, abs_tol=self._slack)
            for one, two in zip(mine, theirs, strict=True)
        )

    def __repr__(self) -> str:
        return f"{self._expected} ± {self._slack:g}"


def near(expected: float | Sequence[float], slack: float) -> Near:
    """What numbers that are to be about so may be compared with."""
    return Near(expected, slack)


def _numbers(value: Any) -> list[float]:
    return [value] if isinstance(value, int | float) else list(value)
