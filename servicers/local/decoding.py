"""Turns hidden states into the next tokens of running sequences, and tells which sequences end.

Order per step: logits, penalties and bias, log-probabilities, masks, choice (sampling.py says why). A sequence
whose constraint fails is lost alone.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from servicers.local.logprobs import BatchLogprobs
from servicers.local.penalties import apply_penalties
from servicers.local.refusal import INTERNAL, RefusalError
from servicers.local.sampling import choose
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.local.sequence import GenerateJob

_NEVER = float("-inf")


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a step did to one sequence: a token and perhaps the end, or a loss."""

    token: int = -1
    entry: work_pb2.TokenLogprobs | None = None
    finished: work_pb2.Finished | None = None
    refusal: RefusalError | None = None


def decode(logits: torch.Tensor, jobs: Sequence[GenerateJob]) -> list[Outcome]:
    """Choose a token for each sequence and add it to its output.

    Args:
        logits: [jobs, vocabulary] float32 as the model gave them; changed in place.
        jobs: each with fewer output tokens than its limit.
    """
    penalized = [(row, job.penalties) for row, job in enumerate(jobs) if job.penalties is not None]
    if penalized:
        apply_penalties(logits, penalized)
    wishes = [(row, job.wish) for row, job in enumerate(jobs) if job.wish is not None]
    logprobs = BatchLogprobs(logits, [r for r, _ in wishes], [w for _, w in wishes]) if wishes else None
    outcomes = [Outcome() for _ in jobs]
    _mask(logits, jobs, outcomes)
    tokens = choose(logits, [job.choice for job in jobs], [len(job.output) for job in jobs])
    scores = logits[torch.arange(len(jobs)), torch.from_numpy(tokens)].tolist()
    entries = logprobs.of(tokens) if logprobs is not None else {}
    for row, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True)):
        if outcome.refusal is not None:
            continue
        if scores[row] == _NEVER:
            outcome.refusal = RefusalError(
                "no token is allowed: constraint and limits contradict", code=INTERNAL
            )
            continue
        outcome.token, outcome.entry = int(tokens[row]), entries.get(row)
        try:
            _accept(job, outcome)
        except RefusalError as refusal:
            outcome.refusal = refusal
    return outcomes


def end_without_token(job: GenerateJob) -> work_pb2.Finished | None:
    """The end of a sequence whose prompt is computed and that may put out nothing more."""
    if len(job.output) >= job.limit:
        return job.finished(work_pb2.FINISH_REASON_LENGTH)
    if job.grammar is not None and job.grammar.is_finished:
        return job.finished(work_pb2.FINISH_REASON_STOP)
    return None


def _mask(logits: torch.Tensor, jobs: Sequence[GenerateJob], outcomes: Sequence[Outcome]) -> None:
    for row, job in enumerate(jobs):
        if job.masked_ids and len(job.output) < job.minimum:
            logits[row, list(job.masked_ids)] = _NEVER
        if job.grammar is None:
            continue
        try:
            forbidden = ~job.grammar.allowed()
        except RefusalError as refusal:
            outcomes[row].refusal = refusal
        else:
            logits[row].masked_fill_(torch.from_numpy(forbidden).to(logits.device), _NEVER)


def _accept(job: GenerateJob, outcome: Outcome) -> None:
    token = outcome.token
    job.output.append(token)
    if job.penalties is not None:
        job.penalties.add(token)
    if not job.is_streamed and outcome.entry is not None:
        job.held_entries.append(outcome.entry)
    if token in job.end_ids:
        outcome.finished = job.finished(work_pb2.FINISH_REASON_STOP, token)
        return
    if job.grammar is not None:
        job.grammar.accept(token)
        if job.grammar.is_finished:
            outcome.finished = job.finished(work_pb2.FINISH_REASON_STOP)
            return
    if len(job.output) >= job.limit:
        outcome.finished = job.finished(work_pb2.FINISH_REASON_LENGTH)
