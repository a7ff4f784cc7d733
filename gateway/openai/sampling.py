"""Turns the members that chat and text completions share into protobuf options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.openai.shapes import SamplingShape
from gateway.openai.sinks import StreamForm
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from gateway.openai.shapes import StreamOptionsShape
    from smg.profiles import StreamUsage

_LISTS = {"stop", "stop_token_ids", "logit_bias"}
_SCALARS = frozenset(SamplingShape.__annotations__) - _LISTS


def sampling_options(shape: SamplingShape) -> options_pb2.SamplingOptions:
    """The options that the client set; null is as good as absent."""
    options = options_pb2.SamplingOptions()
    set_scalars(options, shape, _SCALARS)
    stop = shape.get("stop")
    if stop is not None:
        options.stop.extend([stop] if isinstance(stop, str) else stop)
    stop_token_ids = shape.get("stop_token_ids")
    if stop_token_ids:
        options.stop_token_ids.extend(stop_token_ids)
    for key, value in (shape.get("logit_bias") or {}).items():
        options.logit_bias[key] = value
    return options


def set_scalars(message: Message, shape: Mapping[str, Any], names: frozenset[str]) -> None:
    """Set the fields of a message that a shape has and that are not null. Shapes bound every number to its field."""
    for name in names & shape.keys():
        value = shape[name]
        if value is not None:
            setattr(message, name, value)


def stream_options(shape: StreamOptionsShape) -> options_pb2.StreamOptions:
    """The stream options that the client set."""
    return options_pb2.StreamOptions(
        include_usage=shape.get("include_usage"),
        continuous_usage_stats=shape.get("continuous_usage_stats"),
    )


def stream_form(usage: StreamUsage, *, is_call: bool = False) -> StreamForm:
    """What the stream carries beside the text."""
    return StreamForm(
        usage=usage.is_told,
        running_usage=usage.is_running,
        finish_usage=usage.with_finish,
        is_call=is_call,
    )
