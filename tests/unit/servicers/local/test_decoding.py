"""decoding: a constraint that breaks loses its own sequence, and never lets it go on without."""

import numpy as np
import pytest
import torch

from servicers.local.decoding import decode
from servicers.local.refusal import INTERNAL, RefusalError
from servicers.local.sampling import Choice
from servicers.local.sequence import GenerateJob
from smg_proto.engine.v1 import work_pb2

WIDTH = 128


class Scripted:
    """A constraint that allows some tokens, until it breaks where it is told to."""

    def __init__(self, allowed=(), *, breaks: str = "", ends_after: int = 99) -> None:
        self._allowed = list(allowed)
        self._breaks = breaks
        self._left = ends_after

    @property
    def is_finished(self) -> bool:
        return self._left <= 0

    def allowed(self):
        if self._breaks == "mask":
            raise RefusalError("broken mask", code=INTERNAL)
        mask = np.zeros(WIDTH, dtype=bool)
        mask[self._allowed] = True
        return mask

    def accept(self, token: int) -> None:
        if self._breaks == "accept":
            raise RefusalError("broken token", code=INTERNAL)
        self._left -= 1


def job(grammar=None, **fields) -> GenerateJob:
    defaults = {"limit": 8, "choice": Choice(temperature=0.0), "is_streamed": True}
    return GenerateJob(
        session=object(),
        number=1,
        ids=np.array([5]),
        wanted_from=0,
        prompt_tokens=1,
        output=[],
        earlier_tokens=0,
        grammar=grammar,
        **{**defaults, **fields},
    )


def logits_for(jobs) -> torch.Tensor:
    # Token 100 is always the likeliest.
    logits = torch.arange(WIDTH, dtype=torch.float32).repeat(len(jobs), 1)
    logits[:, 100] = 500.0
    return logits


@pytest.mark.parametrize("breaks", ["mask", "accept"])
def test_a_broken_constraint_loses_its_sequence_alone(breaks):
    jobs = [job(), job(Scripted([7], breaks=breaks)), job(Scripted([7, 9]))]
    outcomes = decode(logits_for(jobs), jobs)
    assert [outcome.token for outcome in outcomes if outcome.refusal is None] == [100, 9]
    assert "broken" in outcomes[1].refusal.message
    assert outcomes[1].finished is None


def test_a_constraint_that_allows_nothing_loses_its_sequence():
    jobs = [job(Scripted([])), job(Scripted([3]), masked_ids=(3,), minimum=2), job()]
    for choice in (Choice(temperature=0.0), Choice(temperature=1.0, key=4), Choice(top_p=0.5, key=4)):
        for each in jobs:
            each.choice = choice
        outcomes = decode(logits_for(jobs), jobs)
        assert ["no token is allowed" in str(outcome.refusal) for outcome in outcomes] == [True, True, False]
    assert jobs[0].output == jobs[1].output == []


def test_the_end_of_the_constraint_ends_the_sequence():
    each = job(Scripted([7], ends_after=2))
    assert decode(logits_for([each]), [each])[0].finished is None
    finished = decode(logits_for([each]), [each])[0].finished
    assert finished.reason == work_pb2.FINISH_REASON_STOP
    assert not finished.HasField("matched_token_id")
    assert finished.completion_tokens == 2


def test_an_end_token_wins_over_the_limit():
    each = job(end_ids=frozenset({100}), limit=1)
    finished = decode(logits_for([each]), [each])[0].finished
    assert (finished.reason, finished.matched_token_id) == (work_pb2.FINISH_REASON_STOP, 100)
