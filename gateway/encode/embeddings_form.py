"""The JSON of /v1/embeddings: OpenAI's form, with the members `layer` and `options` beside it."""

from __future__ import annotations

import base64
import sys
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from gateway.encode.members import count_of, meta_json, options_of, text_of, usage_json
from gateway.openai.explain import shown
from smg.errors import MalformedRequest, UnsupportedSurface
from smg.validation.encode import empty_input, refused
from smg_proto.embedding.v1 import embedding_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMATS = ("float", "base64")
_MEDIA = ("image", "images", "image_url", "audio", "audios", "input_audio", "video", "videos")


class EmbeddingsForm(NamedTuple):
    """A body that was read.

    Attributes:
        request: what it asks for.
        is_base64: how its vectors are written.
    """

    request: embedding_pb2.CreateEmbeddingsRequest
    is_base64: bool


def read_embeddings(members: Mapping[str, Any]) -> EmbeddingsForm:
    """Read a body.

    Raises:
        MalformedRequest: a member is of another type.
        InvalidRequest: a member has a value that is not allowed.
        UnsupportedSurface: it has images or audio.
    """
    for name in _MEDIA:
        if members.get(name):
            raise _no_media(name)
    if "input" not in members:
        raise MalformedRequest(
            "input is missing; it must be a text, texts, token ids or lists of them", param="input"
        )
    encoding_format = members.get("encoding_format")
    if encoding_format is not None and encoding_format not in FORMATS:
        raise refused(
            f"encoding_format is {shown(encoding_format)}; allowed: {', '.join(FORMATS)}", "encoding_format"
        )
    request = embedding_pb2.CreateEmbeddingsRequest(
        model=text_of(members, "model"),
        inputs=_inputs(members["input"]),
        dimensions=count_of(members, "dimensions"),
        layer=count_of(members, "layer"),
        options=options_of(members),
        user=text_of(members, "user"),
    )
    return EmbeddingsForm(request, encoding_format == "base64")


def _inputs(value: Any) -> list[embedding_pb2.EmbeddingInput]:
    if value is None or value in ("", []):
        raise empty_input("input", f"is {shown(value)}")
    if not isinstance(value, list):
        return [_input(value, "input")]
    items = cast("list[Any]", value)
    if _is_id(items[0]):
        return [_ids(items, "input")]
    return [_input(item, f"input[{number}]") for number, item in enumerate(items)]


def _input(value: Any, name: str) -> embedding_pb2.EmbeddingInput:
    if isinstance(value, str):
        return embedding_pb2.EmbeddingInput(text=value)
    if isinstance(value, list):
        return _ids(cast("list[Any]", value), name)
    if isinstance(value, dict):
        part = cast("dict[str, Any]", value)
        if set(part) == {"text"} and isinstance(part["text"], str):
            return embedding_pb2.EmbeddingInput(text=part["text"])
        if any(member in part for member in _MEDIA) or part.get("type") in _MEDIA:
            raise _no_media(name)
    raise MalformedRequest(f"{name} is {shown(value)}; it must be a text or a list of token ids", param=name)


def _ids(items: Sequence[Any], name: str) -> embedding_pb2.EmbeddingInput:
    if not items:
        raise empty_input(name)
    wrong = next((number for number, item in enumerate(items) if not _is_id(item)), None)
    if wrong is not None:
        raise MalformedRequest(
            f"{name}[{wrong}] is {shown(items[wrong])}; among token ids it must be one, from 0", param=name
        )
    return embedding_pb2.EmbeddingInput(token_ids=embedding_pb2.TokenIds(ids=items))


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _no_media(name: str) -> UnsupportedSurface:
    return UnsupportedSurface(
        f"{name} holds an image, audio or video; no served model embeds those, only texts and token ids",
        param=name,
    )


def write_embeddings(
    form: EmbeddingsForm, response: embedding_pb2.CreateEmbeddingsResponse, timings: Mapping[str, float]
) -> dict[str, Any]:
    """The answer, for orjson."""
    write = _base64 if form.is_base64 else _numbers
    answer: dict[str, Any] = {
        "object": "list",
        "data": [
            {"object": "embedding", "embedding": write(each.values), "index": index}
            for index, each in enumerate(response.embeddings)
        ],
        "model": response.model,
        "usage": usage_json(response.usage),
    }
    if response.HasField("meta"):
        answer["meta"] = meta_json(response.meta, timings)
    return answer


def _base64(values: Sequence[float]) -> str:
    """32-bit floats, little-endian, as OpenAI's SDKs read them."""
    packed = array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return base64.b64encode(packed).decode("ascii")


def _numbers(values: Sequence[float]) -> orjson.Fragment:
    """Nine digits say any 32-bit float; as a double it would have seventeen."""
    return orjson.Fragment(f"[{','.join([format(value, '.9g') for value in values])}]")
