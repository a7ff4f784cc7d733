"""Rules of a text completion request, on the protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.validation.rules import COMPLETION, COMPLETION_SAMPLING, raise_faults, range_faults, set_fields
from smg.validation.sampling import rid_faults, sampling_faults
from smg.validation.schema import schema_faults

if TYPE_CHECKING:
    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import completion_pb2

# One request must not fill the places of a session that all requests share.
MAX_CHOICES = 1024
# Every choice takes its own copy to the worker.
MAX_SCHEMA_COPIES_CHARS = 1 << 25


def validate_completion(request: completion_pb2.CompletionRequest) -> None:
    """Check every rule that needs no model.

    Raises:
        InvalidRequest: one or more rules are broken; the message names them all.
    """
    sampling = set_fields(request.sampling)
    faults = range_faults(set_fields(request), COMPLETION)
    faults += range_faults(sampling, COMPLETION_SAMPLING)
    faults += sampling_faults(sampling)
    faults += rid_faults(request.rid)
    if not request.model:
        faults.append(("model", "model is empty; name a model of GET /v1/models"))
    faults += _prompt_faults(request)
    if request.HasField("stream_options") and not request.stream:
        faults.append(("stream_options", "stream_options is set; it is allowed only with stream: true"))
    faults += _best_of_faults(request)
    if request.HasField("json_schema"):
        faults += schema_faults(request.json_schema, "json_schema") or _copies_faults(request)
        constraint = next((name for name in ("regex", "ebnf") if name in sampling), None)
        if constraint is not None:
            faults.append((constraint, f"{constraint} and json_schema are both set; set only one"))
    raise_faults(faults)


def _prompt_faults(request: completion_pb2.CompletionRequest) -> list[Fault]:
    prompts = len(request.prompts)
    if not prompts:
        return [("prompt", "prompt is empty; at least one text is needed")]
    each = max(request.n, request.best_of, 1)
    if prompts * each > MAX_CHOICES:
        sentence = f"prompt has {prompts} texts of {each} choices each, {prompts * each} in all"
        return [("prompt", f"{sentence}; at most {MAX_CHOICES} are allowed in one request")]
    for index, prompt in enumerate(request.prompts):
        if prompt.WhichOneof("kind") != "text" and not prompt.token_ids.ids:
            return [(f"prompt[{index}]", f"prompt[{index}] has no token ids; at least one is needed")]
    return []


def _copies_faults(request: completion_pb2.CompletionRequest) -> list[Fault]:
    choices = len(request.prompts) * max(request.n, request.best_of, 1)
    size = len(request.json_schema)
    if size * choices <= MAX_SCHEMA_COPIES_CHARS:
        return []
    sentence = f"json_schema has {size} characters for each of {choices} choices"
    return [
        ("json_schema", f"{sentence}; at most {MAX_SCHEMA_COPIES_CHARS // choices} are allowed for so many")
    ]


def _best_of_faults(request: completion_pb2.CompletionRequest) -> list[Fault]:
    if not request.HasField("best_of"):
        return []
    if request.stream:
        return [("best_of", "best_of is set; it cannot be combined with stream: true")]
    n = request.n if request.HasField("n") else 1
    if request.best_of <= n:
        return [("best_of", f"best_of is {request.best_of}; it must be greater than n ({n})")]
    return []
