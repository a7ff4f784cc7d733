"""DecisionService gives the answers that HTTP gives; a stream answers many requests, each under its tag."""

import asyncio

import grpc
import pytest
import pytest_asyncio

from smg_proto.decision.v1 import decision_pb2 as pb
from smg_proto.decision.v1 import question_pb2 as q
from tests.conftest import EchoWorkers
from tests.integration.running_router import outcome, running_router

pytestmark = pytest.mark.asyncio(loop_scope="module")

STATE = "I was charged twice. Write to tom@example.com."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(decision_tokenizer_dir):
    workers = EchoWorkers(decision_tokenizer_dir)
    async with running_router(await workers(model_ids=("d",))) as running:
        yield running
    await workers.stop_all()


def text(value):
    return q.Content(text=value)


def noul(name="r", asked="Is it about money?"):
    return q.Question(id=name, type=q.QUESTION_TYPE_NOUL, instructions=text(asked))


def request(*questions, state=STATE, **members):
    return pb.DecideRequest(states=[q.State(content=text(state), questions=questions)], **members)


QUESTIONS = (
    noul(),
    q.Question(
        id="t",
        type=q.QUESTION_TYPE_CHOICE,
        options=[q.Option(key="billing", description=text("Payments")), q.Option(key="sales")],
    ),
    q.Question(
        id="s",
        type=q.QUESTION_TYPE_SCORE,
        options=[q.Option(description=text(each)) for each in ("low", "high")],
    ),
    q.Question(
        id="p", type=q.QUESTION_TYPE_SET, options=[q.Option(key="a"), q.Option(key="b")], threshold=0.2
    ),
    q.Question(id="w", type=q.QUESTION_TYPE_SPAN, options=[q.Option(key="EMAIL")]),
    q.Question(id="bad", type=q.QUESTION_TYPE_CHOICE),
)
JSON = {
    "r": {"type": "noul", "instructions": "Is it about money?"},
    "t": {"type": "choice", "criteria": {"billing": "Payments", "sales": None}},
    "s": {"type": "score", "criteria": ["low", "high"]},
    "p": {"type": "set", "criteria": {"a": None, "b": None}, "threshold": 0.2},
    "w": {"type": "span", "labels": [{"key": "EMAIL"}]},
    "bad": {"type": "choice", "criteria": {}},
}


async def test_both_doors_give_the_same_answers(gateway):
    typed = await gateway.decisions.Decide(request(*QUESTIONS))
    body = (await gateway.http.post("/v1/decisions", json={"state": STATE, "questions": JSON})).json()
    answers = {each.id: each for each in typed.states[0].answers}
    told = body["answers"]
    assert answers["r"].noul.noul == told["r"]["noul"]
    assert answers["r"].label_mass == told["r"]["x_label_mass"]
    assert list(answers["t"].choice.probabilities) == list(told["t"]["probabilities"].values())
    assert (answers["t"].choice.key, answers["t"].choice.confidence) == (
        told["t"]["choice"],
        told["t"]["confidence"],
    )
    assert (answers["s"].score.score, answers["s"].score.confidence) == (
        told["s"]["score"],
        told["s"]["confidence"],
    )
    assert list(answers["p"].set.probabilities) == list(body["sets"]["p"]["probabilities"].values())
    found = [
        (each.label, each.start, each.end, each.text, each.probability) for each in answers["w"].span.spans
    ]
    assert found == [tuple(each.values()) for each in body["spans"]["w"]]
    assert answers["bad"].failure.error == told["bad"]["error"] == "invalid_question"
    assert typed.usage.input_tokens == body["usage"]["input_tokens"]
    assert typed.worker_url


@pytest.mark.parametrize(
    ("asked", "code", "word"),
    [
        (pb.DecideRequest(), "INVALID_ARGUMENT", "states is empty"),
        (request(noul(), model="nope"), "NOT_FOUND", "served: d"),
        (request(), "INVALID_ARGUMENT", "questions is empty"),
        (request(noul(), noul()), "INVALID_ARGUMENT", "'r' twice"),
        (pb.DecideRequest(states=[q.State(questions=[noul()])]), "INVALID_ARGUMENT", "state is missing"),
        (
            pb.DecideRequest(states=[q.State(content=q.Content(json="{"), questions=[noul()])]),
            "INVALID_ARGUMENT",
            "not JSON",
        ),
        (request(noul(), options=pb.DecideOptions(max_tokens=0)), "INVALID_ARGUMENT", "max_tokens"),
    ],
)
async def test_a_refusal_is_a_status_that_names_what_is_wrong(gateway, asked, code, word):
    status, message, detail = await outcome(gateway.decisions.Decide(asked))
    assert status == code
    assert word in message
    assert detail.http_status in (400, 404)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        (q.Question(id="x"), "type is not said"),
        (q.Question(id="x", type=q.QUESTION_TYPE_NOUL), "need instructions"),
        (q.Question(id="x", type=q.QUESTION_TYPE_NOUL, options=[q.Option(key="yes")]), "true and false"),
        (q.Question(id="x", type=q.QUESTION_TYPE_SCORE), "1 to 10 levels"),
        (q.Question(id="x", type=q.QUESTION_TYPE_SCORE, options=[q.Option()]), "describe each"),
        (q.Question(id="x", type=q.QUESTION_TYPE_SET, options=[q.Option(key="a")] * 2), "differ"),
        (q.Question(id="x", type=q.QUESTION_TYPE_SET, options=[q.Option(key="a")], threshold=2), "0 to 1"),
        (
            q.Question(id="x", type=q.QUESTION_TYPE_CHOICE, options=[q.Option(key="a")], threshold=0.5),
            "set and span",
        ),
        (q.Question(id="x", type=q.QUESTION_TYPE_NOUL, instructions=q.Content(json="{")), "not JSON"),
    ],
)
async def test_a_question_that_breaks_a_rule_fails_alone(gateway, question, word):
    answers = (await gateway.decisions.Decide(request(question, noul()))).states[0].answers
    assert word in answers[0].failure.message
    assert answers[1].HasField("noul")


async def test_a_stream_answers_each_request_under_its_tag(gateway):
    async def requests():
        for number in range(40):
            asked = request(noul(asked=f"Is it {number}?"), model="nope" if number == 7 else "")
            yield pb.StreamDecideRequest(tag=str(number), request=asked)

    answers = {each.tag: each async for each in gateway.decisions.StreamDecide(requests())}
    assert set(answers) == {str(number) for number in range(40)}
    assert (answers["7"].failure.code, answers["7"].failure.error) == (
        grpc.StatusCode.NOT_FOUND.value[0],
        "model_not_found",
    )
    alone = await gateway.decisions.Decide(request(noul(asked="Is it 3?")))
    assert answers["3"].response.states[0].answers == alone.states[0].answers


async def test_a_stream_answers_while_its_client_still_asks(gateway):
    asked = asyncio.Queue()

    async def requests():
        while (each := await asked.get()) is not None:
            yield each

    call = gateway.decisions.StreamDecide(requests())
    for tag in ("a", "b"):
        asked.put_nowait(pb.StreamDecideRequest(tag=tag, request=request(noul())))
        assert (await call.read()).tag == tag
    asked.put_nowait(None)
    assert await call.read() is grpc.aio.EOF


async def test_the_models_are_listed(gateway):
    (model,) = (await gateway.decisions.ListDecisionModels(pb.ListDecisionModelsRequest())).models
    assert (model.id, model.unsupported, model.readout, model.max_options) == ("d", "", "labels", 255)
    assert len(model.question_types) == 5
