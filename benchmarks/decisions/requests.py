"""Makes decision requests that nobody has seen before, and sends them on one connection."""

from __future__ import annotations

import http.client
import itertools
import json
import random
from typing import Any

WORDS = [
    "the",
    "parcel",
    "came",
    "late",
    "but",
    "whole",
    "and",
    "our",
    "customer",
    "wrote",
    "that",
    "she",
    "would",
    "like",
    "her",
    "money",
    "back",
    "for",
    "the",
    "second",
    "invoice",
    "since",
    "it",
    "was",
    "paid",
    "twice",
    "in",
    "march",
    "while",
    "support",
    "answered",
    "only",
    "after",
    "four",
    "days",
    "of",
    "silence",
]
OPTIONS = {"billing": "Payments and refunds", "technical": "Bugs and outages", "sales": None}
LEVELS = ["Calm", "Frustrated", "Very angry"]
_seen = itertools.count()
_dice = random.Random(7)


def state(words: int) -> str:
    """A text of so many words that is like no other."""
    drawn = " ".join(_dice.choice(WORDS) for _ in range(max(words - 2, 0)))
    return f"Case {next(_seen)}: {drawn}."


def questions(count: int) -> dict[str, Any]:
    """So many questions, of each type in turn, that are like no others."""
    made: dict[str, Any] = {}
    for number in range(count):
        asked = f"Say for item {next(_seen)}: does the customer want money back?"
        kinds: tuple[dict[str, Any], ...] = (
            {"type": "noul", "instructions": asked},
            {"type": "choice", "instructions": asked, "criteria": OPTIONS},
            {"type": "score", "instructions": asked, "criteria": LEVELS},
        )
        made[f"q{number}"] = kinds[number % 3]
    return made


class Client:
    """One connection to a gateway."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, text: str, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer. Raises RuntimeError for anything but a whole one."""
        told = self._post("/v1/systemone", {"state": text, "questions": asked})
        if len(told["answers"]) != len(asked):
            raise RuntimeError(str(told)[:300])
        return told

    def chat(self, model: str, text: str) -> dict[str, Any]:
        """A chat about a text, answered by one token: what a decision is compared with."""
        messages = [{"role": "user", "content": text}]
        return self._post("/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": 1})

    def _post(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        self._http.request("POST", path, json.dumps(value).encode(), {"content-type": "application/json"})
        answer = self._http.getresponse()
        told = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {str(told)[:300]}")
        return told
