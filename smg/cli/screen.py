"""What `smg serve` and `smg launch` show while they start: a spinner on a terminal, plain lines elsewhere.

The line `ready http://HOST:PORT grpc://HOST:PORT` on standard output is for scripts, and only printed where no
person watches.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_QUESTION = "What is the capital of France?"


@dataclass(frozen=True, slots=True)
class Readiness:
    """What to say once everything runs.

    Attributes:
        http_url: where HTTP is served, reachable from this machine.
        grpc_url: where gRPC is served.
        models: names of the models that answer now; may be empty for a gateway whose workers come later.
        needs_key: callers must show an API key.
    """

    http_url: str
    grpc_url: str
    models: tuple[str, ...]
    needs_key: bool = False

    def curl(self) -> str:
        """A command that asks the first model a question."""
        body = {
            "model": self.models[0],
            "messages": [{"role": "user", "content": _QUESTION}],
            "temperature": 0,
            "max_tokens": 100,
        }
        key = "-H 'authorization: Bearer YOUR_KEY' " if self.needs_key else ""
        return (
            f"curl {self.http_url}/v1/chat/completions -H 'content-type: application/json' {key}"
            f"-d '{json.dumps(body)}'"
        )


class Screen(Protocol):
    """Where the start is shown."""

    def step(self, text: str) -> None:
        """Something begins that takes a while."""
        ...

    def ready(self, readiness: Readiness) -> None:
        """Everything runs."""
        ...

    def close(self) -> None:
        """Nothing more is shown."""
        ...


class PlainScreen:
    """One line per event, for pipes and log files."""

    def step(self, text: str) -> None:
        """Print the step."""
        _print(text)

    def listening(self, readiness: Readiness) -> None:
        """Print the line for scripts."""
        _print(f"ready {readiness.http_url} {readiness.grpc_url}")

    def ready(self, readiness: Readiness) -> None:
        """Print the line for scripts, then what a person needs."""
        self.listening(readiness)
        for label, value in _rows(readiness):
            _print(f"  {label:<6} {value}")

    def close(self) -> None:
        """Nothing to do."""


class TerminalScreen:
    """A spinner while something loads, then a banner."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: Console = Console(highlight=False)
        self._status: Status | None = None

    def step(self, text: str) -> None:
        """Spin beside the text."""
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def ready(self, readiness: Readiness) -> None:
        """Replace the spinner by the banner."""
        self.close()
        self._console.print("\n[bold green]SMG is ready[/]")
        for label, value in _rows(readiness):
            # The value is not ours to mark up, and a curl line must be copied whole: no wrapping.
            self._console.print(f"  [bold]{label:<6}[/]", end=" ")
            self._console.print(value, markup=False, soft_wrap=True)
        self._console.print()

    def close(self) -> None:
        """Take the spinner away."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def new_screen() -> Screen:
    """The screen that fits standard output."""
    return TerminalScreen() if sys.stdout.isatty() else PlainScreen()


def _rows(readiness: Readiness) -> list[tuple[str, str]]:
    rows = [
        ("model", ", ".join(readiness.models) or "none yet: no worker is ready"),
        ("HTTP", f"{readiness.http_url}/v1"),
        ("gRPC", readiness.grpc_url.partition("://")[2] + _tls_note(readiness)),
    ]
    if readiness.models:
        rows += [("try", readiness.curl()), ("chat", f"smg chat --url {readiness.http_url}")]
    return [*rows, ("stop", "Ctrl-C")]


def _tls_note(readiness: Readiness) -> str:
    return " (TLS)" if readiness.grpc_url.startswith("grpcs:") else ""


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 -- a command line talks
