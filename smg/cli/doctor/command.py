"""`smg doctor`: reads the command line, examines each address, tells what was found."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from smg.cli.doctor.findings import Report
from smg.cli.doctor.router_http import examine_router
from smg.cli.doctor.wire import Speech, Target, speech_of, unreachable
from smg.cli.doctor.worker import examine_worker
from smg.settings import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Say in words what is wrong with a worker or a running gateway, and what to do about it."
_EPILOG = (
    "URL: grpc://HOST:PORT for a worker (or a gateway's gRPC port), http://HOST:PORT for a gateway; grpcs:// and "
    "https:// with TLS; HOST:PORT finds out. Exit status: 0 no problem, 1 some problem, 2 wrong command line."
)
_PROBLEM, _USAGE_FAULT = 1, 2
_DEFAULT_TIMEOUT_S = 5.0
_SCHEMES = {"grpc": False, "grpcs": True, "http": False, "https": True}


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(list(arguments))
    key: str = options.api_key or environment().get("SMG_API_KEY") or ""
    try:
        targets = [(url, *_target_of(url, options)) for url in options.urls]
    except ValueError as error:
        print(f"smg doctor: {error}", file=sys.stderr)  # noqa: T201 -- a command line talks
        return _USAGE_FAULT
    reports = asyncio.run(_examine_all(targets, options.model, key))
    if options.json:
        _print(json.dumps([report.json() for report in reports], indent=2))
    else:
        _print("\n\n".join(report.text() for report in reports))
    return 0 if all(report.is_well for report in reports) else _PROBLEM


def _target_of(url: str, options: argparse.Namespace) -> tuple[str, Target]:
    """A URL with the options that hold for it. Raises ValueError."""
    scheme, target = parse_target(url)
    if (options.client_cert is None) != (options.client_key is None):
        raise ValueError("--client-cert and --client-key belong together")
    target = replace(
        target,
        ca_cert=options.ca_cert,
        timeout_s=options.timeout,
        client_cert=options.client_cert,
        client_key=options.client_key,
    )
    if target.is_tls:
        try:
            target.trust()
        except OSError as error:
            raise ValueError(f"a certificate or key cannot be used: {error}") from None
    return scheme, target


def parse_target(url: str) -> tuple[str, Target]:
    """Scheme and address of a URL; the scheme is empty where it is to be found out.

    Raises:
        ValueError: it is none, in words.
    """
    wanted = "expected grpc://HOST:PORT, http://HOST:PORT, with TLS grpcs:// or https://, or HOST:PORT"
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme and scheme not in _SCHEMES:
        raise ValueError(f"'{url}': {wanted}")
    try:
        parts = urlsplit(url if scheme else f"//{url}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"'{url}': {error}; {wanted}") from None
    if not parts.hostname or port is None:
        raise ValueError(f"'{url}' has no {'port' if parts.hostname else 'host'}; {wanted}")
    return scheme, Target(parts.hostname, port, _SCHEMES.get(scheme, False))


async def _examine_all(targets: Sequence[tuple[str, str, Target]], model: str, key: str) -> list[Report]:
    return [await examine(url, scheme, target, model, key) for url, scheme, target in targets]


async def examine(url: str, scheme: str, target: Target, model: str, key: str) -> Report:
    """Examine one address. Args: scheme: empty to find out what answers."""
    if not scheme:
        scheme = await _guess(target)
    look = examine_router if scheme.startswith("http") else examine_worker
    found = [finding async for finding in look(target, model, key, version("smg"))]
    return Report(url, tuple(found))


async def _guess(target: Target) -> str:
    if await unreachable(target, "the server") is not None:
        return "grpc"
    return "http" if await speech_of(target, is_http1=True) is Speech.HTTP1 else "grpc"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="smg doctor", description=ABOUT, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("urls", nargs="+", metavar="URL", help="what to look at")
    parser.add_argument("--model", default="", metavar="NAME", help="model that should be served")
    parser.add_argument("--json", action="store_true", help="tell it in JSON")
    parser.add_argument(
        "--timeout", type=_seconds, default=_DEFAULT_TIMEOUT_S, metavar="SECONDS",
        help="longest wait for one answer (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--ca-cert", type=Path, metavar="FILE", help="certificates to trust (default: the system's)"
    )
    parser.add_argument("--client-cert", type=Path, metavar="FILE", help="our own certificate")
    parser.add_argument("--client-key", type=Path, metavar="FILE", help="its key")
    parser.add_argument("--api-key", metavar="KEY", help="the gateway's own key; better given as SMG_API_KEY")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 3600")
    return value


def _print(text: Any) -> None:
    print(text)  # noqa: T201 -- a command line talks
