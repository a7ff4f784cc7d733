"""Cuts a multipart/form-data body into its parts (RFC 7578): headers and bytes of each, nothing copied twice."""

from __future__ import annotations

import re
from typing import NamedTuple

from smg.errors import DecisionsRefused

MAX_PARTS = 1024
MAX_HEAD_BYTES = 8192
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_NAME = re.compile(r'(?:^|;)\s*name=(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))', re.IGNORECASE)


class Part(NamedTuple):
    """One part.

    Attributes:
        name: of its form field.
        content_type: in lower case, without parameters; empty where it has none.
        data: its bytes.
    """

    name: str
    content_type: str
    data: bytes


def parts_of(body: bytes, content_type: str) -> list[Part]:
    """The parts, in order.

    Args:
        body: without compression.
        content_type: the request's, with the boundary.

    Raises:
        DecisionsRefused: it is not of that form.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise _malformed("Content-Type names no boundary")
    delimiter = b"--" + (found[1] or found[2]).encode("latin-1")
    if not body.startswith(delimiter):
        raise _malformed("the body does not begin with its boundary")
    parts: list[Part] = []
    place = len(delimiter)
    while body[place : place + 2] != b"--":
        if body[place : place + 2] != b"\r\n":
            raise _malformed("a boundary is not followed by the end of its line")
        end = body.find(b"\r\n" + delimiter, place)
        if end < 0:
            raise _malformed("the closing boundary is missing")
        if len(parts) >= MAX_PARTS:
            raise _malformed(f"it has more than {MAX_PARTS} parts")
        parts.append(_part(body, place + 2, end))
        place = end + 2 + len(delimiter)
    return parts


def _part(body: bytes, start: int, end: int) -> Part:
    split = body.find(b"\r\n\r\n", start - 2, end + 4)
    if not 0 <= split - start <= MAX_HEAD_BYTES and split != start - 2:
        raise _malformed("a part has no end of its headers, or very long ones")
    headers = {
        name.strip().lower(): value.strip()
        for line in body[start:split].decode("utf-8", "replace").split("\r\n")
        for name, _, value in (line.partition(":"),)
    }
    disposition = headers.get("content-disposition", "")
    named = _NAME.search(disposition)
    if not disposition.lower().startswith("form-data") or named is None:
        raise _malformed("a part has no name")
    name = named[2] or re.sub(r"\\(.)", r"\1", named[1] or "")
    kind = headers.get("content-type", "").split(";", 1)[0].strip().lower()
    return Part(name, kind, body[split + 4 : end])


def _malformed(said: str) -> DecisionsRefused:
    return DecisionsRefused(f"the multipart body cannot be read: {said}", reason="encoding_malformed")
