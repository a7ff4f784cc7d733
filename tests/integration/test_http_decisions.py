"""Decisions over HTTP, whole: both forms and System One, answers and refusals, on an engine whose scores are told."""

import asyncio
import base64
import gzip
import math

import orjson
import pytest
import pytest_asyncio
import zstandard

from tests.conftest import EchoWorkers
from tests.integration.running_router import running_router, until
from tests.unit.gateway.decisions.test_images import PNG_BYTES, image

pytestmark = pytest.mark.asyncio(loop_scope="module")

STATE = "I was charged twice for my March invoice. Please refund me today."
REFUND = {"type": "noul", "instructions": "Is the customer asking for money back?"}
TEAM = {
    "type": "choice",
    "instructions": "Which team?",
    "criteria": {"billing": "Payments", "technical": "Bugs", "sales": None},
}
ANGER = {
    "type": "score",
    "instructions": "How angry? [[lp:-20,-0.001,-20]]",
    "criteria": ["calm", "cross", "mad"],
}
BAD = {"type": "set", "instructions": "x", "labels": [{"key": "a"}], "colour": "red"}
PHASES = ("parse", "tokenize", "queue", "forward", "post", "serialize", "total")
PNG_URL = f"data:image/png;base64,{base64.b64encode(PNG_BYTES).decode()}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def echo(decision_tokenizer_dir):
    workers = EchoWorkers(decision_tokenizer_dir)
    yield await workers(model_ids=("d",)), workers
    await workers.stop_all()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(echo):
    settings = {"decision_max_request_tokens": 3000, "decision_max_body_bytes": 1 << 20}
    async with running_router(echo[0], decisions=settings) as running:
        yield running


async def ask(gateway, path="/v1/systemone", *, state=STATE, **members):
    body = {"state": state, **members} if state is not None else members
    return await gateway.http.post(path, json=body)


def error_of(answer):
    body = answer.json()
    assert body["error"]["message"]
    assert body["code"] == body["error"]["code"]
    assert isinstance(body["detail"], list) == (answer.status_code == 422)
    return body["error"]


async def test_every_type_of_question_in_one_request(gateway):
    questions = {
        "refund": REFUND,
        "team": TEAM,
        "anger": ANGER,
        "problems": {"type": "set", "labels": [{"key": "a"}, {"key": "b"}], "threshold": 0.3},
        "who": {"type": "span", "instructions": "[[lp:-0.1,-9]]", "labels": [{"key": "WORD"}]},
    }
    answer = (await ask(gateway, model="d", questions=questions)).json()
    answers = answer["answers"]
    assert list(answers) == ["refund", "team", "anger", "problems.a", "problems.b", "who"]
    assert set(answers["refund"]) == {"type", "noul", "x_label_mass"}
    shares = answers["team"]["probabilities"]
    assert list(shares) == ["billing", "technical", "sales"]
    assert math.isclose(sum(shares.values()), 1, abs_tol=1e-9)
    assert answers["team"]["choice"] == max(shares, key=shares.get)
    assert answers["team"]["confidence"] == pytest.approx((3 * max(shares.values()) - 1) / 2)
    assert answers["anger"]["score"] == pytest.approx(1, abs=1e-6)
    assert answers["anger"]["legend"] == {"0": "calm", "1": "cross", "2": "mad"}
    chosen = answer["sets"]["problems"]
    assert chosen["selected"] == [key for key, share in chosen["probabilities"].items() if share >= 0.3]
    assert answer["thresholds"] == {"problems": 0.3, "who": 0.5}
    # Every word counts, so each sentence is one span.
    assert [each["text"] for each in answer["spans"]["who"]] == [STATE[:40], STATE[42:64]]
    assert all(STATE[each["start"] : each["end"]] == each["text"] for each in answer["spans"]["who"])
    assert answer["usage"]["output_tokens"] == 0


async def test_other_questions_and_their_order_change_nothing(gateway):
    alone = (await ask(gateway, questions={"x": TEAM})).json()
    others = {f"q{n}": {**REFUND, "instructions": f"Is it {n}?"} for n in range(8)}
    among = (await ask(gateway, questions={**others, "y": TEAM})).json()
    assert among["answers"]["y"] == alone["answers"]["x"]
    one, nine = alone["usage"]["input_tokens"], among["usage"]["input_tokens"]
    # The state counts once.
    assert nine < 9 * one


@pytest.mark.parametrize("options", [2, 26, 27, 255])
async def test_a_choice_has_up_to_255_options(gateway, options):
    question = {"type": "choice", "criteria": {f"opt {n:03}": None for n in range(options)}}
    answer = (await ask(gateway, questions={"q": question})).json()["answers"]["q"]
    assert len(answer["probabilities"]) == options
    assert sum(answer["probabilities"].values()) == pytest.approx(1)


async def test_names_come_back_byte_for_byte(gateway):
    question = {"type": "choice", "instructions": "유형?", "criteria": {"환불 요청": "환불", "🙂 기타": None}}
    answer = (await ask(gateway, state={"메모": ["é", 1.5]}, questions={"질문 id.": question})).json()
    assert list(answer["answers"]["질문 id."]["probabilities"]) == ["환불 요청", "🙂 기타"]


async def test_a_failed_question_fails_a_system_one_request(gateway):
    questions = {"ok": REFUND, "bad": BAD, "worse": {"type": "nope"}}
    answer = await ask(gateway, questions=questions)
    assert answer.status_code == 422
    error = error_of(answer)
    assert (error["code"], error["question_error"], error["question"], error["reason"]) == (
        "question_failed",
        "invalid_question",
        "bad",
        "question_malformed",
    )
    assert "colour" in error["message"]
    assert "worse" in error["message"]
    assert [each["loc"] for each in answer.json()["detail"]] == [
        ["body", "questions", "bad"],
        ["body", "questions", "worse"],
    ]


async def test_a_failed_question_is_answered_in_place_on_decisions(gateway):
    questions = {"bad": BAD, "ok": REFUND, "box": {"type": "box", "instructions": "the dog"}}
    answer = await ask(gateway, "/v1/decisions", questions=questions)
    assert answer.status_code == 200
    answers = answer.json()["answers"]
    assert list(answers) == list(questions)
    assert (answers["bad"]["type"], answers["bad"]["error"]) == ("set", "invalid_question")
    assert answers["box"]["reason"] == "box_unsupported"
    assert 0 <= answers["ok"]["noul"] <= 1


async def test_no_valid_question_is_a_refusal_with_every_reason(gateway):
    answer = await ask(gateway, "/v1/decisions", questions={"a": {"type": "nope"}, "b": BAD})
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["code"], error["question"], error["reason"]) == (
        "invalid_request",
        "a",
        "question_malformed",
    )
    assert "colour" in error["message"]


async def test_a_batch_answers_each_state_by_itself(gateway):
    states = {
        "one": {"state": STATE, "questions": {"r": REFUND}},
        "two": {"state": {"request": "x", "candidate": "y"}, "questions": {"r": REFUND, "bad": BAD}},
        "seen": {"state": "x", "images": ["data:image/png;base64,AAAA"], "questions": {"r": REFUND}},
    }
    answer = await ask(gateway, "/v1/decisions", state=None, states=states, options={"return_meta": True})
    body = answer.json()
    assert list(body["states"]) == ["one", "two", "seen"]
    assert "answers" not in body
    alone = (await ask(gateway, "/v1/decisions", questions={"r": REFUND})).json()
    assert body["states"]["one"]["answers"] == alone["answers"]
    assert body["states"]["two"]["answers"]["bad"]["error"] == "invalid_question"
    seen = body["states"]["seen"]["answers"]["r"]
    assert (seen["error"], seen["reason"]) == ("invalid_input", "input_malformed")
    assert body["usage"]["input_tokens"] == sum(
        each["usage"]["input_tokens"] for each in body["states"].values()
    )
    assert body["meta"].keys() >= {"numerics", "engine", "device", "dtype", "timings"}
    whole = await ask(gateway, state=None, states={"two": states["two"]})
    assert (error_of(whole)["question"], error_of(whole)["state"]) == ("bad", "two")


async def test_a_state_that_its_engine_fails_leaves_the_others_alone(gateway):
    failing = {**REFUND, "instructions": "x [[error:INTERNAL:boom]]"}
    states = {
        "good": {"state": STATE, "questions": {"r": REFUND}},
        "broken": {"state": STATE, "questions": {"r": failing}},
    }
    placed = (await ask(gateway, "/v1/decisions", state=None, states=states)).json()["states"]
    assert placed["good"]["answers"]["r"]["type"] == "noul"
    assert (placed["broken"]["answers"]["r"]["error"], "noul" in placed["broken"]["answers"]["r"]) == (
        "unavailable",
        False,
    )
    whole = await ask(gateway, state=None, states={"broken": states["broken"]})
    assert whole.status_code == 500


async def test_requests_of_a_system_one_batch_fail_alone(gateway):
    requests = {
        "good": {"state": STATE, "questions": {"r": REFUND}},
        "bad": {"state": "y", "questions": {"b": BAD}},
    }
    body = (await gateway.http.post("/v1/systemone/batch", json={"requests": requests})).json()
    assert 0 <= body["responses"]["good"]["answers"]["r"]["noul"] <= 1
    assert (body["responses"]["bad"]["status"], body["responses"]["bad"]["code"]) == (422, "question_failed")
    assert (await gateway.http.post("/v1/systemone/batch", json={"requests": {}})).status_code == 400


@pytest.mark.parametrize(
    ("members", "status", "word"),
    [
        ({"questions": {"r": REFUND}, "foo": 1}, 400, "foo"),
        ({"state": None, "questions": {"r": REFUND}}, 400, "state is missing"),
        ({"state": 5, "questions": {"r": REFUND}}, 400, "state is 5"),
        ({"questions": {}}, 400, "questions is empty"),
        ({"questions": {"": REFUND}}, 400, "empty id"),
        ({"questions": {"r": REFUND}, "model": "nope"}, 404, "served: d"),
        ({"questions": {"r": REFUND}, "options": {"deadline_ms": 0}}, 400, "deadline_ms"),
        ({"questions": {"r": REFUND}, "options": {"deadline_ms": 10**7}}, 400, "600000"),
        ({"questions": {"r": REFUND}, "options": {"max_tokens": 10**6}}, 400, "3000"),
        ({"questions": {"r": REFUND}, "options": {"overflow": "window"}}, 400, "overflow"),
        ({"questions": {"r": REFUND}, "roles": {"a": "x"}}, 400, "roles"),
        ({"questions": {"r": REFUND}, "states": {}}, 400, "both there"),
        ({"questions": {"r": REFUND}, "images": [PNG_URL]}, 400, "reads no images"),
        ({"questions": {"r": REFUND}, "videos": ["data:video/mp4;base64,AAAA"]}, 400, "reads no videos"),
        (
            {"questions": {"r": REFUND}, "assets": {"<r>": {"type": "image", "data_base64": PNG_URL[22:]}}},
            400,
            "stand in no text",
        ),
        ({"questions": {str(n): REFUND for n in range(1025)}}, 400, "1024"),
    ],
)
async def test_a_refusal_names_what_is_wrong(gateway, members, status, word):
    answer = await ask(gateway, **{"state": STATE, **members})
    assert answer.status_code == status
    assert word in error_of(answer)["message"]


async def test_an_image_in_a_question_fails_that_question(gateway):
    assets = {"<r>": {"type": "image", "data_base64": PNG_URL[22:]}}
    asked = {"q": {"type": "noul", "instructions": "Does <r> show a total?"}, "ok": REFUND}
    answer = await ask(gateway, assets=assets, questions=asked)
    assert (answer.status_code, error_of(answer)["reason"]) == (422, "question_images_unsupported")
    placed = await ask(gateway, "/v1/decisions", assets=assets, questions=asked)
    assert placed.json()["answers"]["ok"]["type"] == "noul"


async def test_a_question_that_is_too_long_fails_with_its_reason(gateway):
    answer = await ask(gateway, state="word " * 4000, questions={"r": REFUND})
    error = error_of(answer)
    assert (answer.status_code, error["question_error"], error["reason"]) == (
        400,
        "max_length_exceeded",
        "question_tokens",
    )


async def test_a_request_over_its_tokens_is_refused_with_the_limit(gateway):
    questions = {f"q{n}": {**REFUND, "instructions": f"Is it number {n}, say? " * 3} for n in range(60)}
    answer = await ask(gateway, questions=questions)
    error = error_of(answer)
    assert (answer.status_code, error["reason"], error["limit"]) == (400, "request_tokens", 3000)


async def test_scores_that_are_none_fail_their_question_alone(gateway):
    broken = {**REFUND, "instructions": "x [[lp:-inf,-inf]]"}
    placed = await ask(gateway, "/v1/decisions", questions={"broken": broken, "ok": REFUND})
    assert placed.json()["answers"]["broken"]["error"] == "invalid_model_output"
    assert placed.json()["answers"]["ok"]["type"] == "noul"
    assert (await ask(gateway, questions={"broken": broken})).status_code == 500
    form = {
        "model": "d",
        "input": "x",
        "questions": [{"type": "predicate", "instructions": "[[lp:-inf,-inf]]"}],
    }
    answer = await gateway.http.post("/v1/decisions", json=form)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "invalid_decisions_response")


async def test_an_engine_that_refuses_is_told_in_the_forms_own_words(gateway):
    failing = {**REFUND, "instructions": "x [[error:INVALID_ARGUMENT:bad]]"}
    assert (await ask(gateway, questions={"q": failing})).status_code == 400
    form = {
        "model": "d",
        "input": "x",
        "questions": [{"type": "predicate", "instructions": "[[error:INTERNAL:boom]]"}],
    }
    answer = await gateway.http.post("/v1/decisions", json=form)
    assert (answer.status_code, answer.headers["x-smg-error-code"]) == (500, "start_generation_failed")


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "zstd"])
async def test_a_body_may_be_compressed(gateway, coding):
    data = orjson.dumps({"state": STATE, "questions": {"r": REFUND}})
    packed = zstandard.compress(data) if coding == "zstd" else gzip.compress(data)
    headers = {"content-type": "application/json", "content-encoding": coding}
    answer = await gateway.http.post("/v1/systemone", content=packed, headers=headers)
    assert answer.json()["answers"] == (await ask(gateway, questions={"r": REFUND})).json()["answers"]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"content-encoding": "br", "content-type": "application/json"}, 415, "unsupported_media_type"),
        (
            {"content-encoding": "gzip, zstd", "content-type": "application/json"},
            415,
            "unsupported_media_type",
        ),
        ({"content-encoding": "gzip", "content-type": "application/json"}, 400, "invalid_request"),
        ({"content-type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content-type": "multipart/form-data"}, 400, "invalid_request"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused(gateway, headers, status, code):
    answer = await gateway.http.post("/v1/systemone", content=b"{}", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)


async def test_a_small_bomb_is_refused_at_the_bound(gateway):
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    bomb = gzip.compress(b'{"state":"' + b"a" * (40 << 20) + b'"}')
    answer = await gateway.http.post("/v1/systemone", content=bomb, headers=headers)
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["limit"]) == (413, "request_too_large", 1 << 20)


async def test_parts_of_a_body_are_images_that_assets_claim(gateway):
    request = {
        "state": "<r>",
        "assets": {"<r>": {"type": "image", "part": "asset-0"}},
        "questions": {"r": REFUND},
    }

    async def send(data, part="asset-0"):
        files = [
            ("request", (None, orjson.dumps(request), "application/json")),
            (part, (part, data, "image/png")),
        ]
        return error_of(await gateway.http.post("/v1/systemone", files=files))

    assert (await send(image("PNG")))["reason"] == "image_unsupported"
    assert (await send(b"no image"))["reason"] == "image_malformed"
    assert (await send(image("PNG"), "stray"))["reason"] == "asset_malformed"


async def test_phases_are_told_and_sum_to_no_more_than_the_total(gateway):
    for answer in (
        await ask(gateway, questions={"r": REFUND}),
        await ask(gateway, questions={"r": BAD}),
        await ask(gateway, "/v1/decisions", questions={"r": REFUND}),
    ):
        told = dict(each.split(";dur=") for each in answer.headers["server-timing"].split(", "))
        assert tuple(told) == PHASES
        spent = [float(told[name]) for name in PHASES[:-1]]
        assert sum(spent) <= float(told["total"]) + 0.001
        assert answer.headers["x-typesafe-request-id"]


async def test_a_deadline_ends_the_wait_and_the_work(echo, decision_tokenizer_dir):
    workers = EchoWorkers(decision_tokenizer_dir)
    # An engine that answers at the end of a step, which is far off.
    url = await workers(model_ids=("d",), step_seconds=600.0)
    async with running_router(url, decisions={"decision_timeout_secs": 0.05}) as gateway:
        late = await ask(gateway, questions={"r": REFUND}, options={"deadline_ms": 20})
        assert (late.status_code, error_of(late)["question_error"]) == (504, "deadline_exceeded")
        placed = await ask(
            gateway, "/v1/decisions", questions={"r": REFUND, "bad": BAD}, options={"deadline_ms": 20}
        )
        assert placed.json()["answers"]["r"]["error"] == "deadline_exceeded"
        unnamed = await ask(gateway, questions={"r": REFUND})
        assert (unnamed.status_code, error_of(unnamed)["code"]) == (504, "systemone_deadline_exceeded")
        assert "options.deadline_ms" in error_of(unnamed)["message"]
        await until(lambda: not any(each.inflight_requests for each in gateway.router.registry.workers()))
        assert gateway.router.admission.running == 0
    await workers.stop_all()


async def test_a_client_that_leaves_leaves_nothing_behind(gateway):
    requests = [asyncio.create_task(ask(gateway, questions={"r": REFUND})) for _ in range(5)]
    await asyncio.sleep(0)
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    await until(lambda: not any(each.inflight_requests for each in gateway.router.registry.workers()))
    assert gateway.router.admission.running == 0


async def test_a_model_whose_workers_do_not_score_is_not_asked(echo):
    async with running_router(echo[0]) as gateway:
        gateway.router.registry.card("d").capabilities.score = False
        form = {"model": "d", "input": "x", "questions": [{"type": "predicate", "instructions": "y"}]}
        answer = await gateway.http.post("/v1/decisions", json=form)
        assert (answer.status_code, answer.json()["error"]["code"]) == (501, "decisions_not_supported")
        stated = await ask(gateway, model="d", questions={"r": REFUND})
        assert (stated.status_code, error_of(stated)["code"]) == (422, "unsupported_surface")
        assert (await gateway.http.get("/v1/systemone/models")).json()["models"] == []


async def test_models_are_listed_for_both_kinds_of_client(gateway):
    body = (await gateway.http.get("/v1/models")).json()
    assert [each["id"] for each in body["data"]] == ["d"]
    (entry,) = body["models"]
    assert (entry["name"], body["api_version"]) == ("d", "5.0.0")
    assert entry["features"] == ["noul", "choice", "score", "set", "span"]
    card = entry["card"]
    assert card["self_check"] == {"status": "passed", "reason": ""}
    assert card["limits"]["max_request_tokens"] == 3000
    assert card["numerics"] == "exact"
    native = (await gateway.http.get("/v1/systemone/models")).json()
    assert native["models"] == body["models"]


async def test_probes_and_the_document(gateway):
    assert (await gateway.http.get("/health/live")).json() == {"status": "alive", "api_version": "5.0.0"}
    document = await gateway.http.get("/openapi.yaml")
    assert document.text.startswith("openapi: 3.1")


async def test_keys_are_asked_for_in_the_standards_words(echo):
    async with running_router(echo[0], callers={"api_key": "secret"}) as gateway:
        answer = await ask(gateway, questions={"r": REFUND})
        assert answer.status_code == 401
        assert answer.json()["detail"]["error_type"] == "authentication_error"


async def test_of_several_models_one_must_be_named(decision_tokenizer_dir, thinking_tokenizer_dir):
    workers = EchoWorkers(decision_tokenizer_dir)
    paths = (str(decision_tokenizer_dir), str(thinking_tokenizer_dir))
    url = await workers(model_paths=paths, model_ids=("d", "org/qwen3-tiny"))
    async with running_router(url, models={"model_alias": {"judge": "d"}}) as gateway:
        unnamed = await ask(gateway, questions={"r": REFUND})
        assert (unnamed.status_code, "model is missing" in error_of(unnamed)["message"]) == (400, True)
        assert (await ask(gateway, model="judge", questions={"r": REFUND})).json()["model"] == "d"
        assert (await ask(gateway, model="jev-latest", questions={"r": REFUND})).status_code == 404
        # A model that may think is asked without, and by its options' texts where its tokenizer has no labels.
        worded = (await ask(gateway, model="org/qwen3-tiny", questions={"r": REFUND, "t": TEAM})).json()
        assert "x_label_mass" not in worded["answers"]["t"]
        assert sum(worded["answers"]["t"]["probabilities"].values()) == pytest.approx(1)
        form = {
            "model": "org/qwen3-tiny",
            "input": "x",
            "questions": [{"type": "predicate", "instructions": "y"}],
        }
        refused = await gateway.http.post("/v1/decisions", json=form)
        assert refused.json()["error"]["code"] == "unsupported_decisions_request"
    await workers.stop_all()
