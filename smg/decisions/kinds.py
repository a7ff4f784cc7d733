"""The kinds of question, and what each may have."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """What a question asks for, by its name on the wire."""

    NOUL = "noul"
    CHOICE = "choice"
    SCORE = "score"
    SET = "set"
    SPAN = "span"


NOUL_LABELS = ("yes", "no")
"""In the order in which they are scored: the first one's probability is the answer."""
MAX_OPTIONS = 255
MAX_LEVELS = 10
