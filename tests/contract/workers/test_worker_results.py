"""Worker.score, embed, flush_cache and load: the answers that come whole."""

from __future__ import annotations

from array import array

import pytest

from smg.errors import UNIMPLEMENTED, EngineError, Unsupported
from smg_proto.engine.v1 import work_pb2
from tests.contract.workers.collecting import Collector, ResultCollector, generate, generate_request
from tests.contract.workers.compat_double import CompatDouble
from tests.contract.workers.engine_script import HANGS, NORMAL, logprob
from tests.contract.workers.running import NO_ASKED_IDS, watched
from tests.contract.workers.sglang_double import SglangDouble
from tests.contract.workers.vllm_double import VllmDouble


def ids(*numbers: int) -> bytes:
    return array("I", numbers).tobytes()


@pytest.fixture
def scoring(worker):
    """The worker, where its protocol can score."""
    if worker.protocol in NO_ASKED_IDS:
        pytest.skip("this protocol cannot ask for labels")
    return worker


async def test_a_protocol_that_cannot_score_says_so(worker):
    if worker.protocol not in NO_ASKED_IDS:
        pytest.skip("this protocol scores labels")
    assert not worker.description.models[0].capabilities.score
    with pytest.raises(Unsupported, match="cannot score labels"):
        worker.score(work_pb2.Score(prefix_ids=ids(1)), ResultCollector())


async def test_score_gives_every_label_after_every_suffix(scoring):
    worker = scoring
    request = work_pb2.Score(prefix_ids=ids(1, 2, 3))
    for suffix in ((4,), (5, 6), (7,)):
        request.suffixes.add(ids=ids(*suffix), label_ids=[suffix[0], 40])
    collector = ResultCollector()
    worker.score(request, collector)
    scored = await collector.done
    assert [list(row.logprobs) for row in scored.suffixes] == [
        [logprob(first), logprob(40)] for first in (4, 5, 7)
    ]
    assert scored.prompt_tokens == 7


async def test_embed_gives_a_vector_of_length_one(worker):
    collector = ResultCollector()
    worker.embed(work_pb2.Embed(input_ids=ids(1, 2, 3)), collector)
    embedded = await collector.done
    assert [round(value, 5) for value in embedded.values] == [0.6, 0.8]
    assert embedded.prompt_tokens == 3


async def test_classify_gives_a_logit_for_every_label(double, worker):
    if isinstance(double, CompatDouble | VllmDouble):
        pytest.skip("its one model, which generates, has no labels")
    collector = ResultCollector()
    worker.classify(work_pb2.Classify(input_ids=ids(1, 2, 3), second_at=2), collector)
    classified = await collector.done
    assert [round(value, 5) for value in classified.logits] == [0.6, 0.8]
    assert classified.prompt_tokens == 3
    assert worker.inflight_requests == 0


async def test_an_aborted_score_is_not_heard_of(scoring):
    worker = scoring
    request = work_pb2.Score(prefix_ids=ids(1), suffixes=[work_pb2.ScoreSuffix(ids=ids(2), label_ids=[3])])
    gone, heard = ResultCollector(), ResultCollector()
    worker.abort(worker.score(request, gone))
    worker.score(request, heard)
    await heard.done
    assert not gone.done.done()
    assert worker.inflight_requests == 0


async def test_flush_cache_reaches_the_engine(worker, double):
    await worker.flush_cache()
    assert double.flushes == 1


async def test_the_description_names_the_model_and_the_maximum(worker):
    description = worker.description
    assert [card.id for card in description.models] == ["m"]
    assert description.models[0].context_length == 1024
    assert description.max_running == 64
    assert description.instance_id


async def test_inflight_counts_what_has_not_ended(worker):
    answer = Collector()
    sequence = worker.generate(generate_request([HANGS, 1]), answer)
    await answer.first_step.wait()
    assert worker.inflight_requests == 1
    worker.abort(sequence)
    assert worker.inflight_requests == 0


@pytest.mark.parametrize("double", ["sglang_grpc"], indirect=True)
async def test_an_adapter_s_name_becomes_the_server_s_id_of_it(double):
    double.loras = {"polite": "id-1", "terse": "id-2"}
    async with watched(double.url) as watch:
        assert list(watch.worker.description.models[0].loras) == ["polite", "terse"]
        for lora in ("terse", "id-1", ""):
            await generate(watch.worker, [NORMAL, 1], lora=lora)
        collector = ResultCollector()
        request = work_pb2.Score(suffixes=[work_pb2.ScoreSuffix(ids=ids(1), label_ids=[3])], lora="polite")
        watch.worker.score(request, collector)
        await collector.done
    assert [request.lora_id for request in double.requests] == ["id-2", "id-1", "", "id-1"]


async def test_a_profile_starts_and_stops_once():
    double = SglangDouble()
    await double.start()
    async with watched(double.url) as watch:
        await watch.worker.start_profile("/profiles")
        await watch.worker.stop_profile()
        with pytest.raises(EngineError, match="not in progress"):
            await watch.worker.stop_profile()
    assert double.profiles == ["/profiles", None, None]
    await double.kill()


async def test_adapters_are_loaded_named_in_the_description_and_unloaded():
    double = SglangDouble()
    double.loras = {"terse": "id-2"}
    await double.start()
    async with watched(double.url) as watch:
        worker = watch.worker
        await worker.load_lora("poet", "/adapters/poet")
        assert list(worker.description.models[0].loras) == ["poet", "terse"]
        await generate(worker, [NORMAL, 1], lora="poet")
        assert double.requests[-1].lora_id == double.loras["poet"] != ""
        await worker.unload_lora("poet")
        assert list(worker.description.models[0].loras) == ["terse"]
        with pytest.raises(EngineError, match="no such directory"):
            await worker.load_lora("poet", "/no/such")
        with pytest.raises(EngineError, match="no such adapter"):
            await worker.unload_lora("poet")
    await double.kill()


async def test_what_a_protocol_or_engine_has_not_is_refused_as_such(worker):
    # The doubles of the session and of our own servicer have engines without adapters.
    if worker.protocol == "sglang_grpc" and worker.description.engine_version == "0.5":
        pytest.skip("SGLang loads adapters")
    with pytest.raises((EngineError, Unsupported)) as caught:
        await worker.load_lora("poet", "/adapters/poet")
    assert getattr(caught.value, "engine_code", UNIMPLEMENTED) == UNIMPLEMENTED
