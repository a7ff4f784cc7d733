"""JobMaker: what the contract says of unset fields, and which positions must be computed."""

import pytest

from servicers.local.jobs import JobMaker
from servicers.local.logprobs import LogprobsWish
from smg_proto.engine.v1 import card_pb2, work_pb2
from tests.unit.servicers.local.stepping import Session, to_bytes

MAKER = JobMaker(context_tokens=100, eos_token_ids=(1, 2), embedding_size=64)


def make(prompt_tokens: int = 10, output=(), logprobs=None, **sampling):
    request = work_pb2.Generate(
        sequence=5,
        prompt_ids=to_bytes(range(3, 3 + prompt_tokens)),
        output_ids=to_bytes(output),
        sampling=card_pb2.Sampling(**sampling),
        logprobs=logprobs,
    )
    return MAKER.generate(Session(), request)


def test_unset_numbers_mean_what_the_contract_says():
    job = make()
    choice = job.choice
    assert (choice.temperature, choice.top_k, choice.top_p, choice.min_p) == (1.0, -1, 1.0, 0.0)
    assert (job.limit, job.minimum, job.end_ids) == (90, 0, {1, 2})
    assert job.penalties is None
    assert job.wish is None
    assert not job.is_streamed


def test_a_sequence_without_a_seed_draws_its_own():
    assert make().choice.key != make().choice.key
    assert make(seed=3).choice.key == make(seed=3).choice.key
    assert make(seed=3, choice_index=1).choice.key != make(seed=3).choice.key
    assert make(seed=-(2**63)).choice.key != make(seed=0).choice.key


@pytest.mark.parametrize(("asked", "limit"), [(0, 0), (5, 5), (90, 90), (1000, 90)])
def test_the_limit_is_what_is_asked_within_the_context(asked, limit):
    assert make(max_new_tokens=asked).limit == limit


def test_stop_tokens_join_the_models_own_unless_those_are_ignored():
    assert make(stop_token_ids=[7]).end_ids == {1, 2, 7}
    assert make(stop_token_ids=[7], ignore_eos=True).end_ids == {7}
    assert make(stop_token_ids=[7], ignore_eos=True).masked_ids == (1, 2, 7)


@pytest.mark.parametrize(("start", "wanted_from"), [(None, 11), (0, 0), (1, 0), (6, 5), (10, 9)])
def test_states_are_wanted_from_before_the_first_logprob(start, wanted_from):
    job = make(output=[4, 5], logprobs=work_pb2.LogprobsOptions(prompt_start=start))
    assert job.wanted_from == wanted_from
    assert (len(job.ids), job.prompt_tokens, job.output, job.earlier_tokens) == (12, 10, [4, 5], 2)


def test_logprobs_are_made_for_what_is_asked_only():
    assert make(logprobs=work_pb2.LogprobsOptions(top_k=5)).wish is None
    assert make(logprobs=work_pb2.LogprobsOptions(output=True, top_k=5)).wish == LogprobsWish(5)
    assert make(logprobs=work_pb2.LogprobsOptions(top_k=5, token_ids=[8])).wish == LogprobsWish(0, (8,))


def test_an_embedding_computes_everything_and_a_score_nothing_twice():
    job = MAKER.embed(Session(), work_pb2.Embed(input_ids=to_bytes([3, 4])))
    assert (job.wanted_from, job.dimensions) == (0, 64)
    suffix = work_pb2.ScoreSuffix(ids=to_bytes([5]), label_ids=[6], label_sequences=[to_bytes([7, 8])])
    job = MAKER.score(Session(), work_pb2.Score(prefix_ids=to_bytes([3, 4]), suffixes=[suffix]))
    assert (job.ids.tolist(), job.wanted_from) == ([3, 4], 2)
    assert (job.suffixes[0].ids, job.suffixes[0].label_ids, job.suffixes[0].label_sequences) == (
        [5],
        [6],
        [[7, 8]],
    )
