"""Turns what a vLLM server tells of itself into our description."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.workers.sglang.cards import sampling_defaults
from smg.workers.vllm.requests import CONSTRAINT_KINDS
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from smg_grpc_proto.generated import vllm_engine_pb2 as vllm_pb2

_AFTER_REASONING = "after_reasoning"


def describe_vllm(
    model: vllm_pb2.GetModelInfoResponse,
    server: vllm_pb2.GetServerInfoResponse,
    version: str,
    instance_id: str,
) -> card_pb2.DescribeResponse:
    """The description of a server.

    Args:
        model: what it serves.
        server: how it was started.
        version: of vLLM.
        instance_id: a name of this run of it: the protocol tells none.
    """
    return card_pb2.DescribeResponse(
        models=[_card(model)],
        engine="vllm",
        engine_version=version,
        instance_id=instance_id,
        max_running=max(0, server.max_num_seqs),
        data_parallel_size=max(0, server.data_parallel_size),
    )


def vllm_waits_for_reasoning(server: vllm_pb2.GetServerInfoResponse) -> bool:
    """Whether a form is held back until the reasoning has ended."""
    return server.constrained_decoding_start == _AFTER_REASONING


def _card(model: vllm_pb2.GetModelInfoResponse) -> card_pb2.ModelCard:
    is_generation = model.is_generation
    card = card_pb2.ModelCard(
        id=model.served_model_name or model.model_path,
        path=model.model_path,
        context_length=model.max_context_length,
        vocab_size=model.vocab_size,
        eos_token_ids=[token for token in model.eos_token_ids if token >= 0],
        architecture=model.architectures[0] if model.architectures else "",
        model_type=model.model_type,
        capabilities=card_pb2.Capabilities(
            generate=is_generation,
            # Labels cannot be asked for: the protocol has no field for ids whose log-probability to return.
            score=False,
            embed=not is_generation,
            prompt_logprobs=is_generation,
            constraints=CONSTRAINT_KINDS if is_generation else (),
            modalities=["image"] if model.supports_vision else [],
        ),
        defaults=sampling_defaults(model.default_sampling_params_json, model.model_path),
    )
    # proto3 cannot tell an unset id from id 0; a model whose padding is id 0 loses nothing by not saying so.
    if model.bos_token_id > 0:
        card.bos_token_id = model.bos_token_id
    if model.pad_token_id > 0:
        card.pad_token_id = model.pad_token_id
    return card
