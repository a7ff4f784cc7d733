"""How a worker is picked. `POLICIES` is the list of all: a new policy is its file and one line here."""

from __future__ import annotations

import random as _random
from typing import TYPE_CHECKING

from smg.errors import InvalidRequest
from smg.policies.least_load import LeastLoad
from smg.policies.power_of_two import PowerOfTwo
from smg.policies.random import Random
from smg.policies.round_robin import RoundRobin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from smg.policies.base import Policy

POLICIES: Mapping[str, Callable[[_random.Random], Policy]] = {
    "least_load": LeastLoad,
    "power_of_two": PowerOfTwo,
    "random": Random,
    "round_robin": RoundRobin,
}


def make_policy(name: str, rng: _random.Random | None = None) -> Policy:
    """Make a policy by its name.

    Args:
        name: one of POLICIES.
        rng: source of chance; a fresh one when None.

    Raises:
        InvalidRequest: no policy has that name.
    """
    factory = POLICIES.get(name)
    if factory is None:
        raise InvalidRequest(f"unknown policy {name!r}; known: {', '.join(sorted(POLICIES))}", param="policy")
    return factory(rng or _random.Random())  # noqa: S311 - spreads load, guards nothing
