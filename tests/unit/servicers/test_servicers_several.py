"""Several engines as one: work goes where its model is, aborts to all, and the load is that of all."""

import asyncio

import pytest

from servicers.base import CannotStart, EngineOptions
from servicers.echo import create_engine
from servicers.several import SeveralEngines
from servicers.token_bytes import ids_to_bytes
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2


def echo(tokenizer_dir, *names, **options):
    paths = (str(tokenizer_dir),) * len(names)
    return create_engine(EngineOptions(model_paths=paths, model_ids=names, **options))


class Sink:
    unsent_events = 0

    def __init__(self):
        self.events = []
        self.changed = asyncio.Event()

    def emit(self, event):
        self.events.append(event)
        self.changed.set()

    async def ends(self, count):
        def ended():
            return {
                e.sequence: e
                for event in self.events
                for e in (*event.embedded, *event.finished, *event.failed)
            }

        while len(ended()) < count:
            self.changed.clear()
            await self.changed.wait()
        return ended()


@pytest.fixture
async def engines(tokenizer_dir):
    made = SeveralEngines(
        [echo(tokenizer_dir, "a", "b", max_running=3), echo(tokenizer_dir, "c", max_running=4)]
    )
    await made.start()
    yield made
    await made.stop()


async def test_all_models_are_described_and_the_first_is_the_one_without_a_name(engines, tokenizer_dir):
    description = engines.describe()
    assert [card.id for card in description.models] == ["a", "b", "c"]
    assert (description.engine, description.max_running) == ("echo", 7)
    assert engines.tokenizer_dir("c") == engines.tokenizer_dir("") == tokenizer_dir
    assert engines.tokenizer_dir("d") is None


async def test_work_goes_to_the_engine_that_has_the_model(engines):
    sink, ids = Sink(), ids_to_bytes([5, 6])
    work = [work_pb2.Embed(sequence=n, input_ids=ids, model=name) for n, name in enumerate(("", "b", "c"), 1)]
    endless = work_pb2.Generate(
        sequence=4, prompt_ids=ids, model="c", sampling=card_pb2.Sampling(ignore_eos=True)
    )
    engines.submit(sink, engine_pb2.SessionRequest(embed=work, generate=[endless]))
    assert engines.load().running >= 1
    ends = await sink.ends(3)
    assert set(ends) >= {1, 2, 3}
    engines.submit(sink, engine_pb2.SessionRequest(abort=[4]))
    assert set(await sink.ends(4)) == {1, 2, 3, 4}
    assert engines.load().running == 0


async def test_a_load_that_one_engine_tells_is_that_of_all(engines):
    busy, other, ids = Sink(), Sink(), ids_to_bytes([5])
    endless = [
        work_pb2.Generate(sequence=n, prompt_ids=ids, model=name, sampling=card_pb2.Sampling(ignore_eos=True))
        for n, name in ((1, "a"), (2, "c"))
    ]
    engines.submit(busy, engine_pb2.SessionRequest(generate=endless))
    engines.submit(
        other, engine_pb2.SessionRequest(embed=[work_pb2.Embed(sequence=1, input_ids=ids, model="b")])
    )
    await other.ends(1)
    told = [event.load.running for event in (*busy.events, *other.events) if event.HasField("load")]
    assert max(told) >= 2
    engines.close(busy)
    assert engines.load().running == 0
    assert await engines.flush_cache() >= 0


async def test_two_models_of_one_name_are_refused(tokenizer_dir):
    engines = SeveralEngines([echo(tokenizer_dir, "a"), echo(tokenizer_dir, "a")])
    with pytest.raises(CannotStart, match="two models have the name 'a'"):
        await engines.start()
    await engines.stop()


async def test_one_that_cannot_start_ends_the_start(tokenizer_dir, tmp_path):
    engines = SeveralEngines([echo(tokenizer_dir, "a"), echo(tmp_path, "b")])
    with pytest.raises(CannotStart, match=str(tmp_path)):
        await engines.start()
    await engines.stop()
