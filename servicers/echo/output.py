"""Decides which tokens a sequence gets, and how it ends: a script under the rules of its sampling parameters. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from servicers.echo.planner import Script
    from smg_proto.engine.v1 import card_pb2

STOP = work_pb2.FINISH_REASON_STOP
LENGTH = work_pb2.FINISH_REASON_LENGTH
# So many fillers at a time, so that the common case is to take the next of an array.
_FILLERS = 256


class Material(NamedTuple):
    """What replies are made of, beside their script.

    Attributes:
        passage: token ids of endless text.
        filler: a token to prolong a reply with.
        eos_ids: the model's own end tokens.
        context_length: longest prompt plus output; 0: no limit.
    """

    passage: Sequence[int]
    filler: int
    eos_ids: Sequence[int]
    context_length: int


class Output(NamedTuple):
    """All tokens of a sequence: `head`, then `cycle` from `cycle_start` on, again and again, cut at `total`.

    Attributes:
        head: the first tokens.
        cycle: what follows them.
        cycle_start: index in `cycle` of the first token after `head`.
        total: number of tokens; None: without end.
        last: the last token, where it is not that of head or cycle.
        reason: why it ends.
        matched: the token that ended it, if one did.
    """

    head: Sequence[int]
    cycle: Sequence[int]
    cycle_start: int
    total: int | None
    last: int | None
    reason: work_pb2.FinishReason.ValueType
    matched: int | None

    def token(self, position: int) -> int:
        """The token at a position before the end."""
        if self.last is not None and self.total == position + 1:
            return self.last
        past_head = position - len(self.head)
        if past_head < 0:
            return self.head[position]
        return self.cycle[(self.cycle_start + past_head) % len(self.cycle)]


def compose(script: Script, sampling: card_pb2.Sampling, prompt_tokens: int, material: Material) -> Output:
    """Apply the sampling parameters to a script."""
    stops = set(sampling.stop_token_ids)
    if not sampling.ignore_eos:
        stops.update(material.eos_ids)
    least = sampling.min_new_tokens
    filler = next(
        (each for each in (material.filler, *material.passage) if each not in stops), material.filler
    )
    if script.is_endless:
        output = _endless(script.passage_start, stops, least, filler, material)
    else:
        output = _scripted(script, sampling, stops, filler, material)
    limit = _limit(sampling, prompt_tokens, material.context_length)
    if limit is None or script.plan.hangs or (output.total is not None and output.total <= limit):
        return output
    return output._replace(total=limit, last=None, reason=LENGTH, matched=None)


def _endless(start: int, stops: Collection[int], least: int, filler: int, material: Material) -> Output:
    passage = material.passage
    total = matched = None
    if any(token in stops for token in passage):
        positions = range(least, least + len(passage))
        total = 1 + next(each for each in positions if passage[(start + each) % len(passage)] in stops)
        matched = passage[(start + total - 1) % len(passage)]
        passage = [filler if token in stops else token for token in passage]
    return Output((), passage, start, total, matched, STOP, matched)


def _scripted(
    script: Script, sampling: card_pb2.Sampling, stops: Collection[int], filler: int, material: Material
) -> Output:
    least, plan = sampling.min_new_tokens, script.plan
    head = script.ids
    if any(token in stops for token in head[:least]):
        head = [filler if token in stops else token for token in head[:least]] + list(head[least:])
    output = Output(head, (filler,) * _FILLERS, 0, None, None, STOP, None)
    if plan.hangs:
        return output
    end = next((index for index, token in enumerate(head) if token in stops), None)
    if end is not None:
        return output._replace(total=end + 1, matched=head[end])
    if sampling.ignore_eos:
        return output
    length = max(len(head), least)
    if not plan.has_eos:
        return output._replace(total=length)
    eos = material.eos_ids[0]
    return output._replace(total=length + 1, last=eos, matched=eos)


def _limit(sampling: card_pb2.Sampling, prompt_tokens: int, context_length: int) -> int | None:
    """Most output tokens; None: no limit."""
    limits: list[int] = []
    if sampling.HasField("max_new_tokens"):
        limits.append(sampling.max_new_tokens)
    if context_length:
        limits.append(context_length - prompt_tokens)
    return min(limits, default=None)
