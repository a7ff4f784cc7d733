"""Runs one mixed forward: the next token of every running sequence beside chunks of prompts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from servicers.local.attention import Segment
from servicers.local.model import Inputs
from servicers.local.sequence import GenerateJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servicers.local.kv_cache import KVCache
    from servicers.local.model import Model
    from servicers.local.prefix_cache import PrefixCache
    from servicers.local.scheduler import StepPlan
    from servicers.local.sequence import Job


@dataclasses.dataclass(slots=True)
class Chunk:
    """A piece of a job's ids that was computed."""

    job: Job
    first: int
    """Position of the first row of `hidden`."""
    hidden: torch.Tensor
    """Of the wanted positions in the piece, [positions, hidden_size]."""


@dataclasses.dataclass(slots=True)
class Computed:
    """What a forward gave."""

    decodes: torch.Tensor
    """Of each decoding sequence, in the order of the plan, [sequences, hidden_size]."""
    chunks: list[Chunk]


class BadNumbersError(RuntimeError):
    """The network gave NaN or infinity."""


def compute(model: Model, memory: KVCache, cache: PrefixCache, plan: StepPlan) -> Computed:
    """Run the forward of a plan and note what the slots hold now."""
    count = len(plan.decodes)
    # A running sequence's last token has no keys and values yet: it is what the step computes.
    last = np.array([job.output[-1] for job in plan.decodes], dtype=np.int64)
    ids = [last]
    positions = [np.array([job.computed for job in plan.decodes], dtype=np.int64)]
    segments = [Segment(job.slot, row, 1, job.computed) for row, job in enumerate(plan.decodes)]
    wanted = [np.arange(count)]
    chunks: list[tuple[Job, int]] = []
    seen: list[Inputs] = []
    row = count
    for job, length in plan.chunks:
        end = job.computed + length
        ids.append(job.ids[job.computed : end])
        positions.append(np.arange(job.computed, end))
        segments.append(Segment(job.slot, row, length, job.computed))
        if isinstance(job, GenerateJob) and job.sights:
            seen += _inputs(job, end, row)
        first = min(max(job.wanted_from, job.computed), end)
        wanted.append(np.arange(row + first - job.computed, row + length))
        chunks.append((job, first))
        row += length
    rows = np.concatenate(wanted)
    hidden = _forward(model, memory, (np.concatenate(ids), np.concatenate(positions)), segments, rows, seen)
    for job in plan.decodes:
        job.computed += 1
    if count:
        cache.append([job.slot for job in plan.decodes], last)
    for job, length in plan.chunks:
        cache.extend(job.slot, job.cache_ids[job.computed : job.computed + length])
        job.computed += length
    pieces = hidden.split([len(some) for some in wanted])
    return Computed(
        pieces[0], [Chunk(*start, piece) for start, piece in zip(chunks, pieces[1:], strict=True)]
    )


def _inputs(job: GenerateJob, end: int, row: int) -> Iterator[Inputs]:
    """What the media of a job put into its next chunk, which ends before `end` and begins at `row` of the forward."""
    for sight in job.sights:
        first, last = np.searchsorted(sight.positions, (job.computed, end))
        if first < last:
            rows = torch.from_numpy(sight.positions[first:last] - job.computed + row)
            yield Inputs(rows, sight.states[first:last])


def _forward(
    model: Model,
    memory: KVCache,
    tokens: tuple[np.ndarray, np.ndarray],
    segments: list[Segment],
    wanted: np.ndarray,
    seen: list[Inputs],
) -> torch.Tensor:
    ids, positions = (torch.from_numpy(part) for part in tokens)
    # The model needs a row to return; of a step that wants none, any does.
    rows = wanted if len(wanted) else np.zeros(1, dtype=np.int64)
    is_all = len(rows) == len(ids)
    index = None if is_all else torch.from_numpy(rows).to(model.device)
    inputs = None
    if seen:
        inputs = Inputs(*(torch.cat(parts).to(model.device) for parts in zip(*seen, strict=True)))
    hidden = model.forward(ids, positions, segments, memory, index, inputs)[: len(wanted)]
    if not bool(torch.isfinite(hidden).all()):
        raise BadNumbersError("the network gave numbers that are not finite")
    return hidden
