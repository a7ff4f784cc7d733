"""Turns a body of POST /v1/responses into the protobuf ResponseRequest. Nothing is judged here but shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.openai.explain import MAX_SHOWN, shown
from gateway.openai.json_text import json_text
from gateway.openai.sampling import set_scalars
from gateway.responses.shapes import ResponseShape
from smg.errors import MalformedRequest
from smg_proto.responses.v1 import responses_pb2

if TYPE_CHECKING:
    from smg_proto.chat.v1 import options_pb2

_SAMPLING = frozenset(
    ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
)
_SCALARS = frozenset(
    (
        "instructions",
        "max_tool_calls",
        "top_logprobs",
        "store",
        "parallel_tool_calls",
        "previous_response_id",
        "user",
        "background",
        "service_tier",
        "truncation",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "request_id",
        "priority",
    )
)
_DECLARED = ResponseShape.__annotations__.keys()


def response_request(shape: ResponseShape, data: dict[str, Any]) -> responses_pb2.ResponseRequest:
    """The request as protobuf.

    Args:
        shape: the checked body.
        data: the same body as plain JSON.

    Raises:
        MalformedRequest: a parameter that there is not, or a number beyond every float.
    """
    _refuse_unknown(data)
    request = responses_pb2.ResponseRequest(model=shape["model"])
    set_scalars(request, shape, _SCALARS)
    given = shape["input"]
    if isinstance(given, str):
        request.input_text = given
    else:
        request.input_items_json = json_text(given, "input")
    _set_sampling(request.sampling, shape)
    request.include.extend(shape.get("include") or ())
    for name in ("tools", "tool_choice", "text", "metadata"):
        value: Any = shape.get(name)
        if value is not None:
            setattr(request, f"{name}_json", json_text(value, name))
    reasoning = shape.get("reasoning")
    if reasoning is not None:
        request.reasoning.SetInParent()
        summary = reasoning.get("summary") or reasoning.get("generate_summary")
        if reasoning.get("effort") is not None:
            request.reasoning.effort = reasoning.get("effort") or ""
        if summary is not None:
            request.reasoning.summary = summary
    conversation = shape.get("conversation")
    if conversation is not None:
        request.conversation = conversation if isinstance(conversation, str) else conversation["id"]
    return request


def _set_sampling(options: options_pb2.SamplingOptions, shape: ResponseShape) -> None:
    options.SetInParent()
    set_scalars(options, shape, _SAMPLING)
    limit = shape.get("max_output_tokens")
    if limit is not None:
        options.max_completion_tokens = limit
    stop = shape.get("stop")
    if stop is not None:
        options.stop.extend([stop] if isinstance(stop, str) else stop)


def _refuse_unknown(data: dict[str, Any]) -> None:
    unknown = [name for name in data if name not in _DECLARED]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise MalformedRequest(
            f"unknown parameter {shown(unknown[0])}{more}; the Responses API has no such parameter",
            param=unknown[0][:MAX_SHOWN],
        )
