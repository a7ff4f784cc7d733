"""What is wrong with the settings, told all at once and in the operator's words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        where: flag, environment variable or YAML key that the value came from.
        problem: the value, unless it is a secret, and what is allowed.
    """

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


class SettingsError(Exception):
    """The settings cannot be used. Carries every fault that was found."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = faults
