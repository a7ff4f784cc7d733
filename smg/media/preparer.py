"""Turns the media of a request into what a model sees: fetched or decoded, within bounds, processed, and kept for the next turn."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from smg.errors import InvalidRequest
from smg.media.data_url import data_url_bytes, is_data_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from smg.media.fetch import MediaFetcher
    from smg.media.process import MediaProcesses
    from smg.media.values import MediaLimits, MediaPart, PreparedMedium

    _Key = tuple[str, bytes]


class TokenizerSource(Protocol):
    """Gets the files of a model, those of its processor among them."""

    async def directory(self, model_id: str) -> Path:
        """A directory with them. Raises SmgError."""
        ...


class MediaPreparer:
    """Prepares media for models."""

    def __init__(
        self,
        files: TokenizerSource,
        fetcher: MediaFetcher,
        processes: MediaProcesses,
        limits: MediaLimits,
    ) -> None:
        self._files = files
        self._fetcher = fetcher
        self._processes = processes
        self._limits = limits
        self._turn = asyncio.Semaphore(limits.max_preparing)
        self._kept: OrderedDict[_Key, PreparedMedium] = OrderedDict()
        self._kept_bytes = 0

    async def prepare(
        self, model_id: str, fingerprint: str, parts: Sequence[MediaPart]
    ) -> list[PreparedMedium]:
        """What a model sees of some media, in step with them.

        Args:
            model_id: the model.
            fingerprint: of its tokenizer and processor files; empty when it is not known.
            parts: the media.

        Raises:
            SmgError: a medium cannot be had or used, or the gateway cannot process any.
        """
        if len(parts) > self._limits.max_items:
            raise InvalidRequest(
                f"the messages have {len(parts)} media; at most {self._limits.max_items} are allowed",
                param="messages",
            )
        async with self._turn:
            contents = await self._contents(parts)
            digests = await asyncio.to_thread(_digests, contents)
            keys = [(fingerprint or model_id, digest) for digest in digests]
            found = {key: self._kept[key] for key in keys if key in self._kept}
            missing = {key: n for n, key in enumerate(keys) if key not in found}
            if missing:
                made = await self._processes.prepare(
                    await self._files.directory(model_id),
                    [parts[n] for n in missing.values()],
                    [contents[n] for n in missing.values()],
                )
                found.update(zip(missing, made, strict=True))
        self._keep(found)
        return [found[key] for key in keys]

    async def close(self) -> None:
        """End the processes."""
        await self._processes.close()

    async def _contents(self, parts: Sequence[MediaPart]) -> list[bytes]:
        contents: list[bytes] = []
        total = 0
        for part in parts:
            if is_data_url(part.url):
                content = await asyncio.to_thread(data_url_bytes, part.url, part.name, self._limits.max_bytes)
            else:
                content = await self._fetcher.fetch(part.url, part.name)
            total += len(content)
            if total > self._limits.max_request_bytes:
                raise InvalidRequest(
                    f"the media up to {part.name} have {total} bytes; at most {self._limits.max_request_bytes} are "
                    "allowed in one request",
                    param=part.name,
                )
            contents.append(content)
        return contents

    def _keep(self, found: dict[_Key, PreparedMedium]) -> None:
        for key, medium in found.items():
            if key not in self._kept:
                self._kept[key] = medium
                self._kept_bytes += medium.size_bytes
            self._kept.move_to_end(key)
        while self._kept_bytes > self._limits.cache_bytes:
            _, gone = self._kept.popitem(last=False)
            self._kept_bytes -= gone.size_bytes


def _digests(contents: Sequence[bytes]) -> list[bytes]:
    return [hashlib.sha256(content).digest() for content in contents]
