"""A request for embeddings from texts to vectors. Its inputs are spread over the workers and answered in their order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import ContextTooLong
from smg.pipelines.encode.encoding import EMBED, INLINE_CHARS, Tally
from smg.pipelines.off_loop import in_thread
from smg.prompt.packed import ID_BYTES
from smg.prompt.reading import too_long
from smg.validation.encode import empty_input, refused, validate_embeddings
from smg_proto.embedding.v1 import common_pb2, embedding_pb2
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.catalog import ServedModel
    from smg.pipelines.encode.encoding import Encoding
    from smg.pipelines.meter import RequestMeter
    from smg.prompt.builder import PromptBuilder
    from smg.types.context import RequestContext
    from smg_proto.engine.v1 import card_pb2


class Input(NamedTuple):
    """One input as the model reads it.

    Attributes:
        ids: token ids, packed.
        tokens: that were read of it; more than ids has where it was cut.
        is_whole: it was not cut.
        is_read: all of its tokens are counted.
    """

    ids: bytes
    tokens: int
    is_whole: bool
    is_read: bool = True


class EmbeddingPipeline:
    """Answers requests for embeddings."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    async def run(
        self, request: embedding_pb2.CreateEmbeddingsRequest, context: RequestContext, meter: RequestMeter
    ) -> embedding_pb2.CreateEmbeddingsResponse:
        """Embed. Cancelling aborts it.

        Raises:
            SmgError: the request is refused, or an input of it failed.
        """
        begun = time.perf_counter()
        encoding = self._encoding
        validate_embeddings(request, encoding.settings.encode_max_inputs)
        model = await encoding.resolve(request.model, EMBED)
        dimensions = checked_dimensions(request, model.card)
        _check_layer(request, model.card)
        budget = encoding.budget(model, request.options)
        tally = Tally()
        with meter.measure(model.id, tally):
            async with encoding.within(request.options):
                may_cut = request.options.overflow == common_pb2.OVERFLOW_TRUNCATE
                size = sum(len(each.text) + len(each.token_ids.ids) for each in request.inputs)
                args = (model.builder, request.inputs, budget)
                if size <= INLINE_CHARS:
                    inputs = read_inputs(*args, may_cut=may_cut)
                else:
                    inputs = await in_thread(read_inputs, *args, may_cut=may_cut)
                ready = time.perf_counter()
                work = [_work(model, each, request, dimensions, context) for each in inputs]
                found = await encoding.compute(meter.route, work, context, tally)
                done = time.perf_counter()
            usage = usage_of(inputs)
            tally.usage.prompt_tokens = usage.prompt_tokens
            response = embedding_pb2.CreateEmbeddingsResponse(
                model=model.id,
                embeddings=[
                    embedding_pb2.Embedding(values=each.values, tokens=each.tokens) for each in found
                ],
                usage=usage,
                worker_url=found[0].worker_url,
            )
            if request.options.return_meta:
                response.meta.CopyFrom(encoding.meta(model, representation(model, request)))
            response.timings.CopyFrom(timings(begun, ready, done))
        return response


def checked_dimensions(
    request: embedding_pb2.CreateEmbeddingsRequest, card: card_pb2.ModelCard
) -> int | None:
    """The length to cut vectors to; None for the model's own.

    Raises:
        InvalidRequest: the model declares no such length.
    """
    if not request.HasField("dimensions") or request.dimensions == card.embedding_size:
        return None
    if request.dimensions not in card.embedding_dimensions:
        allowed = [*card.embedding_dimensions, *([card.embedding_size] if card.embedding_size else [])]
        shown = ", ".join(map(str, allowed)) or "none, its worker declares no length"
        raise refused(f"dimensions is {request.dimensions}; the model has {shown}", "dimensions")
    return request.dimensions


def _check_layer(request: embedding_pb2.CreateEmbeddingsRequest, card: card_pb2.ModelCard) -> None:
    if request.HasField("layer") and request.layer not in card.embedding_layers:
        shown = ", ".join(map(str, card.embedding_layers)) or "none but the last, without being told"
        raise refused(f"layer is {request.layer}; the model declares {shown}", "layer")


def read_inputs(
    builder: PromptBuilder,
    items: Sequence[embedding_pb2.EmbeddingInput],
    budget: int,
    *,
    may_cut: bool,
    names: Sequence[str] = (),
) -> list[Input]:
    """Inputs to tokens.

    Args:
        builder: of the model.
        items: the inputs.
        budget: most tokens of one.
        may_cut: what is too long is cut.
        names: what they are called where one is refused; empty for entries of `input`.

    Raises:
        ContextTooLong: one has more than the budget, and must not be cut.
        InvalidRequest: one has a token id that the model does not have, or half a character.
    """
    inputs: list[Input] = []
    for number, item in enumerate(items):
        name = names[number] if names else "input" if len(items) == 1 else f"input[{number}]"
        read = (
            _read_ids(builder, item, budget, name)
            if item.HasField("token_ids")
            else _read_text(builder, item.text, budget)
        )
        if not read.ids:
            raise empty_input(name, "has no tokens")
        if not read.is_whole and not may_cut:
            raise ContextTooLong(f"{name} {too_long(read.tokens, budget, is_whole=read.is_read)}", param=name)
        inputs.append(read)
    return inputs


def _read_ids(builder: PromptBuilder, item: embedding_pb2.EmbeddingInput, budget: int, name: str) -> Input:
    ids = builder.packed(item.token_ids.ids, name)
    tokens = len(ids) // ID_BYTES
    return Input(ids[: budget * ID_BYTES], tokens, tokens <= budget)


def _read_text(builder: PromptBuilder, text: str, budget: int) -> Input:
    room = max(1, budget - builder.around_tokens)
    read = builder.read(text, room)
    start = read.start(room)
    return Input(
        builder.surrounded(start.ids), read.tokens + builder.around_tokens, start.is_whole, read.is_whole
    )


def usage_of(inputs: Sequence[Input]) -> common_pb2.EncodeUsage:
    """What inputs took."""
    return common_pb2.EncodeUsage(
        prompt_tokens=sum(each.tokens for each in inputs),
        tokens_lower_bound=not all(each.is_whole for each in inputs),
    )


def timings(begun: float, ready: float, done: float) -> common_pb2.EncodeTimings:
    """Moments by time.perf_counter() as lengths; from `done` to now the answer was made."""
    return common_pb2.EncodeTimings(
        tokenize_ms=(ready - begun) * 1000,
        forward_ms=(done - ready) * 1000,
        post_ms=(time.perf_counter() - done) * 1000,
    )


def representation(model: ServedModel, request: embedding_pb2.CreateEmbeddingsRequest) -> str:
    """A name for the space that the vectors are in: the same for vectors that can be compared."""
    card = model.card
    parts = [model.id, card.revision or card.digest, card.embedding_form]
    parts.append(f"layer {request.layer}" if request.HasField("layer") else "last layer")
    size = request.dimensions if request.HasField("dimensions") else card.embedding_size
    parts.append(f"{size} dimensions" if size else "")
    return "; ".join(part for part in parts if part)


def _work(
    model: ServedModel,
    item: Input,
    request: embedding_pb2.CreateEmbeddingsRequest,
    dimensions: int | None,
    context: RequestContext,
) -> work_pb2.Embed:
    return work_pb2.Embed(
        input_ids=item.ids,
        dimensions=dimensions,
        layer=request.layer if request.HasField("layer") else None,
        model=model.id,
        request_id=context.request_id,
    )
