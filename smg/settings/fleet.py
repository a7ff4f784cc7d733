"""The knobs of a fleet of workers: how they are found, how many there may be, and when one is left alone for a while."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from smg.settings.fields import HIGHEST_PORT, Section, setting

# The forms of label selectors that need no white space (Kubernetes, "Labels and Selectors").
_SELECTOR = re.compile(r"!?[A-Za-z0-9][A-Za-z0-9._/-]*|[A-Za-z0-9][A-Za-z0-9._/-]*(=|==|!=)[A-Za-z0-9._-]*")
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):([0-9]{1,5})")
_SERVICE = re.compile(r"_[A-Za-z0-9-]+\._[A-Za-z]+(\.[A-Za-z0-9_-]+)+\.?")


def _check_selector(text: str) -> str:
    if not _SELECTOR.fullmatch(text):
        raise ValueError(f"'{text}' is not a label selector such as app=engine, app!=old, app or !app")
    return text


def _check_name(text: str) -> str:
    found = _HOST_PORT.fullmatch(text)
    if found is None and not _SERVICE.fullmatch(text):
        raise ValueError(
            f"'{text}' is neither HOST:PORT nor the name of a service such as _grpc._tcp.engines"
        )
    if found is not None and not 0 < int(found[2]) <= HIGHEST_PORT:
        raise ValueError(f"'{text}': a port is between 1 and {HIGHEST_PORT}")
    return text


# The breaker remembers when each of them happened, per worker.
MAX_FAILURES = 100_000

Selector = Annotated[str, AfterValidator(_check_selector)]
DnsName = Annotated[str, AfterValidator(_check_name)]


class DiscoverySettings(Section):
    """How workers are found beside those of --worker-urls. Several kinds may be used together."""

    discovery_provider: Literal["kubernetes", "file", "dns"] | None = setting(
        None, "Kind of discovery. Needed for none: its other settings turn each kind on."
    )
    discovery_file: str | None = setting(
        None, "YAML or JSON file that lists the workers; read again when it changes.", metavar="FILE"
    )
    discovery_dns: tuple[DnsName, ...] = setting(
        (),
        "Names whose every address is a worker: HOST:PORT (A and AAAA records), or a service such as"
        " _grpc._tcp.engines.example (SRV records).",
        metavar="NAME",
    )
    discovery_check_interval_secs: float = setting(
        30.0, "Seconds between looks at DNS, and at a file that seems unchanged.", gt=0
    )
    service_discovery: bool = setting(False, "Workers are the ready Kubernetes pods that --selector chooses.")
    selector: tuple[Selector, ...] = setting((), "Labels of the pods; all must hold.", metavar="LABEL=VALUE")
    service_discovery_port: int = setting(80, "Port of the engine in each pod.", ge=1, le=HIGHEST_PORT)
    service_discovery_namespace: str | None = setting(
        None, "Namespace of the pods. Default: all, which needs rights on the cluster.", metavar="NAME"
    )
    kubernetes_api_url: str | None = setting(
        None, "Address of the Kubernetes API. Default: that of the cluster that this runs in.", metavar="URL"
    )
    kubernetes_account_dir: str = setting(
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "Directory with the token and ca.crt of the service account. They are read again when they change.",
        metavar="DIR",
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.discovery_provider == "file" and not self.discovery_file:
            raise ValueError("discovery_provider is file, and discovery_file is not set")
        if self.discovery_provider == "dns" and not self.discovery_dns:
            raise ValueError("discovery_provider is dns, and discovery_dns is not set")
        uses_kubernetes = self.service_discovery or self.discovery_provider == "kubernetes"
        if uses_kubernetes and not self.selector:
            raise ValueError("service_discovery needs a selector: without one every pod would be a worker")
        if not uses_kubernetes and (self.selector or self.service_discovery_namespace):
            raise ValueError(
                "selector and service_discovery_namespace mean nothing without service_discovery"
            )
        return self


class BreakerSettings(Section):
    """When a worker whose requests keep failing is left alone. A client's mistakes never count."""

    cb_failure_threshold: int = setting(
        10, "Failures in a row that open a worker's circuit breaker.", ge=1, le=MAX_FAILURES
    )
    cb_success_threshold: int = setting(
        3, "Successes in a row that close it again, and requests that try the worker at a time.", ge=1
    )
    cb_timeout_duration_secs: float = setting(60.0, "Seconds that it stays open before it is tried.", gt=0)
    cb_window_duration_secs: float = setting(120.0, "Seconds after which a failure is forgotten.", gt=0)
    disable_circuit_breaker: bool = setting(False, "No circuit breakers.")


class FleetSettings(Section):
    """How many workers there may be, and what is asked of them all."""

    max_workers: int = setting(4096, "Most workers, however they are named.", ge=1)
    worker_drain_timeout_secs: float = setting(
        180.0,
        "Seconds that running work of a worker which is removed gets to end; then it goes on elsewhere.",
        ge=0,
    )
    dp_aware: bool = setting(
        False, "Data-parallel ranks of a worker are used one by one, as URL@RANK, where its protocol can."
    )
    load_monitor_interval: float = setting(
        10.0, "Seconds between questions for the load of workers that do not push it.", gt=0
    )
    disable_load_monitoring: bool = setting(
        False, "Ask for loads only where the policy goes by them. Pushed ones are taken in any case."
    )
    disable_health_check: bool = setting(
        False, "Ask no health service. Connections and steps are still watched."
    )
    health_check_port: int | None = setting(
        None,
        "Port that serves only the probes, from a thread of its own. Default: none but the HTTP port.",
        ge=0,
        le=HIGHEST_PORT,
    )
