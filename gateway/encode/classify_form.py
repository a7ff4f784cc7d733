"""The JSON of /v1/classify: texts, pairs or grounded answers; labels with their probabilities, or labelled spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gateway.encode.members import meta_json, options_of, text_of, usage_json
from gateway.openai.explain import shown
from smg.errors import MalformedRequest
from smg.validation.encode import empty_input
from smg_proto.embedding.v1 import classify_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAIR = frozenset(("text", "text_pair"))
_GROUNDED = frozenset(("context", "question", "answer"))


def read_classify(members: Mapping[str, Any]) -> classify_pb2.ClassifyRequest:
    """Read a body.

    Raises:
        MalformedRequest: a member is of another type.
        InvalidRequest: a member has a value that is not allowed.
    """
    if "input" not in members:
        raise MalformedRequest(
            "input is missing; it must be a text, or a list of texts or pairs", param="input"
        )
    value = members["input"]
    if value is None or value in ("", []):
        raise empty_input("input", f"is {shown(value)}")
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return classify_pb2.ClassifyRequest(
        model=text_of(members, "model"),
        inputs=[
            _input(item, f"input[{number}]" if isinstance(value, list) else "input")
            for number, item in enumerate(items)
        ],
        options=options_of(members),
    )


def _input(value: Any, name: str) -> classify_pb2.ClassifyInput:
    if isinstance(value, str):
        return classify_pb2.ClassifyInput(text=value)
    if isinstance(value, dict):
        part = cast("dict[str, Any]", value)
        names = part.keys()
        if all(isinstance(each, str) for each in part.values()):
            if names == _PAIR:
                return classify_pb2.ClassifyInput(text=part["text"], text_pair=part["text_pair"])
            if names == {"text"}:
                return classify_pb2.ClassifyInput(text=part["text"])
            if names == _GROUNDED:
                grounding = classify_pb2.Grounding(context=part["context"], question=part["question"])
                return classify_pb2.ClassifyInput(text=part["answer"], grounding=grounding)
    raise MalformedRequest(
        f"{name} is {shown(value)}; it must be a text, or an object of the texts text and text_pair, or of context,"
        " question and answer",
        param=name,
    )


def write_classify(
    response: classify_pb2.ClassifyResponse, request_id: str, created: int, timings: Mapping[str, float]
) -> dict[str, Any]:
    """The answer, for orjson."""
    answer: dict[str, Any] = {
        "id": request_id,
        "object": "list",
        "created": created,
        "model": response.model,
        "data": [_entry(index, each) for index, each in enumerate(response.results)],
        "usage": usage_json(response.usage),
    }
    if response.HasField("meta"):
        answer["meta"] = meta_json(response.meta, timings)
    return answer


def _entry(index: int, result: classify_pb2.Classification) -> dict[str, Any]:
    if result.error:
        return {"index": index, "error": result.error, "message": result.message}
    if result.has_spans:
        spans = [
            {
                "label": span.label,
                "start": span.start,
                "end": span.end,
                "text": span.text,
                "probability": span.probability,
            }
            for span in result.spans
        ]
        return {"index": index, "spans": spans}
    chances = [each.probability for each in result.labels]
    best = max(range(len(chances)), key=chances.__getitem__)
    return {
        "index": index,
        "label": result.labels[best].label,
        "probs": chances,
        "num_classes": len(chances),
        "labels": [{"label": each.label, "probability": each.probability} for each in result.labels],
    }
