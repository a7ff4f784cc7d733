"""How a worker is picked. `POLICIES` is the list of all: a new policy is its file and one line here."""

from __future__ import annotations

import random as _random
from typing import TYPE_CHECKING

from smg.errors import InvalidRequest
from smg.policies.bucket import Bucket
from smg.policies.cache_aware import CacheAware
from smg.policies.consistent_hashing import ConsistentHashing
from smg.policies.least_load import LeastLoad
from smg.policies.manual import Manual
from smg.policies.passthrough import Passthrough
from smg.policies.power_of_two import PowerOfTwo
from smg.policies.prefix_hash import PrefixHash
from smg.policies.random import Random
from smg.policies.round_robin import RoundRobin
from smg.settings import RoutingSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from smg.policies.base import Policy

POLICIES: Mapping[str, Callable[[RoutingSettings, _random.Random], Policy]] = {
    "bucket": Bucket,
    "cache_aware": CacheAware,
    "consistent_hashing": ConsistentHashing,
    "least_load": LeastLoad,
    "manual": Manual,
    "passthrough": Passthrough,
    "power_of_two": PowerOfTwo,
    "prefix_hash": PrefixHash,
    "random": Random,
    "round_robin": RoundRobin,
}
# These go by the routing key already.
_KEYED = frozenset(("consistent_hashing", "manual"))


def make_policy(routing: RoutingSettings | str, rng: _random.Random | None = None) -> Policy:
    """Make the policy that the settings name.

    Args:
        routing: the settings, or the name of a policy that has the default settings.
        rng: source of chance; a fresh one when None.

    Raises:
        InvalidRequest: no policy has that name.
    """
    name = routing if isinstance(routing, str) else routing.policy
    settings = RoutingSettings() if isinstance(routing, str) else routing
    factory = POLICIES.get(name)
    if factory is None:
        raise InvalidRequest(f"unknown policy {name!r}; known: {', '.join(sorted(POLICIES))}", param="policy")
    rng = rng or _random.Random()  # noqa: S311 - spreads load, guards nothing
    policy = factory(settings, rng)
    if settings.routing_key_override and name not in _KEYED:
        return Manual(settings, rng, delegate=policy)
    return policy


def cache_aware_of(policy: Policy) -> CacheAware | None:
    """The policy that wants to hear of the engines' caches: this one, or the one under a routing key override."""
    if isinstance(policy, Manual):
        policy = policy.delegate or policy
    return policy if isinstance(policy, CacheAware) else None
