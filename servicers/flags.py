"""Turns the command line of `python -m servicers` into options; an unknown flag gets a hint."""

from __future__ import annotations

import argparse
import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from servicers.base import CannotStart, EngineOptions
from servicers.factory import ENGINES
from servicers.limits import MIB, SessionLimits
from servicers.models_file import read_models_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from servicers.models_file import ModelEntry
    from servicers.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Command:
    """What the command line asks for."""

    engine: str
    host: str
    port: int
    grace_s: float
    log_level: str
    options: EngineOptions
    limits: SessionLimits
    tls: TlsFiles | None
    also_serve: tuple[str, ...]


class _Parser(argparse.ArgumentParser):
    """Names the nearest flag when one is unknown."""

    def error(self, message: str) -> NoReturn:
        """Print the usage's first line and the fault, and exit with 2."""
        self.exit(2, f"{self.prog}: {message}\ntry {self.prog} --help\n")

    def parse_or_exit(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse everything."""
        parsed, unknown = self.parse_known_args(arguments)
        if unknown:
            self.error(
                "; ".join(map(self._complaint, [word for word in unknown if word[:1] == "-"] or unknown))
            )
        return parsed

    def _complaint(self, word: str) -> str:
        name = word.partition("=")[0]
        flags = [flag for action in self._actions for flag in action.option_strings]
        near = difflib.get_close_matches(name, flags, n=1)
        return f"unknown {'flag' if word[:1] == '-' else 'word'} {name}" + (
            f", did you mean {near[0]}?" if near else ""
        )


def parse_command(arguments: Sequence[str]) -> Command:
    """Parse the command line. Exits with status 2 and a message when it is wrong."""
    parser = _new_parser()
    given = parser.parse_or_exit(arguments)
    paths, ids = tuple(given.model_path), tuple(given.model_id)
    declared: tuple[dict[str, Any], ...] = ()
    if given.models_file:
        if paths or ids:
            parser.error("--models-file names the models; allowed: it, or --model-path and --model-id")
        entries = _entries(parser, given.models_file)
        paths, ids, declared = (tuple(column) for column in zip(*entries, strict=True))
    if ids and len(paths) > 1 and len(ids) != len(paths):
        parser.error(
            f"{len(ids)} --model-id for {len(paths)} --model-path; allowed: one for each, in the same order, or none"
        )
    options = EngineOptions(
        model_paths=paths,
        model_ids=ids,
        declared=declared,
        max_context=given.max_context,
        step_seconds=given.step_seconds,
        device=given.device,
        dtype=given.dtype,
        threads=given.threads,
        max_running=given.max_running,
        echo_endless=given.echo_endless,
        engine_args=tuple(given.engine_arg),
    )
    limits = SessionLimits(
        max_sessions=given.max_sessions,
        max_sequences=given.max_sequences,
        max_unsent_events=given.max_unsent_events,
        max_unsent_bytes=given.max_unsent_mb * MIB,
    )
    tls = _tls_files(parser, given)
    return Command(
        given.engine,
        given.host,
        given.port,
        given.grace_secs,
        given.log_level,
        options,
        limits,
        tls,
        tuple(given.also_serve),
    )


def _entries(parser: _Parser, file: str) -> list[ModelEntry]:
    try:
        return read_models_file(file)
    except CannotStart as error:
        parser.error(str(error))


def _tls_files(parser: _Parser, given: argparse.Namespace) -> TlsFiles | None:
    certificate, key, authorities = given.tls_cert_path, given.tls_key_path, given.tls_client_ca_paths
    if (certificate is None) != (key is None):
        parser.error("--tls-cert-path and --tls-key-path belong together; one of them is missing")
    if certificate is None:
        if authorities:
            parser.error("--tls-client-ca-paths needs --tls-cert-path and --tls-key-path")
        return None
    # gRPC is loaded when it is needed: the help should come at once.
    from servicers.tls import TlsFiles

    return TlsFiles(certificate, key, tuple(authorities))


def _new_parser() -> _Parser:
    parser = _Parser(
        prog="smg worker",
        allow_abbrev=False,
        description="Serve one engine by gRPC (smg.engine.v1). Prints `ready grpc://HOST:PORT` (grpcs:// with a certificate) when it serves.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--engine", choices=sorted(ENGINES), required=True, help="which engine")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=_whole(0, 65535), default=0, help="port to listen on; 0 takes a free one")
    add("--model-path", action="append", default=[], metavar="DIR", help="model to serve; may be repeated")
    add(
        "--model-id",
        action="append",
        default=[],
        metavar="NAME",
        help="name that clients ask for, in step with --model-path; may be repeated",
    )
    add(
        "--models-file",
        metavar="FILE",
        help="models to serve in one process, YAML or JSON: `models`, a list of objects with path and id",
    )
    add(
        "--max-context",
        type=_whole(1),
        metavar="TOKENS",
        help="longest prompt plus output; else the model's own",
    )
    add(
        "--max-running",
        type=_whole(1),
        metavar="N",
        help="most sequences computed at a time; else the engine's own",
    )
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute")
    add("--dtype", choices=("bf16", "fp32"), default="bf16", help="number format of the weights")
    add("--threads", type=_whole(1), metavar="N", help="threads on a CPU; else the engine's own choice")
    add("--step-seconds", type=_seconds, default=0.0, metavar="S", help="echo: length of a step; 0: no pause")
    add("--echo-endless", action="store_true", help="echo: text without end where a prompt has no directives")
    add("--also-serve", choices=("sglang",), action="append", default=[],
        help="answer another protocol, too: sglang, SGLang's scheduler gRPC, for gateways that know that one")  # fmt: skip
    add("--engine-arg", type=_engine_argument, action="append", default=[], metavar="NAME=VALUE",
        help="sglang: one of its server arguments, by its Python name, for instance tp_size=2; may be repeated")  # fmt: skip
    add(
        "--grace-secs",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="longest wait for running work at the end",
    )
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least level that is logged",
    )
    add("--tls-cert-path", metavar="FILE", help="certificate, PEM with its chain: routers use grpcs:// then")
    add("--tls-key-path", metavar="FILE", help="private key of that certificate, PEM")
    add("--tls-client-ca-paths", nargs="+", action="extend", default=[], metavar="FILE",
        help="authorities, PEM; routers must show a certificate that one of them signed")  # fmt: skip
    bounds = SessionLimits()
    add(
        "--max-sessions",
        type=_whole(1),
        default=bounds.max_sessions,
        metavar="N",
        help="most routers at a time",
    )
    add("--max-sequences", type=_whole(1), default=bounds.max_sequences, metavar="N",
        help="most sequences of one router at a time, waiting ones included")  # fmt: skip
    add("--max-unsent-events", type=_whole(1), default=bounds.max_unsent_events, metavar="N",
        help="events that a router may leave unread before its session is ended")  # fmt: skip
    add("--max-unsent-mb", type=_whole(1), default=bounds.max_unsent_bytes // MIB, metavar="N",
        help="MiB of such events")  # fmt: skip
    return parser


def _whole(low: int, high: int | None = None) -> Callable[[str], int]:
    allowed = f"a whole number from {low}" + (f" to {high}" if high is not None else "")

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
        return value

    return convert


def _engine_argument(text: str) -> tuple[str, Any]:
    """A name and its value: JSON where it is any, else text."""
    name, is_there, value = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not is_there or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: NAME=VALUE, for instance tp_size=2")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number of seconds from 0")
    return value
