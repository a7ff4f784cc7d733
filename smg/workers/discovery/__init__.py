"""How workers are found: one file a kind, and the list of the kinds. The reconciler does what they tell."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from smg.workers.discovery.dns import DnsSource
from smg.workers.discovery.file import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from smg.settings import DiscoverySettings
    from smg.workers.discovery.base import Source

_log = logging.getLogger(__name__)


def _file(settings: DiscoverySettings, _: Mapping[str, str], max_workers: int) -> Source | None:
    if not settings.discovery_file:
        return None
    path, interval_s = Path(settings.discovery_file), settings.discovery_check_interval_secs
    return FileSource(path, interval_s, max_workers, _complain("file"))


def _dns(settings: DiscoverySettings, _: Mapping[str, str], __: int) -> Source | None:
    if not settings.discovery_dns:
        return None
    return DnsSource(settings.discovery_dns, settings.discovery_check_interval_secs, _complain("dns"))


def _kubernetes(settings: DiscoverySettings, variables: Mapping[str, str], _: int) -> Source | None:
    if not uses_kubernetes(settings):
        return None
    # Read here: it brings an HTTP client along.
    from smg.workers.discovery.kubernetes import KubernetesSource
    from smg.workers.discovery.kubernetes_api import PodApi

    api = PodApi(
        kubernetes_url(settings, variables),
        settings.service_discovery_namespace,
        ",".join(settings.selector),
        Path(settings.kubernetes_account_dir),
    )
    return KubernetesSource(api, settings.service_discovery_port)


# Of two kinds that name one address, the earlier one counts.
KINDS: tuple[Callable[[DiscoverySettings, Mapping[str, str], int], Source | None], ...] = (
    _file,
    _dns,
    _kubernetes,
)


def make_sources(
    settings: DiscoverySettings, variables: Mapping[str, str], max_workers: int
) -> Sequence[Source]:
    """The sources that the settings turn on.

    Args:
        settings: which, and how.
        variables: the environment, in which Kubernetes tells its API's address.
        max_workers: most workers that the router takes.
    """
    made = (make(settings, variables, max_workers) for make in KINDS)
    return [source for source in made if source is not None]


def uses_discovery(settings: DiscoverySettings) -> bool:
    """Whether any kind is turned on."""
    return bool(settings.discovery_file or settings.discovery_dns) or uses_kubernetes(settings)


def uses_kubernetes(settings: DiscoverySettings) -> bool:
    """Whether pods are looked for."""
    return settings.service_discovery or settings.discovery_provider == "kubernetes"


def kubernetes_url(settings: DiscoverySettings, variables: Mapping[str, str]) -> str:
    """Address of the Kubernetes API; empty where neither the settings nor the cluster tell one."""
    if settings.kubernetes_api_url:
        return settings.kubernetes_api_url.rstrip("/")
    host, port = variables.get("KUBERNETES_SERVICE_HOST", ""), variables.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _complain(kind: str) -> Callable[[str], None]:
    return lambda why: _log.warning("discovery by %s: %s; what was found before is kept", kind, why)
