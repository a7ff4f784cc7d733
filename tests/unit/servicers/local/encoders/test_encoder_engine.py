"""An encoder's engine: what waits together is computed together, and nobody's end is anybody else's."""

import asyncio

import pytest

from servicers.base import CannotStart
from servicers.checks import RESOURCE_EXHAUSTED
from servicers.local.encoders.engine import EncoderEngine, EncoderSettings, _Job, batches
from servicers.token_bytes import ids_to_bytes
from smg_proto.engine.v1 import engine_pb2, work_pb2
from tests import tiny_encoder

pytestmark = pytest.mark.model


class Sink:
    """A session that keeps what it is told."""

    unsent_events = 0

    def __init__(self):
        self.ends = {}
        self.changed = asyncio.Event()

    def emit(self, event):
        for kind in ("embedded", "classified", "failed", "finished"):
            for each in getattr(event, kind):
                assert each.sequence not in self.ends, "a sequence ends once"
                self.ends[each.sequence] = (kind, each)
        self.changed.set()

    async def wait(self, count):
        while len(self.ends) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.ends


def embeds(*lengths, start=1):
    return [
        work_pb2.Embed(sequence=start + n, input_ids=ids_to_bytes(range(5, 5 + length)))
        for n, length in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny_encoder.write_embedder(tmp_path_factory.mktemp("engine") / "embedder")


@pytest.fixture
async def engine(path):
    made = EncoderEngine(EncoderSettings(path=path, model_id="e", threads=1, max_waiting=50))
    await made.start()
    yield made
    await made.stop()


def test_batches_have_inputs_of_about_one_length_and_so_many_tokens():
    jobs = [_Job(None, each) for each in embeds(3, 50, 4, 8, 49, 100)]
    lengths = [[job.tokens for job in batch] for batch in batches(jobs, 100)]
    assert lengths == [[3, 4, 8], [49, 50], [100]]


async def test_inputs_of_two_sessions_are_answered_each_to_its_own(engine):
    first, second = Sink(), Sink()
    engine.submit(first, engine_pb2.SessionRequest(embed=embeds(3, 40, 9)))
    engine.submit(second, engine_pb2.SessionRequest(embed=embeds(40, 3)))
    one, other = await first.wait(3), await second.wait(2)
    assert {kind for kind, _ in (*one.values(), *other.values())} == {"embedded"}
    assert list(one[2][1].values) == pytest.approx(list(other[1][1].values), abs=1e-6)
    assert [one[n][1].prompt_tokens for n in (1, 2, 3)] == [3, 40, 9]
    assert (engine.load().running, engine.load().waiting, engine.load().waiting_uncached_tokens) == (0, 0, 0)


async def test_an_aborted_input_ends_as_such_and_a_closed_session_hears_nothing(engine):
    stays, leaves = Sink(), Sink()
    engine.submit(stays, engine_pb2.SessionRequest(embed=embeds(3, 4), abort=[2, 77]))
    engine.submit(leaves, engine_pb2.SessionRequest(embed=embeds(5)))
    engine.close(leaves)
    ends = await stays.wait(2)
    assert ends[1][0] == "embedded"
    assert (ends[2][0], ends[2][1].reason) == ("finished", work_pb2.FINISH_REASON_ABORT)
    engine.submit(stays, engine_pb2.SessionRequest(embed=embeds(3, start=3)))
    await stays.wait(3)
    assert leaves.ends == {}


async def test_more_than_may_wait_are_refused(engine):
    sink = Sink()
    engine.submit(sink, engine_pb2.SessionRequest(embed=embeds(*[2] * 53)))
    ends = await sink.wait(53)
    refused = [each for kind, each in ends.values() if kind == "failed"]
    assert [each.code for each in refused] == [RESOURCE_EXHAUSTED] * 3
    assert all(each.is_retryable and "at most 50" in each.message for each in refused)


async def test_an_input_that_cannot_be_computed_takes_no_other_with_it(engine, caplog):
    sink = Sink()
    # The servicer's checks keep such ids out; a fault of the engine's own would end the same way.
    broken = work_pb2.Embed(sequence=9, input_ids=ids_to_bytes([5, 10_000_000, 6]))
    engine.submit(sink, engine_pb2.SessionRequest(embed=[*embeds(3, 4), broken]))
    ends = await sink.wait(3)
    assert [ends[n][0] for n in (1, 2, 9)] == ["embedded", "embedded", "failed"]
    assert "could not be computed" in caplog.text


async def test_a_card_tells_what_the_files_say(engine):
    (card,) = engine.describe().models
    assert (card.id, card.context_length, card.embedding_size) == ("e", 64, 32)
    assert (list(card.embedding_dimensions), list(card.embedding_layers)) == ([8, 16], [1, 2])
    assert (card.embedding_form, card.dtype, card.is_exact) == ("mean, normalized", "float32", False)
    assert card.capabilities.embed
    assert not card.capabilities.classify


async def test_what_cannot_be_loaded_is_named(tmp_path):
    engine = EncoderEngine(EncoderSettings(path=tmp_path, model_id="e"))
    with pytest.raises(CannotStart, match="cannot read"):
        await engine.start()
    await engine.stop()
