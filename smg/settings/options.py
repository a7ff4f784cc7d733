"""Turns the fields of the settings into options: one flag, one environment name and one YAML key each."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr

from smg.settings.fields import Section

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

ENVIRONMENT_PREFIX = "SMG_"


@dataclass(frozen=True, slots=True)
class Option:
    """One setting, as an operator meets it.

    Attributes:
        section: name of its section, the first level of the YAML file.
        name: name of the field, the second level of the YAML file.
        help: what it does.
        metavar: placeholder for its value.
        choices: the allowed words; empty when any value may do.
        default: its default in words; empty when the help tells it.
        is_switch: takes no value as a flag.
        is_list: takes several values.
        is_secret: its value must never be shown.
        has_spaces: spaces are part of its values.
    """

    section: str
    name: str
    help: str
    metavar: str
    choices: tuple[str, ...]
    default: str
    is_switch: bool
    is_list: bool
    is_secret: bool
    has_spaces: bool = False

    @property
    def flag(self) -> str:
        """Its flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def environment_name(self) -> str:
        """Its environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def path(self) -> str:
        """Its place in the YAML file."""
        return f"{self.section}.{self.name}"


@cache
def options_of(model: type[Section]) -> tuple[Option, ...]:
    """List every option of a settings model, in the order of its sections and fields."""
    options: list[Option] = []
    for section, holder in model.model_fields.items():
        section_model: Any = holder.annotation
        for name, field in section_model.model_fields.items():
            options.append(_option(section, name, field))
    names = [option.name for option in options]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TypeError(f"settings with the same name in two sections: {sorted(twice)}")
    return tuple(options)


def _option(section: str, name: str, field: FieldInfo) -> Option:
    kinds = _leaf_types(field.annotation)
    choices = tuple(str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind))
    extra: Any = field.json_schema_extra
    metavar: str | None = extra.get("metavar")
    return Option(
        section=section,
        name=name,
        help=field.description or "",
        metavar=metavar or ("{" + ",".join(choices) + "}" if choices else _metavar(kinds)),
        choices=choices,
        default=_default_text(field),
        is_switch=bool in kinds,
        is_list=any(get_origin(kind) in (tuple, Mapping) for kind in kinds),
        is_secret=SecretStr in kinds or any(_holds_secret(part) for kind in kinds for part in get_args(kind)),
        has_spaces=extra.get("has_spaces", False),
    )


def _holds_secret(kind: Any) -> bool:
    """A value of several parts, one of which is secret."""
    if not (isinstance(kind, type) and issubclass(kind, Section)):
        return False
    return any(field.annotation is SecretStr for field in kind.model_fields.values())


def _leaf_types(annotation: Any) -> list[Any]:
    """The alternatives of an annotation, `Annotated` and `| None` taken off."""
    if get_origin(annotation) is Annotated:
        return _leaf_types(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [leaf for part in get_args(annotation) for leaf in _leaf_types(part) if leaf is not type(None)]
    return [annotation]


def _metavar(kinds: list[Any]) -> str:
    return "N" if int in kinds else "NUMBER" if float in kinds else "TEXT"


def _default_text(field: FieldInfo) -> str:
    default: Any = field.default
    if field.default_factory is not None or default is None or default is False or default in ((), {}):
        return ""
    if isinstance(default, tuple):
        return " ".join(str(part) for part in default)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] -- any tuple
    return f"{default:g}" if isinstance(default, float) else str(default)
