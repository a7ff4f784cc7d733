"""Logs: one record is one line, secrets never show, a stalled reader costs lines and not time."""

import io
import json
import logging
import threading

import pytest

from smg.telemetry.logs import LineFormatter, LogWriter, configure_logging


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "smg.test", "levelno": logging.INFO, "levelname": "INFO", "msg": message}
    )
    vars(made).update(fields)
    return made


def test_json_lines_carry_the_extra_fields():
    line = LineFormatter(as_json=True).format(record("hello", request_id="r-1", tokens=3))
    row = json.loads(line)
    assert row["message"] == "hello"
    assert row["level"] == "info"
    assert (row["request_id"], row["tokens"]) == ("r-1", 3)
    assert row["time"].endswith("Z")


def test_text_lines_carry_the_extra_fields_as_pairs():
    line = LineFormatter(as_json=False).format(record("hello", request_id="r-1", path="a b"))
    assert line.endswith('smg.test: hello request_id=r-1 path="a b"')


@pytest.mark.parametrize("as_json", [True, False])
def test_a_line_feed_in_the_text_does_not_start_a_line(as_json):
    line = LineFormatter(as_json=as_json).format(record("first\nsecond", request_id="x\ny"))
    assert "\n" not in line


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_are_blacked_out_wherever_they_stand(as_json):
    formatter = LineFormatter(as_json=as_json, secrets=["s3cret-key", "abc"])
    line = formatter.format(record("key s3cret-key", header="Bearer s3cret-key", word="abc"))
    assert "s3cret-key" not in line
    assert "abc" in line, "a secret too short to be told from ordinary words stays"


def test_exceptions_are_part_of_the_record():
    try:
        int("boom")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    row = json.loads(LineFormatter(as_json=True).format(record("failed", exc_info=info)))
    assert "ValueError: invalid literal" in row["exception"]
    assert "ValueError: invalid literal" in LineFormatter(as_json=False).format(
        record("failed", exc_info=info)
    )


def test_what_is_queued_is_written_before_the_writer_is_left():
    stream = io.StringIO()
    with configure_logging(level="info", stream=stream):
        logging.getLogger("smg.a").info("one")
        logging.getLogger("smg.a").debug("hidden")
        logging.getLogger("library").info("hidden too")
        logging.getLogger("library").warning("two")
    lines = stream.getvalue().splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == ["one", "two"]


def test_leaving_the_writer_restores_the_handlers_and_levels():
    root = logging.getLogger()
    before = (list(root.handlers), root.level, logging.getLogger("smg").level)
    with configure_logging(level="debug", stream=io.StringIO()):
        assert root.level == logging.DEBUG
    assert (list(root.handlers), root.level, logging.getLogger("smg").level) == before


class StalledStream(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.resume = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        assert self.resume.wait(30)
        return super().write(text)


def test_a_stalled_reader_costs_lines_which_are_counted():
    stream = StalledStream()
    writer = LogWriter(stream, backlog=2)
    writer.setFormatter(LineFormatter(as_json=False))
    writer.handle(record("first"))
    assert stream.reached.wait(30)
    for number in range(5):
        writer.handle(record(f"line {number}"))
    stream.resume.set()
    writer.close()
    text = stream.getvalue()
    assert "line 1" in text
    assert "line 2" not in text
    assert "3 log lines were dropped" in text


def test_a_reader_that_is_gone_does_not_end_the_writer():
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with configure_logging(stream=Gone()):
        logging.getLogger("smg").warning("one")
        logging.getLogger("smg").warning("two")


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error"])
def test_the_access_log_is_written_at_every_level(level):
    stream = io.StringIO()
    with configure_logging(level=level, stream=stream):
        logging.getLogger("smg.access").info("request")
        logging.getLogger("smg.test").info("chatter")
    assert "smg.access: request" in stream.getvalue()
    assert ("chatter" in stream.getvalue()) == (level in ("debug", "info"))
