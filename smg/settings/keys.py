"""Keys of callers as settings: value types that are written on one line, whose secret part is never repeated."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from smg.settings.fields import Section


class TenantKey(Section):
    """A tenant's API key, written TENANT:KEY on one line."""

    tenant: str = Field(min_length=1, pattern="^[^:]*$")
    key: SecretStr = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        tenant, colon, key = value.partition(":")
        if not colon or not tenant.strip() or not key.strip():
            # The text may be the key itself, so it must not be repeated.
            raise ValueError("not of the form TENANT:KEY")
        return {"tenant": tenant.strip(), "key": key.strip()}


class ControlPlaneKey(Section):
    """A key of the control plane, written ID:NAME:ROLE:KEY on one line.

    Attributes:
        id: tells keys apart in the audit log.
        name: for people.
        role: `user` may look, `admin` may change.
        key: the secret.
    """

    id: str = Field(min_length=1)
    name: str
    role: Literal["user", "admin"]
    key: SecretStr = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        parts = [part.strip() for part in value.split(":", 3)]
        if len(parts) < len(cls.model_fields) or not parts[0] or not parts[3]:
            # With parts missing, any of the others may be the key.
            raise ValueError("not of the form ID:NAME:ROLE:KEY")
        key_id, name, role, key = parts
        if role.lower() not in ("user", "admin"):
            raise ValueError("the third part of ID:NAME:ROLE:KEY must be 'admin' or 'user'")
        return {"id": key_id, "name": name, "role": role.lower(), "key": key}
