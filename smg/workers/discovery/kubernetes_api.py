"""Lists and watches pods over the Kubernetes API: plain HTTPS with the service account's token.

Protocol: "Kubernetes API Concepts", section "Efficient detection of changes": a list tells a resourceVersion, a watch from
there tells every later change, bookmarks move the version on, and 410 Gone says that it is too old: list again.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import httpx

from smg.workers.discovery.base import SourceFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_PAGE = 500
_MAX_PODS = 20_000
# Longest event, or page of a list. A pod has at most about 1.5 MB in the cluster's store.
_MAX_EVENT_BYTES = 4 * 1024 * 1024
_MAX_PAGE_BYTES = 256 * 1024 * 1024
# The server ends a watch after so long; a watch that is silent for longer is lost.
_WATCH_S = 60
_SILENCE_S = 90.0
_CONNECT_S = 10.0
_OK, _GONE = 200, 410

Pod = dict[str, Any]


class VersionGone(Exception):
    """The version to watch from is too old: list again."""


class PodEvent(NamedTuple):
    """A change of one pod.

    Attributes:
        kind: "ADDED", "MODIFIED" or "DELETED"; "BOOKMARK" brings a version alone.
        pod: the pod as it is now, or was.
        version: to watch on from.
    """

    kind: str
    pod: Pod
    version: str


class PodApi:
    """The pods of a namespace, or of the cluster, that a selector chooses."""

    def __init__(self, base_url: str, namespace: str | None, selector: str, account_dir: Path) -> None:
        """Set up.

        Args:
            base_url: https://host:port, or http:// for a local proxy.
            namespace: None for all.
            selector: a label selector.
            account_dir: where `token` and `ca.crt` are; without them none is sent, and the system's are trusted.
        """
        self._base_url = base_url
        scope = f"/namespaces/{namespace}" if namespace else ""
        self._path = f"/api/v1{scope}/pods"
        self._selector = selector
        self._account_dir = account_dir
        self._client: httpx.AsyncClient | None = None
        self._ca: str | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def list(self) -> tuple[list[Pod], str]:
        """All pods, and the version from which to watch on.

        Raises:
            SourceFailed: they cannot be had.
        """
        pods: list[Pod] = []
        version, page = "", ""
        while True:
            query = {"labelSelector": self._selector, "limit": str(_PAGE)}
            if page:
                query["continue"] = page
            answer = await self._page(query)
            items, metadata = answer.get("items"), answer.get("metadata")
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise SourceFailed(f"{self._base_url} does not answer like a Kubernetes API")
            pods += cast("list[Pod]", items)
            told = cast("dict[str, Any]", metadata)
            version, page = str(told.get("resourceVersion", "")), str(told.get("continue") or "")
            if len(pods) > _MAX_PODS:
                raise SourceFailed(f"{self._selector} chooses more than {_MAX_PODS} pods")
            if not page:
                return pods, version

    async def watch(self, version: str) -> AsyncIterator[PodEvent]:
        """The changes since a version. Ends when the server ends the watch: go on from the last version.

        Raises:
            VersionGone: the version is too old.
            SourceFailed: the watch is lost.
        """
        query = {
            "labelSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
            "resourceVersion": version,
        }
        client, headers = await self._prepared()
        try:
            async with client.stream("GET", self._path, params=query, headers=headers) as response:
                if response.status_code == _GONE:
                    raise VersionGone
                if response.status_code != _OK:
                    await response.aread()
                    raise self._refused(response)
                async for line in _lines(response):
                    yield _event(line)
        except (httpx.HTTPError, ssl.SSLError) as fault:
            raise self._unreachable(fault) from fault

    async def _page(self, query: dict[str, str]) -> dict[str, Any]:
        client, headers = await self._prepared()
        try:
            async with client.stream("GET", self._path, params=query, headers=headers) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_PAGE_BYTES:
                        raise SourceFailed(
                            f"{self._base_url} sends more than {_MAX_PAGE_BYTES} bytes in one page"
                        )
        except (httpx.HTTPError, ssl.SSLError) as fault:
            raise self._unreachable(fault) from fault
        if response.status_code != _OK:
            raise self._refused(response)
        try:
            answer: Any = await asyncio.to_thread(json.loads, bytes(body))
        except ValueError as fault:
            raise SourceFailed(f"{self._base_url} answers with what is no JSON") from fault
        if not isinstance(answer, dict):
            raise SourceFailed(f"{self._base_url} does not answer like a Kubernetes API")
        return cast("dict[str, Any]", answer)

    async def _prepared(self) -> tuple[httpx.AsyncClient, dict[str, str]]:
        """A client that trusts the authority of now, and the token of now: both are rotated."""
        token, authority = await asyncio.to_thread(self._account)
        if self._client is None or authority != self._ca:
            await self.close()
            try:
                context = ssl.create_default_context(cadata=authority or None)
            except ssl.SSLError as fault:
                raise SourceFailed(f"{self._account_dir}/ca.crt holds no certificates: {fault}") from fault
            self._ca = authority
            self._client = httpx.AsyncClient(
                base_url=self._base_url,
                verify=context,
                timeout=httpx.Timeout(_CONNECT_S, read=_SILENCE_S),
                # The cluster's API is not reached through a proxy for the internet.
                trust_env=False,
            )
        return self._client, {"authorization": f"Bearer {token}"} if token else {}

    def _account(self) -> tuple[str, str]:
        """Token and certificate authority; each empty where there is none."""
        return _text(self._account_dir / "token"), _text(self._account_dir / "ca.crt")

    def _refused(self, response: httpx.Response) -> SourceFailed:
        status = response.status_code
        hint = {
            401: ": the service account's token is not accepted",
            403: ": the service account may not list and watch pods",
            404: ": there is no such namespace, or no Kubernetes API",
        }
        return SourceFailed(f"{self._base_url} answers {status}{hint.get(status, '')}")

    def _unreachable(self, fault: Exception) -> SourceFailed:
        return SourceFailed(f"{self._base_url} cannot be reached: {fault or type(fault).__name__}")


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """The lines of a watch. httpx's own reader would hold one line of any length."""
    rest = bytearray()
    async for piece in response.aiter_bytes():
        rest += piece
        while (end := rest.find(b"\n")) >= 0:
            line = bytes(rest[:end])
            del rest[: end + 1]
            if line.strip():
                yield line
        if len(rest) > _MAX_EVENT_BYTES:
            raise SourceFailed(f"an event of a watch has more than {_MAX_EVENT_BYTES} bytes")


def _event(line: bytes) -> PodEvent:
    try:
        event: Any = json.loads(line)
        kind, subject = str(event["type"]), event["object"]
        if kind == "ERROR":
            if subject.get("code") == _GONE:
                raise VersionGone
            raise SourceFailed(f"the watch failed: {str(subject.get('message'))[:200]}")
        return PodEvent(kind, subject, str(subject["metadata"]["resourceVersion"]))
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise SourceFailed(f"a watch tells what is no event: {fault!r:.200}") from fault


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except OSError as fault:
        raise SourceFailed(f"{path} cannot be read: {fault.strerror}") from fault
