"""Scheduler: who runs next, and how much of it, without any network."""

import numpy as np
import pytest

from servicers.local.prefix_cache import PrefixCache
from servicers.local.refusal import RefusalError
from servicers.local.sampling import Choice
from servicers.local.scheduler import MIN_CHUNK_TOKENS, Scheduler
from servicers.local.sequence import NO_SLOT, EmbedJob, GenerateJob, ScoreJob

SESSION = object()


class Memory:
    slots, slot_tokens = 3, 512

    def copy_prefix(self, source: int, target: int, tokens: int) -> None:
        pass


def job(number: int, ids, **fields) -> GenerateJob:
    ids = np.array(ids, dtype=np.int64)
    return GenerateJob(
        session=SESSION,
        number=number,
        ids=ids,
        wanted_from=len(ids) - 1,
        prompt_tokens=len(ids),
        output=[],
        earlier_tokens=0,
        limit=8,
        choice=Choice(),
        **fields,
    )


def score(number: int, ids) -> ScoreJob:
    ids = np.array(ids, dtype=np.int64)
    return ScoreJob(session=SESSION, number=number, ids=ids, wanted_from=len(ids), suffixes=[])


def embed(number: int, ids) -> EmbedJob:
    return EmbedJob(
        session=SESSION, number=number, ids=np.array(ids, dtype=np.int64), wanted_from=0, dimensions=8
    )


@pytest.fixture
def cache():
    return PrefixCache(Memory())


@pytest.fixture
def scheduler(cache):
    return Scheduler(cache, step_tokens=100, max_waiting=4)


def compute(scheduler, cache) -> dict[int, int]:
    """Pretend that the next plan was computed; the chunk of each job by number."""
    plan = scheduler.plan()
    for each, tokens in plan.chunks:
        cache.extend(each.slot, each.ids[each.computed : each.computed + tokens])
        each.computed += tokens
        scheduler.advance(each)
    return {each.number: tokens for each, tokens in plan.chunks}


def unlike(number: int, length: int) -> range:
    return range(1000 * number, 1000 * number + length)


def test_the_oldest_prompt_gets_half_and_the_shortest_the_rest(scheduler, cache):
    for number, length in ((1, 400), (2, 300), (3, 20)):
        scheduler.add(job(number, unlike(number, length)))
    scheduler.admit()
    assert compute(scheduler, cache) == {1: 50, 3: 20, 2: 30}
    assert [each.number for each in scheduler.decoding] == [3]
    assert compute(scheduler, cache) == {1: 49, 2: 50}


def test_what_others_leave_goes_back_to_the_oldest(scheduler, cache):
    scheduler.add(job(1, unlike(1, 400)))
    scheduler.add(job(2, unlike(2, 10)))
    scheduler.admit()
    assert compute(scheduler, cache) == {1: 90, 2: 10}


def test_a_prompt_goes_on_however_many_sequences_run(cache):
    scheduler = Scheduler(cache, step_tokens=2, max_waiting=4)
    for number in (1, 2, 3):
        scheduler.add(job(number, unlike(number, 40)))
    scheduler.admit()
    assert sum(compute(scheduler, cache).values()) == MIN_CHUNK_TOKENS


def test_decoding_sequences_come_by_slot(scheduler, cache):
    for number, length in ((1, 90), (2, 5), (3, 3)):
        scheduler.add(job(number, unlike(number, length)))
    scheduler.admit()
    while scheduler.prefilling:
        compute(scheduler, cache)
    assert [each.slot for each in scheduler.plan().decodes] == [0, 1, 2]
    assert [each.number for each in scheduler.decoding] == [1, 3, 2]


def test_jobs_wait_for_a_slot_in_order_and_no_more_than_allowed(scheduler):
    for number in range(3):
        scheduler.add(job(number, unlike(number, 5)))
    scheduler.admit()
    for number in range(3, 7):
        scheduler.add(job(number, unlike(number, 5)))
    with pytest.raises(RefusalError, match="at most 4 wait"):
        scheduler.add(job(7, [1]))
    scheduler.admit()
    assert (scheduler.running, scheduler.waiting) == (3, 4)
    scheduler.remove(scheduler.find(SESSION, 1))
    scheduler.admit()
    assert scheduler.find(SESSION, 3).slot != NO_SLOT
    assert scheduler.find(SESSION, 4).slot == NO_SLOT


def test_a_job_that_is_not_ready_lets_others_pass(scheduler):
    scheduler.add(job(1, unlike(1, 5), is_ready=False))
    assert not scheduler.can_step
    scheduler.add(job(2, unlike(2, 5)))
    scheduler.admit()
    assert scheduler.running_jobs() == [scheduler.find(SESSION, 2)]
    scheduler.find(SESSION, 1).is_ready = True
    scheduler.admit()
    assert scheduler.running == 2


def test_a_prompt_waits_for_its_twin_and_an_unlike_one_passes(scheduler, cache):
    scheduler.add(job(1, unlike(1, 200)))
    scheduler.add(job(2, unlike(1, 200)))
    scheduler.add(job(3, unlike(3, 200)))
    scheduler.admit()
    assert (scheduler.running, scheduler.waiting) == (2, 1)
    assert scheduler.waiting_uncached_tokens() == 200
    while scheduler.find(SESSION, 1).remaining:
        assert scheduler.waiting == 1
        compute(scheduler, cache)
        scheduler.admit()
    assert scheduler.find(SESSION, 2).cached_tokens == 199


def test_a_few_tokens_in_common_are_not_waited_for(scheduler):
    scheduler.add(job(1, [7, 8, *unlike(1, 100)]))
    scheduler.add(job(2, [7, 8, *unlike(2, 100)]))
    scheduler.admit()
    assert scheduler.running == 2


def test_scoring_alone_may_take_more_of_a_step_than_beside_others(scheduler, cache):
    scheduler.add(score(1, []))
    scheduler.admit()
    assert len(scheduler.scoring) == 1
    assert scheduler.plan().score_tokens == 200
    scheduler.add(job(2, unlike(2, 400)))
    scheduler.admit()
    assert scheduler.plan().score_tokens == MIN_CHUNK_TOKENS


def test_the_work_of_one_session_is_found_by_it():
    scheduler = Scheduler(PrefixCache(Memory()), step_tokens=100, max_waiting=4)
    mine, other = job(1, [1]), job(1, [2])
    other.session = object()
    scheduler.add(mine)
    scheduler.add(other)
    assert scheduler.jobs_of(SESSION) == [mine]
    assert scheduler.find(other.session, 1) is other
    scheduler.remove(mine)
    assert scheduler.find(SESSION, 1) is None
    assert scheduler.all_jobs() == [other]


def test_an_input_to_embed_is_nobodys_prefix_to_wait_for(scheduler):
    scheduler.add(embed(1, unlike(1, 200)))
    scheduler.add(job(2, unlike(1, 200)))
    scheduler.admit()
    assert scheduler.running == 2


def test_a_job_between_two_queues_still_counts_as_running_work(scheduler, cache):
    scheduler.add(embed(1, unlike(1, 20)))
    scheduler.admit()
    compute(scheduler, cache)
    (left,) = scheduler.running_jobs()
    scheduler.remove(left, keep=False)
    assert scheduler.running_jobs() == []
    assert cache.used_tokens() == 0
    assert left.slot == NO_SLOT
