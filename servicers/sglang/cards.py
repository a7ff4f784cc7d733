"""Turns what SGLang knows of its model into our card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from servicers.sampling_defaults import sampling_defaults
from servicers.sglang.requests import CONSTRAINTS
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from servicers.sglang.engine import EngineApi
    from servicers.sglang.settings import SglangSettings

# Kinds of constraints by SGLang's grammar backend, where it is not all of them.
_ENFORCED: dict[str, tuple[str, ...]] = {"none": (), "outlines": ("json_schema", "regex")}
_CLASSIFIERS = ("ForSequenceClassification", "ForRewardModel", "RewardModel")


@dataclass(frozen=True, slots=True)
class ServedByUs:
    """The model, as the rest of the servicer needs it.

    Attributes:
        card: its card.
        ranks: data-parallel ranks.
        reasons: a form can wait for the end of the reasoning.
        is_classifier: what it computes are logits of labels.
        max_running: sequences at a time.
        version: of SGLang.
    """

    card: card_pb2.ModelCard
    ranks: int
    reasons: bool
    is_classifier: bool
    max_running: int
    version: str


def describe_model(engine: EngineApi, settings: SglangSettings, version: str, max_running: int) -> ServedByUs:
    """Make the card of an engine that has started."""
    manager = engine.tokenizer_manager
    config = manager.model_config
    hf = config.hf_config
    architectures: list[str] = getattr(hf, "architectures", None) or [""]
    is_generation = bool(config.is_generation)
    is_classifier = not is_generation and architectures[0].endswith(_CLASSIFIERS)
    grammar = str(settings.arguments.get("grammar_backend") or "")
    card = card_pb2.ModelCard(
        id=settings.model_id,
        path=str(settings.arguments["model_path"]),
        # The scheduler keeps a few tokens of the context for itself and refuses longer prompts.
        context_length=(manager.max_req_input_len or config.context_len) - 1,
        vocab_size=config.vocab_size,
        eos_token_ids=sorted(config.hf_eos_token_id or ()),
        architecture=architectures[0],
        model_type=getattr(hf, "model_type", None) or "",
        dtype=str(config.dtype).removeprefix("torch."),
        device=str(settings.arguments.get("device") or "cuda"),
        capabilities=card_pb2.Capabilities(
            generate=is_generation,
            score=is_generation,
            embed=not is_generation and not is_classifier,
            classify=is_classifier,
            prompt_logprobs=is_generation,
            constraints=_ENFORCED.get(grammar, CONSTRAINTS) if is_generation else (),
        ),
        defaults=sampling_defaults(settings.tokenizer_dir),
        loras=sorted(manager.lora_registry.get_all_adapters()),
        embedding_size=config.hidden_size if not is_generation and not is_classifier else 0,
        labels=_labels(hf) if is_classifier else (),
    )
    for name in ("bos_token_id", "pad_token_id"):
        value = getattr(hf, name, None)
        if isinstance(value, int) and value >= 0:
            setattr(card, name, value)
    return ServedByUs(
        card=card,
        ranks=int(settings.arguments.get("dp_size") or 1),
        reasons=settings.reasons,
        is_classifier=is_classifier,
        max_running=max_running,
        version=version,
    )


def _labels(hf: Any) -> list[str]:
    names: dict[Any, str] = getattr(hf, "id2label", None) or {}
    return [str(names[index]) for index in sorted(names, key=int)] or ["LABEL_0"]
