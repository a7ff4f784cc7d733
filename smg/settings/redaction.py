"""Finds every secret in settings, for those who must not let one out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def secrets_in(value: object) -> Iterator[str]:
    """Every secret in a section, however deep: keys, addresses that hold a password, and the password alone."""
    if isinstance(value, SecretStr):
        if value.get_secret_value():
            yield from _texts(value.get_secret_value())
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from secrets_in(getattr(value, name))
    elif isinstance(value, Mapping):
        for each in cast("Mapping[Any, object]", value).values():
            yield from secrets_in(each)
    elif isinstance(value, tuple | list):
        for each in cast("Iterable[object]", value):
            yield from secrets_in(each)


def _texts(secret: str) -> Iterator[str]:
    yield secret
    try:
        password = urlsplit(secret).password if "://" in secret else None
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
