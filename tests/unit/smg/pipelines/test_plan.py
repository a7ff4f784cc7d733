"""GenerationPlan: the messages of one attempt."""

from types import SimpleNamespace

from smg.pipelines.answer import Answer
from smg.pipelines.choice import TextOptions
from smg.pipelines.echo import prompt_echo
from smg.pipelines.plan import GenerationPlan
from smg_proto.engine.v1 import work_pb2


async def test_the_log_probabilities_of_a_prompt_are_asked_for_once_and_shared(builder):
    prompts = [builder.text("one"), builder.text("two")]
    echoes = [
        prompt_echo(builder.tokenizer, prompt, is_text=True, echo=True, logprobs=True) for prompt in prompts
    ]
    asked = work_pb2.LogprobsOptions(output=True, top_k=2, prompt_start=0)
    model = SimpleNamespace(id="m", builder=builder)
    plan = GenerationPlan(
        model, {}, TextOptions(logprobs=True), choices=3, stream=False, logprobs=asked, echoes=echoes
    )
    groups = plan.attempt(prompts, Answer("a", 1, "m", SimpleNamespace(accepts_fragments=False)))
    output_only = work_pb2.LogprobsOptions(output=True, top_k=2)
    for group in groups:
        assert [request.logprobs for request in group.requests] == [asked, output_only, output_only]
    assert asked.HasField("prompt_start")
