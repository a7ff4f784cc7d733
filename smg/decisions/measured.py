"""Models on which a readout was measured to be better than the usual one, by kind of question.

`auto` asks by labels; a small model may know its letters too little for that, and choose by position. A row here is an
evaluation's outcome (benchmarks/decisions), never a guess.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.decisions.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

BETTER_WORDED: Mapping[str, frozenset[Kind]] = MappingProxyType(
    {
        # 40 % right instead of 25 % and 20 %; of 20 choices 6 instead of 19 change with the order of their options.
        "HuggingFaceTB/SmolLM2-135M-Instruct": frozenset((Kind.CHOICE, Kind.SCORE)),
    }
)
