"""Turns a session's requests into jobs.

The servicer has checked every field against the contract and the model's card (servicers/checks.py) before an
engine sees it; nothing is checked again here.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from servicers.local.logprobs import LogprobsWish
from servicers.local.penalties import PenaltyState
from servicers.local.sampling import Choice, random_key
from servicers.local.sequence import EmbedJob, GenerateJob, ScoreJob, Suffix, ids_from_bytes
from servicers.media_keys import medium_keys
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from servicers.base import EventSink
    from servicers.local.sequence import Ids
    from smg_proto.engine.v1 import work_pb2


class JobMaker:
    """Knows what the requests leave to the model."""

    def __init__(
        self,
        *,
        context_tokens: int,
        eos_token_ids: Iterable[int],
        embedding_size: int,
        defaults: card_pb2.Sampling | None = None,
    ) -> None:
        """Args: defaults are used where a request says nothing."""
        self._defaults = defaults or card_pb2.Sampling()
        self._context = context_tokens
        self._eos = frozenset(eos_token_ids)
        self._embedding_size = embedding_size

    def generate(self, session: EventSink, request: work_pb2.Generate) -> GenerateJob:
        """The job of a sequence; its constraint is not looked at."""
        logprobs = request.logprobs
        sampling = card_pb2.Sampling()
        sampling.CopyFrom(self._defaults)
        sampling.MergeFrom(request.sampling)
        prompt, earlier = ids_from_bytes(request.prompt_ids), ids_from_bytes(request.output_ids)
        ids, output = np.concatenate([prompt, earlier]), earlier.tolist()
        stops = frozenset(sampling.stop_token_ids)
        start = logprobs.prompt_start if logprobs.HasField("prompt_start") else None
        limit = self._context - len(prompt)
        if sampling.HasField("max_new_tokens"):
            limit = min(limit, sampling.max_new_tokens)
        return GenerateJob(
            session=session,
            number=request.sequence,
            ids=ids,
            keys=_keys(request, ids) if request.media else None,
            # The state before a token tells its probability.
            wanted_from=len(ids) - 1 if start is None else max(min(start, len(prompt)) - 1, 0),
            prompt_tokens=len(prompt),
            output=output,
            earlier_tokens=len(output),
            limit=limit,
            minimum=sampling.min_new_tokens,
            end_ids=stops if sampling.ignore_eos else self._eos | stops,
            masked_ids=tuple(sorted(self._eos | stops)),
            choice=_choice(sampling),
            penalties=_penalties(sampling, prompt, output),
            wish=_wish(logprobs),
            prompt_start=start,
            prompt_top_k=logprobs.top_k,
            is_streamed=request.stream,
        )

    def score(self, session: EventSink, request: work_pb2.Score) -> ScoreJob:
        """The job of a score."""
        prefix = ids_from_bytes(request.prefix_ids)
        suffixes = [
            Suffix(
                ids=ids_from_bytes(suffix.ids).tolist(),
                label_ids=list(suffix.label_ids),
                label_sequences=[ids_from_bytes(label).tolist() for label in suffix.label_sequences],
            )
            for suffix in request.suffixes
        ]
        return ScoreJob(
            session=session, number=request.sequence, ids=prefix, wanted_from=len(prefix), suffixes=suffixes
        )

    def embed(self, session: EventSink, request: work_pb2.Embed) -> EmbedJob:
        """The job of an embedding. Every position's state is wanted, so no prefix helps."""
        return EmbedJob(
            session=session,
            number=request.sequence,
            ids=ids_from_bytes(request.input_ids),
            wanted_from=0,
            dimensions=request.dimensions if request.HasField("dimensions") else self._embedding_size,
        )


def _keys(request: work_pb2.Generate, ids: Ids) -> Ids:
    keys = ids.copy()
    for medium in request.media:
        keys[medium.offset : medium.offset + medium.length] = medium_keys(medium)
    return keys


def _choice(sampling: card_pb2.Sampling) -> Choice:
    # Without a seed a sequence draws its own: two equal requests then differ.
    seed = sampling.seed if sampling.HasField("seed") else secrets.randbits(63)
    return Choice(
        temperature=sampling.temperature if sampling.HasField("temperature") else 1.0,
        top_k=sampling.top_k if sampling.HasField("top_k") else -1,
        top_p=sampling.top_p if sampling.HasField("top_p") else 1.0,
        min_p=sampling.min_p,
        key=random_key(seed, sampling.choice_index),
    )


def _penalties(sampling: card_pb2.Sampling, prompt: Ids, output: list[int]) -> PenaltyState | None:
    """None when nothing would ever change a logit."""
    repetition = sampling.repetition_penalty if sampling.HasField("repetition_penalty") else 1.0
    state = PenaltyState(
        repetition=repetition,
        presence=sampling.presence_penalty,
        frequency=sampling.frequency_penalty,
        bias=dict(zip(sampling.logit_bias_token, sampling.logit_bias_value, strict=True)),
        prompt=prompt.tolist() if repetition != 1.0 else (),
        output=output,
    )
    return None if state.is_idle else state


def _wish(options: work_pb2.LogprobsOptions) -> LogprobsWish | None:
    if not options.output and not options.token_ids:
        return None
    return LogprobsWish(options.top_k if options.output else 0, tuple(options.token_ids))
