"""Everything that one model of the echo engine needs to turn a request into work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from servicers.echo.directives import CODES, DirectiveFault, Failure
from servicers.echo.distribution import Distribution
from servicers.echo.output import compose
from servicers.echo.planner import Planner
from servicers.echo.prefix_cache import prompt_blocks
from servicers.echo.results import Refused, classified, embedded, scored
from servicers.echo.sequence import EchoSequence
from servicers.media_keys import keyed_ids
from servicers.token_bytes import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicers.echo.model import EchoModel
    from servicers.echo.prefix_cache import PrefixCache
    from servicers.echo.step import StepColumns
    from smg_proto.engine.v1 import work_pb2

    Answer = Callable[[StepColumns], None]

INVALID_ARGUMENT = CODES["INVALID_ARGUMENT"]


class Workshop:
    """Makes the work of one model."""

    def __init__(self, model: EchoModel, cache: PrefixCache, *, is_endless: bool) -> None:
        self.model = model
        self._cache = cache
        self._planner = Planner(model, is_endless=is_endless)
        self._distribution = Distribution(model.vocab_size)

    def sequence(self, request: work_pb2.Generate) -> EchoSequence:
        """Make a sequence; it is not admitted yet.

        Raises:
            DirectiveFault: a directive cannot be obeyed, or the constraint is no JSON where it has to be.
        """
        _check_json(request.constraint)
        script = self._planner.script(request.prompt_ids, request.sampling.choice_index)
        if script.plan.mirrors:
            script = self._planner.mirror(request, script.plan)
        prompt_tokens = len(request.prompt_ids) // ID_BYTES
        output = compose(script, request.sampling, prompt_tokens, self._planner.material)
        blocks = prompt_blocks(keyed_ids(request), self.model.id)
        sequence = EchoSequence(request, script.plan, output, self._distribution, blocks)
        sequence.cached_tokens = self._cache.cached_tokens(blocks)
        return sequence

    def score(self, request: work_pb2.Score) -> Answer:
        """What scores a request when its step comes."""
        return _guarded(
            request.sequence,
            lambda step: step.scored.append(scored(request, self._planner, self._distribution, self._cache)),
        )

    def embed(self, request: work_pb2.Embed) -> Answer:
        """What embeds a request when its step comes."""
        return _guarded(request.sequence, lambda step: step.embedded.append(embedded(request, self._planner)))

    def classify(self, request: work_pb2.Classify) -> Answer:
        """What classifies a request when its step comes."""
        return _guarded(
            request.sequence, lambda step: step.classified.append(classified(request, self._planner))
        )


def _guarded(sequence: int, answer: Answer) -> Answer:
    """The answer, or the failure that a directive asks for."""

    def guarded(step: StepColumns) -> None:
        try:
            answer(step)
        except Refused as refused:
            step.fail(sequence, refused.failure)
        except DirectiveFault as fault:
            step.fail(sequence, Failure(INVALID_ARGUMENT, str(fault)))

    return guarded


def _check_json(constraint: work_pb2.Constraint) -> None:
    kind = constraint.WhichOneof("kind")
    if kind not in {"json_schema", "structural_tag"}:
        return
    text: str = getattr(constraint, kind)
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise DirectiveFault(f"constraint.{kind} is not JSON: {error}; allowed: a JSON object") from error
    if not isinstance(value, dict | bool):
        raise DirectiveFault(f"constraint.{kind} is {text[:80]!r}; allowed: a JSON object")
