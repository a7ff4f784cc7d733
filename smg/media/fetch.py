"""Fetches media from addresses that clients name: through the egress guard, within bounds of bytes, time and redirects.

Each hop is looked up, checked and connected to by the address that was checked, so a name that changes its mind gains
nothing. Nothing of the caller goes along: no key, no cookie, no proxy of the environment. Compressed answers are
refused, since their true size is not known before they are unpacked.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from smg.errors import InvalidRequest
from smg.media.data_url import too_large

if TYPE_CHECKING:
    import httpx

    from smg.egress.guard import EgressGuard
    from smg.media.values import MediaLimits

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_OK = 200


class MediaFetcher:
    """Fetches over HTTP. Connections are not kept: media come from anywhere, mostly once."""

    def __init__(self, guard: EgressGuard, limits: MediaLimits) -> None:
        self._guard = guard
        self._limits = limits

    async def fetch(self, url: str, name: str) -> bytes:
        """The content behind an address.

        Raises:
            InvalidRequest: it may not be fetched, cannot be, or is too long; `name` says where the address stood.
        """
        # The library costs some MiB, and most gateways never fetch.
        import httpx

        try:
            async with asyncio.timeout(self._limits.fetch_timeout_s):
                return await self._follow(url, name)
        except TimeoutError as error:
            raise _failed(name, url, f"took longer than {self._limits.fetch_timeout_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _failed(name, url, f"cannot be fetched: {error or type(error).__name__}") from error

    async def _follow(self, url: str, name: str) -> bytes:
        import httpx

        transport = httpx.AsyncHTTPTransport(trust_env=False, retries=0)
        # Refusals name the place of the address.
        guard = replace(self._guard, what=name)
        async with transport:
            for _ in range(self._limits.max_redirects + 1):
                request = await self._request(guard, url)
                response = await transport.handle_async_request(request)
                try:
                    location = response.headers.get("location")
                    if response.status_code in _REDIRECTS and location:
                        url = urljoin(url, location)
                        continue
                    return await self._read(response, url, name)
                finally:
                    await response.aclose()
        raise _failed(name, url, f"is redirected more than {self._limits.max_redirects} times")

    async def _request(self, guard: EgressGuard, url: str) -> httpx.Request:
        """The request for one hop, to the address that was checked."""
        import httpx

        target = guard.check_url(url)
        addresses = await guard.resolve(url)
        timeout_s = self._limits.fetch_timeout_s
        extensions = {
            # The certificate is still checked against the name.
            "sni_hostname": target.host,
            "timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout_s),
        }
        headers = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "smg"}
        request = httpx.Request("GET", url, headers=headers, extensions=extensions)
        request.url = request.url.copy_with(host=addresses[0])
        return request

    async def _read(self, response: httpx.Response, url: str, name: str) -> bytes:
        if response.status_code != _OK:
            raise _failed(name, url, f"answers with status {response.status_code}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _failed(name, url, "answers with a compressed body, which is not read here")
        most, body = self._limits.max_bytes, bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > most:
                raise too_large(name, most)
        if not body:
            raise _failed(name, url, "answers with nothing")
        return bytes(body)


def _failed(name: str, url: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{name}: {url[:120]!r} {why}", param=name)
