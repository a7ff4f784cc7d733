"""Keys that open the operator's endpoints, each with a role: --control-plane-api-keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.callers.keys import KeyTable
from smg.types.context import Caller

if TYPE_CHECKING:
    from smg.settings import CallerSettings


def control_plane_keys(settings: CallerSettings) -> KeyTable | None:
    """The authenticator; None when no such key is configured."""
    keys = [
        (each.key.get_secret_value(), Caller(principal=each.id, method="control_plane_key", role=each.role))
        for each in settings.control_plane_api_keys
    ]
    return KeyTable(keys) if keys else None
