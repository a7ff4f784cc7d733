"""Turns what an engine tells of itself into SGLang's words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp
from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

if TYPE_CHECKING:
    from smg_proto.engine.v1 import card_pb2

_DEFAULTS = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip


def model_info(card: card_pb2.ModelCard) -> sglang_pb2.GetModelInfoResponse:
    """The first model; SGLang's servers have one."""
    defaults = {name: getattr(card.defaults, name) for name in _DEFAULTS if card.defaults.HasField(name)}
    labels = {str(index): label for index, label in enumerate(card.labels)}
    is_classifier = card.capabilities.classify and not card.capabilities.generate
    return sglang_pb2.GetModelInfoResponse(
        model_path=card.path or card.id,
        tokenizer_path=card.path or card.id,
        is_generation=card.capabilities.generate,
        weight_version=card.revision or "default",
        served_model_name=card.id,
        max_context_length=card.context_length,
        max_req_input_len=card.context_length,
        vocab_size=card.vocab_size,
        supports_vision="image" in card.capabilities.modalities,
        model_type=card.model_type,
        eos_token_ids=card.eos_token_ids,
        pad_token_id=card.pad_token_id,
        bos_token_id=card.bos_token_id,
        architectures=[card.architecture] if card.architecture else [],
        id2label_json=json.dumps(labels) if is_classifier else "",
        num_labels=len(labels) if is_classifier else 0,
        default_sampling_params_json=json.dumps(defaults) if defaults else "",
    )


def server_info(
    description: card_pb2.DescribeResponse, started_at: float, now: float, running: int
) -> sglang_pb2.GetServerInfoResponse:
    """How the server was started; `started_at` and `now` in seconds since 1970."""
    info = sglang_pb2.GetServerInfoResponse(
        active_requests=running,
        uptime_seconds=now - started_at,
        sglang_version=f"{description.engine} {description.engine_version}",
        server_type="grpc",
        start_time=Timestamp(seconds=int(started_at), nanos=int(started_at % 1 * 1e9)),
    )
    info.server_args.update(
        {
            "model_path": description.models[0].path,
            "served_model_name": description.models[0].id,
            "max_running_requests": description.max_running,
            "dp_size": max(1, description.data_parallel_size),
            # Forms that begin late are not in this protocol's requests.
            "reasoning_parser": "",
        }
    )
    if not description.models[0].capabilities.constraints:
        info.server_args.update({"grammar_backend": "none"})
    return info


def loads(
    load: card_pb2.Load, description: card_pb2.DescribeResponse, timestamp: str
) -> sglang_pb2.GetLoadsResponse:
    """The load, as that of one rank."""
    capacity = load.kv_capacity_tokens
    usage = load.kv_used_tokens / capacity if capacity else 0.0
    entry = sglang_pb2.SchedulerLoad(
        num_running_reqs=load.running,
        num_waiting_reqs=load.waiting,
        num_total_reqs=load.running + load.waiting,
        num_used_tokens=min(load.kv_used_tokens, 2**31 - 1),
        max_total_num_tokens=min(capacity, 2**31 - 1),
        token_usage=usage,
        gen_throughput=load.tokens_per_second,
        utilization=load.running / description.max_running if description.max_running else 0.0,
        max_running_requests=description.max_running,
        num_waiting_uncached_tokens=min(load.waiting_uncached_tokens, 2**31 - 1),
    )
    aggregate = sglang_pb2.AggregateMetrics(
        total_running_reqs=load.running,
        total_waiting_reqs=load.waiting,
        total_reqs=load.running + load.waiting,
        avg_token_usage=usage,
        avg_throughput=load.tokens_per_second,
    )
    return sglang_pb2.GetLoadsResponse(
        timestamp=timestamp,
        version=description.engine_version,
        dp_rank_count=1,
        loads=[entry],
        aggregate=aggregate,
    )
