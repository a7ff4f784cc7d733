"""`smg top`: reads the command line, looks again and again, draws."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.console import Console
from rich.live import Live

from smg.cli.top.snapshot import rates_between
from smg.cli.top.sources import GrpcSource, HttpSource, LookFailed
from smg.cli.top.view import fleet_view
from smg.settings import environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from smg.cli.top.snapshot import Rates
    from smg.cli.top.sources import Source

    Show = Callable[[str, Source, Console, float], Awaitable[None]]

ABOUT = "Watch the workers of a running gateway."
_EPILOG = (
    "URL: the gateway's http://HOST:PORT, which tells everything, or grpc://HOST:PORT, which tells of the workers "
    "alone and wants the gateway's own key if it has one. Ctrl-C ends."
)
_FAILURE, _USAGE_FAULT = 1, 2
_TIMEOUT_S = 5.0
# Lines for a pipe are not cut to the width of a terminal that is not there.
_PIPE_WIDTH = 200
_SCHEMES = ("http", "https", "grpc", "grpcs")


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(list(arguments))
    key: str = options.api_key or environment().get("SMG_API_KEY") or ""
    url: str = options.url if "://" in options.url else f"http://{options.url}"
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        return _complain(f"'{url}' is none of {', '.join(_SCHEMES)}://HOST:PORT", _USAGE_FAULT)
    console = Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH, no_color=True)
    show = _once if options.once else _live
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_watched(url, key, options.ca_cert, show, console, options.interval))
    return 0


async def _watched(
    url: str, key: str, ca_cert: Path | None, show: Show, console: Console, interval_s: float
) -> int:
    source = open_source(url, key, ca_cert)
    try:
        await show(url, source, console, interval_s)
    except LookFailed as failed:
        return _complain(str(failed), _FAILURE)
    finally:
        await source.close()
    return 0


def open_source(url: str, key: str, ca_cert: Path | None = None) -> Source:
    """Where to look for the gateway of a URL."""
    parts = urlsplit(url)
    if parts.scheme.startswith("grpc"):
        is_tls = parts.scheme == "grpcs"
        return GrpcSource(parts.netloc, key, _TIMEOUT_S, is_tls=is_tls, ca_cert=ca_cert)
    return HttpSource(url, key, _TIMEOUT_S, ca_cert)


async def _once(url: str, source: Source, console: Console, interval_s: float) -> None:
    before = await source.look()
    await asyncio.sleep(interval_s)
    now = await source.look()
    console.print(fleet_view(url, now, rates_between(before, now)))


async def _live(url: str, source: Source, console: Console, interval_s: float) -> None:
    now = await source.look()
    rates: Rates | None = None
    fault = ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(fleet_view(url, now, rates, fault), refresh=True)
            await asyncio.sleep(interval_s)
            try:
                before, now, fault = now, await source.look(), ""
            except LookFailed as failed:
                # It may come back: what was seen last stays.
                fault = str(failed)
            else:
                rates = rates_between(before, now)


def _complain(text: str, status: int) -> int:
    print(f"smg top: {text}", file=sys.stderr)  # noqa: T201 -- a command line talks
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="smg top", description=ABOUT, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument(
        "url",
        nargs="?",
        default="http://127.0.0.1:30000",
        metavar="URL",
        help="the gateway (default: %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="look twice, print once, end")
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default: %(default)g)",
    )
    parser.add_argument(
        "--ca-cert", type=Path, metavar="FILE", help="certificates to trust (default: the system's)"
    )
    parser.add_argument("--api-key", metavar="KEY", help="the gateway's own key; better given as SMG_API_KEY")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.01 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.01 and 3600")
    return value
