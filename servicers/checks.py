"""Turns work that breaks the contract into the refusal that its sender gets.

Pure functions, run once for every engine before it sees the work: an engine may rely on all that is checked here.
The text of a refusal names the field, its value and what is allowed. Ranges: proto/smg/engine/v1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from servicers.media_checks import media_fault
from servicers.sampling_checks import check_sampling
from servicers.token_bytes import ID_BYTES, ids_from_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from servicers.models import ServedModel
    from smg_proto.engine.v1 import work_pb2

# google.rpc.Code
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE = 3, 8, 12, 14

MAX_TOP_LOGPROBS = 20
MAX_ASKED_IDS = 1024
MAX_SUFFIXES = 1024
MAX_LABELS = 1024
MAX_BEGINS_AFTER = 256


class Refusal(NamedTuple):
    """Why a sequence is not taken."""

    code: int
    message: str
    is_retryable: bool = False


def check_generate(request: work_pb2.Generate, model: ServedModel) -> Refusal | None:
    """What is wrong with a Generate; None when nothing is."""
    if not model.capabilities.generate:
        return _not_served(model, "generate")
    fault = (
        _ids_fault("prompt_ids", request.prompt_ids, model.vocab_size)
        or _ids_fault("output_ids", request.output_ids, model.vocab_size, may_be_empty=True)
        or check_sampling(request.sampling, model.vocab_size)
        or _length_fault(request, model)
        or _lora_fault(request.lora, model)
        or (media_fault(request, model.capabilities.modalities) if request.media else "")
    )
    if fault:
        return Refusal(INVALID_ARGUMENT, fault)
    return _check_logprobs(request, model) or _check_constraint(request, model)


def check_score(request: work_pb2.Score, model: ServedModel) -> Refusal | None:
    """What is wrong with a Score; None when nothing is."""
    if not model.capabilities.score:
        return _not_served(model, "score")
    fault = (
        _ids_fault("prefix_ids", request.prefix_ids, model.vocab_size, may_be_empty=True)
        or _count_fault("suffixes", len(request.suffixes), 1, MAX_SUFFIXES)
        or _lora_fault(request.lora, model)
    )
    for index, suffix in enumerate(request.suffixes):
        fault = fault or _suffix_fault(f"suffixes[{index}]", suffix, len(request.prefix_ids), model)
    return Refusal(INVALID_ARGUMENT, fault) if fault else None


def check_embed(request: work_pb2.Embed, model: ServedModel) -> Refusal | None:
    """What is wrong with an Embed; None when nothing is."""
    if not model.capabilities.embed:
        return _not_served(model, "embed")
    fault = _input_fault(request.input_ids, model) or _lora_fault(request.lora, model)
    if not fault and request.HasField("dimensions") and not 1 <= request.dimensions <= model.embedding_size:
        fault = f"dimensions is {request.dimensions}; allowed: 1 to {model.embedding_size}"
    if not fault and request.HasField("layer") and request.layer not in model.embedding_layers:
        layers = ", ".join(map(str, model.embedding_layers)) or "none, the model declares no layers"
        fault = f"layer is {request.layer}; allowed: {layers}"
    return Refusal(INVALID_ARGUMENT, fault) if fault else None


def check_classify(request: work_pb2.Classify, model: ServedModel) -> Refusal | None:
    """What is wrong with a Classify; None when nothing is."""
    if not model.capabilities.classify:
        return _not_served(model, "classify")
    fault = _input_fault(request.input_ids, model)
    tokens = len(request.input_ids) // ID_BYTES
    if not fault and request.HasField("second_at") and not 1 <= request.second_at < tokens:
        fault = f"second_at is {request.second_at}; allowed: 1 to {tokens - 1}, a token of the input"
    return Refusal(INVALID_ARGUMENT, fault) if fault else None


def unknown_model(name: str, known: Iterable[str]) -> Refusal:
    """The refusal for a model that is not served."""
    return Refusal(INVALID_ARGUMENT, f"model is {name!r}; served: {', '.join(known)}")


def _not_served(model: ServedModel, what: str) -> Refusal:
    return Refusal(UNIMPLEMENTED, f"model {model.id!r} does not serve {what}")


def _ids_fault(field: str, data: bytes, vocab_size: int, *, may_be_empty: bool = False) -> str:
    if not data:
        return "" if may_be_empty else f"{field} is empty; allowed: at least one token id"
    if len(data) % ID_BYTES:
        return f"{field} has {len(data)} bytes; allowed: a multiple of {ID_BYTES}, one token id each"
    ids = ids_from_bytes(data)
    highest = max(ids)
    if highest >= vocab_size:
        return f"{field}[{ids.index(highest)}] is {highest}; allowed: 0 to {vocab_size - 1}"
    return ""


def _label_fault(field: str, label_ids: Iterable[int], vocab_size: int) -> str:
    for index, label in enumerate(label_ids):
        if label >= vocab_size:
            return f"{field}[{index}] is {label}; allowed: 0 to {vocab_size - 1}"
    return ""


def _count_fault(field: str, count: int, low: int, high: int) -> str:
    return "" if low <= count <= high else f"{field} has {count} entries; allowed: {low} to {high}"


def _length_fault(request: work_pb2.Generate, model: ServedModel) -> str:
    """A prompt may fill the context when nothing is to be generated; else there must be room for one token."""
    context = model.context_length
    prompt, output = len(request.prompt_ids) // ID_BYTES, len(request.output_ids) // ID_BYTES
    sampling = request.sampling
    is_empty_output = sampling.HasField("max_new_tokens") and sampling.max_new_tokens == 0
    if not context or prompt + output + (not is_empty_output) <= context:
        return ""
    return (
        f"prompt_ids has {prompt} tokens and output_ids {output}; allowed: together less than the context of "
        f"{context} tokens"
    )


def _input_fault(data: bytes, model: ServedModel) -> str:
    fault = _ids_fault("input_ids", data, model.vocab_size)
    if fault or not model.context_length or len(data) // ID_BYTES <= model.context_length:
        return fault
    return (
        f"input_ids has {len(data) // ID_BYTES} tokens; allowed: at most {model.context_length}, the context"
    )


def _lora_fault(lora: str, model: ServedModel) -> str:
    if not lora or lora in model.loras:
        return ""
    return f"lora is {lora[:40]!r}; allowed: {', '.join(model.loras) or 'none, the model has no adapters'}"


def _check_logprobs(request: work_pb2.Generate, model: ServedModel) -> Refusal | None:
    if not request.HasField("logprobs"):
        return None
    options = request.logprobs
    prompt = len(request.prompt_ids) // ID_BYTES
    if options.HasField("prompt_start") and not model.capabilities.prompt_logprobs:
        return _not_served(model, "log-probabilities of the prompt")
    if options.top_k > MAX_TOP_LOGPROBS:
        fault = f"logprobs.top_k is {options.top_k}; allowed: 0 to {MAX_TOP_LOGPROBS}"
    elif options.HasField("prompt_start") and options.prompt_start > prompt:
        fault = (
            f"logprobs.prompt_start is {options.prompt_start}; allowed: 0 to {prompt}, the prompt's length"
        )
    else:
        fault = _count_fault("logprobs.token_ids", len(options.token_ids), 0, MAX_ASKED_IDS) or _label_fault(
            "logprobs.token_ids", options.token_ids, model.vocab_size
        )
    return Refusal(INVALID_ARGUMENT, fault) if fault else None


def _check_constraint(request: work_pb2.Generate, model: ServedModel) -> Refusal | None:
    if not request.HasField("constraint"):
        return None
    kind = request.constraint.WhichOneof("kind")
    served = model.capabilities.constraints
    if kind in served:
        begin = request.constraint.begins_after
        if len(begin) <= MAX_BEGINS_AFTER:
            return None
        fault = f"constraint.begins_after has {len(begin)} characters; allowed: at most {MAX_BEGINS_AFTER}"
        return Refusal(INVALID_ARGUMENT, fault)
    allowed = ", ".join(served) or "none, the model takes no constraints"
    return Refusal(INVALID_ARGUMENT, f"constraint is {kind or 'of no kind'}; allowed: {allowed}")


def _suffix_fault(field: str, suffix: work_pb2.ScoreSuffix, prefix_bytes: int, model: ServedModel) -> str:
    labels = suffix.label_sequences
    if not suffix.label_ids and not labels:
        return f"{field} has neither label_ids nor label_sequences; allowed: at least one label"
    fault = (
        _ids_fault(f"{field}.ids", suffix.ids, model.vocab_size)
        or _count_fault(f"{field} labels", len(suffix.label_ids) + len(labels), 1, MAX_LABELS)
        or _label_fault(f"{field}.label_ids", suffix.label_ids, model.vocab_size)
    )
    for index, label in enumerate(labels):
        fault = fault or _ids_fault(f"{field}.label_sequences[{index}]", label, model.vocab_size)
    # A label of one token needs no room: its probability is read off the suffix's last position.
    longest = max(map(len, labels), default=ID_BYTES) - ID_BYTES
    tokens = (prefix_bytes + len(suffix.ids) + longest) // ID_BYTES
    if not fault and model.context_length and tokens > model.context_length:
        fault = f"{field} with prefix and labels has {tokens} tokens; allowed: at most {model.context_length}"
    return fault
