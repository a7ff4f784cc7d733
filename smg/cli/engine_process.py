"""Keeps one engine running as a child process: starts it, waits for it, restarts it, ends it.

The child says `ready grpc://HOST:PORT` on its standard output when it serves. A restart takes the same port, so
that the router's connection heals by itself. The child dies with this process, whatever kills it (smg/cli/leash.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("smg.engine")

READY = "ready "
# A line of the servicer's log, as servicers/__main__.py formats it.
_LOG_LINE = re.compile(r"^\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+) (.*)$")
_KEPT_LINES = 20
_LONGEST_LINE_BYTES = 64 * 1024
# An engine that has run for so long was healthy: the next death starts the waits from the first again.
_HEALTHY_AFTER_S = 60.0


class EngineStartError(Exception):
    """The engine did not start. Carries its last lines of output."""

    def __init__(self, reason: str, lines: Sequence[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lines = list(lines)


@dataclass(frozen=True, slots=True)
class EngineTimings:
    """How long to wait for what, in seconds.

    Attributes:
        startup_s: for the ready line.
        stop_s: for the end after SIGTERM; then it is killed.
        restart_s: before the first, second, … restart in a row; the last one repeats.
    """

    startup_s: float = 1800.0
    stop_s: float = 10.0
    restart_s: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


class EngineProcess:
    """The child. Use: `url = await start()`, then `run()` in a task of its own, at the end `await stop()`."""

    def __init__(self, command: Callable[[int], Sequence[str]], timings: EngineTimings) -> None:
        """Prepare; nothing is started yet.

        Args:
            command: makes the command line for a port; port 0 means a free one.
            timings: how long to wait for what.
        """
        self._command = command
        self._timings = timings
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._ready: asyncio.Future[str] | None = None
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._port = 0

    @property
    def pid(self) -> int | None:
        """Process id of the child that runs, or ran last."""
        return self._process.pid if self._process else None

    async def start(self) -> str:
        """Start the child and wait until it serves. Returns its address.

        Raises:
            EngineStartError: it ended, or took too long. No child is left.
        """
        try:
            url = await self._spawn()
        except BaseException:
            await self.stop()
            raise
        self._port = urlsplit(url).port or 0
        return url

    async def run(self) -> None:
        """Restart the child whenever it ends. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        deaths_in_a_row = 0
        started = loop.time()
        while True:
            status = await self._ended()
            await self._end_readers()
            if loop.time() - started > _HEALTHY_AFTER_S:
                deaths_in_a_row = 0
            waits = self._timings.restart_s
            wait_s = waits[min(deaths_in_a_row, len(waits) - 1)]
            deaths_in_a_row += 1
            logger.error("the engine %s; restarting it in %g s", _status_text(status), wait_s)
            await asyncio.sleep(wait_s)
            started = loop.time()
            try:
                url = await self._spawn()
            except EngineStartError as error:
                logger.error("the engine did not come back: %s", error.reason)  # noqa: TRY400 -- no trace wanted
                await self.stop()
            else:
                logger.warning("the engine serves again at %s", url)

    def kill(self) -> None:
        """Kill the child at once, without waiting for its end."""
        if self._process is not None and self._process.returncode is None:
            _signal_group(self._process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End the child and wait for its end: SIGTERM, and SIGKILL after the grace period."""
        process = self._process
        if process is not None and process.returncode is None:
            _signal_group(process.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), self._timings.stop_s)
            except TimeoutError:
                logger.warning("the engine did not end in %g s; killing it", self._timings.stop_s)
            finally:
                self.kill()
                await process.wait()
        await self._end_readers()

    async def _spawn(self) -> str:
        """Start a child and return its address once it serves."""
        self._last_lines.clear()
        self._ready = asyncio.get_running_loop().create_future()
        words = [sys.executable, "-m", "smg.cli.leash", str(os.getpid()), *self._command(self._port)]
        # A session of its own: Ctrl-C in the terminal must reach us alone, we end the engine after the requests.
        process = self._process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._readers = [
            asyncio.create_task(self._read(stream)) for stream in (process.stdout, process.stderr) if stream
        ]
        end = asyncio.create_task(process.wait())
        try:
            await asyncio.wait(
                [self._ready, end], timeout=self._timings.startup_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            end.cancel()
        if self._ready.done():
            return self._ready.result()
        if process.returncode is None:
            raise EngineStartError(f"it was not ready after {self._timings.startup_s:g} s", self._last_lines)
        await asyncio.gather(*self._readers)
        raise EngineStartError(f"it {_status_text(process.returncode)}", self._last_lines)

    async def _ended(self) -> int:
        """Wait for the child's end."""
        if self._process is None:
            raise RuntimeError("run() before start()")
        return await self._process.wait()

    async def _end_readers(self) -> None:
        """A child of the child may hold the pipes open; what it says concerns nobody."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._readers = []

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Log the child's output line by line, and note the ready line."""
        rest = b""
        while chunk := await stream.read(_LONGEST_LINE_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE_BYTES:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._take(line)
        if rest:
            self._take(rest)

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text.startswith(READY) and self._ready is not None:
            if not self._ready.done():
                self._ready.set_result(text.removeprefix(READY).strip())
        elif text:
            self._last_lines.append(text)
            _relay(text)


def _relay(line: str) -> None:
    """Log a line of the child, with the severity that the child gave it."""
    found = _LOG_LINE.match(line)
    if found:
        logger.log(logging.getLevelNamesMapping()[found[1]], "%s: %s", found[2], found[3])
    else:
        logger.info("%s", line)


def _signal_group(pid: int, number: signal.Signals) -> None:
    # The group may be gone between the look and the call.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _status_text(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
