"""The building blocks of the settings: how a field is declared, and the value types that are more than a number.

Values arrive as text (flags, environment) or as YAML values; pydantic turns both into the field's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

HIGHEST_PORT = 65535
WORKER_SCHEMES = ("grpc", "grpcs")
LATER_WORKER_SCHEMES = ("http", "https", "ipc")


class Section(BaseModel):
    """A group of settings: frozen, checked when it is built, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)


def setting(
    default: Any, text: str, *, metavar: str | None = None, has_spaces: bool = False, **bounds: Any
) -> Any:
    """Declare one setting.

    Args:
        default: its value when no source gives one; a callable computes it from the fields declared before it.
        text: the help, with unit and the meaning of special values. The default is added where it is shown.
        metavar: placeholder in the help; derived from the type when None.
        has_spaces: spaces are part of its values, so that several stand between commas in the environment.
        bounds: pydantic's constraints (ge, le, gt, pattern, …).
    """
    extra: dict[str, Any] = {"has_spaces": has_spaces, **({"metavar": metavar} if metavar else {})}
    if callable(default):
        return Field(default_factory=default, description=text, json_schema_extra=extra, **bounds)
    return Field(default, description=text, json_schema_extra=extra, **bounds)


def _parse_pairs(value: object) -> object:
    """Turn A=B, or a list of them, into a mapping; leave a mapping as it is."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    pairs: dict[str, str] = {}
    for item in value:  # pyright: ignore[reportUnknownVariableType] -- a YAML list holds anything
        name, equals, target = str(item).partition("=")  # pyright: ignore[reportUnknownArgumentType]
        if not equals or not name.strip() or not target.strip():
            raise ValueError(f"'{item}' is not of the form ALIAS=MODEL")
        if pairs.setdefault(name.strip(), target.strip()) != target.strip():
            raise ValueError(f"alias '{name.strip()}' is given twice with different models")
    return pairs


def _freeze(value: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(value))


Pairs = Annotated[Mapping[str, str], BeforeValidator(_parse_pairs), AfterValidator(_freeze)]


def _check_worker_url(url: str) -> str:
    """Normalise a worker's address to scheme://host:port.

    Raises:
        ValueError: another scheme, no port, or parts that an address does not have.
    """
    text = url if "://" in url else f"grpc://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"'{url}' is not an address: {error}") from None
    if parts.scheme in LATER_WORKER_SCHEMES:
        raise ValueError(
            f"'{url}': {parts.scheme}:// workers are not served yet; served: grpc://host:port, grpcs://host:port"
        )
    if parts.scheme not in WORKER_SCHEMES or not parts.hostname or port is None:
        raise ValueError(f"'{url}' is not of the form grpc://host:port, or grpcs://host:port for TLS")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"'{url}' has more than grpc://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


WorkerUrl = Annotated[str, AfterValidator(_check_worker_url)]


def _no_duplicates(urls: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({url for url in urls if urls.count(url) > 1})
    if twice:
        raise ValueError(f"given twice: {', '.join(twice)}")
    return urls


WorkerUrls = Annotated[tuple[WorkerUrl, ...], AfterValidator(_no_duplicates)]


def _check_header_name(name: str) -> str:
    if not name or not all(char.isascii() and (char.isalnum() or char in "-_.") for char in name):
        raise ValueError(f"'{name}' is not a header name")
    return name.lower()


def _check_origin(origin: str) -> str:
    """Check that a browser could name an origin so: scheme://host[:port] in lower case, or '*'.

    Raises:
        ValueError: it could not, so that no page would ever match.
    """
    if origin == "*":
        return origin
    try:
        parts = urlsplit(origin)
        has_more = bool(parts.path or parts.query or parts.fragment or parts.username) or parts.port == 0
    except ValueError as error:
        raise ValueError(f"'{origin}' is not an origin: {error}") from None
    if not (parts.scheme and parts.hostname) or has_more or not origin.isascii() or origin != origin.lower():
        raise ValueError(
            f"'{origin}' is not an origin; wanted is scheme://host or scheme://host:port, or '*'"
        )
    return origin


Origin = Annotated[str, AfterValidator(_check_origin)]
HeaderName = Annotated[str, AfterValidator(_check_header_name)]
