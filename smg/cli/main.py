"""The command line: finds the command, or says what there is."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

from smg.cli.commands import COMMANDS, run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE_FAULT = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        _print(_overview())
        return 0 if words else _USAGE_FAULT
    if words[0] in ("-V", "--version", "version"):
        from importlib.metadata import version

        _print(f"smg {version('smg')}")
        return 0
    for command in COMMANDS:
        if command.name == words[0]:
            try:
                return run_command(command, words[1:])
            except KeyboardInterrupt:
                return _INTERRUPTED
    names = [command.name for command in COMMANDS]
    close = difflib.get_close_matches(words[0], names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
    print(f"smg: unknown command '{words[0]}'; {hint}", file=sys.stderr)  # noqa: T201 -- a command line talks
    return _USAGE_FAULT


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    rows = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS)
    return (
        "usage: smg COMMAND [flags]\n\n"
        "A gRPC-native gateway for large language models.\n\n"
        f"{rows}\n\n"
        "smg COMMAND --help lists a command's flags; smg --version tells the version."
    )


def _print(text: str) -> None:
    print(text)  # noqa: T201 -- a command line talks
