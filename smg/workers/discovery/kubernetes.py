"""Workers that are Kubernetes pods: those that a label selector chooses, which are ready and not about to end.

A pod is known by its uid: another pod at the same address is another worker.
"""

from __future__ import annotations

import asyncio
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from smg.workers.address import Address
from smg.workers.discovery.base import Found
from smg.workers.discovery.kubernetes_api import VersionGone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from smg.workers.discovery.kubernetes_api import Pod, PodApi, PodEvent

SCHEME = "grpc"
# Ports of a pod with several engines, comma-separated, in place of the one port of all.
PORTS_ANNOTATION = "smg.ai/worker-ports"

# The list is read anew so often, whatever the watch has told.
_RELIST_S = 600.0
# Pause before a watch that has ended is opened again: one that ends at once must not spin.
_REWATCH_S = 0.2
_MAX_LABELS = 64
_HIGHEST_PORT = 65535


class KubernetesSource:
    """The ready pods of a selector."""

    kind = "kubernetes"

    def __init__(
        self, api: PodApi, port: int, *, relist_s: float = _RELIST_S, rewatch_s: float = _REWATCH_S
    ) -> None:
        """Args: port: the engine's, in each pod."""
        self._api = api
        self._port = port
        self._relist_s = relist_s
        self._rewatch_s = rewatch_s

    async def watch(self, tell: Callable[[Sequence[Found]], None], hurry: asyncio.Event) -> None:
        """List, then watch; list again when the version is gone, and now and then."""
        del hurry  # changes are pushed
        try:
            while True:
                await self._list_and_watch(tell)
        finally:
            await self._api.close()

    async def _list_and_watch(self, tell: Callable[[Sequence[Found]], None]) -> None:
        listed, version = await self._api.list()
        workers = {_uid(pod): workers_of(pod, self._port) for pod in listed}
        tell(_all(workers))
        now = asyncio.get_running_loop().time
        listed_at = now()
        while now() - listed_at < self._relist_s:
            try:
                async for event in self._api.watch(version):
                    version = event.version
                    if _take(workers, event, self._port):
                        tell(_all(workers))
            except VersionGone:
                return
            await asyncio.sleep(self._rewatch_s)


def _take(workers: dict[str, tuple[Found, ...]], event: PodEvent, port: int) -> bool:
    """Keep what an event tells. Returns True if other workers are wanted than before."""
    if event.kind not in ("ADDED", "MODIFIED", "DELETED"):
        return False
    uid = _uid(event.pod)
    before = workers.get(uid, ())
    if event.kind == "DELETED":
        workers.pop(uid, None)
    else:
        workers[uid] = workers_of(event.pod, port)
    return workers.get(uid, ()) != before


def workers_of(pod: Pod, port: int) -> tuple[Found, ...]:
    """The workers of a pod; none while it is not ready, or when it is about to end."""
    metadata, status = _mapping(pod, "metadata"), _mapping(pod, "status")
    address = status.get("podIP")
    if not isinstance(address, str) or not address or metadata.get("deletionTimestamp"):
        return ()
    if status.get("phase") != "Running" or not _is_ready(status):
        return ()
    uid = str(metadata.get("uid", ""))
    labels = _labels(metadata)
    return tuple(
        Found(Address(SCHEME, address, each).url, labels, identity=uid) for each in _ports(metadata, port)
    )


def _all(workers: Mapping[str, tuple[Found, ...]]) -> list[Found]:
    return [found for each in workers.values() for found in each]


def _uid(pod: Pod) -> str:
    return str(_mapping(pod, "metadata").get("uid", ""))


def _is_ready(status: Mapping[str, Any]) -> bool:
    conditions: Any = status.get("conditions")
    if not isinstance(conditions, list):
        return False
    # JSON holds anything: what is no mapping is no condition.
    known = [cast("dict[str, Any]", each) for each in cast("list[Any]", conditions) if isinstance(each, dict)]
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in known)


def _ports(metadata: Mapping[str, Any], port: int) -> tuple[int, ...]:
    text = _mapping(metadata, "annotations").get(PORTS_ANNOTATION)
    if not isinstance(text, str) or not re.fullmatch(r"\s*\d{1,5}\s*(,\s*\d{1,5}\s*)*", text):
        return (port,)
    ports = tuple(dict.fromkeys(int(each) for each in text.split(",")))
    return ports if all(0 < each <= _HIGHEST_PORT for each in ports) else (port,)


def _labels(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    """The pod's own labels, its name and its namespace."""
    labels = {
        str(name): str(value) for name, value in list(_mapping(metadata, "labels").items())[:_MAX_LABELS]
    }
    labels["smg.ai/pod-name"] = str(metadata.get("name", ""))
    labels["smg.ai/pod-namespace"] = str(metadata.get("namespace", ""))
    return MappingProxyType(labels)


def _mapping(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: Any = holder.get(name)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] -- JSON
