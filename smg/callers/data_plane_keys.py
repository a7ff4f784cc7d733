"""Keys that open the serving endpoints: --api-key, which all who know it share, and --tenant-api-key, one a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.callers.keys import KeyTable
from smg.types.context import Caller

if TYPE_CHECKING:
    from smg.settings import CallerSettings

SHARED = Caller(method="api_key", role="admin")


def data_plane_keys(settings: CallerSettings) -> KeyTable | None:
    """The authenticator; None when no such key is configured."""
    keys = [
        (each.key.get_secret_value(), Caller(tenant=each.tenant, method="tenant_api_key"))
        for each in settings.tenant_api_key
    ]
    if settings.api_key is not None:
        keys.append((settings.api_key.get_secret_value(), SHARED))
    return KeyTable(keys) if keys else None
