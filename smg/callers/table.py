"""THE table of authenticators: which ways there are to tell a caller, on each plane.

Another way (JWT of an identity provider, say) is a file with a function like those below, and its line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.callers.control_plane_keys import control_plane_keys
from smg.callers.data_plane_keys import data_plane_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.callers.base import Authenticator
    from smg.settings import CallerSettings

    # Makes an authenticator of the settings; None when they do not ask for it.
    MakeAuthenticator = Callable[[CallerSettings], Authenticator | None]

# They are asked in this order; the first that knows the token decides.
DATA_PLANE: tuple[MakeAuthenticator, ...] = (data_plane_keys,)
CONTROL_PLANE: tuple[MakeAuthenticator, ...] = (control_plane_keys,)
