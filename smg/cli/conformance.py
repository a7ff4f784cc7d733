"""`smg conformance`: checks whether a worker keeps what the engine contract promises, and prints a report."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.conformance.checking import Check
    from smg.conformance.run import Result

_ABOUT = (
    "Run the checks of the engine contract (smg.engine.v1) against a worker. It must be idle: the checks count what "
    "runs, and empty its prefix cache."
)
_EPILOG = "Exit status: 0 every promise is kept, 1 some are broken, 2 the worker cannot be checked."
_BROKEN, _CANNOT = 1, 2
_LIMIT_S = 60.0
_MARKS = {"kept": "ok", "broken": "BROKEN", "not offered": "--"}


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(list(arguments))
    if not __debug__:
        print("smg conformance: the checks are assertions; run it without -O", file=sys.stderr)  # noqa: T201 -- a command line talks
        return _CANNOT
    from smg.conformance.run import all_checks

    checks = [each for each in all_checks() if options.only in f"{each.group}: {each.name}"]
    if options.list:
        _print("\n".join(f"{each.group}: {each.name}" for each in checks))
        return 0
    try:
        results = asyncio.run(_check(options, checks))
    except _CannotCheck as fault:
        print(f"smg conformance: {options.url}: {fault}", file=sys.stderr)  # noqa: T201 -- as above
        return _CANNOT
    if options.json:
        options.json.write_text(json.dumps([_as_json(each) for each in results], indent=2), encoding="utf-8")
    counts = {name: sum(each.outcome.value == name for each in results) for name in _MARKS}
    _print(f"\n{counts['kept']} kept, {counts['broken']} broken, {counts['not offered']} not offered")
    return _BROKEN if counts["broken"] else 0


class _CannotCheck(Exception):
    """The worker does not answer as one; the text says why."""


async def _check(options: argparse.Namespace, checks: Sequence[Check]) -> list[Result]:
    import grpc.aio

    from smg.conformance.run import run_checks
    from smg.conformance.worker import meet

    results: list[Result] = []
    async with _channel(options) as channel:
        try:
            async with asyncio.timeout(options.timeout):
                worker = await meet(channel)
        except grpc.aio.AioRpcError as error:
            raise _CannotCheck(f"{error.code().name}: {error.details()}") from error
        except TimeoutError as error:
            raise _CannotCheck(f"no answer within {options.timeout:g} s") from error
        except Exception as error:
            raise _CannotCheck(f"its tokenizer cannot be used: {error}") from error
        card, description = worker.card, worker.description
        _print(f"{options.url}: {description.engine} {description.engine_version}, model {card.id}")
        group = ""
        async for result in run_checks(worker, checks, options.timeout):
            if result.check.group != group:
                group = result.check.group
                _print(f"\n{group}")
            _print(_line(result))
            results.append(result)
    return results


def _line(result: Result) -> str:
    line = f"  {_MARKS[result.outcome.value]:6} {result.check.name}"
    if not result.why:
        return line
    return line + "".join(f"\n         {each}" for each in result.why.splitlines())


def _as_json(result: Result) -> dict[str, str]:
    return {
        "group": result.check.group,
        "name": result.check.name,
        "outcome": result.outcome.value,
        "why": result.why,
    }


def _channel(options: argparse.Namespace) -> Any:
    import grpc
    import grpc.aio

    aio: Any = grpc.aio
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    scheme, _, address = options.url.rpartition("://")
    if scheme != "grpcs":
        return aio.insecure_channel(address, options=limits)
    files = (options.ca_cert, options.client_key, options.client_cert)
    roots, key, chain = (path.read_bytes() if path is not None else None for path in files)
    return aio.secure_channel(address, grpc.ssl_channel_credentials(roots, key, chain), options=limits)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="smg conformance", description=_ABOUT, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument(
        "url", type=_url, metavar="URL", help="the worker: grpc://HOST:PORT, or grpcs:// with TLS"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only checks with this in their group or name"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and run none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.add_argument(
        "--timeout", type=float, default=_LIMIT_S, metavar="SECONDS",
        help="longest time that one check may take (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--ca-cert", type=Path, metavar="FILE", help="certificates to trust (default: the system's)"
    )
    parser.add_argument("--client-cert", type=Path, metavar="FILE", help="our own certificate")
    parser.add_argument("--client-key", type=Path, metavar="FILE", help="its key")
    return parser


def _url(text: str) -> str:
    scheme, is_there, address = text.rpartition("://")
    if (is_there and scheme not in {"grpc", "grpcs"}) or ":" not in address:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: grpc://HOST:PORT or grpcs://HOST:PORT")
    return text


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 -- a command line talks
