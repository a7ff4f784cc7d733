"""The table of commands. Nothing heavy is imported before the chosen one runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, what it does in a line, and the module that runs it."""

    name: str
    summary: str
    module: str


class CommandModule(Protocol):
    """What the module of a command offers."""

    def run(self, arguments: Sequence[str]) -> int:
        """Run the command and return its exit status."""
        ...


COMMANDS = (
    Command("serve", "Start a local engine and the gateway in front of it.", "smg.cli.serve"),
    Command("launch", "Start the gateway for engines that run elsewhere.", "smg.cli.launch"),
    Command("worker", "Start one engine with its gRPC servicer.", "smg.cli.worker"),
    Command("chat", "Talk to a running gateway in the terminal.", "smg.cli.chat"),
    Command("doctor", "Say what is wrong with a worker or a running gateway.", "smg.cli.doctor.command"),
    Command("conformance", "Check whether an engine keeps the contract.", "smg.cli.conformance"),
    Command("top", "Watch the workers of a running gateway.", "smg.cli.top.command"),
)


def run_command(command: Command, arguments: Sequence[str]) -> int:
    """Import the command's module and run it."""
    module = cast("CommandModule", import_module(command.module))
    return module.run(arguments)
