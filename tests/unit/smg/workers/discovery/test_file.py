"""FileSource: a list in any of its forms; what is broken, gone or half written changes nothing and is said."""

from __future__ import annotations

import asyncio
import json

import pytest

from smg.workers.discovery.base import SourceFailed
from smg.workers.discovery.file import FileSource, Pace, parse

A, B = "grpc://10.0.0.1:1", "grpc://10.0.0.2:1"


@pytest.mark.parametrize(
    "text",
    [
        f"- {A}\n- {B}\n",
        json.dumps([A, B]),
        f"[{A}, {B}]",
        json.dumps({"version": 1, "workers": [{"url": A}, {"url": B}]}),
        f"workers:\n  - url: {A}\n  - 10.0.0.2:1\n",
    ],
)
def test_forms_of_a_list(text):
    assert [found.url for found in parse(text, 10)] == [A, B]


def test_a_worker_has_labels_models_and_an_identity():
    text = f"- url: {A}\n  labels: {{zone: a, gpu: 8, spot: true}}\n  models: [m, n]\n  id: one\n"
    found = parse(text, 10)[0]
    assert dict(found.labels) == {"zone": "a", "gpu": "8", "spot": "True"}
    assert (found.only_models, found.identity) == ({"m", "n"}, "one")
    assert parse(json.dumps([{"url": A, "model_id": "m"}]), 10)[0].only_models == {"m"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"one of none is \[\]"),
        ("a: [", "neither YAML nor JSON"),
        ('{"workers": [', "neither YAML nor JSON"),
        ("just words", "no list"),
        ("other: []", "'workers'"),
        ("{version: 2, workers: []}", "version is 2"),
        (f"- {A}\n- {A}/\n", "twice"),
        ("- 7", "worker 1 is neither"),
        ("- {labels: {}}", "worker 1 has no 'url'"),
        (f"- {{url: {A}, lables: {{}}}}", "unknown member 'lables'"),
        (f"- {{url: {A}, worker_type: prefill}}", "'prefill'"),
        (f"- {{url: {A}, models: m}}", "models must be a list"),
        (f"- {{url: {A}, labels: [a]}}", "labels must be a mapping"),
        (f"- {{url: {A}, labels: false}}", "labels must be a mapping"),
        (f"- {{url: {A}, models: 0}}", "models must be a list"),
        ("- ftp://host:1", "'ftp'"),
        ("- grpc://host", "no port"),
        (f"- {A}\n- {B}\n- grpc://10.0.0.3:1\n", "--max-workers allows 2"),
        ("- !!python/object/apply:os.getcwd []", "neither YAML nor JSON"),
        ("[" * 100_000, "neither YAML nor JSON"),
    ],
)
def test_what_is_wrong_is_said(text, says):
    with pytest.raises(SourceFailed, match=says):
        parse(text, 2)


class Watching:
    """A source that looks without a pause; `told` and `complaints` grow."""

    def __init__(self, path, interval_s=3600) -> None:
        self.told: list[list[str]] = []
        self.complaints: list[str] = []
        self._changed = asyncio.Event()
        source = FileSource(path, interval_s, 10, self._complain, look_s=0.001)
        self._task = asyncio.create_task(source.watch(self._tell, asyncio.Event()))

    def _tell(self, found) -> None:
        self.told.append([each.url for each in found])
        self._changed.set()

    def _complain(self, why) -> None:
        self.complaints.append(why)
        self._changed.set()

    async def until(self, condition) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def put(path, text) -> None:
    """As editors and Kubernetes do: in one step."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


async def test_changes_are_told_and_faults_change_nothing(tmp_path):
    path = tmp_path / "workers.yaml"
    watching = Watching(path)
    await watching.until(lambda: watching.complaints)
    assert "No such file" in watching.complaints[0]
    put(path, f"- {A}\n")
    await watching.until(lambda: watching.told)
    put(path, "- {broken")
    await watching.until(lambda: len(watching.complaints) == 2)
    path.unlink()
    await watching.until(lambda: len(watching.complaints) == 3)
    put(path, f"- {A}\n- {B}\n")
    await watching.until(lambda: len(watching.told) == 2)
    assert watching.told == [[A], [A, B]]
    await watching.close()


def test_a_file_is_not_read_before_it_rests():
    pace = Pace(interval_s=30)
    assert pace.is_due(0, (1, 10, 1))
    # Somebody writes in place, a line at a time: each look sees another file, and each would be a valid list.
    assert not any(pace.is_due(size, (2, size, 1)) for size in range(1, 9))
    assert pace.is_due(9, (2, 8, 1))
    assert not pace.is_due(10, (2, 8, 1))
    assert pace.is_due(39, (2, 8, 1))


def test_a_file_that_appears_later_may_still_be_written():
    pace = Pace(interval_s=30)
    pace.looked()
    assert [pace.is_due(now, (1, 10, 1)) for now in range(3)] == [False, True, False]


async def test_a_file_that_seems_unchanged_is_read_now_and_then(tmp_path):
    path = tmp_path / "workers.yaml"
    put(path, f"- {A}\n")
    watching = Watching(path, interval_s=0.002)
    await watching.until(lambda: len(watching.told) > 2)
    await watching.close()


async def test_a_file_too_large_is_refused(tmp_path):
    path = tmp_path / "workers.yaml"
    path.write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    watching = Watching(path)
    await watching.until(lambda: watching.complaints)
    assert "at most 4194304 are read" in watching.complaints[0]
    await watching.close()
