"""Turns one part of a message's content into protobuf."""

from __future__ import annotations

from typing import Any, cast

from gateway.openai.json_text import json_text
from smg_proto.chat.v1 import message_pb2

_MEDIA = ("image_url", "video_url", "audio_url")


def content_part(part: dict[str, Any], name: str) -> message_pb2.ContentPart:
    """A content part; one whose type or payload we do not know is kept as JSON for whoever does.

    Raises:
        MalformedRequest: a number beyond every float; `name` says where.
    """
    kind = part.get("type")
    payload = part.get(kind) if isinstance(kind, str) else None
    if kind == "text" and isinstance(payload, str):
        return message_pb2.ContentPart(text=payload)
    known: message_pb2.ContentPart | None = None
    if isinstance(payload, dict):
        members = cast("dict[str, Any]", payload)
        if kind in _MEDIA:
            known = _media(kind, members, name)
        elif kind == "input_audio":
            known = _audio(members)
    return known or message_pb2.ContentPart(other_json=json_text(part, name))


def _media(kind: str, media: dict[str, Any], name: str) -> message_pb2.ContentPart | None:
    url, detail = media.get("url"), media.get("detail")
    if not isinstance(url, str) or not (detail is None or isinstance(detail, str)):
        return None
    extra = {key: value for key, value in media.items() if key not in ("url", "detail")}
    message = message_pb2.MediaUrl(url=url, detail=detail)
    if extra:
        message.extra_json = json_text(extra, name)
    result = message_pb2.ContentPart()
    getattr(result, kind).CopyFrom(message)
    return result


def _audio(audio: dict[str, Any]) -> message_pb2.ContentPart | None:
    data, form = audio.get("data"), audio.get("format")
    if not isinstance(data, str) or not isinstance(form, str):
        return None
    return message_pb2.ContentPart(input_audio=message_pb2.InputAudio(data=data, format=form))
