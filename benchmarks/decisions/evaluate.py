"""`python -m benchmarks.decisions.evaluate`: what offline readouts are worth, on 60 items that were labelled by hand.

Accuracy; calibration (expected calibration error of the chosen answer's probability, five bins of equal width); and how
often a choice changes when its options stand in the reverse order. Items: items.json, the repository's own: 20 yes/no, 20
choice, 20 score. So few items tell a good readout from chance, not two good ones from each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.decisions.requests import Client
from benchmarks.decisions.rig import running

ROOT = Path(__file__).resolve().parents[2]
ITEMS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "items.json").read_text(encoding="utf-8"))
BINS = 5
READOUTS = {
    "labels": ("--decision-readout", "labels"),
    "labels, both orders": ("--decision-readout", "labels", "--decision-two-orders"),
    "options' texts": ("--decision-readout", "options"),
    "options' texts, both orders": ("--decision-readout", "options", "--decision-two-orders"),
}
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


class Outcome(NamedTuple):
    """One item: was it right, how likely did the readout hold it, and did the reverse order change it."""

    kind: str
    is_right: bool
    probability: float
    flipped: bool | None


def main() -> int:
    """Evaluate and print."""
    print("readout                       type    accuracy  chance  ECE   flips")
    for name, flags in READOUTS.items():
        with running(ROOT, ("--engine", "local"), flags) as rig:
            client = Client(rig.port)
            show(name, lambda state, asked, client=client: client.ask(state, {"q": asked})["answers"]["q"])
    if (ask := _sparrow()) is not None:
        show("sparrow-decider", ask)
    return 0


def show(name: str, ask: Ask) -> None:
    """One line per type of question."""
    outcomes = [_outcome(item, ask) for item in ITEMS]
    for kind in ("noul", "choice", "score"):
        mine = [each for each in outcomes if each.kind == kind]
        right = sum(each.is_right for each in mine) / len(mine)
        chances = [1 / max(2, len(item.get("options", ""))) for item in ITEMS if item["type"] == kind]
        flips = [each.flipped for each in mine if each.flipped is not None]
        flipped = f"{sum(flips) / len(flips):5.2f}" if flips else "    -"
        chance = sum(chances) / len(chances)
        print(f"{name:29} {kind:7} {right:8.2f} {chance:7.2f} {_ece(mine):5.2f} {flipped}", flush=True)


def _outcome(item: dict[str, Any], ask: Ask) -> Outcome:
    kind = item["type"]
    if kind == "noul":
        noul = ask(item["state"], {"type": "noul", "instructions": item["instructions"]})["noul"]
        return Outcome(kind, (noul >= 0.5) == item["answer"], max(noul, 1 - noul), None)
    if kind == "score":
        asked = {"type": "score", "instructions": item["instructions"], "criteria": item["options"]}
        shares = {int(level): share for level, share in ask(item["state"], asked)["probabilities"].items()}
        top = max(shares, key=lambda level: shares[level])
        return Outcome(kind, top == item["answer"], shares[top], None)
    chosen = [
        ask(
            item["state"],
            {"type": "choice", "instructions": item["instructions"], "criteria": dict.fromkeys(order)},
        )
        for order in (item["options"], item["options"][::-1])
    ]
    first, second = (each["choice"] for each in chosen)
    return Outcome(kind, first == item["answer"], chosen[0]["probabilities"][first], first != second)


def _ece(outcomes: list[Outcome]) -> float:
    total = 0.0
    for number in range(BINS):
        inside = [each for each in outcomes if min(int(each.probability * BINS), BINS - 1) == number]
        if inside:
            right = sum(each.is_right for each in inside) / len(inside)
            sure = sum(each.probability for each in inside) / len(inside)
            total += abs(right - sure) * len(inside) / len(outcomes)
    return total


def _sparrow() -> Ask | None:
    """The packaged decider `sparrow-decider`, where it is installed: a trained model of 2 MB, for comparison."""
    try:
        from sparrow_decider import Decider
    except ImportError:
        print("sparrow-decider is not installed: left out")
        return None
    decider = Decider.load()
    return lambda state, asked: decider.ask(state, {"q": asked})["q"]


if __name__ == "__main__":
    sys.exit(main())
