"""The rules on who may call what, the same over HTTP and gRPC.

- Serving endpoints: anybody while no key is configured, else who shows one of them.
- The operator's endpoints: with control-plane authentication its callers alone, `user` to look and `admin` to change;
  without it who shows the shared key; with tenant keys alone nobody; with no key at all anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.callers.base import bearer_token
from smg.callers.table import CONTROL_PLANE, DATA_PLANE
from smg.errors import ControlPlaneDenied, ControlPlaneUnauthenticated, Unauthenticated
from smg.types.context import ANONYMOUS, Caller, is_visible_ascii

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.callers.base import Authenticator
    from smg.settings import CallerSettings

MAX_TENANT_BYTES = 256
# Marks tenants that somebody else vouches for. Names of tenants with keys hold no colon.
ASSERTED = "header:"

_OPERATOR = Caller(role="admin")


class CallerDirectory:
    """Everything that is configured about callers.

    Attributes:
        looks_at_serving: serving requests must be shown to `identify`; else anybody may make them, and all are alike.
        tenant_header: header in which a trusted proxy names the tenant, in lower case; empty when none is trusted.
    """

    def __init__(
        self,
        data_plane: Sequence[Authenticator] = (),
        control_plane: Sequence[Authenticator] = (),
        tenant_header: str = "",
    ) -> None:
        self._data_plane = tuple(data_plane)
        self._control_plane = tuple(control_plane)
        self.tenant_header = tenant_header
        self.looks_at_serving = bool(self._data_plane or tenant_header)

    def identify(self, authorization: bytes, asserted_tenant: bytes = b"") -> Caller:
        """Who makes a serving request.

        Args:
            authorization: the Authorization header.
            asserted_tenant: the tenant header, b"" where none is trusted. It counts where no key tells who calls; one
                that is none (not visible ASCII, or too long) counts as absent.

        Raises:
            Unauthenticated: no key, or one that is not configured.
        """
        if self._data_plane:
            caller = _known(self._data_plane, authorization)
            if caller is None:
                raise Unauthenticated(
                    "the API key is missing or not known; send it as Authorization: Bearer KEY"
                )
            return caller
        return _asserted(asserted_tenant) if asserted_tenant else ANONYMOUS

    def identify_admin(self, authorization: bytes) -> Caller:
        """Who makes a request of the operator's. What he may do, `check_role` tells.

        Raises:
            ControlPlaneUnauthenticated: control-plane authentication is configured and does not know the token.
            Unauthenticated: there is none, some key is configured, and this is not the shared one.
        """
        if not self._control_plane:
            return self._without_control_plane(authorization)
        caller = _known(self._control_plane, authorization)
        if caller is None:
            raise ControlPlaneUnauthenticated(
                "the control-plane key is missing or not known; send it as Authorization: Bearer KEY"
            )
        return caller

    def _without_control_plane(self, authorization: bytes) -> Caller:
        if not self._data_plane:
            return _OPERATOR
        caller = _known(self._data_plane, authorization)
        if caller is None or not caller.is_admin:
            raise Unauthenticated(
                "this needs the gateway's own API key; send it as Authorization: Bearer KEY"
            )
        return caller


def check_role(caller: Caller, *, is_read: bool) -> None:
    """Refuse an operator's request that its caller may not make: `user` only looks.

    Raises:
        ControlPlaneDenied: the role is too low.
    """
    if not (caller.is_admin or is_read):
        raise ControlPlaneDenied("this needs a control-plane key with the role admin; user may only look")


def caller_directory(settings: CallerSettings) -> CallerDirectory:
    """The directory that the settings describe."""
    return CallerDirectory(
        [made for make in DATA_PLANE if (made := make(settings)) is not None],
        [made for make in CONTROL_PLANE if (made := make(settings)) is not None],
        settings.tenant_header_name if settings.trust_tenant_header else "",
    )


def _known(authenticators: Sequence[Authenticator], authorization: bytes) -> Caller | None:
    token = bearer_token(authorization)
    if not token:
        return None
    for authenticator in authenticators:
        caller = authenticator.caller(token)
        if caller is not None:
            return caller
    return None


def _asserted(value: bytes) -> Caller:
    name = value.decode("latin-1").strip(" ")
    if not 0 < len(name) <= MAX_TENANT_BYTES or not is_visible_ascii(name):
        return ANONYMOUS
    return Caller(tenant=ASSERTED + name, method="tenant_header")
