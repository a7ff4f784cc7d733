"""Reads the token ids of a usual chunk from its bytes, without making a message of it."""

from __future__ import annotations

# The first bytes of fields of GenerateResponse and GenerateStreamChunk: number and wire type (length-delimited).
_REQUEST_ID, _CHUNK, _TOKEN_IDS = 0x0A, 0x12, 0x0A
_VLLM_CHUNK = 0x0A


def plain_ids(message: bytes) -> list[int] | None:
    """The token ids of a short chunk, read from its bytes: a quarter of the cost of the whole message.

    Returns: None for anything that does not look just as servicers write a chunk; then the message is to be parsed.
    """
    size = len(message)
    if size < 4 or message[0] != _REQUEST_ID or message[1] > 0x7F:
        return None
    chunk = 2 + message[1]
    if size < chunk + 4 or message[chunk] != _CHUNK:
        return None
    return _chunk_ids(message, chunk, size)


def vllm_plain_ids(message: bytes) -> list[int] | None:
    """The same for vLLM's protocol, whose responses carry no name."""
    size = len(message)
    if size < 4 or message[0] != _VLLM_CHUNK:
        return None
    return _chunk_ids(message, 0, size)


def _chunk_ids(message: bytes, chunk: int, size: int) -> list[int] | None:
    length = message[chunk + 1]
    if length > 0x7F or chunk + 2 + length != size:
        return None
    if message[chunk + 2] != _TOKEN_IDS:
        return None
    position = chunk + 4
    end = position + message[chunk + 3]
    if end > size or message[end - 1] > 0x7F or (end < size and message[end] == _TOKEN_IDS):
        return None
    ids: list[int] = []
    number = shift = 0
    while position < end:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
        else:
            ids.append(number & 0xFFFFFFFF)
            number = shift = 0
    return ids
