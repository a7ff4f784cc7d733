"""Reads one question of the state form: `criteria` as a map or list, or the ordered lists of the router's own config.

A question takes one of the two forms, and only its type's members; what is wrong is told by name. What holds for both
doors (how many options, what a threshold may be) is checked later, on the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gateway.openai.explain import shown
from smg.decisions.json_text import json_bytes
from smg.decisions.kinds import MAX_OPTIONS
from smg_proto.decision.v1 import question_pb2 as q

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sized

TYPES: Mapping[str, q.QuestionType.ValueType] = {
    "noul": q.QUESTION_TYPE_NOUL,
    "choice": q.QUESTION_TYPE_CHOICE,
    "score": q.QUESTION_TYPE_SCORE,
    "set": q.QUESTION_TYPE_SET,
    "span": q.QUESTION_TYPE_SPAN,
    "box": q.QUESTION_TYPE_BOX,
    "track": q.QUESTION_TYPE_TRACK,
}
NAMES: Mapping[q.QuestionType.ValueType, str] = {number: name for name, number in TYPES.items()}
# The list that a type may have instead of criteria.
_LISTS = {"noul": "choices", "choice": "choices", "score": "levels", "set": "labels", "span": "labels"}
_COMMON = frozenset({"type", "instructions", "preset"})
_MORE: Mapping[str, frozenset[str]] = {
    "set": frozenset({"threshold"}),
    "span": frozenset({"threshold"}),
    "box": frozenset({"at"}),
    "track": frozenset({"rate"}),
}
_NONE: frozenset[str] = frozenset()
_KNOWN = {
    name: _COMMON | _MORE.get(name, _NONE) | ({"criteria", _LISTS[name]} if name in _LISTS else _NONE)
    for name in TYPES
}
_FEWEST = 2


class QuestionMalformed(Exception):
    """A question is not of its form; the message names the member."""


def read_question(question_id: str, value: Any) -> q.Question:
    """Read a question.

    Raises:
        QuestionMalformed: it is not of its form.
    """
    if not isinstance(value, dict):
        raise QuestionMalformed(f"the question is {shown(value)}; it must be an object")
    members = cast("dict[str, Any]", value)
    name = members.get("type")
    if not isinstance(name, str) or name not in TYPES:
        raise QuestionMalformed(f"type is {shown(name)}; it must be one of {', '.join(TYPES)}")
    if not members.keys() <= _KNOWN[name]:
        unknown = [each[:60] for each in members if each not in _KNOWN[name]]
        raise QuestionMalformed(f"{name} questions do not take {unknown[:10]}")
    question = q.Question(id=question_id, type=TYPES[name])
    put_content(question.instructions, members.get("instructions"), "instructions")
    if not isinstance(members.get("preset", ""), str):
        raise QuestionMalformed(f"preset is {shown(members['preset'])}; it must be a string")
    if members.get("threshold") is not None:
        question.threshold = _number(members["threshold"], "threshold")
    if name in _LISTS:
        _read_options(question, name, members)
    return question


def put_content(target: q.Content, value: Any, where: str) -> None:
    """Text as text, an object or array as compact JSON; null is nothing.

    Raises:
        QuestionMalformed: a number or a boolean.
    """
    if value is None:
        return
    if isinstance(value, str):
        target.text = value
    elif isinstance(value, dict | list):
        target.json = compact(cast("object", value))
    else:
        raise QuestionMalformed(f"{where} is {shown(value)}; it must be text, an object, an array or null")


def compact(value: object) -> str:
    """A value as JSON text without blanks, keys in their order, nothing escaped that need not be."""
    return json_bytes(value).decode()


def _read_options(question: q.Question, name: str, members: Mapping[str, Any]) -> None:
    listed = _LISTS[name]
    if "criteria" in members and listed in members:
        raise QuestionMalformed(f"criteria and {listed} are both there; a question takes one of them")
    if listed in members:
        _read_list(question, name, listed, members[listed])
    elif name == "score":
        _read_levels(question, "criteria", members.get("criteria"))
    else:
        _read_map(question, name, members.get("criteria"))
    keys = [option.key for option in question.options]
    if name in ("choice", "score") and len(keys) < _FEWEST:
        what = "options" if name == "choice" else "levels"
        raise QuestionMalformed(f"{name} questions have at least {_FEWEST} {what}; this one has {len(keys)}")
    if name != "score" and (len(set(keys)) < len(keys) or any(not key.strip() for key in keys)):
        raise QuestionMalformed("names of options must not be blank, and must differ from each other")


def _read_map(question: q.Question, name: str, criteria: Any) -> None:
    if criteria is None and name == "noul":
        return
    if not isinstance(criteria, dict):
        raise QuestionMalformed(
            f"criteria is {shown(criteria)}; for a {name} question it must be an object of descriptions"
        )
    _check_count(cast("Sized", criteria), "criteria")
    for key, description in cast("dict[str, Any]", criteria).items():
        _put(question, key, description, f"criteria.{key[:60]}")


def _read_levels(question: q.Question, where: str, levels: Any) -> None:
    if not isinstance(levels, list):
        raise QuestionMalformed(f"{where} is {shown(levels)}; for a score question it must be an array")
    _check_count(cast("Sized", levels), where)
    for number, description in enumerate(cast("list[Any]", levels)):
        if description is None:
            raise QuestionMalformed(f"{where}[{number}] is null; each level needs a description")
        _put(question, "", description, f"{where}[{number}]")


def _read_list(question: q.Question, name: str, listed: str, value: Any) -> None:
    if name == "score":
        _read_levels(question, listed, value)
        return
    if not isinstance(value, list):
        raise QuestionMalformed(f"{listed} is {shown(value)}; it must be an array")
    _check_count(cast("Sized", value), listed)
    for number, entry in enumerate(cast("list[Any]", value)):
        where = f"{listed}[{number}]"
        if not isinstance(entry, dict):
            raise QuestionMalformed(f"{where} is {shown(entry)}; it must be an object with a key")
        members = cast("dict[str, Any]", entry)
        unknown = [each[:60] for each in members if each not in ("key", "description")]
        if unknown:
            raise QuestionMalformed(f"{where} does not take {unknown[:10]}")
        key = members.get("key")
        if not isinstance(key, str):
            raise QuestionMalformed(f"{where}.key is {shown(key)}; it must be a string")
        _put(question, key, members.get("description"), f"{where}.description")


def _check_count(options: Sized, where: str) -> None:
    # Before they are read: a body may hold millions.
    if len(options) > MAX_OPTIONS:
        raise QuestionMalformed(f"{where} has {len(options)} entries; at most {MAX_OPTIONS} are allowed")


def _put(question: q.Question, key: str, description: Any, where: str) -> None:
    put_content(question.options.add(key=key).description, description, where)


def _number(value: Any, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise QuestionMalformed(f"{where} is {shown(value)}; it must be a number")


def levels_of(raw: Mapping[str, Any]) -> list[Any]:
    """The levels of a score question as they came."""
    return raw["criteria"] if "criteria" in raw else raw["levels"]


def texts_of(value: Any) -> Iterable[str]:
    """Every string in a JSON value but the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from texts_of(each)
    elif isinstance(value, dict):
        for each in cast("dict[str, Any]", value).values():
            yield from texts_of(each)


def mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """A copy of a JSON value with every string changed, keys of objects left alone."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [mapped(each, change) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: mapped(each, change) for key, each in cast("dict[str, Any]", value).items()}
    return value
