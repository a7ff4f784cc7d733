"""What a look at one thing found: how bad it is, what it is, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "note", "warning", "problem"]

_MARKS: dict[Level, str] = {"ok": "ok", "note": "--", "warning": " !", "problem": "XX"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: a word for what was looked at, the same in every version: "connection", "health", …
        level: "problem" for what keeps requests from being answered; "warning" for what will, or may.
        text: what was found.
        advice: what to do; empty where there is nothing to be done.
    """

    check: str
    level: Level
    text: str
    advice: str = ""

    def lines(self) -> list[str]:
        """It as lines of text."""
        told = [f"{_MARKS[self.level]}  {self.check}: {self.text}"]
        return [*told, *(f"      {line}" for line in self.advice.splitlines())]


def ok(check: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(check, "ok", text)


def note(check: str, text: str, advice: str = "") -> Finding:
    """Good to know."""
    return Finding(check, "note", text, advice)


def warning(check: str, text: str, advice: str) -> Finding:
    """It may go wrong."""
    return Finding(check, "warning", text, advice)


def problem(check: str, text: str, advice: str) -> Finding:
    """It is wrong."""
    return Finding(check, "problem", text, advice)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found about one address."""

    url: str
    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """No problem was found."""
        return all(finding.level != "problem" for finding in self.findings)

    def text(self) -> str:
        """For people."""
        count = sum(finding.level == "problem" for finding in self.findings)
        warnings = sum(finding.level == "warning" for finding in self.findings)
        verdict = "no problem found" if not count else f"{count} problem{'s' * (count > 1)}"
        if warnings:
            verdict += f", {warnings} warning{'s' * (warnings > 1)}"
        lines = [line for finding in self.findings for line in finding.lines()]
        return "\n".join([self.url, *(f"  {line}" for line in lines), f"  {verdict}"])

    def json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "url": self.url,
            "ok": self.is_well,
            "findings": [asdict(finding) for finding in self.findings],
        }
