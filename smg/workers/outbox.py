"""Turns commands into SessionRequest messages, as bytes: one message per write, whatever has gathered since the last.

A command is serialized when it is submitted, and a message is the join of its commands. Building a SessionRequest
would copy every prompt once more; and only lengths known beforehand keep a message short. Format: protobuf
encoding of length-delimited and packed fields (protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from smg_proto.engine.v1 import engine_pb2

if TYPE_CHECKING:
    from smg_proto.engine.v1 import work_pb2

_LENGTH_DELIMITED = 2


def _tag(field: str) -> bytes:
    number = engine_pb2.SessionRequest.DESCRIPTOR.fields_by_name[field].number
    return _varint(number << 3 | _LENGTH_DELIMITED)


def _varint(number: int) -> bytes:
    # The length of a usual prompt.
    if 0x7F < number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


_GENERATE, _SCORE, _EMBED, _CLASSIFY, _ABORT = map(_tag, ("generate", "score", "embed", "classify", "abort"))


class Outbox:
    """Commands that wait to be written."""

    def __init__(self, batch_bytes: int) -> None:
        """Args: batch_bytes: length beyond which a message takes no further command."""
        self._batch_bytes = batch_bytes
        self._pieces: deque[bytes] = deque()
        self._aborts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._pieces or self._aborts)

    def add_generate(self, request: work_pb2.Generate) -> None:
        """Add a sequence to generate."""
        message = request.SerializeToString()
        self._pieces.append(_GENERATE + _varint(len(message)) + message)

    def add_score(self, request: work_pb2.Score) -> None:
        """Add label sets to score."""
        self._add(_SCORE, request.SerializeToString())

    def add_embed(self, request: work_pb2.Embed) -> None:
        """Add an input to embed."""
        self._add(_EMBED, request.SerializeToString())

    def add_classify(self, request: work_pb2.Classify) -> None:
        """Add an input to classify."""
        self._add(_CLASSIFY, request.SerializeToString())

    def add_abort(self, sequence: int) -> None:
        """Add a sequence to stop."""
        self._aborts.append(sequence)

    def clear(self) -> None:
        """Forget everything: the session it was meant for is gone."""
        self._pieces.clear()
        self._aborts.clear()

    def take(self) -> bytes:
        """The next message.

        Aborts go with the last of the commands: an engine ignores the abort of a sequence that it has not got
        yet, and would then compute it for nobody.
        """
        pieces = self._pieces
        batch = [pieces.popleft()] if pieces else []
        size = sum(map(len, batch))
        while pieces and size + len(pieces[0]) <= self._batch_bytes:
            size += len(pieces[0])
            batch.append(pieces.popleft())
        if self._aborts and not pieces:
            packed = b"".join(map(_varint, self._aborts))
            batch.append(_ABORT + _varint(len(packed)) + packed)
            self._aborts.clear()
        return b"".join(batch)

    def _add(self, tag: bytes, message: bytes) -> None:
        self._pieces.append(tag + _varint(len(message)) + message)
