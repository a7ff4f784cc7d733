"""Runs the checks against a worker, and tells how each ended."""

from __future__ import annotations

import asyncio
import linecache
import traceback
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, cast

from smg.conformance.checking import CHECKS, NotOffered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from smg.conformance.checking import Check
    from smg.conformance.worker import Worker

# In the order in which a new engine meets them.
_MODULES = ("service", "sessions", "generate", "bad_input", "logprobs", "moves", "constraints", "scoring")
_LONGEST_VALUE = 300


class Outcome(Enum):
    """How a check ended."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True, slots=True)
class Result:
    """How one check ended, and why, where there is something to say."""

    check: Check
    outcome: Outcome
    why: str = ""


def all_checks() -> list[Check]:
    """Every check, in order."""
    if not CHECKS:
        for name in _MODULES:
            import_module(f"smg.conformance.{name}")
    return CHECKS


async def run_checks(worker: Worker, checks: Sequence[Check], limit_s: float) -> AsyncIterator[Result]:
    """Run checks one after the other.

    Args:
        worker: the engine under test.
        checks: which.
        limit_s: longest time that one may take.
    """
    for check in checks:
        yield await _run(worker, check, limit_s)


async def _run(worker: Worker, check: Check, limit_s: float) -> Result:
    try:
        async with asyncio.timeout(limit_s):
            await check.run(worker)
    except NotOffered as reason:
        return Result(check, Outcome.NOT_OFFERED, str(reason))
    except TimeoutError:
        return Result(check, Outcome.BROKEN, f"it did not end within {limit_s:g} s")
    except Exception as error:  # noqa: BLE001 - whatever an engine does must not end the run
        return Result(check, Outcome.BROKEN, _in_words(error))
    return Result(check, Outcome.KEPT)


def _in_words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _in_words(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    if not isinstance(error, AssertionError):
        return f"{type(error).__name__}: {error}"
    line, values = _asserted(error.__traceback__)
    said = f"{error}" if error.args else ""
    return "\n".join(filter(None, (line, said, values)))


def _asserted(trace: TracebackType | None) -> tuple[str, str]:
    """The line that asserted, in the last frame, and the values that it names."""
    if trace is None:
        return "", ""
    frame, number = list(traceback.walk_tb(trace))[-1]
    line = linecache.getline(frame.f_code.co_filename, number).strip()
    named = [
        f"  {name} = {_short(value)}"
        for name, value in frame.f_locals.items()
        if name in line and name not in {"worker", "session"}
    ]
    return line, "\n".join(named)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
