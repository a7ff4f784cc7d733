"""Scores labels, embeds and classifies with SGLang, which knows neither prefixes nor labels.

The first question is computed alone: it fills the prefix cache. The others follow together, as one batch that shares it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from servicers.sglang.answers import by_label
from servicers.sglang.requests import score_batch, score_call
from servicers.token_bytes import ID_BYTES, ids_from_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.sglang.answers import Entry
    from servicers.sglang.engine import EngineApi, Output, SglangPackage


class _Question(NamedTuple):
    """One prompt that is computed.

    Attributes:
        suffix: index of the suffix that it is of.
        labels: ids whose log-probability as the next token is wanted; empty for a label of several tokens.
        label_tokens: number of tokens at the prompt's end that are the label.
        call: what the engine gets.
    """

    suffix: int
    labels: list[int]
    label_tokens: int
    call: dict[str, Any]


async def score(engine: EngineApi, request: work_pb2.Score, rid: str) -> work_pb2.Scored:
    """Score every suffix.

    Raises:
        LookupError: the engine left a log-probability out.
        Exception: what SGLang raises.
    """
    questions = [
        question
        for index, suffix in enumerate(request.suffixes)
        for question in _questions(index, request.prefix_ids, suffix)
    ]
    rows = [work_pb2.SuffixScores() for _ in request.suffixes]
    cached: list[int | None] = [None] * len(rows)
    for part, name in ((questions[:1], f"{rid}-0"), (questions[1:], f"{rid}-1")):
        if not part:
            continue
        outputs = await engine.async_generate(**score_batch([each.call for each in part], name, request.lora))
        for question, output in zip(part, outputs, strict=True):
            meta: dict[str, Any] = output["meta_info"]
            _put(rows[question.suffix], question, meta)
            if cached[question.suffix] is None:
                cached[question.suffix] = meta["cached_tokens"]
    for row, count in zip(rows, cached, strict=True):
        row.cached_tokens = count or 0
    ids = sum(len(suffix.ids) for suffix in request.suffixes)
    return work_pb2.Scored(
        sequence=request.sequence,
        suffixes=rows,
        prompt_tokens=(len(request.prefix_ids) + ids) // ID_BYTES,
        cached_tokens=rows[0].cached_tokens,
    )


async def embed(
    engine: EngineApi, package: SglangPackage, request: work_pb2.Embed, rid: str
) -> work_pb2.Embedded:
    """Embed one input: cut, then brought to length 1."""
    output = await _encode(engine, package, request.input_ids, rid, request.lora)
    values = [float(each) for each in output["embedding"]]
    if request.HasField("dimensions"):
        values = values[: request.dimensions]
    length = math.sqrt(math.fsum(value * value for value in values))
    return work_pb2.Embedded(
        sequence=request.sequence,
        values=[value / length for value in values] if length else values,
        prompt_tokens=len(request.input_ids) // ID_BYTES,
    )


async def classify(
    engine: EngineApi, package: SglangPackage, request: work_pb2.Classify, rid: str
) -> work_pb2.Classified:
    """Compute the logits of the labels of one input."""
    output = await _encode(engine, package, request.input_ids, rid, "")
    embedding = output["embedding"]
    values = cast("list[float]", embedding) if isinstance(embedding, list) else [cast("float", embedding)]
    return work_pb2.Classified(
        sequence=request.sequence, logits=values, prompt_tokens=len(request.input_ids) // ID_BYTES
    )


async def _encode(engine: EngineApi, package: SglangPackage, ids: bytes, rid: str, lora: str) -> Output:
    request = package.embedding_request(input_ids=list(ids_from_bytes(ids)), rid=rid, lora_path=lora or None)
    async for output in engine.tokenizer_manager.generate_request(request, None):
        return output
    raise LookupError("the engine returned no embedding")


def _questions(index: int, prefix: bytes, suffix: work_pb2.ScoreSuffix) -> list[_Question]:
    """The single ids of a suffix in one question, each label of several tokens in its own."""
    ids = list(ids_from_bytes(prefix + suffix.ids))
    questions: list[_Question] = []
    labels = list(suffix.label_ids)
    if labels:
        questions.append(_Question(index, labels, 0, score_call(ids, labels)))
    for data in suffix.label_sequences:
        label = list(ids_from_bytes(data))
        # SGLang gives no number for the position it starts at: it starts one early.
        call = score_call(ids + label, label[:1], start=len(ids) - 1)
        questions.append(_Question(index, [], len(label), call))
    return questions


def _put(row: work_pb2.SuffixScores, question: _Question, meta: dict[str, Any]) -> None:
    if question.labels:
        found: Sequence[Sequence[Entry] | None] = meta.get("output_token_ids_logprobs") or ()
        row.logprobs.extend(by_label((found[0] if found else None) or (), question.labels))
        return
    entries: Sequence[Entry] = meta["input_token_logprobs"][-question.label_tokens :]
    values = [value for value, _, _ in entries if value is not None]
    if len(values) != question.label_tokens:
        raise LookupError(
            f"the engine returned {len(values)} log-probabilities for a label of {question.label_tokens} tokens"
        )
    row.sequence_logprobs.append(math.fsum(values) / len(values))
