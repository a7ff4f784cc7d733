"""The backlog: what the engine told, and what was sent since, less what its cache is likely to cover."""

from smg.workers.backlog import Backlog


def test_what_is_sent_counts_until_the_engine_has_told():
    backlog = Backlog()
    backlog.sent(1000)
    backlog.sent(500)
    assert backlog.tokens == 1500
    backlog.told(200)
    assert backlog.tokens == 200


def test_prompts_that_are_mostly_cached_count_less_and_soon():
    backlog = Backlog()
    for _ in range(60):
        backlog.started(1000, 900)
    backlog.sent(1000)
    assert 100 <= backlog.tokens < 110


def test_a_prompt_without_tokens_teaches_nothing():
    backlog = Backlog()
    backlog.started(0, 0)
    backlog.sent(10)
    assert backlog.tokens == 10
