"""Embeddings are the same over HTTP and gRPC: in the inputs' order, cut where the model declares it, refused by name."""

import math

import pytest
import pytest_asyncio

from gateway.encode.embeddings_form import read_embeddings
from smg.errors import SmgError
from tests.conftest import EchoWorkers
from tests.contract.doors.encode_doors import both as both_doors
from tests.contract.doors.encode_doors import grpc_answer, grpc_embeddings, stub, unpacked
from tests.integration.running_router import running_router

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = ["The quick brown fox", "Tax law of 1987", "a"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tokenizer_dir):
    """Two workers, so that the inputs of a request are spread."""
    workers = EchoWorkers(tokenizer_dir)
    options = {"model_ids": ("m", "n"), "model_paths": (str(tokenizer_dir),), "max_context": 64}
    urls = [await workers(**options) for _ in range(2)]
    async with running_router(*urls, encoding={"encode_max_inputs": 300}) as running:
        yield running
    await workers.stop_all()


async def both(gateway, body):
    return await both_doors(gateway, "embeddings", body)


async def test_texts_and_their_ids_give_the_same_vectors_of_length_one(gateway):
    texts = await both(gateway, {"model": "m", "input": TEXTS})
    builder = (await gateway.router.catalog.resolve("m")).builder
    ids = [builder.tokenizer.encode(text) for text in TEXTS]
    unsigned = [[int.from_bytes(each[n : n + 4], "little") for n in range(0, len(each), 4)] for each in ids]
    assert (await both(gateway, {"model": "m", "input": unsigned})).rows == texts.rows
    assert all(math.hypot(*row) == pytest.approx(1, abs=1e-6) for row in texts.rows)
    assert texts.usage["prompt_tokens"] == sum(map(len, unsigned)) == texts.usage["total_tokens"]
    for text, row, its_ids in zip(TEXTS, texts.rows, unsigned, strict=True):
        alone = await both(gateway, {"model": "m", "input": text})
        assert alone.rows == [row]
        assert alone.usage["prompt_tokens"] == len(its_ids)
        assert (await both(gateway, {"model": "m", "input": its_ids})).rows == [row]


async def test_many_inputs_come_back_in_their_order_from_all_workers(gateway):
    texts = [f"{n} {TEXTS[n % 3]}" for n in range(300)]
    many = await both(gateway, {"model": "m", "input": texts})
    assert len(many.rows) == 300
    for n in (0, 7, 150, 299):
        assert (await both(gateway, {"model": "m", "input": texts[n]})).rows == [many.rows[n]]


async def test_base64_holds_the_same_numbers_as_little_endian_floats(gateway):
    plain = await both(gateway, {"model": "m", "input": TEXTS, "encoding_format": "float"})
    packed = await both(gateway, {"model": "m", "input": TEXTS, "encoding_format": "base64"})
    assert packed.rows == [pytest.approx(row, abs=1e-9) for row in plain.rows]
    response = await gateway.http.post(
        "/v1/embeddings", json={"model": "m", "input": "x", "encoding_format": "base64"}
    )
    (entry,) = response.json()["data"]
    assert isinstance(entry["embedding"], str)
    assert len(unpacked(entry["embedding"])) == 32


async def test_a_declared_length_is_the_start_of_the_vector_scaled(gateway):
    whole = await both(gateway, {"model": "m", "input": "some words"})
    cut = await both(gateway, {"model": "m", "input": "some words", "dimensions": 8})
    start = whole.rows[0][:8]
    assert cut.rows[0] == pytest.approx([each / math.hypot(*start) for each in start], abs=1e-6)
    assert (await both(gateway, {"model": "m", "input": "some words", "dimensions": 32})).rows == whole.rows


async def test_a_declared_layer_is_another_space_and_meta_says_so(gateway):
    body = {"model": "m", "input": "some words", "options": {"return_meta": True}}
    last, first = await both(gateway, body), await both(gateway, body | {"layer": 1})
    assert last.rows != first.rows
    assert last.meta["representation"] != first.meta["representation"]
    assert last.meta["numerics"] == "exact"
    assert (await both(gateway, body)).meta == last.meta
    assert not (await both(gateway, {"model": "m", "input": "x"})).meta


async def test_an_input_that_is_too_long_is_refused_or_cut_as_asked(gateway):
    long = "word " * 5000
    refused = await both(gateway, {"model": "m", "input": ["short", long]})
    assert (refused.status, refused.code) == (400, "context_length_exceeded")
    assert refused.message.startswith("input[1] has")
    cut = await both(gateway, {"model": "m", "input": long, "options": {"overflow": "truncate"}})
    assert cut.usage["tokens_lower_bound"] is True
    assert cut.usage["prompt_tokens"] > 64
    assert (
        cut.rows
        == (
            await both(gateway, {"model": "m", "input": "word " * 200, "options": {"overflow": "truncate"}})
        ).rows
    )
    short = {"model": "m", "input": "some more words", "options": {"overflow": "truncate", "max_tokens": 1}}
    assert (await both(gateway, short)).usage["tokens_lower_bound"] is True


REFUSED = [
    ({"input": ""}, 400, "empty_input", "input"),
    ({"input": None}, 400, "empty_input", "input is null"),
    ({"input": []}, 400, "empty_input", "input"),
    ({"input": ["x", ""]}, 400, "empty_input", "input[1]"),
    ({"input": [[1], []]}, 400, "empty_input", "input[1]"),
    ({}, 400, "json_parse_error", "input is missing"),
    ({"input": 5}, 400, "json_parse_error", "input"),
    ({"input": [1, "x"]}, 400, "json_parse_error", "input[1]"),
    ({"input": [1, True]}, 400, "json_parse_error", "input[1]"),
    ({"input": ["x", {"a": 1}]}, 400, "json_parse_error", "input[1]"),
    ({"input": [[1, 99_999_999]]}, 400, "400", "99999999"),
    ({"input": "x", "dimensions": 7}, 400, "invalid_request", "the model has 8, 16, 32"),
    ({"input": "x", "dimensions": 0}, 400, "invalid_request", "dimensions"),
    ({"input": "x", "layer": 9}, 400, "invalid_request", "1, 2, 3"),
    ({"input": "x", "encoding_format": "hex"}, 400, "invalid_request", "float, base64"),
    ({"input": "x", "options": {"overflow": "middle"}}, 400, "invalid_request", "reject, truncate"),
    ({"input": "x", "options": {"overflow": "window"}}, 400, "invalid_request", "window"),
    ({"input": "x", "options": {"max_token": 4}}, 400, "invalid_request", "max_token"),
    ({"input": "x", "options": {"max_tokens": 4096}}, 400, "invalid_request", "at most 64"),
    ({"input": [{"image_url": "data:,x"}]}, 422, "unsupported_surface", "input[0]"),
    ({"input": "x", "images": ["data:,x"]}, 422, "unsupported_surface", "images"),
    ({"input": "x", "model": "no/such"}, 404, "model_not_found", "no/such"),
    ({"input": "x", "model": None}, 400, "invalid_request", "served: m, n"),
    ({"input": ["x"] * 301}, 400, "invalid_request", "at most 300"),
    ({"input": "[[error:UNAVAILABLE:down]]"}, 503, "start_embedding_failed", "down"),
    ({"input": "[[error:INVALID_ARGUMENT:boom]]"}, 400, "start_embedding_failed", "boom"),
]


@pytest.mark.parametrize(
    ("body", "status", "code", "words"), REFUSED, ids=[str(each[0])[:60] for each in REFUSED]
)
async def test_what_is_wrong_is_named(gateway, body, status, code, words):
    response = await gateway.http.post("/v1/embeddings", json={"model": "m", **body})
    error = response.json()["error"]
    assert (response.status_code, str(error["code"])) == (status, code), error
    assert words in error["message"]
    assert "total;dur=" in response.headers["server-timing"]
    try:
        read_embeddings(body)
    except SmgError:
        return  # JSON of another form never becomes a message
    assert (await grpc_embeddings(gateway, {"model": "m", **body})).message == error["message"]


async def test_a_call_says_which_worker_answered_and_how_long_it_took(gateway):
    response = await gateway.http.post("/v1/embeddings", json={"model": "m", "input": "x"})
    assert response.headers["x-smg-routed-worker-id"] in {
        each.url for each in gateway.router.registry.workers()
    }
    assert response.headers["x-request-id"].startswith("emb")
    phases = [each.split(";")[0].strip() for each in response.headers["server-timing"].split(",")]
    assert phases == ["parse", "tokenize", "queue", "forward", "post", "serialize", "total"]


async def test_a_token_id_beyond_the_vocabulary_is_refused_with_the_input_that_has_it(gateway):
    refused = await both(gateway, {"model": "m", "input": [[1, 2], [3, 10**9]]})
    assert refused.status == 400
    assert "input[1]: token id 1000000000 at position 1" in refused.message
    assert "allowed are 0 to " in refused.message


async def test_token_ids_are_not_spelled_out(gateway, monkeypatch):
    builder = (await gateway.router.catalog.resolve("m")).builder

    def decode(*_, **__):
        raise AssertionError

    monkeypatch.setattr(builder.tokenizer, "decode", decode)
    assert (await both(gateway, {"model": "m", "input": [1] * 100})).code == "context_length_exceeded"


async def test_a_number_that_is_too_high_is_refused_with_the_highest(gateway):
    answer = await gateway.http.post(
        "/v1/embeddings", json={"model": "m", "input": "a", "options": {"max_tokens": 2**40}}
    )
    assert answer.status_code == 400
    assert "it must be a whole number from 1 to 4294967295" in answer.json()["error"]["message"]


async def test_an_overflow_that_the_wire_carries_but_nobody_knows_is_refused(gateway):
    request = read_embeddings({"model": "m", "input": "a"}).request
    request.options.overflow = 77
    _, refused = await grpc_answer(stub(gateway).CreateEmbeddings(request))
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert "options.overflow is 77; allowed: OVERFLOW_UNSPECIFIED, OVERFLOW_REJECT" in refused.message
