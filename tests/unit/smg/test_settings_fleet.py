"""The fleet's settings: what belongs together is demanded together, and what is malformed is named."""

import pytest

from smg.settings import DiscoverySettings, RouterSettings, load
from smg.workers.discovery import kubernetes_url, make_sources, uses_kubernetes
from tests.unit.smg.test_settings import faults_of


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"discovery_provider": "file"}, "discovery_file is not set"),
        ({"discovery_provider": "dns"}, "discovery_dns is not set"),
        ({"discovery_provider": "consul"}, "'consul'"),
        ({"service_discovery": True}, "needs a selector"),
        ({"discovery_provider": "kubernetes"}, "needs a selector"),
        ({"selector": ["app=engine"]}, "mean nothing without service_discovery"),
        ({"selector": ["app in (a)"], "service_discovery": True}, "'app in (a)' is not a label selector"),
        ({"discovery_dns": ["engines"]}, "'engines' is neither HOST:PORT"),
        ({"discovery_dns": ["engines:0"]}, "between 1 and 65535"),
        ({"service_discovery_port": "0"}, "greater than or equal to 1"),
        ({"max_workers": "0"}, "greater than or equal to 1"),
        ({"cb_failure_threshold": "0"}, "greater than or equal to 1"),
        ({"endpoint_routers": ["grpc://a:1"]}, "mean nothing without endpoint_discovery"),
        ({"endpoint_discovery": True, "endpoint_routers": ["a"]}, "not of the form grpc://host:port"),
    ],
)
def test_faults_are_told_in_words(flags, says):
    assert says in "; ".join(faults_of(flags))


def test_the_original_s_flags_are_taken():
    flags = {
        "service_discovery": True,
        "selector": ["app=engine", "tier!=old", "gpu", "!spot"],
        "service_discovery_port": "50051",
        "service_discovery_namespace": "prod",
    }
    settings = load(RouterSettings, flags, {}).settings.discovery
    assert uses_kubernetes(settings)
    assert settings.selector == ("app=engine", "tier!=old", "gpu", "!spot")


def test_the_api_is_found_in_a_cluster_or_by_its_setting():
    settings = DiscoverySettings(service_discovery=True, selector=("a=b",))
    assert kubernetes_url(settings, {}) == ""
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert kubernetes_url(settings, inside) == "https://10.0.0.1:6443"
    assert kubernetes_url(settings, {"KUBERNETES_SERVICE_HOST": "fd00::1"}) == "https://[fd00::1]:443"
    named = settings.model_copy(update={"kubernetes_api_url": "http://127.0.0.1:8001/"})
    assert kubernetes_url(named, inside) == "http://127.0.0.1:8001"


def test_every_kind_is_made_when_its_settings_turn_it_on():
    settings = DiscoverySettings(
        discovery_file="w.yaml",
        discovery_dns=("engines:1", "_grpc._tcp.engines.example"),
        service_discovery=True,
        selector=("a=b",),
        kubernetes_api_url="http://127.0.0.1:8001",
    )
    assert [source.kind for source in make_sources(settings, {}, 10)] == ["file", "dns", "kubernetes"]
    assert make_sources(DiscoverySettings(), {}, 10) == []
