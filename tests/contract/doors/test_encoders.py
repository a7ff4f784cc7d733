"""Trained models behind one process: ranks, labels, labels that come together, and spans, alike through both doors.

The models are made and trained by tests/tiny_encoder.py; what they are asked is what they have learnt.
"""

import math

import openai
import pytest
import pytest_asyncio
import torch
import transformers
from torch.nn import functional

from servicers.base import EngineOptions
from servicers.factory import create_engine
from servicers.serve import start_server
from tests import tiny_encoder
from tests.contract.doors.encode_doors import both
from tests.integration.running_router import running_router

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model, pytest.mark.slow]

WRITERS = {
    "embedder": tiny_encoder.write_embedder,
    "classifier": tiny_encoder.write_classifier,
    "topics": tiny_encoder.write_topics_classifier,
    "tagger": tiny_encoder.write_tagger,
    "ranker": tiny_encoder.write_ranker,
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    return {name: write(folder / name) for name, write in WRITERS.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(paths):
    options = EngineOptions(
        model_paths=tuple(map(str, paths.values())), model_ids=tuple(paths), dtype="fp32", threads=1
    )
    server = await start_server(create_engine("local", options))
    async with running_router(server.url) as running:
        yield running
    await server.stop(0.0)


async def classified(gateway, model, *texts, **options):
    body = {"model": model, "input": list(texts), "options": options}
    return (await both(gateway, "classify", body)).rows


async def test_one_process_serves_all_models(gateway, paths):
    listed = (await gateway.http.get("/v1/models")).json()
    assert [each["id"] for each in listed["data"]] == sorted(paths)


async def test_vectors_equal_those_that_transformers_gives_from_text(gateway, paths):
    texts = ["the python loop", "A parcel, please! 👋🏽", "what is about " * 9]
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(paths["embedder"])
    model = transformers.AutoModel.from_pretrained(paths["embedder"]).eval()
    found = await both(gateway, "embeddings", {"model": "embedder", "input": texts})
    for text, row in zip(texts, found.rows, strict=True):
        with torch.inference_mode():
            states = model(
                **tokenizer(text, return_tensors="pt", return_token_type_ids=False)
            ).last_hidden_state
        expected = functional.normalize(states[0].mean(dim=0), dim=-1)
        torch.testing.assert_close(torch.tensor(row), expected, atol=2e-6, rtol=1e-4)


async def test_the_openai_sdk_reads_vectors(gateway):
    url = str(gateway.http.base_url)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        packed = await client.embeddings.create(model="embedder", input=["a loop", "music"])
        plain = await client.embeddings.create(
            model="embedder", input=["a loop", "music"], encoding_format="float"
        )
        cut = await client.embeddings.create(model="embedder", input="a loop", dimensions=8)
        with pytest.raises(openai.BadRequestError, match="dimensions is 7"):
            await client.embeddings.create(model="embedder", input="x", dimensions=7)
    assert [each.index for each in packed.data] == [0, 1]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-7)
    assert len(cut.data[0].embedding) == 8
    assert packed.usage.total_tokens == packed.usage.prompt_tokens > 0


async def test_requests_at_the_same_time_share_batches_and_keep_their_answers(gateway):
    texts = [f"{' '.join(tiny_encoder.NAMES[: 1 + n % 6])} {n}" for n in range(40)]
    alone = [
        (await both(gateway, "embeddings", {"model": "embedder", "input": text})).rows[0] for text in texts
    ]
    together = await both(gateway, "embeddings", {"model": "embedder", "input": texts})
    for one, other in zip(alone, together.rows, strict=True):
        assert other == pytest.approx(one, abs=2e-6)


async def test_a_classifier_has_learnt_its_labels(gateway):
    rows = await classified(
        gateway, "classifier", "please debug the python loop", "divide a fraction", "my garden"
    )
    best = [max(row, key=lambda pair: pair[1]) for row in rows]
    assert [label for label, _ in best] == ["code", "math", "other"]
    assert all(chance > 0.8 for _, chance in best)
    assert all(math.fsum(chance for _, chance in row) == pytest.approx(1, abs=1e-9) for row in rows)


async def test_labels_that_come_together_are_judged_each_by_itself(gateway):
    rows = await classified(gateway, "topics", "charged for the parcel", "my invoice", "the weather today")
    assert [[name for name, chance in row if chance > 0.5] for row in rows] == [
        ["billing", "shipping"],
        ["billing"],
        [],
    ]


async def test_spans_are_code_points_of_the_text(gateway):
    text = "👋🏽 the tom (lucy.omar@mail.org) é́ please anna"
    (spans,) = await classified(gateway, "tagger", text)
    assert [(label, found) for label, _, _, found, _ in spans] == [
        ("NAME", "tom"),
        ("EMAIL", "lucy.omar@mail.org"),
        ("NAME", "anna"),
    ]
    assert all(text[start:end] == found for _, start, end, found, _ in spans)
    assert all(0.5 < chance <= 1 for *_, chance in spans)


async def test_a_long_text_is_read_in_windows_as_well_as_a_short_one(gateway):
    text = "please the tom today " * 60 + "lucy.omar@mail.org"
    (spans,) = await classified(
        gateway, "tagger", text, overflow="window", window={"tokens": 32, "overlap": 12}
    )
    assert [found for *_, found, _ in spans] == ["tom"] * 60 + ["lucy.omar@mail.org"]
    assert all(text[start:end] == found for _, start, end, found, _ in spans)
    (labels,) = await classified(gateway, "topics", "about today " * 80 + "refund", overflow="window")
    assert [name for name, chance in labels if chance > 0.5] == ["billing"]
    (labels,) = await classified(gateway, "classifier", "music garden " * 80, overflow="window")
    assert max(labels, key=lambda pair: pair[1])[0] == "other"
    assert math.fsum(chance for _, chance in labels) == pytest.approx(1, abs=1e-9)


async def test_what_is_too_long_fails_alone_or_is_cut(gateway):
    long = "word " * 5000
    rows = await classified(gateway, "classifier", "the python loop", long)
    assert rows[0][0][0] == "math"
    assert rows[1][0] == "max_length_exceeded"
    cut = await both(
        gateway, "classify", {"model": "classifier", "input": [long], "options": {"overflow": "truncate"}}
    )
    assert cut.usage["tokens_lower_bound"] is True
    assert len(cut.rows[0]) == 3
    scanned = await both(
        gateway,
        "classify",
        {
            "model": "tagger",
            "input": ["word " * 100_000],
            "options": {"overflow": "window", "max_tokens": 4096},
        },
    )
    assert scanned.rows[0][0] == "scan_budget_exceeded"
    assert scanned.usage["prompt_tokens"] == 0


async def test_pairs_are_told_apart_by_what_is_first_and_second(gateway):
    items = [
        {"text": "cook a garden", "text_pair": "debug the loop"},
        {"text": "debug the loop", "text_pair": "cook a garden"},
    ]
    (good,), (bad,) = (await both(gateway, "classify", {"model": "ranker", "input": items})).rows
    assert good[1] > 0.7 > 0.3 > bad[1]
    grounded = [{"context": "the tom", "question": "what is", "answer": "please anna"}]
    (spans,) = (await both(gateway, "classify", {"model": "tagger", "input": grounded})).rows
    assert all("please anna"[start:end] == found for _, start, end, found, _ in spans)


DOCUMENTS = ["my garden music", "debug a loop with python", "divide the fraction", "compile the function"]


async def test_a_cross_encoder_ranks_and_its_scores_do_not_depend_on_the_other_documents(gateway):
    body = {"model": "ranker", "query": "variable", "documents": DOCUMENTS}
    ranked = await both(gateway, "rerank", body)
    assert {index for index, _ in ranked.rows[:2]} == {1, 3}
    scores = [score for _, score in ranked.rows]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    alone = await both(gateway, "rerank", body | {"documents": DOCUMENTS[1:2]})
    assert alone.rows[0][1] == pytest.approx(dict(ranked.rows)[1], abs=1e-5)
    raw = await both(gateway, "rerank", body | {"raw_scores": True, "top_n": 1, "return_documents": True})
    assert len(raw.rows) == 1
    assert 1 / (1 + math.exp(-raw.rows[0][1])) == pytest.approx(ranked.rows[0][1], abs=1e-5)


async def test_an_embedder_ranks_by_cosine(gateway):
    vectors = (await both(gateway, "embeddings", {"model": "embedder", "input": ["python", *DOCUMENTS]})).rows
    ranked = await both(
        gateway,
        "rerank",
        {"model": "embedder", "query": "python", "documents": DOCUMENTS, "raw_scores": True},
    )
    cosines = [sum(a * b for a, b in zip(vectors[0], row, strict=True)) for row in vectors[1:]]
    assert dict(ranked.rows) == {n: pytest.approx(each, abs=1e-5) for n, each in enumerate(cosines)}
    scaled = await both(gateway, "rerank", {"model": "embedder", "query": "python", "documents": DOCUMENTS})
    assert [index for index, _ in scaled.rows] == [index for index, _ in ranked.rows]
    assert dict(scaled.rows)[0] == pytest.approx((1 + cosines[0]) / 2, abs=1e-5)


REFUSED = [
    ("classify", {"model": "embedder", "input": ["x"]}, 422, "unsupported_surface", "does not classify"),
    ("embeddings", {"model": "tagger", "input": ["x"]}, 422, "unsupported_surface", "does not embed"),
    ("rerank", {"model": "tagger", "query": "x", "documents": ["y"]}, 422, "unsupported_surface", "rank"),
    ("classify", {"model": "no/such", "input": ["x"]}, 404, "model_not_found", "no/such"),
    ("classify", {"input": ["x"]}, 400, "invalid_request", "classifier"),
    (
        "classify",
        {"model": "tagger", "input": "x", "options": {"overflow": "window", "window": {"tokens": 65}}},
        400,
        "invalid_request",
        "at most 64",
    ),
    (
        "classify",
        {"model": "tagger", "input": "x", "options": {"overflow": "window", "window": {"tokens": 9, "overlap": 9}}},
        400,
        "invalid_request",
        "less than a window has, 9",
    ),
    ("rerank", {"model": "ranker", "query": "x", "documents": ["word " * 99]}, 400, "context_length_exceeded", "documents[0]"),
    ("rerank", {"model": "ranker", "query": " ", "documents": ["x"]}, 400, "invalid_request", "query"),
]  # fmt: skip


@pytest.mark.parametrize(("surface", "body", "status", "code", "words"), REFUSED, ids=str)
async def test_what_is_wrong_is_named(gateway, surface, body, status, code, words):
    refused = await both(gateway, surface, body)
    assert (refused.status, refused.code) == (status, code)
    assert words in refused.message


MALFORMED = [
    ("classify", {"input": ["x"], "options": {"overflow": "middle"}}, "invalid_request", "options.overflow"),
    ("classify", {"input": [{"text": "x", "other": "y"}]}, "json_parse_error", "input[0]"),
    ("classify", {"input": 5}, "json_parse_error", "input"),
    ("classify", {"input": ""}, "empty_input", "input"),
    ("rerank", {"query": "x"}, "invalid_request", "documents is missing"),
    ("rerank", {"query": "x", "documents": []}, "invalid_request", "documents is empty"),
    ("rerank", {"query": "x", "documents": ["a", ""]}, "invalid_request", "documents[1]"),
    ("rerank", {"query": "x", "documents": "a"}, "json_parse_error", "documents"),
    ("rerank", {"query": "x", "documents": ["a"], "top_n": 0}, "invalid_request", "top_n"),
    ("bundle", {}, "invalid_request", "tasks"),
    ("bundle", {"tasks": [{"id": "a"}]}, "invalid_request", "one of classify, decisions"),
    ("bundle", {"tasks": [{"id": "a", "rerank": {}}, {"id": "a", "rerank": {}}]}, "invalid_request", "another task"),
    ("bundle", {"tasks": [{"id": "a", "rerank": {}}], "model": "x"}, "invalid_request", "model"),
    ("bundle", {"tasks": [{"id": "a", "rerank": {}}], "options": {"deadline_ms": 0}}, "invalid_request", "deadline_ms"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "code", "words"), MALFORMED, ids=str)
async def test_bodies_of_another_form_are_refused(gateway, path, body, code, words):
    response = await gateway.http.post(f"/v1/{path}", json=body)
    error = response.json()["error"]
    assert (response.status_code, str(error["code"])) == (400, code), error
    assert words in error["message"]


async def test_a_bundle_answers_its_tasks_in_order_each_with_its_own_status(gateway):
    tasks = [
        {"id": "kind", "classify": {"model": "classifier", "input": ["debug the loop"]}},
        {"id": "nobody", "embeddings": {"model": "no/such", "input": "x"}},
        {"id": "vector", "embeddings": {"model": "embedder", "input": "x", "encoding_format": "base64"}},
        {"id": "asked", "decisions": {"model": "embedder", "state": "x", "questions": {"q": {"type": "noul", "instructions": "y"}}}},
        {"id": "rank", "rerank": {"model": "ranker", "query": "python", "documents": DOCUMENTS, "top_n": 1}},
    ]  # fmt: skip
    response = await gateway.http.post(
        "/v1/bundle", json={"tasks": tasks, "options": {"deadline_ms": 30_000}}
    )
    assert response.status_code == 200
    assert "total;dur=" in response.headers["server-timing"]
    results = response.json()["results"]
    assert [each["id"] for each in results] == [each["id"] for each in tasks]
    assert [each["status"] for each in results] == [200, 404, 200, 422, 200]
    for task, result in zip(tasks, results, strict=True):
        surface = next(name for name in task if name != "id")
        alone = (await gateway.http.post(f"/v1/{surface}", json=task[surface])).json()
        varying = ("id", "created", "timings")
        assert close(result["body"], varying) == close(alone, varying)


def close(value, without):
    """A JSON value without members that differ each time, numbers rounded."""
    if isinstance(value, dict):
        return {name: close(each, without) for name, each in value.items() if name not in without}
    if isinstance(value, list):
        return [close(each, without) for each in value]
    return round(value, 4) if isinstance(value, float) else value
