"""Checks that an answer is whole and right, from the bytes that came over the socket.

It runs after the measured time, over every answer of a run: a gateway that drops, cuts or miscounts is not fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

HEAD_END = b"\r\n\r\n"


class WrongAnswer(Exception):
    """An answer is not what was asked for; the run is worth nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a checked answer contained."""

    prompt_tokens: int
    text: str
    content_events: int  # SSE events that carried text; 0 for a unary answer


def split_head(raw: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers with names in lower case, and what follows the head. Raises WrongAnswer."""
    if not raw.startswith(b"HTTP/1.1 "):
        raise WrongAnswer(f"no HTTP answer: {raw[:80]!r}")
    head, _, rest = raw.partition(HEAD_END)
    status_line, *lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    return (
        int(status_line.split(b" ", 2)[1]),
        {name.strip().lower(): value.strip() for name, _, value in pairs},
        rest,
    )


def join_chunks(body: bytes) -> bytes:
    """The content of a body in chunked transfer coding. Raises WrongAnswer when it is cut."""
    pieces: list[bytes] = []
    at = 0
    while True:
        line_end = body.find(b"\r\n", at)
        if line_end < 0:
            raise WrongAnswer("chunked body ends without its last chunk")
        size = int(body[at:line_end].split(b";", 1)[0], 16)
        if size == 0:
            return b"".join(pieces)
        start = line_end + 2
        pieces.append(body[start : start + size])
        if body[start + size : start + size + 2] != b"\r\n":
            raise WrongAnswer("chunk is shorter or longer than its size says")
        at = start + size + 2


def check_answer(raw: bytes, *, is_stream: bool, tokens: int, text: str | None = None) -> Answer:
    """Check one whole HTTP answer.

    Args:
        raw: head and body as received.
        is_stream: whether it must be an event stream.
        tokens: output tokens that were asked for and must be there by usage.
        text: what they must spell; None when the engine decides.

    Raises:
        WrongAnswer: anything is missing or different.
    """
    status, headers, rest = split_head(raw)
    body = join_chunks(rest) if headers.get(b"transfer-encoding", b"").lower() == b"chunked" else rest
    if status != 200:
        raise WrongAnswer(f"status {status}: {body[:300].decode(errors='replace')}")
    answer, usage = _check_stream(body) if is_stream else _check_unary(body)
    if usage.get("completion_tokens") != tokens:
        raise WrongAnswer(
            f"usage says {usage.get('completion_tokens')} output tokens, {tokens} were asked for"
        )
    if text is not None and answer.text != text:
        raise WrongAnswer(f"text is {answer.text[:80]!r}…, the engine's tokens spell {text[:80]!r}…")
    if not answer.text:
        raise WrongAnswer("answer has no text")
    return answer


def _check_stream(body: bytes) -> tuple[Answer, dict[str, Any]]:
    events = [event for event in body.split(b"\n\n") if event and not event.startswith(b":")]
    if not events or events[-1] != b"data: [DONE]" or not body.endswith(b"\n\n"):
        raise WrongAnswer(f"stream of {len(events)} events does not end with [DONE]: …{body[-80:]!r}")
    texts: list[str] = []
    reasons: list[str] = []
    usage: dict[str, Any] = {}
    for event in events[:-1]:
        chunk = _parse_event(event)
        for choice in chunk["choices"]:
            if choice["delta"].get("content"):
                texts.append(choice["delta"]["content"])
            if choice.get("finish_reason"):
                reasons.append(choice["finish_reason"])
        usage = chunk.get("usage") or usage
    if reasons != ["length"]:
        raise WrongAnswer(f"finish reasons are {reasons}, expected one 'length'")
    return Answer(int(usage.get("prompt_tokens", 0)), "".join(texts), len(texts)), usage


def _parse_event(event: bytes) -> dict[str, Any]:
    if not event.startswith(b"data: "):
        raise WrongAnswer(f"event without data: {event[:80]!r}")
    chunk = orjson.loads(event[6:])
    if "choices" not in chunk:
        raise WrongAnswer(f"event is no chunk: {event[:200]!r}")
    return chunk


def _check_unary(body: bytes) -> tuple[Answer, dict[str, Any]]:
    completion = orjson.loads(body)
    [choice] = completion["choices"]
    if choice["finish_reason"] != "length":
        raise WrongAnswer(f"finish reason is {choice['finish_reason']!r}, expected 'length'")
    usage = completion["usage"]
    return Answer(int(usage["prompt_tokens"]), choice["message"]["content"] or "", 0), usage
