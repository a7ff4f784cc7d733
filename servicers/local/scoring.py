"""Scores labels after many continuations of one prefix that is already in a slot.

Short suffixes are packed: one forward for many of them, over the prefix's keys and values, storing nothing. A suffix
that is long, or whose labels have several tokens, is computed behind the prefix in the slot instead, piece by
piece, and its labels are computed over both. Logarithms are of a softmax over the full vocabulary, in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from servicers.local.attention import Segment
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from servicers.local.kv_cache import KVCache
    from servicers.local.model import Model
    from servicers.local.sequence import ScoreJob, Suffix

PACKED_SUFFIX_TOKENS = 256
"""Longest suffix that is packed."""
PACKED_LABEL_TOKENS = 16
"""Longest label that is packed: packing computes each of its beginnings anew."""
HEAD_ROWS = 64
"""Positions whose logits exist at a time."""


def score(job: ScoreJob, model: Model, memory: KVCache) -> Iterator[int]:
    """Fill job.scores. Yields after each unit the number of tokens it took, about job.unit_tokens or fewer."""
    place = 0
    while place < len(job.suffixes):
        run = _packable(job.suffixes, place, job.unit_tokens)
        if run:
            hidden = model.forward_packed(memory, job.slot, len(job.ids), [suffix.ids for suffix in run])
            job.scores.extend(_last_token_scores(model, hidden, run))
            place += len(run)
            yield sum(len(suffix.ids) for suffix in run)
        else:
            yield from _score_in_slot(job, job.suffixes[place], model, memory)
            place += 1


def _packable(suffixes: Sequence[Suffix], start: int, tokens: int) -> Sequence[Suffix]:
    """The suffixes from `start` on that go into one forward; none if the first must go alone."""
    end = start
    while end < len(suffixes):
        suffix = suffixes[end]
        tokens -= len(suffix.ids)
        if suffix.has_long_labels or len(suffix.ids) > PACKED_SUFFIX_TOKENS or (end > start and tokens < 0):
            break
        end += 1
    return suffixes[start:end]


def _logp(model: Model, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
    """Log-probabilities over the vocabulary, row by row; a few rows exist at a time."""
    for some in hidden.split(HEAD_ROWS):
        yield from torch.log_softmax(model.logits(some), dim=-1)


def _last_token_scores(
    model: Model, hidden: torch.Tensor, suffixes: Sequence[Suffix]
) -> list[work_pb2.SuffixScores]:
    """Scores of labels of one token, from the state of each suffix's last token."""
    return [
        work_pb2.SuffixScores(
            logprobs=_take(logp, suffix.label_ids),
            sequence_logprobs=_take(logp, [label[0] for label in suffix.label_sequences]),
        )
        for logp, suffix in zip(_logp(model, hidden), suffixes, strict=True)
    ]


def _take(logp: torch.Tensor, ids: Sequence[int]) -> list[float]:
    return logp[torch.tensor(ids, dtype=torch.int64, device=logp.device)].tolist()


def _score_in_slot(job: ScoreJob, suffix: Suffix, model: Model, memory: KVCache) -> Iterator[int]:
    """As score(), for one suffix, which stands in the slot behind the prefix meanwhile."""
    end = len(job.ids) + len(suffix.ids)
    last = None
    for hidden in _in_slot(job, model, memory, len(job.ids), suffix.ids):
        last = hidden[-1:]
        yield len(hidden)
    if last is None:
        raise ValueError("a suffix without tokens")
    (scores,) = _last_token_scores(model, last, [suffix])
    sums = list(scores.sequence_logprobs)
    long = [number for number, label in enumerate(suffix.label_sequences) if len(label) > PACKED_LABEL_TOKENS]
    for number in long:
        label = suffix.label_sequences[number]
        place = 1
        for hidden in _in_slot(job, model, memory, end, label[:-1]):
            nexts = label[place : place + len(hidden)]
            rows = zip(_logp(model, hidden), nexts, strict=True)
            sums[number] += sum(_take(logp, [token])[0] for logp, token in rows)
            place += len(hidden)
            yield len(hidden)
    steps = _label_steps(suffix.label_sequences)
    place = 0
    while place < len(steps):
        run = _run_of(steps, place, job.unit_tokens)
        hidden = model.forward_packed(memory, job.slot, end, [list(before) for before, _ in run])
        for logp, (_, nexts) in zip(_logp(model, hidden), run, strict=True):
            for (number, _), value in zip(nexts, _take(logp, [token for _, token in nexts]), strict=True):
                sums[number] += value
        place += len(run)
        yield sum(len(before) for before, _ in run)
    del scores.sequence_logprobs[:]
    pairs = zip(sums, suffix.label_sequences, strict=True)
    scores.sequence_logprobs.extend(total / len(label) for total, label in pairs)
    job.scores.append(scores)


LabelStep = tuple[tuple[int, ...], list[tuple[int, int]]]


def _label_steps(labels: Sequence[Sequence[int]]) -> list[LabelStep]:
    """Every distinct beginning of the shorter labels, each with the (label, token) pairs that follow it."""
    nexts: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, label in enumerate(labels):
        if len(label) > PACKED_LABEL_TOKENS:
            continue
        for length in range(1, len(label)):
            nexts.setdefault(tuple(label[:length]), []).append((number, label[length]))
    return list(nexts.items())


def _run_of(steps: Sequence[LabelStep], start: int, tokens: int) -> Sequence[LabelStep]:
    end = start
    while end < len(steps):
        tokens -= len(steps[end][0])
        if end > start and tokens < 0:
            break
        end += 1
    return steps[start:end]


def _in_slot(
    job: ScoreJob, model: Model, memory: KVCache, past: int, ids: Sequence[int]
) -> Iterator[torch.Tensor]:
    """Compute tokens behind the first `past` ones of the slot, in pieces; the states of each piece."""
    done = 0
    while done < len(ids):
        piece = ids[done : done + max(job.unit_tokens, 1)]
        start = past + done
        positions = torch.arange(start, start + len(piece))
        segment = Segment(job.slot, 0, len(piece), start)
        yield model.forward(torch.tensor(piece), positions, [segment], memory)
        done += len(piece)
