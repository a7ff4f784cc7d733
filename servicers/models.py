"""Turns an engine's own description into what the servicer needs at every request: its models by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg_proto.engine.v1 import card_pb2


@dataclass(frozen=True, slots=True)
class ServedCapabilities:
    """As in card.proto, as plain values: protobuf fields cost a lookup each at every request."""

    generate: bool
    score: bool
    embed: bool
    classify: bool
    prompt_logprobs: bool
    constraints: tuple[str, ...]
    modalities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The bounds of one model, as in its card."""

    id: str
    context_length: int
    vocab_size: int
    embedding_size: int
    embedding_layers: tuple[int, ...]
    loras: tuple[str, ...]
    capabilities: ServedCapabilities


def models_by_name(description: card_pb2.DescribeResponse) -> Mapping[str, ServedModel]:
    """Every model under its name, and the first under the empty name too."""
    models = {card.id: _served_model(card) for card in description.models}
    if not models:
        raise ValueError("the engine describes no model; a worker serves at least one")
    return {"": next(iter(models.values())), **models}


def _served_model(card: card_pb2.ModelCard) -> ServedModel:
    can = card.capabilities
    return ServedModel(
        id=card.id,
        context_length=card.context_length,
        vocab_size=card.vocab_size,
        embedding_size=card.embedding_size,
        embedding_layers=tuple(card.embedding_layers),
        loras=tuple(card.loras),
        capabilities=ServedCapabilities(
            generate=can.generate,
            score=can.score,
            embed=can.embed,
            classify=can.classify,
            prompt_logprobs=can.prompt_logprobs,
            constraints=tuple(can.constraints),
            modalities=tuple(can.modalities),
        ),
    )
