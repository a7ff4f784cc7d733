"""Turns flags, environment variables and a YAML file into settings.

A flag beats the environment, the environment beats the file, the file beats the default. A list given by one
source replaces the list of a weaker one. Every fault of every source is reported, not only the first.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from smg.settings.faults import Fault, SettingsError
from smg.settings.options import ENVIRONMENT_PREFIX, Option, options_of
from smg.settings.sections import RouterSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic_core import ErrorDetails

CONFIG_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG"

_NO_DERIVED_DEFAULT = "default_factory_not_called"

# Kubernetes gives every container SMG_PORT=tcp://… when a service is called "smg".
_SERVICE_LINK = re.compile(r"^(tcp|udp|sctp)://")
_SERVICE_VARIABLE = re.compile(r"_(SERVICE_(HOST|PORT).*|PORT_\d+_(TCP|UDP|SCTP).*)$")

SettingsT = TypeVar("SettingsT", bound=RouterSettings)


@dataclass(frozen=True)
class Loaded(Generic[SettingsT]):
    """Settings that passed every check.

    Attributes:
        settings: the settings.
        notes: things the operator should know that are no faults, one line each.
    """

    settings: SettingsT
    notes: list[str]


@dataclass(frozen=True, slots=True)
class _Given:
    """A value and the words for where it came from."""

    value: Any
    where: str


def environment() -> dict[str, str]:
    """The process's environment: the one place that reads it."""
    return dict(os.environ)  # noqa: TID251 -- this is the home of the ban


def load(
    model: type[SettingsT],
    flags: Mapping[str, object],
    variables: Mapping[str, str],
    config: Path | None = None,
) -> Loaded[SettingsT]:
    """Read all sources and check the result.

    Args:
        model: the settings to build.
        flags: values by field name, as the command line gave them; None means not given.
        variables: the environment.
        config: the YAML file; None takes SMG_CONFIG, and no file when that is not set.

    Raises:
        SettingsError: with every fault found.
    """
    options = {option.name: option for option in options_of(model)}
    faults: list[Fault] = []
    if config is None and variables.get(CONFIG_VARIABLE):
        config = Path(variables[CONFIG_VARIABLE])
    given = _from_file(config, model, options, faults) if config else {}
    given |= _from_environment(variables, options)
    given |= {name: _Given(value, options[name].flag) for name, value in flags.items() if value is not None}

    nested: dict[str, dict[str, Any]] = {}
    for name, source in given.items():
        nested.setdefault(options[name].section, {})[name] = source.value
    try:
        settings = model.model_validate(nested)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        # A default that derives from a faulty field is not a fault of its own.
        faults += [_fault(each, options, given) for each in details if each["type"] != _NO_DERIVED_DEFAULT]
        raise SettingsError(faults) from None
    if faults:
        raise SettingsError(faults)
    return Loaded(settings, _unknown_variables(variables, options))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Words that point to the known name which is most like `name`; empty when none is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _from_environment(variables: Mapping[str, str], options: Mapping[str, Option]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for name, option in options.items():
        text = variables.get(option.environment_name, "").strip()
        if not text or _SERVICE_LINK.match(text):
            continue
        separator = r"\s*[,\n]\s*" if option.has_spaces else r"[,\s]+"
        value = [part for part in re.split(separator, text) if part] if option.is_list else text
        given[name] = _Given(value, option.environment_name)
    return given


def _from_file(
    path: Path, model: type[RouterSettings], options: Mapping[str, Option], faults: list[Fault]
) -> dict[str, _Given]:
    content = _read_yaml(path, faults)
    given: dict[str, _Given] = {}
    for section, values in content.items():
        where = f"{path}: {section}"
        if section not in model.model_fields:
            owner = options.get(str(section))
            hint = (
                f"; it belongs under '{owner.section}'"
                if owner
                else suggestion(str(section), model.model_fields)
            )
            faults.append(Fault(where, f"unknown section{hint}"))
        elif not isinstance(values, dict | None):
            faults.append(Fault(where, "must be a mapping of settings"))
        else:
            given |= _section_values(path, section, values or {}, options, faults)  # pyright: ignore[reportUnknownArgumentType] -- YAML
    return given


def _section_values(
    path: Path, section: str, values: dict[Any, Any], options: Mapping[str, Option], faults: list[Fault]
) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for name, value in values.items():
        where = f"{path}: {section}.{name}"
        option = options.get(str(name))
        if option is None or option.section != section:
            known = [each.name for each in options.values() if each.section == section]
            hint = f"; it belongs under '{option.section}'" if option else suggestion(str(name), known)
            faults.append(Fault(where, f"unknown setting{hint}"))
        elif value is not None:
            given[name] = _Given([value] if option.is_list and isinstance(value, str) else value, where)
    return given


def _read_yaml(path: Path, faults: list[Fault]) -> dict[Any, Any]:
    import yaml

    try:
        content: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(Fault("--config", f"'{path}' cannot be read: {error.strerror}"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        faults.append(Fault(str(path), f"is not YAML: {' '.join(str(error).split())}"))
    else:
        if isinstance(content, dict):
            return content  # pyright: ignore[reportUnknownVariableType] -- checked by the caller
        if content is not None:
            faults.append(Fault(str(path), "must be a mapping of sections"))
    return {}


def _fault(detail: ErrorDetails, options: Mapping[str, Option], given: Mapping[str, _Given]) -> Fault:
    """Put one of pydantic's errors into words: source, value, what is allowed."""
    location = [str(part) for part in detail["loc"]]
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    name = location[1] if len(location) > 1 else ""
    option = options.get(name)
    if option is None:
        return Fault(location[0] if location else "settings", message)
    where = given[name].where if name in given else option.flag
    if option.is_secret or detail["type"] == "value_error":
        return Fault(where, message)
    return Fault(where, f"'{detail['input']}' {message}")


def _unknown_variables(variables: Mapping[str, str], options: Mapping[str, Option]) -> list[str]:
    """Notes on variables that look like settings with a slip of the pen."""
    known = {option.environment_name for option in options.values()} | {CONFIG_VARIABLE}
    notes: list[str] = []
    for name in sorted(variables):
        if name in known or not name.startswith(ENVIRONMENT_PREFIX) or _SERVICE_VARIABLE.search(name):
            continue
        hint = suggestion(name, known)
        if hint:
            notes.append(f"{name} is not a setting{hint}")
    return notes
