"""Model defaults fill only what a client left open: engines apply them, and an explicit zero is no silence."""

import pytest

from smg.pipelines.sampling import engine_sampling
from smg.validation.rules import set_fields
from smg.workers.sglang.requests import generate_to_sglang
from smg_proto.chat.v1 import options_pb2
from smg_proto.engine.v1 import card_pb2, work_pb2

DEFAULTS = card_pb2.Sampling(
    temperature=0.6,
    top_p=0.9,
    top_k=20,
    min_p=0.05,
    presence_penalty=1.5,
    frequency_penalty=0.5,
    repetition_penalty=1.05,
    max_new_tokens=100,
)
# The values nearest to "nothing" that a client may set.
EXPLICIT = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}


def generate(**options):
    sampling = engine_sampling(set_fields(options_pb2.SamplingOptions(**options)))
    return work_pb2.Generate(prompt_ids=b"\1\0\0\0", sampling=sampling)


def sglang(**options):
    return generate_to_sglang(generate(**options), "r", DEFAULTS).sampling_params


@pytest.mark.parametrize("name", EXPLICIT)
def test_sglang_is_told_the_explicit_value(name):
    assert getattr(sglang(**{name: EXPLICIT[name]}), name) == pytest.approx(EXPLICIT[name])


@pytest.mark.parametrize("name", EXPLICIT)
def test_sglang_is_told_the_default_where_the_client_is_silent(name):
    assert getattr(sglang(), name) == pytest.approx(getattr(DEFAULTS, name))


def test_sglang_is_told_an_explicit_bound_of_nothing():
    assert sglang(max_tokens=0).max_new_tokens == 0
    assert sglang(max_tokens=0).HasField("max_new_tokens")
    assert sglang().max_new_tokens == 100


def test_sglang_is_told_what_has_no_default():
    params = sglang(
        min_tokens=2, stop=["x"], stop_token_ids=[5], ignore_eos=True, logit_bias={"7": 3}, sampling_seed=9
    )
    assert (params.min_new_tokens, list(params.stop), list(params.stop_token_ids)) == (2, ["x"], [5])
    assert params.ignore_eos
    assert dict(params.logit_bias) == {"7": 3}
    assert params.custom_params["sampling_seed"] == 9


def local_job(**options):
    jobs = pytest.importorskip("servicers.local.jobs", exc_type=ImportError)
    maker = jobs.JobMaker(context_tokens=1000, eos_token_ids=(2,), embedding_size=8, defaults=DEFAULTS)
    return maker.generate(None, generate(**options))


def test_the_local_engine_takes_explicit_values_before_defaults():
    job = local_job(**EXPLICIT, max_tokens=0)
    choice = job.choice
    assert (choice.temperature, choice.top_p, choice.top_k, choice.min_p) == (0.0, 1.0, -1, 0.0)
    assert job.penalties is None
    assert job.limit == 0


def test_the_local_engine_takes_defaults_where_the_client_is_silent():
    job = local_job()
    choice = job.choice
    assert (choice.temperature, choice.top_p, choice.top_k, choice.min_p) == (0.6, 0.9, 20, 0.05)
    assert job.penalties is not None
    assert job.limit == 100
