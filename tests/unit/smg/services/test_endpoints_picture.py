"""What is told of endpoints: one order, each address once, and nobody written off by who sees nobody."""

import pytest

from smg.services.endpoints.picture import (
    DRAINING,
    HEALTHY,
    UNHEALTHY,
    UNKNOWN,
    Endpoint,
    assignment,
    engine_clusters,
    fair,
    is_address,
    is_settled,
)
from smg.workers.registered import RegisteredWorker
from smg_proto.engine.v1 import card_pb2
from smg_proto.xds.v1 import endpoint_pb2 as xds


def endpoint(number, health=HEALTHY):
    return Endpoint(f"10.0.0.{number}", 30001, health)


def worker(number, *models, scheme="grpc", is_draining=False):
    description = card_pb2.DescribeResponse(models=[card_pb2.ModelCard(id=model) for model in models])
    return RegisteredWorker(
        f"worker-{number}",
        f"{scheme}://10.0.0.{number}:50051",
        last_description=description,
        is_draining=is_draining,
    )


def test_engines_stand_under_one_name_and_under_each_models():
    clusters = engine_clusters(
        [worker(1, "a"), worker(2, "a", "b", is_draining=True), worker(3, "a", scheme="http")]
    )
    first = Endpoint("10.0.0.1", 50051, UNHEALTHY)
    second = Endpoint("10.0.0.2", 50051, DRAINING)
    assert clusters == {
        "smg-engines": [first, second],
        "smg-engines/a": [first, second],
        "smg-engines/b": [second],
    }


def test_lost_ones_are_told_as_lost_while_somebody_is_well():
    found = [endpoint(2, UNHEALTHY), endpoint(1), endpoint(3, DRAINING)]
    assert fair(found) == [endpoint(1), endpoint(2, UNHEALTHY), endpoint(3, DRAINING)]


def test_who_sees_nobody_writes_nobody_off():
    found = [endpoint(1, UNHEALTHY), endpoint(2, UNKNOWN), endpoint(3, DRAINING)]
    assert fair(found) == [endpoint(1, UNKNOWN), endpoint(2, UNKNOWN), endpoint(3, DRAINING)]


def test_an_address_counts_once():
    assert fair([endpoint(1, UNHEALTHY), endpoint(1)]) == [endpoint(1)]


@pytest.mark.parametrize(
    ("healths", "wanted"),
    [
        ((HEALTHY, DRAINING), True),
        ((), True),
        ((HEALTHY, UNHEALTHY), False),
        ((HEALTHY, UNKNOWN), False),
    ],
)
def test_more_is_to_be_heard_while_somebody_is_not_well(healths, wanted):
    assert is_settled([endpoint(1, health) for health in healths]) is wanted


def test_an_assignment_is_read_back():
    message = xds.ClusterLoadAssignment.FromString(assignment("c", [endpoint(1), endpoint(2, DRAINING)]))
    assert message.cluster_name == "c"
    (group,) = message.endpoints
    told = [(each.endpoint.address.socket_address.address, each.health_status) for each in group.lb_endpoints]
    assert told == [("10.0.0.1", HEALTHY), ("10.0.0.2", DRAINING)]


def test_the_numbers_are_envoys():
    """As in envoy.config.core.v3 and envoy.config.endpoint.v3: a cluster with one endpoint that drains, byte by byte."""
    address = b"\x12\x03::1" + b"\x18\x01"
    socket = b"\x0a" + bytes([len(address)]) + address
    endpoint_bytes = b"\x0a" + bytes([len(socket)]) + socket
    one = b"\x0a" + bytes([len(endpoint_bytes)]) + endpoint_bytes + b"\x10\x03"
    group = b"\x12" + bytes([len(one)]) + one
    wanted = b"\x0a\x01c" + b"\x12" + bytes([len(group)]) + group
    assert assignment("c", [Endpoint("::1", 1, DRAINING)]) == wanted


@pytest.mark.parametrize(
    ("host", "wanted"), [("10.0.0.1", True), ("::1", True), ("fe80::1%eth0", True), ("engine", False)]
)
def test_addresses_are_told_from_names(host, wanted):
    assert is_address(host) is wanted
