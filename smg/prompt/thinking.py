"""Decides whether a model starts in reasoning mode, and what its chat template is told of it.

What a template knows of thinking is found out once, when it is loaded: by what it reads, and by rendering a probe. Each
request then takes the first of four rules that applies. A rule decides only where the template can be told: by the
toggle that it reads, or by an effort level of its own. So the template and whoever reads the answer agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from smg.errors import InvalidRequest
from smg.prompt.efforts import EFFORT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.prompt.template import ChatTemplate

TOGGLES = ("enable_thinking", "thinking")
OFF_EFFORTS = frozenset(("none", "minimal"))
Tags = tuple[tuple[str, str], ...]
# What opens and closes reasoning: those of smg/parsers/reasoning/, which a test compares, without white space at their ends.
TAGS: Tags = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("◁think▷", "◁/think▷"),
)
_PROBE_TEXT = "Zq7"
_TAIL_CHARS = 64


@dataclass(frozen=True, slots=True)
class ThinkingSupport:
    """What one template knows of thinking.

    Attributes:
        is_known: it, or the vocabulary, has reasoning tags; where not, an answer never begins in reasoning.
        toggles: the variables that switch thinking; the first is the one to set.
        efforts: the effort levels that it tells apart itself; empty where it has none of its own.
        starts_inside: whether an answer begins in reasoning when nothing is said.
        tags: the tags that it, or the vocabulary, has.
    """

    is_known: bool = False
    toggles: tuple[str, ...] = ()
    efforts: frozenset[str] = frozenset()
    starts_inside: bool = False
    tags: Tags = ()


class ThinkingDecision(NamedTuple):
    """What a request makes of it.

    Attributes:
        thinks: whether the model starts in reasoning mode; None for the template's default.
        variables: what the template is told.
    """

    thinks: bool | None
    variables: Mapping[str, Any]


def thinking_support(
    template: ChatTemplate, variables: Mapping[str, Any], *, vocabulary: frozenset[str], max_seconds: float
) -> ThinkingSupport:
    """Find out what a template knows.

    Args:
        template: the template.
        variables: what every rendering has: bos_token and the like.
        vocabulary: its control tokens, among which may be one for the beginning of reasoning.
        max_seconds: longest time for one probe.
    """
    probe = _Probe(template, variables, max_seconds)
    toggles = tuple(name for name in TOGGLES if name in template.variables)
    # What changes how the answer is opened counts before what is merely said somewhere in the prompt.
    opening = tuple(name for name in toggles if probe.opens_differently({name: True}, {name: False}))
    effective = tuple(name for name in toggles if probe.differs({name: True}, {name: False}))
    toggles = opening or effective or toggles
    tags = tuple(tag for tag in TAGS if tag[0] in vocabulary or any(text in template.text for text in tag))
    starts_inside = bool(tags) and _default(probe, toggles, template, tags)
    return ThinkingSupport(bool(tags), toggles, template.efforts, starts_inside, tags)


def decide(
    support: ThinkingSupport, explicit: Mapping[str, Any], effort: str, thinking_type: str
) -> ThinkingDecision:
    """Apply the rules.

    Args:
        support: what the template knows.
        explicit: variables that the request sets itself (chat_template_kwargs); these stand.
        effort: the effective effort; empty when none was given.
        thinking_type: "enabled", "disabled", or anything else for no preference.
    """
    thinks = _decision(support, explicit, effort, thinking_type)
    variables: dict[str, Any] = {EFFORT_VARIABLE: effort} if effort else {}
    variables.update(explicit)
    for name in support.toggles[:1]:
        # What is no boolean is no toggle, so it must not stand against the decision, nor null against the default.
        if thinks is not None and not isinstance(variables.get(name), bool):
            variables[name] = thinks
        elif thinks is None and name in variables and variables[name] is None:
            del variables[name]
    return ThinkingDecision(thinks, variables)


def _decision(
    support: ThinkingSupport, explicit: Mapping[str, Any], effort: str, thinking_type: str
) -> bool | None:
    for name in support.toggles:
        if isinstance(value := explicit.get(name), bool):
            return value
    if support.efforts:
        level = explicit.get(EFFORT_VARIABLE, effort)
        if level in OFF_EFFORTS:
            return False
        if isinstance(level, str) and level in support.efforts:
            return True
    if not support.toggles:
        return None
    if thinking_type in ("enabled", "disabled"):
        return thinking_type == "enabled"
    return False if effort in OFF_EFFORTS else None


def open_reasoning(rendered: str, tags: Tags = TAGS) -> bool | None:
    """Whether a prompt ends inside a reasoning block, or right after one; None where it ends in something else."""
    tail = rendered[-_TAIL_CHARS:].rstrip()
    for opening, closing in tags:
        if tail.endswith(opening):
            return True
        if tail.endswith(closing):
            return False
    return None


def continued_reasoning(rendered: str, final_text: str, tags: Tags = TAGS) -> bool | None:
    """The same for a prompt that ends in a message to be continued, with its text so far."""
    if final_text.strip():
        return any(final_text.rfind(opening) > final_text.rfind(closing) for opening, closing in tags)
    return open_reasoning(rendered, tags)


def _default(probe: _Probe, toggles: tuple[str, ...], template: ChatTemplate, tags: Tags) -> bool:
    unset = probe.render({})
    if unset is None:
        return False
    if (ends := open_reasoning(unset, tags)) is not None:
        return ends
    if toggles:
        on, off = probe.render({toggles[0]: True}), probe.render({toggles[0]: False})
        return _is_like(unset, on, off) or (
            not _is_like(unset, off, on) and _is_like(*map(_tail, (unset, on, off)))
        )
    off = probe.render({EFFORT_VARIABLE: "none"})
    levels = template.efforts - OFF_EFFORTS
    return any(_is_like(unset, probe.render({EFFORT_VARIABLE: level}), off) for level in sorted(levels))


def _is_like(text: str | None, one: str | None, other: str | None) -> bool:
    return text == one and text != other


def _tail(rendered: str | None) -> str | None:
    """What a template writes after the last message: the rest may print the toggle itself."""
    return rendered and rendered.rpartition(_PROBE_TEXT)[2]


class _Probe:
    """Renders one question with the given variables."""

    def __init__(self, template: ChatTemplate, variables: Mapping[str, Any], max_seconds: float) -> None:
        self._template, self._max_seconds = template, max_seconds
        self._scope = {
            "documents": None,
            **variables,
            "messages": [{"role": "user", "content": _PROBE_TEXT}],
            "tools": None,
            "add_generation_prompt": True,
        }

    def render(self, variables: Mapping[str, Any]) -> str | None:
        """The prompt; None where the template refuses it."""
        try:
            return self._template.render({**self._scope, **variables}, max_seconds=self._max_seconds)
        except InvalidRequest:
            return None

    def opens_differently(self, some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
        return _tail(self.render(some)) != _tail(self.render(others))

    def differs(self, some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
        return self.render(some) != self.render(others)
