"""Lists the models that answer questions: the shape that System One's SDKs read, with a card of what each can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.decisions.images import MAX_IMAGE_BYTES
from smg.decisions.layout import PROMPT_VERSION

if TYPE_CHECKING:
    from smg.pipelines.catalog import ServedModel
    from smg.pipelines.decide.pipeline import DecisionPipeline
    from smg.pipelines.decide.surface import Surface

API_VERSION = "5.0.0"
# Nothing tells when a model came out; a date that no model is younger than sorts last.
UNKNOWN_DATE = "1970-01-01"


async def model_list(pipeline: DecisionPipeline, max_tasks: int) -> dict[str, Any]:
    """The answer to a request for the models; max_tasks is that of a bundle."""
    entries = [_entry(pipeline, model, surface) for model, surface in await pipeline.known_models()]
    settings = pipeline.settings
    return {
        "models": entries,
        "limits": {
            "max_request_bytes": settings.decision_max_body_bytes,
            "max_states": settings.decision_max_states,
            "max_questions": settings.decision_max_questions,
            "max_bundle_tasks": max_tasks,
        },
        "api_version": API_VERSION,
        "systemone_schema": settings.systemone_schema,
    }


def _entry(pipeline: DecisionPipeline, model: ServedModel, surface: Surface) -> dict[str, Any]:
    kinds = [kind.value for kind in surface.kinds]
    return {
        "name": model.id,
        "description": "A chat model that answers by the probabilities of its next token.",
        "release_date": UNKNOWN_DATE,
        "version": model.card.revision or "1",
        "features": kinds,
        "card": _card(pipeline, model, surface, kinds),
    }


def _card(
    pipeline: DecisionPipeline, model: ServedModel, surface: Surface, kinds: list[str]
) -> dict[str, Any]:
    meta, settings = pipeline.meta(model, surface), pipeline.settings
    longest = pipeline.max_input_tokens(model)
    limits: dict[str, Any] = {
        "max_input_tokens": longest,
        "max_request_tokens": settings.decision_max_request_tokens,
        "max_questions": settings.decision_max_questions,
        "max_options": surface.max_options,
        "image_max_bytes": MAX_IMAGE_BYTES,
    }
    if settings.decision_validated_input_tokens is not None:
        limits["validated_input_tokens"] = settings.decision_validated_input_tokens
    return {
        "question_types": kinds,
        "modalities": ["text"],
        "image_placements": [],
        "usage": "state_once",
        "labels": {
            "noul": list(surface.labels.noul.names),
            "choice": surface.labels.max_options,
            "score": len(surface.labels.digits.names),
        },
        "readout": meta.readout,
        "prompt_version": PROMPT_VERSION,
        "confidence": {"choice": "(p_max - 1/n) / (1 - 1/n)", "score": "1 - E|i - m| / MAD"},
        "thresholds": {"set": settings.decision_set_threshold, "span": settings.decision_span_threshold},
        "numerics": meta.numerics,
        "engine": meta.engine,
        "device": meta.device,
        "dtype": meta.dtype,
        "revision": meta.revision,
        "digest": meta.model_digest,
        "limits": limits,
        "self_check": {
            "status": "failed" if surface.unsupported else "passed",
            "reason": surface.unsupported or surface.label_fault,
        },
    }
