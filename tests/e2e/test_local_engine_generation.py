"""The local engine on the default model: the same output whatever else runs, and nothing left behind."""

import dataclasses

import pytest
import pytest_asyncio

pytest.importorskip("torch")

from servicers.local.engine import LocalEngine
from smg_proto.engine.v1.work_pb2 import LogprobsOptions
from tests.e2e.local_engine import SETTINGS, TOPICS, Client, Listener
from tests.unit.servicers.local.stepping import generate

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def start(**changes) -> Client:
    engine = LocalEngine(dataclasses.replace(SETTINGS, **changes))
    await engine.start()
    return Client(engine)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client():
    client = await start()
    yield client
    await client.engine.stop()


@pytest.fixture(autouse=True)
def _no_cached_prefixes(client):
    client.engine.flush_cache()


async def test_the_capital_of_france_is_paris(client):
    (tokens,) = await client.tokens(generate(1, client.chat(TOPICS[0]), max_new_tokens=20))
    assert "Paris" in client.text(tokens)
    assert tokens[-1] in client.engine.describe().models[0].eos_token_ids


async def test_greedy_output_is_the_same_alone_and_with_seven_others_and_in_chunks(client):
    prompts = [client.chat(topic) for topic in TOPICS]
    long = client.chat(
        "Read this. " + "The old bridge over the river was closed in spring. " * 30 + TOPICS[3]
    )
    prompts[3] = long
    alone = [(await client.tokens(generate(1, prompt, max_new_tokens=10)))[0] for prompt in prompts]
    client.engine.flush_cache()
    together = await client.tokens(
        *(generate(i, prompt, max_new_tokens=10) for i, prompt in enumerate(prompts))
    )
    assert together == alone
    # Once more with every prompt in the cache.
    cached = await client.tokens(
        *(generate(i, prompt, max_new_tokens=10) for i, prompt in enumerate(prompts))
    )
    assert cached == alone


async def test_small_steps_give_the_same_output_as_large_ones(client):
    prompts = [client.chat(topic) for topic in TOPICS[:4]]
    expected = await client.tokens(*(generate(i, p, max_new_tokens=8) for i, p in enumerate(prompts)))
    other = await start(step_tokens=33)
    got = await other.tokens(*(generate(i, p, max_new_tokens=8) for i, p in enumerate(prompts)))
    await other.engine.stop()
    assert got == expected


async def test_seeded_output_is_the_same_whatever_the_batch(client):
    how = {"temperature": 1.0, "top_p": 0.95, "seed": 42, "max_new_tokens": 14}
    prompt = client.chat(TOPICS[4])
    (alone,) = await client.tokens(generate(1, prompt, **how))
    others = [generate(i, client.chat(TOPICS[i]), temperature=0.7, max_new_tokens=14) for i in (5, 6, 7)]
    among = await client.tokens(
        *others, generate(1, prompt, **how), generate(2, prompt, choice_index=1, **how)
    )
    assert among[-2] == alone
    assert among[-1] != alone


async def test_a_sequence_that_moved_half_way_ends_as_if_it_had_stayed(client):
    how = {
        "temperature": 0.9,
        "seed": 7,
        "presence_penalty": 0.6,
        "repetition_penalty": 1.1,
        "max_new_tokens": 24,
    }
    prompt = client.chat(TOPICS[1])
    (whole,) = await client.tokens(generate(1, prompt, **how))
    (rest,) = await client.tokens(generate(1, prompt, output=whole[:9], **how))
    assert whole[:9] + rest == whole


async def test_a_second_question_reuses_the_document(client):
    document = client.ids("The old bridge over the river was closed in spring. " * 60)[:600]
    first = await client.run(generate(1, [*document, *client.ids(" Who closed it?")]))
    second = await client.run(generate(1, [*document, *client.ids("\nWhen was that?")]))
    assert first.started[1].cached_tokens == 0
    assert second.started[1].cached_tokens == second.finished[1].cached_tokens == 600
    third = await client.run(
        generate(2, [*document, *client.ids("\nWhen was that?"), *second.tokens[1], *client.ids(" Why?")])
    )
    assert third.started[2].cached_tokens == second.started[1].prompt_tokens + len(second.tokens[1]) - 1


async def test_aborts_and_closed_sessions_leave_no_sequence(client):
    session, gone = Listener(), Listener()
    for number in range(30):
        for each in (session, gone):
            client.submit(each, generate(number, client.chat(TOPICS[number % 8]), max_new_tokens=200))
    await session.until(lambda: len(session.started) >= 2)
    client.engine.close(gone)
    client.submit(session, abort=range(30))
    await session.until(lambda: len(session.ended) == 30)
    assert {session.reason(n) for n in range(30)} == {"ABORT"}
    load = client.engine.load()
    assert (load.running, load.waiting) == (0, 0)
    # Every slot is usable again.
    outputs = await client.tokens(
        *(generate(i, client.chat(t), max_new_tokens=2) for i, t in enumerate(TOPICS))
    )
    assert [len(tokens) for tokens in outputs] == [2] * 8


async def test_logprobs_equal_transformers(client):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from servicers.local.checkpoint import find_default_model, read_checkpoint
    from servicers.local.config import config_to_hf

    checkpoint = read_checkpoint(find_default_model())
    with torch.device("meta"):
        network = LlamaForCausalLM(LlamaConfig(**config_to_hf(checkpoint.config)))
    network.load_state_dict(dict(checkpoint.weights.items()), strict=False, assign=True)
    network.tie_weights()
    network.model.rotary_emb = type(network.model.rotary_emb)(network.config)
    prompt = client.chat(TOPICS[3])
    options = LogprobsOptions(output=True, top_k=5, token_ids=[504, 28], prompt_start=0)
    session = await client.run(generate(1, prompt, logprobs=options, max_new_tokens=8))
    tokens = session.tokens[1]
    with torch.inference_mode():
        expected = network.eval()(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
    entries = [*session.started[1].prompt_logprobs, *session.logprobs[1]]
    assert len(entries) == len(prompt) + len(tokens)
    assert not entries[0].HasField("logprob")
    for position, entry in enumerate(entries[1:]):
        row = expected[position]
        assert entry.logprob == pytest.approx(row[(prompt + tokens)[position + 1]].item(), abs=2e-3)
        assert list(entry.top_logprob) == pytest.approx(row.topk(5).values.tolist(), abs=2e-3)
        assert row[list(entry.top_token)].tolist() == pytest.approx(list(entry.top_logprob), abs=2e-3)
    for entry, row in zip(session.logprobs[1], expected[len(prompt) - 1 :], strict=False):
        assert list(entry.asked_logprob) == pytest.approx(row[[504, 28]].tolist(), abs=2e-3)
