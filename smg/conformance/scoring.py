"""Score, Embed and Classify."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from smg.conformance.checking import check, near
from smg.conformance.session_client import to_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.conformance.worker import Worker

SLACK = 0.05
LABELS_AT_ONCE = 1024


def score(worker: Worker, prefix: str, *suffixes: work_pb2.ScoreSuffix) -> work_pb2.Score:
    return work_pb2.Score(prefix_ids=to_bytes(worker.ids(prefix)), suffixes=suffixes)


def suffix(
    worker: Worker, text: str, labels: Iterable[int] = (), sequences: Iterable[Iterable[int]] = ()
) -> work_pb2.ScoreSuffix:
    return work_pb2.ScoreSuffix(
        ids=to_bytes(worker.ids(text)), label_ids=labels, label_sequences=map(to_bytes, sequences)
    )


@check
async def the_labels_of_a_whole_vocabulary_sum_to_one(worker: Worker) -> None:
    worker.need("score")
    ids = range(worker.card.vocab_size)
    parts = [ids[start : start + LABELS_AT_ONCE] for start in range(0, len(ids), LABELS_AT_ONCE)]
    message = score(worker, "Is water wet?", *(suffix(worker, " Answer:", part) for part in parts))
    async with worker.session() as session:
        record = await session.run_one(message)
    total = sum(math.exp(each) for scores in record.end.suffixes for each in scores.logprobs)
    assert total == near(1, 0.01)


@check
async def suffixes_come_back_in_order_and_do_not_disturb_each_other(worker: Worker) -> None:
    worker.need("score")
    labels = worker.ids(" yes") + worker.ids(" no")
    texts = [" Is water wet?", " Is fire cold? Say:", " Well"]
    async with worker.session() as session:
        together = (
            await session.run_one(score(worker, "A question.", *(suffix(worker, t, labels) for t in texts)))
        ).end
        alone = [
            (await session.run_one(score(worker, "A question.", suffix(worker, t, labels)))).end
            for t in texts
        ]
    assert len(together.suffixes) == 3
    for one, scores in zip(alone, together.suffixes, strict=True):
        assert len(scores.logprobs) == len(labels)
        assert list(scores.logprobs) == near(list(one.suffixes[0].logprobs), SLACK)
    tokens = len(worker.ids("A question.")) + sum(len(worker.ids(text)) for text in texts)
    assert together.prompt_tokens == tokens


@check
async def where_prefix_and_suffix_part_does_not_matter(worker: Worker) -> None:
    worker.need("score")
    labels = worker.ids(" yes")
    ids = worker.ids("Is the sky blue? Answer:")
    messages = [
        work_pb2.Score(
            prefix_ids=to_bytes(ids[:cut]),
            suffixes=[work_pb2.ScoreSuffix(ids=to_bytes(ids[cut:]), label_ids=labels)],
        )
        for cut in (0, 1, len(ids) - 1)
    ]
    async with worker.session() as session:
        ends = [record.end for record in await session.run(*messages)]
    for end in ends[1:]:
        assert list(end.suffixes[0].logprobs) == near(list(ends[0].suffixes[0].logprobs), SLACK)
        assert end.prompt_tokens == ends[0].prompt_tokens


@check
async def a_label_of_one_token_scores_the_same_as_a_sequence(worker: Worker) -> None:
    worker.need("score")
    [label] = worker.ids(" yes")[:1]
    async with worker.session() as session:
        end = (await session.run_one(score(worker, "Is it?", suffix(worker, " Say", [label], [[label]])))).end
    [scores] = end.suffixes
    assert list(scores.sequence_logprobs) == near(list(scores.logprobs), SLACK)


@check
async def a_label_of_several_tokens_scores_their_mean(worker: Worker) -> None:
    worker.need("score")
    worker.need("prompt_logprobs")
    before, label = worker.ids("The capital of France"), worker.ids(" is the city of Paris")
    options = work_pb2.LogprobsOptions(prompt_start=len(before))
    message = work_pb2.Score(
        suffixes=[work_pb2.ScoreSuffix(ids=to_bytes(before), label_sequences=[to_bytes(label)])]
    )
    async with worker.session() as session:
        generated, scored = await session.run(
            worker.generate(before + label, max_new_tokens=0, logprobs=options), message
        )
    mean = sum(row.logprob for row in generated.started.prompt_logprobs) / len(label)
    assert scored.end.suffixes[0].sequence_logprobs[0] == near(mean, SLACK)


@check
async def a_prefix_scored_before_is_cached(worker: Worker) -> None:
    worker.need("score")
    prefix = "A rather long state, which is shared by all the questions about it. " * 6
    async with worker.session() as session:
        await worker.flush()
        cold = await session.run_one(score(worker, prefix, suffix(worker, " Yes or", worker.ids(" no"))))
        warm = await session.run_one(score(worker, prefix, suffix(worker, " No or", worker.ids(" yes"))))
    assert cold.end.cached_tokens == 0
    assert len(worker.ids(prefix)) / 2 < warm.end.cached_tokens <= len(worker.ids(prefix))


@check
async def an_embedding_has_length_one_and_the_announced_size(worker: Worker) -> None:
    worker.need("embed")
    ids = worker.ids("The quick brown fox")
    async with worker.session() as session:
        first, second = await session.run(*(work_pb2.Embed(input_ids=to_bytes(ids)) for _ in range(2)))
    assert len(first.end.values) == worker.card.embedding_size
    assert math.hypot(*first.end.values) == near(1, 1e-3)
    assert list(first.end.values) == near(list(second.end.values), SLACK)
    assert first.end.prompt_tokens == len(ids)


@check
async def a_cut_embedding_is_the_start_of_the_whole_one_normalized(worker: Worker) -> None:
    worker.need("embed")
    ids = to_bytes(worker.ids("The quick brown fox"))
    size = worker.card.embedding_size // 2
    async with worker.session() as session:
        whole, cut = await session.run(
            work_pb2.Embed(input_ids=ids), work_pb2.Embed(input_ids=ids, dimensions=size)
        )
    start = whole.end.values[:size]
    length = math.hypot(*start)
    assert list(cut.end.values) == near([each / length for each in start], 0.01)


@check
async def different_inputs_embed_differently(worker: Worker) -> None:
    worker.need("embed")
    async with worker.session() as session:
        one, other = await session.run(
            *(
                work_pb2.Embed(input_ids=to_bytes(worker.ids(text)))
                for text in ("A black cat", "Tax law of 1987")
            )
        )
    assert sum(a * b for a, b in zip(one.end.values, other.end.values, strict=True)) < 0.999


@check
async def a_classification_has_a_logit_for_each_label(worker: Worker) -> None:
    worker.need("classify")
    ids = to_bytes(worker.ids("I like it"))
    async with worker.session() as session:
        first, second = await session.run(*(work_pb2.Classify(input_ids=ids) for _ in range(2)))
    assert len(first.end.logits) == len(worker.card.labels) > 0
    assert list(first.end.logits) == near(list(second.end.logits), SLACK)
