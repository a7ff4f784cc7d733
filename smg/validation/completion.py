"""Rules of a text completion request, on the protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.validation.rules import COMPLETION, COMPLETION_SAMPLING, raise_faults, range_faults, set_fields
from smg.validation.sampling import rid_faults, sampling_faults

if TYPE_CHECKING:
    from smg_proto.chat.v1 import completion_pb2

# One request must not fill the places of a session that all requests share.
MAX_CHOICES = 1024


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
    if not request.prompts:
        faults.append(("prompt", "prompt is empty; at least one text is needed"))
    for index, prompt in enumerate(request.prompts[: MAX_CHOICES + 1]):
        if prompt.WhichOneof("kind") == "token_ids" and not prompt.token_ids.ids:
            faults.append(("prompt", f"prompt[{index}] has no token ids; at least one is needed"))
            break
    if request.HasField("stream_options") and not request.stream:
        faults.append(("stream_options", "stream_options is set; it is allowed only with stream: true"))
    faults += _best_of_faults(request)
    count = len(request.prompts) * max(request.n, 1)
    if count > MAX_CHOICES:
        sentence = (
            f"prompt has {len(request.prompts)} texts and n is {max(request.n, 1)}, {count} choices in all"
        )
        faults.append(("prompt", f"{sentence}; at most {MAX_CHOICES} are allowed in one request"))
    constraints = [name for name in ("regex", "ebnf") if request.sampling.HasField(name)]
    if request.HasField("json_schema") and constraints:
        faults.append((constraints[0], f"{constraints[0]} and json_schema are both set; set only one"))
    raise_faults(faults)


def _best_of_faults(request: completion_pb2.CompletionRequest) -> list[tuple[str, str]]:
    if not request.HasField("best_of"):
        return []
    if request.stream:
        return [("best_of", "best_of is set; it cannot be combined with stream: true")]
    n = request.n if request.HasField("n") else 1
    if request.best_of <= n:
        return [("best_of", f"best_of is {request.best_of}; it must be greater than n ({n})")]
    return []
