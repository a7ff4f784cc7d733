"""Takes sequences out of an event: the router has been told their end already."""

from __future__ import annotations

from smg_proto.engine.v1 import engine_pb2

_ENDS = ("finished", "failed", "scored", "embedded", "classified")


def without_sequences(event: engine_pb2.SessionEvent, muted: set[int]) -> engine_pb2.SessionEvent:
    """A copy without what concerns the muted sequences. Those that end in it are taken out of `muted`."""
    rest = engine_pb2.SessionEvent()
    rest.CopyFrom(event)
    for name in ("sequence", "token", "count"):
        rest.ClearField(name)
    counts = event.count or [1] * len(event.sequence)
    start = 0
    for sequence, count in zip(event.sequence, counts, strict=True):
        if sequence not in muted:
            rest.sequence.append(sequence)
            rest.token.extend(event.token[start : start + count])
            if event.count:
                rest.count.append(count)
        start += count
    ended: set[int] = set()
    for name in ("started", "logprobs", *_ENDS):
        entries = getattr(event, name)
        kept = [each for each in entries if each.sequence not in muted]
        if name in _ENDS:
            ended.update(each.sequence for each in entries)
        rest.ClearField(name)
        getattr(rest, name).extend(kept)
    muted -= ended
    return rest
