r"""Turns the `[[directives]]` of a prompt into a plan of what to answer. Pure.

The last real user message counts; `[[next]]` cuts it into turns, of which the k-th is used when k assistant turns
follow the message already (tool loops). After the last turn the reply is the fixed one, or with `[[loop]]` the
last turn again. `\n` in an argument means a newline; `]]` may not appear in one.

    [[say:T]] text T                      [[tool:NAME:{json}]] a <tool_call> block
    [[reason:T]] <think>T</think>         [[think:T]] opens <think> and never closes it
    [[len:N]] N numbered words            [[ids:1,2,3]] these token ids
    [[calls:A:{json}|B:{json}]] a JSON array of {name, parameters}
    [[finish:R]] finish reason R          [[eos:0]] no end-of-sequence token at the end
    [[error:CODE:T]] fail at once         [[errorafter:K:CODE:T]] fail after K chunks
    [[constraintfail]] fail with FAILED_PRECONDITION
    [[nocomplete]] all tokens, never an end
    [[hang]] a token per 50 ms for ever   [[hang0:MS]] wait before the first chunk
    [[delay:MS]] wait before each chunk   [[chunk:N]] N tokens per chunk
    [[cached:N]] [[rtok:N]] [[spec:DRAFT:ACCEPTED]] usage counters
    [[lp:A,B,…]] log-probabilities of the asked or label ids, in their order
    [[norows]] no log-probabilities of asked or label ids
    [[mirror]] the sampling parameters, the constraint and what is known of the prompt's media, as JSON text
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicers.echo.transcript import Transcript

MAX_WORDS = 100_000
MAX_WAIT_MS = 24 * 3600 * 1000
MAX_CHUNK_TOKENS = 100_000

_DIRECTIVE = re.compile(r"\[\[([a-z0-9_]+)(?::(.*?))?\]\]", re.DOTALL)
# These hold for every turn.
_FOR_ALL_TURNS = frozenset(("loop", "lp", "chunk", "delay", "cached", "spec"))

# google.rpc.Code, by name
CODES = {
    "OK": 0,
    "CANCELLED": 1,
    "UNKNOWN": 2,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
    "UNAUTHENTICATED": 16,
}
RETRYABLE = frozenset(CODES[name] for name in ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"))


class DirectiveFault(Exception):
    """A directive's argument cannot be used; the text says which, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a sequence fails."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to answer, and how.

    Attributes:
        pieces: texts and lists of token ids, in order.
        finish: finish reason to report in place of the true one.
        has_eos: an end-of-sequence token follows the pieces.
        failure: how the sequence fails before its first chunk.
        failure_after: number of chunks, and how the sequence fails after them.
        never_ends: no end is reported.
        hangs: filler tokens without end follow.
        first_wait_s, chunk_wait_s: pauses before the first, and before each chunk.
        chunk_tokens: tokens per step.
        cached_tokens, reasoning_tokens, draft_tokens, accepted_tokens: what to report; None: the truth.
        label_logprobs: log-probabilities of asked ids in their order.
        gives_rows: log-probabilities of asked ids are given.
        mirrors: the text is the sequence's own parameters.
    """

    pieces: tuple[str | tuple[int, ...], ...] = ()
    finish: str | None = None
    has_eos: bool = True
    failure: Failure | None = None
    failure_after: tuple[int, Failure] | None = None
    never_ends: bool = False
    hangs: bool = False
    first_wait_s: float = 0.0
    chunk_wait_s: float = 0.0
    chunk_tokens: int = 1
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    label_logprobs: tuple[float, ...] = ()
    gives_rows: bool = True
    mirrors: bool = False


NO_PLAN = Plan()


def read_plan(transcript: Transcript) -> Plan:
    """The plan that a transcript's directives make.

    Raises:
        DirectiveFault: an argument cannot be used.
    """
    turns: list[list[tuple[str, str]]] = [[]]
    for_all: list[tuple[str, str]] = []
    for match in _DIRECTIVE.finditer(transcript.user_text):
        name, argument = match[1], (match[2] or "").replace("\\n", "\n")
        if name == "next":
            turns.append([])
        elif name in _FOR_ALL_TURNS:
            for_all.append((name, argument))
        else:
            turns[-1].append((name, argument))
    if transcript.turn < len(turns):
        chosen = turns[transcript.turn]
    else:
        chosen = turns[-1] if ("loop", "") in for_all else []
    plan = NO_PLAN
    for name, argument in chosen + for_all:
        plan = _apply(plan, name, argument, transcript)
    return plan


def _apply(plan: Plan, name: str, argument: str, transcript: Transcript) -> Plan:
    write = _TEXTS.get(name)
    if write is not None:
        return replace(plan, pieces=(*plan.pieces, write(argument, transcript.is_thinking)))
    if name == "ids":
        ids = tuple(_whole(name, each, 0, 2**32 - 1) for each in argument.split(","))
        return replace(plan, pieces=(*plan.pieces, ids))
    change = _CHANGES.get(name)
    # Double brackets occur in texts of all kinds: what is no directive is text.
    return replace(plan, **change(name, argument)) if change is not None else plan


def _tool_text(argument: str, _: bool) -> str:
    name, _colon, arguments = argument.partition(":")
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments or "{}"}}}\n</tool_call>'


def _calls_text(argument: str, _: bool) -> str:
    calls = (each.partition(":") for each in argument.split("|"))
    return (
        "["
        + ", ".join(f'{{"name": "{name}", "parameters": {rest or "{}"}}}' for name, _, rest in calls)
        + "]"
    )


def _reason_text(argument: str, is_thinking: bool) -> str:
    return ("" if is_thinking else "<think>\n") + argument + "\n</think>\n\n"


def _think_text(argument: str, is_thinking: bool) -> str:
    return ("" if is_thinking else "<think>\n") + argument


def _words_text(argument: str, _: bool) -> str:
    return " ".join(f"w{number}" for number in range(_whole("len", argument, 0, MAX_WORDS)))


_TEXTS: dict[str, Callable[[str, bool], str]] = {
    "say": lambda argument, _: argument,
    "tool": _tool_text,
    "calls": _calls_text,
    "reason": _reason_text,
    "think": _think_text,
    "len": _words_text,
}


def _error(name: str, argument: str) -> dict[str, Any]:
    code, _, message = argument.partition(":")
    return {"failure": _failure(name, code, message)}


def _error_after(name: str, argument: str) -> dict[str, Any]:
    count, _, rest = argument.partition(":")
    code, _, message = rest.partition(":")
    chunks = _whole(name, count, 0, MAX_WORDS)
    return {"failure_after": (chunks, _failure(name, code, message))}


def _failure(name: str, code: str, message: str) -> Failure:
    if code not in CODES:
        raise DirectiveFault(f"directive {name} has code {code!r}; allowed: {', '.join(CODES)}")
    return Failure(CODES[code], message or f"echo engine: {code}")


def _spec(name: str, argument: str) -> dict[str, Any]:
    draft, _, accepted = argument.partition(":")
    return {
        "draft_tokens": _whole(name, draft, 0, 2**32 - 1),
        "accepted_tokens": _whole(name, accepted, 0, 2**32 - 1),
    }


def _label_logprobs(name: str, argument: str) -> dict[str, Any]:
    try:
        return {"label_logprobs": tuple(float(each) for each in argument.split(","))}
    except ValueError:
        raise DirectiveFault(
            f"directive {name} is {argument!r}; allowed: numbers with commas between"
        ) from None


def _whole(name: str, text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise DirectiveFault(f"directive {name} is {text!r}; allowed: a whole number from {low} to {high}")
    return value


def _wait_s(name: str, argument: str) -> float:
    return _whole(name, argument, 0, MAX_WAIT_MS) / 1000


_CONSTRAINT_FAILURE = Failure(
    CODES["FAILED_PRECONDITION"], "the engine could not continue the request under its constraint"
)
_CHANGES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "finish": lambda _, argument: {"finish": argument},
    "eos": lambda _, argument: {"has_eos": argument != "0"},
    "error": _error,
    "errorafter": _error_after,
    "constraintfail": lambda _, __: {"failure": _CONSTRAINT_FAILURE},
    "nocomplete": lambda _, __: {"never_ends": True},
    "hang": lambda _, __: {"hangs": True},
    "hang0": lambda name, argument: {"first_wait_s": _wait_s(name, argument)},
    "delay": lambda name, argument: {"chunk_wait_s": _wait_s(name, argument)},
    "chunk": lambda name, argument: {"chunk_tokens": _whole(name, argument, 1, MAX_CHUNK_TOKENS)},
    "cached": lambda name, argument: {"cached_tokens": _whole(name, argument, 0, 2**32 - 1)},
    "rtok": lambda name, argument: {"reasoning_tokens": _whole(name, argument, 0, 2**32 - 1)},
    "spec": _spec,
    "lp": _label_logprobs,
    "norows": lambda _, __: {"gives_rows": False},
    "mirror": lambda _, __: {"mirrors": True},
}
