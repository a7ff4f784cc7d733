"""Turns a command line into settings. The flags derive from the settings' fields.

argparse only splits the line; values are checked with those of the other sources, so that every fault is told
at once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from smg.cli.known_flags import ALREADY_SO, NOT_SERVED_YET
from smg.settings import Fault, Loaded, Option, RouterSettings, SettingsError, environment, load, options_of
from smg.settings.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SettingsT = TypeVar("SettingsT", bound=RouterSettings)

USAGE_FAULT = 2


def settings_or_exit(command: str, model: type[SettingsT], arguments: Sequence[str], about: str) -> SettingsT:
    """Read the settings of a command; print notes, or every fault and leave with status 2."""
    try:
        loaded = read_settings(command, model, arguments, about, environment())
    except SettingsError as error:
        complain(command, [str(fault) for fault in error.faults])
    for note in loaded.notes:
        print(f"smg {command}: note: {note}", file=sys.stderr)  # noqa: T201 -- logging is not set up yet
    return loaded.settings


def read_settings(
    command: str,
    model: type[SettingsT],
    arguments: Sequence[str],
    about: str,
    variables: Mapping[str, str],
) -> Loaded[SettingsT]:
    """Read the settings of a command.

    Raises:
        SettingsError: with every fault of every source.
    """
    parser = build_parser(command, model, about)
    parsed, rest = parser.parse_known_args(list(arguments))
    values: dict[str, Any] = vars(parsed)
    config: str | None = values.pop("config")
    faults, notes = _judge_unknown(rest, [option.flag for option in options_of(model)])
    try:
        loaded = load(model, values, variables, Path(config) if config else None)
    except SettingsError as error:
        raise SettingsError(faults + error.faults) from None
    if faults:
        raise SettingsError(faults)
    return Loaded(loaded.settings, notes + loaded.notes)


def build_parser(command: str, model: type[RouterSettings], about: str) -> argparse.ArgumentParser:
    """The parser of a command: one flag per setting, grouped by section."""
    parser = argparse.ArgumentParser(
        prog=f"smg {command}",
        usage=f"smg {command} [--config FILE] [flags]",
        description=about,
        epilog="Every setting may also be given as an environment variable or in the YAML file; flags win.",
        allow_abbrev=False,
        argument_default=None,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file with settings. [SMG_CONFIG]")
    groups: dict[str, Any] = {}
    for option in options_of(model):
        if option.section not in groups:
            section: Any = model.model_fields[option.section].annotation
            groups[option.section] = parser.add_argument_group(option.section, section.__doc__)
        groups[option.section].add_argument(option.flag, **_argument(option))
    return parser


def complain(command: str, problems: Iterable[str]) -> NoReturn:
    """Print what is wrong, one thing a line, and leave with status 2."""
    for problem in problems:
        print(f"smg {command}: {problem}", file=sys.stderr)  # noqa: T201 -- logging is not set up yet
    print(f"smg {command} --help lists all flags", file=sys.stderr)  # noqa: T201 -- as above
    sys.exit(USAGE_FAULT)


def _argument(option: Option) -> dict[str, Any]:
    default = f" Default: {option.default}." if option.default else ""
    shown: dict[str, Any] = {
        "dest": option.name,
        "help": f"{option.help}{default} [{option.environment_name}]".replace("%", "%%"),
    }
    if option.is_switch:
        return {**shown, "action": argparse.BooleanOptionalAction}
    if option.is_list:
        return {**shown, "metavar": option.metavar, "nargs": "*", "action": "extend"}
    return {**shown, "metavar": option.metavar}


def _judge_unknown(rest: Sequence[str], known: Sequence[str]) -> tuple[list[Fault], list[str]]:
    """Faults and notes about words that argparse did not know. Values that follow an unknown flag are its own."""
    faults: list[Fault] = []
    notes: list[str] = []
    is_after_flag = False
    for word in rest:
        flag = word.partition("=")[0]
        if not word.startswith("-"):
            if not is_after_flag:
                faults.append(Fault(f"'{word}'", "is neither a flag nor the value of one"))
            continue
        is_after_flag = True
        if flag in ALREADY_SO:
            notes.append(f"{flag} changes nothing: {ALREADY_SO[flag]}")
            is_after_flag = False
        elif flag in NOT_SERVED_YET:
            faults.append(Fault(flag, "known from the original gateway, not served here yet"))
        else:
            faults.append(Fault(flag, f"unknown flag{suggestion(flag, known)}"))
    return faults, notes
