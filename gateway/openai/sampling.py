"""Turns the members that chat and text completions share into protobuf options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.openai.shapes import SamplingShape
from gateway.openai.sinks import StreamForm
from smg.errors import InvalidRequest
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from gateway.openai.shapes import StreamOptionsShape

_LISTS = {"stop", "stop_token_ids", "logit_bias"}
_SCALARS = frozenset(SamplingShape.model_fields) - _LISTS


def sampling_options(shape: SamplingShape) -> options_pb2.SamplingOptions:
    """The options that the client set; null is as good as absent.

    Raises:
        InvalidRequest: an integer that no engine can take.
    """
    options = options_pb2.SamplingOptions()
    given = shape.model_fields_set
    for name in given & _SCALARS:
        value = getattr(shape, name)
        if value is not None:
            try:
                setattr(options, name, value)
            except ValueError as error:
                raise InvalidRequest(f"{name} is {value}; it must fit 64 bits", param=name) from error
    if shape.stop is not None:
        options.stop.extend([shape.stop] if isinstance(shape.stop, str) else shape.stop)
    if shape.stop_token_ids:
        try:
            options.stop_token_ids.extend(shape.stop_token_ids)
        except ValueError as error:
            raise InvalidRequest(f"stop_token_ids: {error}", param="stop_token_ids") from error
    if shape.logit_bias:
        for key, value in shape.logit_bias.items():
            options.logit_bias[key] = value
    return options


def stream_options(shape: StreamOptionsShape) -> options_pb2.StreamOptions:
    """The stream options that the client set."""
    return options_pb2.StreamOptions(
        include_usage=shape.include_usage, continuous_usage_stats=shape.continuous_usage_stats
    )


def stream_form(options: options_pb2.StreamOptions) -> StreamForm:
    """What the stream carries beside the text. Running usage needs include_usage as well."""
    return StreamForm(
        usage=options.include_usage,
        running_usage=options.include_usage and options.continuous_usage_stats,
    )
