"""Turns what an SGLang server tells of itself into our description and load."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

from smg.workers.sglang.requests import CONSTRAINT_KINDS
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

_log = logging.getLogger(__name__)

# SGLang's names of sampling defaults to ours; others, such as "min_tokens", are no numbers of Sampling.
_DEFAULTS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_new_tokens",
    "max_tokens": "max_new_tokens",
}

# Kinds of constraints by SGLang's --grammar-backend, where it is not all that the protocol can say. Source: SGLang's
# structured outputs documentation.
_ENFORCED: dict[str, tuple[str, ...]] = {"none": (), "outlines": ("json_schema", "regex")}


def describe(
    model: sglang_pb2.GetModelInfoResponse, server: sglang_pb2.GetServerInfoResponse, instance_id: str
) -> card_pb2.DescribeResponse:
    """The description of a server; `instance_id` stands in where it does not tell when it started."""
    args = server.server_args.fields
    if server.HasField("start_time"):
        instance_id = f"{server.start_time.seconds}.{server.start_time.nanos:09d}"
    return card_pb2.DescribeResponse(
        models=[
            _card(model, grammar=args["grammar_backend"].string_value if "grammar_backend" in args else "")
        ],
        engine="sglang",
        engine_version=server.sglang_version,
        instance_id=instance_id,
        max_running=_whole(args["max_running_requests"].number_value)
        if "max_running_requests" in args
        else 0,
        data_parallel_size=_whole(args["dp_size"].number_value) if "dp_size" in args else 0,
    )


def waits_for_reasoning(server: sglang_pb2.GetServerInfoResponse) -> bool:
    """Whether a form is held back until the reasoning has ended: by every server but those that say they have no parser."""
    args = server.server_args.fields
    return "reasoning_parser" not in args or bool(args["reasoning_parser"].string_value)


def load_of(answer: sglang_pb2.GetLoadsResponse) -> card_pb2.Load:
    """The load, all data-parallel ranks together."""
    return _sum(answer.loads)


def rank_loads_of(answer: sglang_pb2.GetLoadsResponse) -> dict[int, card_pb2.Load]:
    """The load of each data-parallel rank that tells one."""
    return {load.dp_rank: _sum([load]) for load in answer.loads}


def _sum(loads: Iterable[sglang_pb2.SchedulerLoad]) -> card_pb2.Load:
    loads = list(loads)
    return card_pb2.Load(
        running=_whole(sum(each.num_running_reqs for each in loads)),
        waiting=_whole(sum(each.num_waiting_reqs for each in loads)),
        waiting_uncached_tokens=_whole(sum(each.num_waiting_uncached_tokens for each in loads)),
        kv_used_tokens=_whole(sum(each.num_used_tokens for each in loads)),
        kv_capacity_tokens=_whole(sum(each.max_total_num_tokens for each in loads)),
        tokens_per_second=sum(each.gen_throughput for each in loads),
    )


def max_running_of(answer: sglang_pb2.GetLoadsResponse) -> int:
    """Sequences that all ranks run at a time; 0 when they do not tell."""
    return _whole(sum(each.max_running_requests for each in answer.loads))


def _card(model: sglang_pb2.GetModelInfoResponse, *, grammar: str) -> card_pb2.ModelCard:
    is_generation = model.is_generation
    labels = _labels(model)
    card = card_pb2.ModelCard(
        id=model.served_model_name or model.model_path,
        path=model.model_path,
        context_length=_whole(model.max_context_length),
        vocab_size=_whole(model.vocab_size),
        eos_token_ids=[token for token in model.eos_token_ids if token >= 0],
        architecture=model.architectures[0] if model.architectures else "",
        model_type=model.model_type,
        capabilities=card_pb2.Capabilities(
            generate=is_generation,
            score=is_generation,
            embed=not is_generation and not labels,
            classify=not is_generation and bool(labels),
            prompt_logprobs=is_generation,
            constraints=_ENFORCED.get(grammar, CONSTRAINT_KINDS) if is_generation else (),
            modalities=["image"] if model.supports_vision else [],
        ),
        defaults=sampling_defaults(
            model.default_sampling_params_json or model.preferred_sampling_params, model.model_path
        ),
        labels=labels,
        classify_kind=card_pb2.CLASSIFY_KIND_EXCLUSIVE if labels else card_pb2.CLASSIFY_KIND_UNSPECIFIED,
    )
    # proto3 cannot tell an unset id from id 0; a model whose padding is id 0 loses nothing by not saying so.
    if model.bos_token_id > 0:
        card.bos_token_id = model.bos_token_id
    if model.pad_token_id > 0:
        card.pad_token_id = model.pad_token_id
    return card


def sampling_defaults(text: str, model_path: str) -> card_pb2.Sampling:
    """The sampling numbers that a server names as its model's, in JSON. Args: model_path: for the log."""
    sampling = card_pb2.Sampling()
    for name, value in _json_object(text, "sampling defaults", model_path).items():
        ours = _DEFAULTS.get(name)
        if ours is None or value is None:
            continue
        try:
            setattr(sampling, ours, value)
        except (TypeError, ValueError):
            _log.warning("model %s: default %s=%r is not a number; ignored", model_path, name, value)
    return sampling


def _labels(model: sglang_pb2.GetModelInfoResponse) -> list[str]:
    names = _json_object(model.id2label_json, "id2label", model.model_path)
    count = model.num_labels or len(names)
    return [str(names.get(str(index), f"LABEL_{index}")) for index in range(count)]


def _json_object(text: str, what: str, model: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        _log.warning("model %s: %s are no JSON object; ignored", model, what)
        return {}
    return cast("dict[str, Any]", value)


def _whole(number: float) -> int:
    """A count; servers say -1 where they have none."""
    return max(0, int(number))
