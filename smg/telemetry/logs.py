"""Turns log records into lines, JSON or text, without holding up the event loop.

A record is formatted where it is made and written by a thread of its own. The line between the two is bounded:
when the reader of our standard error stalls, lines are dropped and counted, requests are not held up.
Fields given as `extra={"request_id": …}` become keys of the line.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

import orjson

from smg.telemetry.access import ACCESS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

Level = Literal["debug", "info", "warn", "error"]

_LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_REDACTED = "[redacted]"
# A shorter secret would black out ordinary words.
_SHORTEST_SECRET = 4
_BACKLOG_LINES = 10_000


class LineFormatter(logging.Formatter):
    """Formats a record as one line and blacks out secrets.

    Args:
        as_json: one JSON object per line; else text with key=value pairs.
        secrets: texts that must not appear in any line.
    """

    def __init__(self, *, as_json: bool, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._as_json = as_json
        self._secrets = tuple(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its line feed. Never raises on odd field values."""
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        line = self._json(record, fields, trace) if self._as_json else self._text(record, fields, trace)
        for secret in self._secrets:
            line = line.replace(secret, _REDACTED)
        return line

    def _json(self, record: logging.LogRecord, fields: dict[str, Any], trace: str) -> str:
        row: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields,
        }
        if trace:
            row["exception"] = trace
        return orjson.dumps(row, default=str, option=orjson.OPT_NON_STR_KEYS).decode()

    def _text(self, record: logging.LogRecord, fields: dict[str, Any], trace: str) -> str:
        # A line feed in a client's text must not look like a line of ours.
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        pairs = "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
        line = f"{_timestamp(record)} {record.levelname:<7} {record.name}: {message}{pairs}"
        return f"{line}\n{trace}" if trace else line


class LogWriter(logging.Handler):
    """Hands lines to a thread that writes them. Use as a context manager: leaving it writes what is left."""

    def __init__(self, stream: TextIO | None = None, backlog: int = _BACKLOG_LINES) -> None:
        """Start the thread.

        Args:
            stream: where to write; None is standard error, looked up for each line so that a live display on
                the terminal can take lines over.
            backlog: lines held back at most; more are dropped and counted.
        """
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(backlog)
        self._dropped = 0
        self._replaced: tuple[list[logging.Handler], dict[str, int]] | None = None
        self._thread = threading.Thread(target=self._write_lines, name="log-writer", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record's line; never waits."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what is queued and end the thread. Waits at most a second for a stalled reader."""
        if self._thread.is_alive():
            # With a stalled reader the queue stays full; the thread is a daemon and dies with the process.
            with contextlib.suppress(queue.Full):
                self._lines.put(None, timeout=1)
            self._thread.join(timeout=1)
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._replaced:
            handlers, levels = self._replaced
            logging.getLogger().handlers[:] = handlers
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
        self.close()

    def take_over(self, level: Level) -> None:
        """Receive all records from now on, until the context is left. Libraries are heard from "warn" on.

        Args:
            level: least severity of our own records; "debug" lets libraries' debug records through too. The access
                log is written whatever the level: who wants it has said so.
        """
        own = ("smg", "gateway")
        levels = {name: logging.getLogger(name).level for name in ("", *own, ACCESS)}
        root = logging.getLogger()
        self._replaced = (list(root.handlers), levels)
        root.handlers[:] = [self]
        root.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
        for name in own:
            logging.getLogger(name).setLevel(_LEVELS[level])
        logging.getLogger(ACCESS).setLevel(logging.INFO)

    def _write_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                line += f"\n{dropped} log lines were dropped"
            stream = self._stream or sys.stderr
            try:
                stream.write(line + "\n")
                stream.flush()
            except (OSError, ValueError):
                # Nobody reads us any more (closed pipe); logging must not end the process.
                continue


def configure_logging(
    *, level: Level = "info", as_json: bool = False, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> LogWriter:
    """Send all log records through one LogWriter, in place of whatever handled them before.

    Args:
        level: least severity that is written.
        as_json: one JSON object per line.
        secrets: texts that must not appear in any line.
        stream: where to write; None is standard error.

    Returns: the writer, to be left (`with`) when the process ends.
    """
    writer = LogWriter(stream)
    writer.setFormatter(LineFormatter(as_json=as_json, secrets=secrets))
    writer.take_over(level)
    return writer


def _timestamp(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _quoted(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not any(char in text for char in ' "='):
        return text
    return orjson.dumps(text).decode()
