"""Tells which of two forms a body of /v1/decisions has, before anything else is looked at.

Two facts decide: the JSON type of `questions`, and which of `input`, `state` and `states` are there. An array is never
valid in the state form and an object never in OpenAI's, so a typing error elsewhere cannot change the contract that a
client gets. Never the model, a header, or what stands in a question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Form = Literal["openai", "state", "neither"]


def form_of(body: Mapping[str, Any]) -> Form:
    """The form of a body that is a JSON object."""
    questions = body.get("questions")
    if isinstance(questions, list):
        return "openai"
    if isinstance(questions, dict):
        # Both at once are of no form.
        return "neither" if "input" in body and not ("state" in body or "states" in body) else "state"
    if "state" in body or "states" in body:
        return "state"
    return "openai"


def neither(body: Mapping[str, Any]) -> str:
    """What to say to a body of neither form."""
    if "input" in body:
        return (
            "input needs questions as an array; questions is an object, which goes with state (or states): "
            "send input + questions[] or state + questions{}"
        )
    return "questions is missing: send input + questions[] or state (or states) + questions{}"
