"""What the sequences of one request have in common, and the messages and listeners of one attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from smg.pipelines.choice import Choice
from smg.pipelines.echo import SharedEcho
from smg.pipelines.sampling import engine_sampling
from smg.types.context import NO_TRACE, TraceHeaders
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smg.pipelines.answer import Answer
    from smg.pipelines.catalog import ServedModel
    from smg.pipelines.echo import PromptEcho
    from smg.pipelines.stages import TextOptions
    from smg.prompt.builder import TokenPrompt
    from smg_proto.engine.v1 import card_pb2


class Group(NamedTuple):
    """The choices of one prompt.

    Attributes:
        requests: one a choice, alike but for the index of the choice, and for log-probabilities of the prompt: the first
            one alone asks for them.
        choices: their listeners, in step.
    """

    requests: list[work_pb2.Generate]
    choices: list[Choice]


class GenerationPlan(NamedTuple):
    """How each prompt of a request is continued.

    Attributes:
        model: the model.
        fields: sampling options that the client set.
        text: how tokens become text.
        choices: per prompt.
        stream: tokens come as they are made.
        constraint: form that the output must have; None for any.
        logprobs: log-probabilities to ask for; None for none.
        reasoning: the output begins inside reasoning.
        trace: W3C trace context.
        echoes: for each prompt, how its choices show it and go on from it; empty where they answer it.
        media: of the prompt; there is one prompt then.
    """

    model: ServedModel
    fields: Mapping[str, Any]
    text: TextOptions
    choices: int
    stream: bool
    constraint: work_pb2.Constraint | None = None
    logprobs: work_pb2.LogprobsOptions | None = None
    reasoning: bool = False
    trace: TraceHeaders = NO_TRACE
    echoes: Sequence[PromptEcho] = ()
    media: Sequence[work_pb2.Medium] = ()

    @property
    def constraint_kind(self) -> str:
        """The kind of the constraint; empty for none."""
        return (self.constraint.WhichOneof("kind") or "") if self.constraint is not None else ""

    def attempt(self, prompts: Sequence[TokenPrompt], answer: Answer) -> list[Group]:
        """Fresh messages and listeners: one group a prompt. Choices are numbered prompt by prompt."""
        sampling = engine_sampling(self.fields)
        return [self._group(number, prompt, answer, sampling) for number, prompt in enumerate(prompts)]

    def _group(
        self, prompt_index: int, prompt: TokenPrompt, answer: Answer, sampling: card_pb2.Sampling
    ) -> Group:
        group = Group([], [])
        tokenizer = self.model.builder.tokenizer
        echo = SharedEcho(tokenizer, self.echoes[prompt_index]) if self.echoes else None
        for index in range(self.choices):
            # Every request gets a copy.
            if index:
                sampling.choice_index = index
            else:
                sampling.ClearField("choice_index")
            group.requests.append(
                work_pb2.Generate(
                    prompt_ids=prompt.ids,
                    sampling=sampling,
                    constraint=self.constraint,
                    logprobs=self.logprobs if index == 0 else _without_prompt(self.logprobs),
                    # Stop strings are matched here, so their tokens must come as they are made, not all at the end.
                    stream=self.stream or bool(self.text.stop),
                    model=self.model.id,
                    lora=self.fields.get("lora_path", ""),
                    request_id=answer.id,
                    traceparent=self.trace.parent,
                    tracestate=self.trace.state,
                    reasoning=self.reasoning,
                    media=self.media,
                )
            )
            number = prompt_index * self.choices + index
            group.choices.append(
                Choice(number, answer, tokenizer, self.text, prompt_index=prompt_index, prompt=echo)
            )
        return group


def _without_prompt(options: work_pb2.LogprobsOptions | None) -> work_pb2.LogprobsOptions | None:
    """The same for a choice that shares its prompt with the one that asks for the prompt's."""
    if options is None or not options.HasField("prompt_start"):
        return options
    return work_pb2.LogprobsOptions(output=options.output, top_k=options.top_k)
