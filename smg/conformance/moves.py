"""A sequence that another engine has begun goes on as if it had been here all along, whatever steers its output.

This is what makes an engine's death invisible to clients: tokens, their log-probabilities, counts and the end are those
of a sequence that never moved, wherever it was cut. An engine that cannot do that says so before the first token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.conformance.checking import NotOffered, check_each, near
from smg.conformance.session_client import declines_to_continue, to_bytes
from smg.conformance.worker import begins_late
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.conformance.worker import Worker

TOKENS = 12
LIKE = 1e-3  # of log-probabilities: a batch of another shape changes the last digits
ENDLESS: dict[str, Any] = {"ignore_eos": True}
STEERED: dict[str, dict[str, Any]] = {
    "greedy": ENDLESS,
    "seed": {**ENDLESS, "temperature": 1.3, "seed": 11},
    "seed of a later choice": {**ENDLESS, "temperature": 1.3, "seed": 11, "choice_index": 2},
    "cuts": {**ENDLESS, "temperature": 1.0, "seed": 5, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "penalties": {
        **ENDLESS, "frequency_penalty": 1.5, "presence_penalty": 0.7, "repetition_penalty": 1.4,
    },
    "bias": {**ENDLESS, "temperature": 0.8, "seed": 3, "logit_bias_token": [3, 4], "logit_bias_value": [5.0, -5.0]},
    "least tokens": {"min_new_tokens": 8},
    "log-probabilities": {**ENDLESS, "logprobs": {"output": True, "top_k": 3}},
}  # fmt: skip


def same_entries(mine: Sequence[work_pb2.TokenLogprobs], theirs: Sequence[work_pb2.TokenLogprobs]) -> None:
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        assert one.logprob == near(other.logprob, LIKE)
        assert list(one.top_token) == list(other.top_token)


@check_each({f"{name}, {how}": (name, how == "stream") for name in STEERED for how in ("stream", "whole")})
async def what_steers_the_output_goes_on_too(worker: Worker, name: str, stream: bool) -> None:
    how: dict[str, Any] = {"max_new_tokens": TOKENS, "stream": stream, **STEERED[name]}
    async with worker.session() as session:
        whole = await session.run_one(worker.generate(**how))
        cuts = [cut for cut in (1, 7) if cut < len(whole.tokens)]
        rests = await session.run(
            *(worker.generate(output_ids=to_bytes(whole.tokens[:cut]), **how) for cut in cuts)
        )
    assert cuts
    for cut, rest in zip(cuts, rests, strict=True):
        if declines_to_continue(rest):
            continue
        assert whole.tokens[:cut] + rest.tokens == whole.tokens
        assert rest.finished.reason == whole.finished.reason
        assert rest.finished.completion_tokens == whole.finished.completion_tokens
        assert rest.finished.prompt_tokens == whole.finished.prompt_tokens
        same_entries(rest.logprobs, whole.logprobs[cut:])


@check_each({"from the start": (False,), "late": (True,)})
async def a_form_goes_on_where_it_was(worker: Worker, begins_after: bool) -> None:
    if "regex" not in worker.card.capabilities.constraints:
        raise NotOffered(f"{worker.card.id} does not serve regex")
    form = work_pb2.Constraint(regex="[0-9]{3}-[a-c]{4}x")
    how: dict[str, Any] = {"max_new_tokens": 30, "temperature": 1.0, "seed": 4, "constraint": form}
    async with worker.session() as session:
        if begins_after:
            if not await begins_late(worker, session):
                raise NotOffered(f"{worker.card.id} cannot let a form begin late")
            free = await session.run_one(
                worker.generate(max_new_tokens=4, temperature=1.0, seed=4, **ENDLESS)
            )
            form.begins_after = worker.tokenizer.decode(free.tokens)
        whole = await session.run_one(worker.generate(**how))
        cuts = (1, len(whole.tokens) // 2, len(whole.tokens) - 1)
        rests = await session.run(
            *(worker.generate(output_ids=to_bytes(whole.tokens[:cut]), **how) for cut in cuts)
        )
    for cut, rest in zip(cuts, rests, strict=True):
        if declines_to_continue(rest):
            continue
        assert whole.tokens[:cut] + rest.tokens == whole.tokens
        assert rest.finished.reason == whole.finished.reason
