"""The local engine on the default model: constrained output always has its form, and scores add up."""

import json
import re
from typing import Literal

import pydantic
import pytest
import pytest_asyncio

pytest.importorskip("torch")

from servicers.local.engine import LocalEngine
from smg_proto.engine.v1.work_pb2 import Constraint, Embed, LogprobsOptions, Score, ScoreSuffix
from tests.e2e.local_engine import SETTINGS, Client
from tests.unit.servicers.local.stepping import generate, to_bytes

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


class Pet(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    name: str = pydantic.Field(max_length=12)
    kind: Literal["cat", "dog", "bird"]


class Owner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    name: str = pydantic.Field(max_length=16)
    age: int = pydantic.Field(ge=0, le=120)
    pets: list[Pet] = pydantic.Field(max_length=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client():
    engine = LocalEngine(SETTINGS)
    await engine.start()
    yield Client(engine)
    await engine.stop()


async def test_json_schema_output_is_valid_at_any_temperature(client):
    constraint = Constraint(json_schema=json.dumps(Owner.model_json_schema()))
    prompt = client.chat("Describe a pet owner as JSON.")
    outputs = await client.tokens(
        generate(0, prompt, constraint=constraint, max_new_tokens=150),
        generate(1, prompt, constraint=constraint, temperature=1.4, seed=1, max_new_tokens=150, stream=False),
    )
    for tokens in outputs:
        Owner.model_validate_json(client.text(tokens))


async def test_regex_and_grammar_output_match(client):
    prompt = client.chat("When did you last see him?")
    regex = r"On (Monday|Friday), [0-9]{1,2}:[0-5][0-9]\."
    ebnf = 'root ::= item ("; " item)*\nitem ::= [A-Z] [a-z]{2,5} " " [1-9]'
    constraints = [Constraint(regex=regex), Constraint(ebnf=ebnf)]
    requests = [
        generate(
            2 * seed + place, prompt, constraint=constraint, temperature=1.0, seed=seed, max_new_tokens=40
        )
        for seed in range(2)
        for place, constraint in enumerate(constraints)
    ]
    session = await client.run(*requests)
    for seed in range(2):
        assert re.fullmatch(regex, client.text(session.tokens[2 * seed]))
        text = client.text(session.tokens[2 * seed + 1])
        whole = r"[A-Z][a-z]{2,5} [1-9]"
        if session.reason(2 * seed + 1) == "STOP":
            assert re.fullmatch(rf"{whole}(; {whole})*", text.removesuffix("<|im_end|>"))
        else:
            assert re.match(rf"({whole}; )+", text)


async def test_constraints_that_cannot_be_kept_fail_and_others_go_on(client):
    prompt = client.chat("Hello")
    bad = [Constraint(json_schema='{"not": {}}'), Constraint(regex="("), Constraint(ebnf="root ::= x")]
    session = await client.run(
        *(generate(i, prompt, constraint=each) for i, each in enumerate(bad)), generate(9, prompt)
    )
    assert session.failed.keys() == {0, 1, 2}
    assert {failed.code for failed in session.failed.values()} == {3}
    assert '"not"' in session.failed[0].message
    assert session.tokens[9]


async def test_label_scores_equal_the_logprobs_of_whole_prompts(client):
    prefix = client.ids("The customer wrote: my parcel never arrived, I want my money back.\n")
    questions = [client.ids(text) for text in ("Is the customer angry? Answer:", "Does it rain? Answer:")]
    labels = [client.ids(" yes"), client.ids(" no"), client.ids(" I am not certain")]
    score = Score(
        sequence=1,
        prefix_ids=to_bytes(prefix),
        suffixes=[
            ScoreSuffix(
                ids=to_bytes(question),
                label_ids=[labels[0][0], labels[1][0]],
                label_sequences=[to_bytes(label) for label in labels],
            )
            for question in questions
        ],
    )
    scored = (await client.run(score=[score])).scored[1]
    assert scored.prompt_tokens == len(prefix) + sum(map(len, questions))
    for scores, question in zip(scored.suffixes, questions, strict=True):
        ids = [*prefix, *question]
        for place, label in enumerate(labels):
            options = LogprobsOptions(prompt_start=len(ids))
            session = await client.run(generate(1, [*ids, *label], max_new_tokens=0, logprobs=options))
            values = [entry.logprob for entry in session.started[1].prompt_logprobs]
            assert len(values) == len(label)
            expected = sum(values) / len(label)
            assert scores.sequence_logprobs[place] == pytest.approx(expected, abs=1e-3)
            if len(label) == 1:
                assert scores.logprobs[place] == pytest.approx(expected, abs=1e-3)
    again = (await client.run(score=[score])).scored[1]
    assert again.cached_tokens == len(prefix)
    for first, second in zip(scored.suffixes, again.suffixes, strict=True):
        assert (second.logprobs, second.sequence_logprobs) == (first.logprobs, first.sequence_logprobs)


async def test_embeddings_of_like_texts_are_nearer(client):
    texts = [
        "A cat sat on the mat.",
        "The cat is sitting on a mat.",
        "Quarterly revenue rose by four percent.",
    ]
    requests = [Embed(sequence=i, input_ids=to_bytes(client.ids(text))) for i, text in enumerate(texts)]
    session = await client.run(embed=requests)
    first, like, unlike = (session.embedded[i].values for i in range(3))
    assert sum(x * x for x in first) == pytest.approx(1.0, abs=1e-4)
    near = sum(a * b for a, b in zip(first, like, strict=True))
    far = sum(a * b for a, b in zip(first, unlike, strict=True))
    assert near > far
