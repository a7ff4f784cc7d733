"""Turns a text completion body into the protobuf CompletionRequest."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gateway.openai.sampling import sampling_options, set_scalars, stream_options
from smg_proto.chat.v1 import completion_pb2

if TYPE_CHECKING:
    from gateway.openai.shapes import CompletionShape

_PLAIN = frozenset(
    (
        "n",
        "best_of",
        "logprobs",
        "echo",
        "suffix",
        "json_schema",
        "return_hidden_states",
        "rid",
        "user",
    )
)


def completion_request(shape: CompletionShape) -> completion_pb2.CompletionRequest:
    """The request as protobuf."""
    request = completion_pb2.CompletionRequest(
        model=shape["model"],
        prompts=_prompts(shape["prompt"]),
        sampling=sampling_options(shape),
        stream=bool(shape.get("stream")),
    )
    set_scalars(request, shape, _PLAIN)
    options = shape.get("stream_options")
    if options is not None:
        request.stream_options.CopyFrom(stream_options(options))
    return request


def _prompts(
    prompt: str | list[str] | list[int] | list[list[int]],
) -> list[completion_pb2.CompletionPrompt]:
    if isinstance(prompt, str):
        return [completion_pb2.CompletionPrompt(text=prompt)]
    if prompt and isinstance(prompt[0], int):
        return [_token_prompt(cast("list[int]", prompt))]
    return [
        completion_pb2.CompletionPrompt(text=item) if isinstance(item, str) else _token_prompt(item)
        for item in cast("list[str] | list[list[int]]", prompt)
    ]


def _token_prompt(ids: list[int]) -> completion_pb2.CompletionPrompt:
    return completion_pb2.CompletionPrompt(token_ids=completion_pb2.TokenIds(ids=ids))
