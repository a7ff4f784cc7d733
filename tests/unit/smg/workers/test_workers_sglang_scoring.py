"""Scoring and embedding on SGLang: the first question warms the prefix, the rest share it, and one failure ends all."""

from __future__ import annotations

import asyncio
from array import array

import pytest
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb

from smg.errors import EngineError, UnusableScores
from smg.workers.sglang.requests import classify_to_sglang
from smg.workers.sglang.scoring import classify, embed, score
from smg_proto.engine.v1 import work_pb2


def ids(*numbers: int) -> bytes:
    return array("I", numbers).tobytes()


class Client:
    """Answers as an SGLang server does, and counts what runs at a time."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.names: set[str] = set()
        self.running = 0
        self.most = 0
        self.order: list[tuple[str, int]] = []
        self.fault: Exception | None = None
        self.answer: pb.GenerateComplete | None = None
        self.embedding = [3.0, 4.0, 0.0]

    async def prefill(self, request):
        self.names.add(request.request_id)
        number = len(self.asked)
        self.asked.append(list(request.tokenized.input_ids))
        self.running += 1
        self.most = max(self.most, self.running)
        self.order.append(("begin", number))
        try:
            await asyncio.sleep(0)
            if self.fault and number:
                raise self.fault
        finally:
            self.running -= 1
        self.order.append(("end", number))
        return self.answer or self._answer(request)

    def _answer(self, request):
        labels = list(request.token_ids_logprob)
        complete = pb.GenerateComplete(finish_reason="length", cached_tokens=len(self.asked))
        if labels:
            complete.output_logprobs.token_ids_logprobs.add(
                token_ids=labels, values=[-float(each) for each in labels]
            )
        if request.logprob_start_len >= 0:
            for position, token in enumerate(request.tokenized.input_ids[request.logprob_start_len :]):
                entry = complete.input_logprobs.token_logprobs.add()
                if position:
                    entry.value = -float(token)
        return complete

    async def embed(self, request):
        return pb.EmbedResponse(embedding=self.embedding, prompt_tokens=2)


def request(suffixes: int = 5) -> work_pb2.Score:
    message = work_pb2.Score(sequence=3, prefix_ids=ids(1, 2))
    for number in range(suffixes):
        message.suffixes.add(ids=ids(10 + number), label_ids=[5, 6 + number])
    return message


async def test_rows_come_in_the_order_of_the_suffixes():
    client = Client()
    scored = await score(client, request(), "rid", 32)
    assert [list(row.logprobs) for row in scored.suffixes] == [[-5, -6 - number] for number in range(5)]
    assert (scored.sequence, scored.prompt_tokens, scored.cached_tokens) == (3, 7, 1)
    assert sorted(client.asked) == [[1, 2, 10 + number] for number in range(5)]
    assert len(client.names) == 5


async def test_each_row_tells_what_the_server_had_cached():
    scored = await score(Client(), request(3), "r", 1)
    assert [row.cached_tokens for row in scored.suffixes] == [1, 2, 3]


async def test_scores_that_are_unusable_are_a_bad_gateways():
    client = Client()
    client.answer = pb.GenerateComplete(finish_reason="abort")
    with pytest.raises(UnusableScores) as caught:
        await score(client, request(1), "r", 1)
    assert (caught.value.status, caught.value.code) == (502, "invalid_decisions_response")


async def test_the_first_question_is_answered_before_the_others_are_asked():
    client = Client()
    await score(client, request(), "rid", 32)
    assert client.order[:2] == [("begin", 0), ("end", 0)]
    assert client.most == 4


async def test_no_more_than_the_allowed_number_run_at_a_time():
    client = Client()
    await score(client, request(20), "rid", 3)
    assert client.most == 3


async def test_a_label_of_several_tokens_scores_its_mean():
    client = Client()
    message = work_pb2.Score(prefix_ids=ids(1, 2))
    message.suffixes.add(ids=ids(3), label_sequences=[ids(10, 20), ids(7)])
    scored = await score(client, message, "rid", 4)
    assert list(scored.suffixes[0].sequence_logprobs) == [-15, -7]
    assert client.asked == [[1, 2, 3, 10, 20], [1, 2, 3, 7]]


async def test_one_failure_ends_the_score_with_it():
    client = Client()
    client.fault = EngineError("no room", engine_code=8, can_retry=True)
    with pytest.raises(EngineError, match="no room") as caught:
        await score(client, request(), "rid", 32)
    assert caught.value.can_retry
    assert client.running == 0


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (pb.GenerateComplete(finish_reason="length"), "no log-probabilities"),
        (pb.GenerateComplete(finish_reason="abort"), "'abort'"),
        (
            pb.GenerateComplete(
                output_logprobs=pb.OutputLogProbs(
                    token_ids_logprobs=[pb.TopLogProbs(token_ids=[5], values=[-1])]
                )
            ),
            "label id 6",
        ),
    ],
)
async def test_an_answer_without_the_numbers_is_a_fault_of_the_engine(answer, fault):
    client = Client()
    client.answer = answer
    with pytest.raises(EngineError, match=fault):
        await score(client, request(), "rid", 32)


async def test_a_label_answered_with_too_few_numbers_is_a_fault_of_the_engine():
    client = Client()
    client.answer = pb.GenerateComplete(finish_reason="length")
    message = work_pb2.Score(prefix_ids=ids(1), suffixes=[work_pb2.ScoreSuffix(label_sequences=[ids(1, 2)])])
    with pytest.raises(EngineError, match="0 log-probabilities for a label of 2 tokens"):
        await score(client, message, "rid", 32)


@pytest.mark.parametrize(
    ("dimensions", "expected"), [(None, [3.0, 4.0, 0.0]), (3, [3.0, 4.0, 0.0]), (2, [0.6, 0.8]), (1, [1.0])]
)
async def test_an_embedding_is_as_the_server_scales_it_unless_it_is_cut(dimensions, expected):
    message = work_pb2.Embed(sequence=4, input_ids=ids(1, 2), dimensions=dimensions)
    embedded = await embed(Client(), message, "rid")
    assert list(embedded.values) == pytest.approx(expected)
    assert (embedded.sequence, embedded.prompt_tokens) == (4, 2)


async def test_an_embedding_of_nothing_stays_nothing_and_an_empty_one_is_a_fault():
    client = Client()
    client.embedding = [0.0, 0.0]
    assert list((await embed(client, work_pb2.Embed(dimensions=1), "rid")).values) == [0]
    client.embedding = []
    with pytest.raises(EngineError, match="empty embedding"):
        await embed(client, work_pb2.Embed(), "rid")


async def test_a_classifiers_embedding_is_its_logits_one_for_each_label():
    message = work_pb2.Classify(sequence=5, input_ids=ids(1, 2, 3), second_at=2)
    classified = await classify(Client(), message, "rid", 3)
    assert (classified.sequence, list(classified.logits), classified.prompt_tokens) == (5, [3.0, 4.0, 0.0], 2)
    with pytest.raises(EngineError, match="3 logits for 2 labels"):
        await classify(Client(), message, "rid", 2)
    translated = classify_to_sglang(message, "rid")
    assert list(translated.token_type_ids) == [0, 0, 1]
    assert translated.is_cross_encoder
