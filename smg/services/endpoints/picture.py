"""What is told of endpoints: addresses with their health, by the names under which Envoy asks. Pure.

The one rule to know: who sees nobody well says so of nobody. A router that is cut off, or has just started, must not
take a whole fleet out of Envoy's hands: what it has lost is then told as not known, and Envoy finds out by itself.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from smg.workers.address import parse_url
from smg_proto.xds.v1 import endpoint_pb2 as xds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smg.workers.registered import RegisteredWorker

ROUTERS, ENGINES = "smg-routers", "smg-engines"
# A model's engines are called so, and a slash and its name.
CLUSTER_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

UNKNOWN = xds.HEALTH_STATUS_UNSPECIFIED
HEALTHY = xds.HEALTH_STATUS_HEALTHY
UNHEALTHY = xds.HEALTH_STATUS_UNHEALTHY
DRAINING = xds.HEALTH_STATUS_DRAINING


# A fleet is looked at as often as something changes in it.
_address = lru_cache(maxsize=8192)(parse_url)


class Endpoint(NamedTuple):
    """One endpoint: where it is, and how.

    Attributes:
        host: a name, or an IP address.
        port: TCP port.
        health: an xds.HealthStatus.
    """

    host: str
    port: int
    health: xds.HealthStatus.ValueType


def is_address(host: str) -> bool:
    """An IP address, no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def engine_health(worker: RegisteredWorker) -> xds.HealthStatus.ValueType:
    """How an engine is."""
    if worker.is_draining:
        return DRAINING
    return HEALTHY if worker.is_ready else UNHEALTHY


def engine_clusters(workers: Iterable[RegisteredWorker]) -> dict[str, list[Endpoint]]:
    """Endpoints by name: of all engines that speak gRPC, and of each model's."""
    clusters: dict[str, list[Endpoint]] = {}
    for worker in workers:
        address = _address(worker.url)
        if address.scheme not in ("grpc", "grpcs"):
            continue
        endpoint = Endpoint(address.host, address.port, engine_health(worker))
        for name in (ENGINES, *(f"{ENGINES}/{card.id}" for card in worker.cards)):
            clusters.setdefault(name, []).append(endpoint)
    return clusters


def is_settled(endpoints: Iterable[Endpoint]) -> bool:
    """Everyone is well, or on its way out: nothing more is to be heard soon."""
    return all(each.health in (HEALTHY, DRAINING) for each in endpoints)


def fair(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The same in one order, each address once; lost ones as not known where nobody is known to be well."""
    by_address = {(each.host, each.port): each for each in endpoints}
    sees_somebody = any(each.health == HEALTHY for each in by_address.values())
    return [
        each if sees_somebody or each.health != UNHEALTHY else each._replace(health=UNKNOWN)
        for _, each in sorted(by_address.items())
    ]


def assignment(name: str, endpoints: Iterable[Endpoint]) -> bytes:
    """A cluster's endpoints as Envoy takes them, serialized; the same for the same endpoints."""
    message = xds.ClusterLoadAssignment(cluster_name=name)
    group = message.endpoints.add()
    for host, port, health in endpoints:
        told = group.lb_endpoints.add(health_status=health)
        told.endpoint.address.socket_address.address = host
        told.endpoint.address.socket_address.port_value = port
    return message.SerializeToString(deterministic=True)
