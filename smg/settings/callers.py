"""The section `callers`: keys, and whom to believe."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from pydantic import SecretStr, model_validator

from smg.settings.fields import HeaderName, Section, setting
from smg.settings.keys import ControlPlaneKey, TenantKey

if TYPE_CHECKING:
    from collections.abc import Iterable


class CallerSettings(Section):
    """Who may call."""

    api_key: SecretStr | None = setting(
        None, "Key that callers must show. Default: anybody may call.", metavar="KEY", min_length=1
    )
    tenant_api_key: tuple[TenantKey, ...] = setting(
        (), "Key of one tenant. May be repeated.", metavar="TENANT:KEY"
    )
    trust_tenant_header: bool = setting(
        False,
        "Believe the tenant header of requests that no key identifies. Only behind a proxy that sets it.",
    )
    tenant_header_name: HeaderName = setting(
        "x-smg-tenant-id", "Name of the tenant header.", metavar="HEADER"
    )
    control_plane_api_keys: tuple[ControlPlaneKey, ...] = setting(
        (),
        "Keys of the operator's endpoints, which no other key opens then. ROLE is 'admin', or 'user' to look only.",
        metavar="ID:NAME:ROLE:KEY",
        has_spaces=True,
    )
    control_plane_audit_enabled: bool = setting(
        True,
        "Log who uses the operator's endpoints: changes at level info, looks at debug, refusals at warning.",
    )

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        """Each key has one owner; otherwise nobody could say who calls."""
        data_plane = [(f"tenant '{each.tenant}'", each.key) for each in self.tenant_api_key]
        if self.api_key is not None:
            data_plane.append(("api_key", self.api_key))
        control_plane = [(f"'{each.id}'", each.key) for each in self.control_plane_api_keys]
        for name, keys in (("tenant_api_key", data_plane), ("control_plane_api_keys", control_plane)):
            owners = _owners_of_one_key(keys)
            if owners:
                raise ValueError(f"{name}: {' and '.join(owners)} have the same key")
        ids = Counter(each.id for each in self.control_plane_api_keys)
        twice = [f"'{each}'" for each, count in ids.items() if count > 1]
        if twice:
            raise ValueError(f"control_plane_api_keys: id {', '.join(twice)} is given twice")
        return self


def _owners_of_one_key(keys: Iterable[tuple[str, SecretStr]]) -> list[str]:
    """The owners of the first key that has several different ones."""
    owners: dict[str, list[str]] = {}
    for owner, key in keys:
        known = owners.setdefault(key.get_secret_value(), [])
        if owner not in known:
            known.append(owner)
    return next((each for each in owners.values() if len(each) > 1), list[str]())
