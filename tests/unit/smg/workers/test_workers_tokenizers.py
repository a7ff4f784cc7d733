"""TokenizerStore: one download per tokenizer, kept in bounds, never half done."""

from __future__ import annotations

import asyncio
import os

import pytest

from smg.errors import EngineError, InternalError, ModelNotFound, NotFound, WorkerUnavailable
from smg.workers.options import WorkerOptions
from smg.workers.registry import WorkerRegistry
from smg.workers.tokenizers import TokenizerStore
from tests.contract.workers.engine_script import Changes
from tests.unit.smg.workers.fake_worker import FakeWorker


def fingerprint(number: int) -> str:
    return f"{number:064x}"


class Giver(FakeWorker):
    """Has a tokenizer, and counts how often it was asked for it."""

    def __init__(self, worker_id, url):
        super().__init__(worker_id, url)
        self.asked = 0
        self.fault: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.changes = Changes()

    async def fetch_tokenizer(self, model, target):
        self.asked += 1
        self.changes.notify()
        (target / "tokenizer.json").write_text("half")
        await self.gate.wait()
        if self.fault:
            raise self.fault
        (target / "tokenizer.json").write_text(model)


class Fleet:
    """A registry whose workers are Givers."""

    def __init__(self) -> None:
        self.workers: dict[str, Giver] = {}
        self.registry = WorkerRegistry(WorkerOptions(), open_worker=self._open)
        self.registry.start()

    async def _open(self, worker_id, url, options):
        return Giver(worker_id, url)

    async def add(self, number: int, **tokenizers: str) -> Giver:
        """A ready worker; its models by name, each with the fingerprint of its tokenizer."""
        entry = self.registry.add(f"grpc://127.0.0.1:{number}")
        await asyncio.sleep(0)
        giver = entry.worker
        del giver.known.models[:]
        for model, sha256 in tokenizers.items():
            giver.known.models.add(id=model, tokenizer_sha256=sha256)
        giver.come_up()
        return giver


@pytest.fixture
async def fleet():
    fleet = Fleet()
    yield fleet
    await fleet.registry.close()


@pytest.fixture
async def store(fleet, tmp_path):
    store = TokenizerStore(fleet.registry, None, tmp_path / "cache", keep=3)
    yield store
    await store.close()


def content(directory) -> str:
    return (directory / "tokenizer.json").read_text()


async def test_the_operators_directory_wins_and_nobody_is_asked(fleet, tmp_path):
    giver = await fleet.add(1, m=fingerprint(1))
    store = TokenizerStore(fleet.registry, tmp_path, None)
    assert await store.directory("m") == tmp_path
    assert giver.asked == 0


async def test_an_operators_directory_that_is_missing_is_named(fleet, tmp_path):
    store = TokenizerStore(fleet.registry, tmp_path / "typo", None)
    with pytest.raises(InternalError, match="typo"):
        await store.directory("m")


async def test_a_tokenizer_is_fetched_once_whoever_asks_and_however_often(fleet, store):
    giver = await fleet.add(1, m=fingerprint(1))
    giver.gate.clear()
    asking = [asyncio.ensure_future(store.directory("m")) for _ in range(5)]
    await giver.changes.until(lambda: giver.asked)
    asking[0].cancel()
    giver.gate.set()
    directories = await asyncio.gather(*asking[1:])
    assert len(set(directories)) == 1
    assert content(await store.directory("m")) == "m"
    assert giver.asked == 1


async def test_models_and_workers_of_one_tokenizer_share_it(fleet, store):
    one = await fleet.add(1, m=fingerprint(1), n=fingerprint(1))
    two = await fleet.add(2, m=fingerprint(1))
    assert await store.directory("m") == await store.directory("n")
    assert one.asked + two.asked == 1


async def test_a_new_tokenizer_of_a_model_is_fetched_anew(fleet, store):
    giver = await fleet.add(1, m=fingerprint(1))
    first = await store.directory("m")
    giver.known.models[0].tokenizer_sha256 = fingerprint(2)
    giver.on_state_change()
    assert await store.directory("m") != first
    assert giver.asked == 2


async def test_without_a_fingerprint_a_restart_means_another_tokenizer(fleet, store):
    giver = await fleet.add(1, m="")
    first = await store.directory("m")
    assert await store.directory("m") == first
    giver.known.instance_id = "restarted"
    giver.on_state_change()
    assert await store.directory("m") != first


async def test_a_name_that_is_no_fingerprint_cannot_leave_the_cache(fleet, store, tmp_path):
    await fleet.add(1, m="../../evil")
    directory = await store.directory("m")
    assert directory.parent == tmp_path / "cache"


async def test_another_worker_is_asked_when_one_fails(fleet, store):
    bad, good = await fleet.add(1, m=fingerprint(1)), await fleet.add(2, m=fingerprint(1))
    bad.fault = EngineError("broken pipe", engine_code=14)
    assert content(await store.directory("m")) == "m"
    assert (bad.asked, good.asked) == (1, 1)


async def test_when_all_fail_their_reasons_are_told_without_addresses_and_nothing_is_left(
    fleet, store, tmp_path
):
    giver = await fleet.add(1, m=fingerprint(1))
    giver.fault = NotFound("has none to give")
    with pytest.raises(InternalError, match="has none to give") as caught:
        await store.directory("m")
    assert caught.value.code == "tokenizer_unavailable"
    assert list((tmp_path / "cache").iterdir()) == []
    giver.fault = None
    assert content(await store.directory("m")) == "m"


async def test_an_unknown_model_and_a_lost_one_are_told_apart(fleet, store):
    giver = await fleet.add(1, m=fingerprint(1))
    giver.go_down()
    with pytest.raises(ModelNotFound):
        await store.directory("x")
    with pytest.raises(WorkerUnavailable):
        await store.directory("m")


async def test_a_cache_that_is_kept_serves_without_asking(fleet, store, tmp_path):
    giver = await fleet.add(1, m=fingerprint(1))
    await store.directory("m")
    again = TokenizerStore(fleet.registry, None, tmp_path / "cache")
    giver.go_down()
    assert content(await again.directory("m")) == "m"
    assert giver.asked == 1


async def test_only_the_last_used_are_kept(fleet, store, tmp_path):
    await fleet.add(1, a=fingerprint(1), b=fingerprint(2), c=fingerprint(3), d=fingerprint(4))
    for age, model in enumerate("abc"):
        os.utime(await store.directory(model), (1000 + age, 1000 + age))
    await store.directory("a")
    await store.directory("d")
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {
        fingerprint(number) for number in (1, 3, 4)
    }


async def test_close_ends_downloads_and_removes_the_temporary_directory(fleet):
    giver = await fleet.add(1, m=fingerprint(1), n=fingerprint(2))
    store = TokenizerStore(fleet.registry, None, None)
    directory = await store.directory("m")
    giver.gate.clear()
    asking = asyncio.ensure_future(store.directory("n"))
    await giver.changes.until(lambda: giver.asked == 2)
    await store.close()
    assert not directory.parent.exists()
    with pytest.raises(asyncio.CancelledError):
        await asking
