"""Keeps the media processes: starts one when it is needed, gives it one request at a time, ends one that takes too long."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from smg.errors import DeadlineExceeded, InternalError, InvalidRequest, Unsupported
from smg.media.frames import frame, receive_frame
from smg.media.values import PreparedMedium, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from smg.media.values import MediaLimits, MediaPart

_NEEDED = ("PIL", "numpy", "transformers")
_log = logging.getLogger(__name__)


def missing_packages() -> list[str]:
    """Packages of the extra `media` that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]


class MediaProcesses:
    """Processes that turn media into what a model sees."""

    def __init__(self, limits: MediaLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.processes)
        self._idle: list[asyncio.subprocess.Process] = []
        self._tasks: set[asyncio.Task[tuple[dict[str, Any], list[bytes]]]] = set()

    async def prepare(
        self, directory: Path, parts: Sequence[MediaPart], contents: Sequence[bytes]
    ) -> list[PreparedMedium]:
        """Have images processed.

        Args:
            directory: with the model's tokenizer and processor files.
            parts: where the images stood, for messages.
            contents: their bytes, in step.

        Raises:
            InvalidRequest: an image cannot be used.
            Unsupported: the extra `media` is not installed.
            InternalError: the model's files have no processor that can be used, or the process has died.
            DeadlineExceeded: it took too long.
        """
        if missing := missing_packages():
            raise Unsupported(
                f"images need packages that are not installed here ({', '.join(missing)}); whoever runs the gateway "
                "installs them with: pip install 'smg[media]'",
                code="media_extra_missing",
            )
        request = {"directory": str(directory), "max_pixels": self._limits.max_pixels}
        # A client that leaves does not stop the process at its work: starting another would take longer.
        task = asyncio.create_task(self._in_turn(request, contents))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        head, blobs = await asyncio.shield(task)
        if "fault" in head:
            raise _refusal(head, parts)
        return _prepared(head, blobs)

    async def close(self) -> None:
        """End the processes, and the work on them."""
        for task in (tasks := tuple(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._idle:
            await _end(self._idle.pop())

    async def _in_turn(
        self, request: dict[str, Any], contents: Sequence[bytes]
    ) -> tuple[dict[str, Any], list[bytes]]:
        async with self._free:
            return await self._ask(request, contents)

    async def _ask(
        self, request: dict[str, Any], contents: Sequence[bytes]
    ) -> tuple[dict[str, Any], list[bytes]]:
        process = self._idle.pop() if self._idle else await self._start()
        is_sound = False
        try:
            async with asyncio.timeout(self._limits.process_timeout_s):
                answer = await _exchange(process, request, contents)
            is_sound = True
        except TimeoutError:
            raise DeadlineExceeded(
                f"the images took longer than {self._limits.process_timeout_s:g} s to process"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            _log.error("a media process has died at its work (exit status %s)", process.returncode)
            raise InternalError("the process that reads images has died at its work") from error
        finally:
            if is_sound:
                self._idle.append(process)
            else:
                # What it would say next belongs to a request that is gone.
                await asyncio.shield(_end(process))
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "smg.media.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )


async def _exchange(
    process: asyncio.subprocess.Process, request: dict[str, Any], contents: Sequence[bytes]
) -> tuple[dict[str, Any], list[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise InternalError("a media process has no pipes")
    for piece in frame(request, contents):
        process.stdin.write(piece)
        await process.stdin.drain()
    return await receive_frame(process.stdout)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await process.wait()
    # The transport keeps the pipes open until it is closed itself.
    if process.stdin is not None:
        process.stdin.close()


def _refusal(head: dict[str, Any], parts: Sequence[MediaPart]) -> InvalidRequest | InternalError:
    if head["fault"] == "model":
        return InternalError(head["message"], code="media_processor_unavailable")
    index: int = head["index"]
    name = parts[index].name
    return InvalidRequest(f"{name} {head['message']}", param=name)


def _prepared(head: dict[str, Any], blobs: list[bytes]) -> list[PreparedMedium]:
    rest = iter(blobs)
    return [
        PreparedMedium(
            head["marker_id"],
            head["placeholder_id"],
            tuple(item["ids"]),
            tuple(
                Tensor(tensor["name"], tensor["dtype"], tuple(tensor["shape"]), next(rest))
                for tensor in item["tensors"]
            ),
            bytes.fromhex(item["digest"]),
        )
        for item in head["items"]
    ]
