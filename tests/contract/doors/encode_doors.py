"""The doors that embeddings, rankings and classes come through: HTTP and gRPC, with one form of answer."""

import base64
import struct
from dataclasses import dataclass, field

import grpc
import pytest
from grpc_status import rpc_status

from gateway.encode.classify_form import read_classify
from gateway.encode.embeddings_form import read_embeddings
from gateway.encode.rerank_form import read_rerank
from smg_proto.embedding.v1 import embedding_pb2_grpc
from smg_proto.errors.v1 import errors_pb2


@dataclass
class Encoded:
    """An answer, or a refusal (then `status` is not 200)."""

    status: int = 200
    code: str = ""
    message: str = ""
    model: str = ""
    rows: list = field(default_factory=list)
    usage: dict = field(default_factory=dict)
    meta: dict = field(default_factory=dict)


def http_failure(response):
    error = response.json()["error"]
    return Encoded(response.status_code, str(error["code"]), error["message"])


async def grpc_answer(call):
    """The response and None, or None and the refusal."""
    try:
        return await call, None
    except grpc.aio.AioRpcError as error:
        status = rpc_status.from_call(error)
        detail = errors_pb2.ApiError()
        assert status is not None
        assert status.details[0].Unpack(detail)
        return None, Encoded(detail.http_status, detail.code, error.details())


def stub(gateway):
    return embedding_pb2_grpc.EmbeddingServiceStub(gateway.channel)


def unpacked(value):
    if isinstance(value, list):
        return value
    data = base64.b64decode(value)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def usage_of(usage):
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": 0,
        "total_tokens": usage.prompt_tokens,
        **({"tokens_lower_bound": True} if usage.tokens_lower_bound else {}),
    }


def meta_of(response):
    if not response.HasField("meta"):
        return {}
    told = {each.name: getattr(response.meta, each.name) for each in response.meta.DESCRIPTOR.fields}
    return {name: value for name, value in told.items() if value}


def json_meta(answer):
    return {name: value for name, value in answer.get("meta", {}).items() if name != "timings"}


async def http_embeddings(gateway, body):
    response = await gateway.http.post("/v1/embeddings", json=body)
    if response.status_code != 200:
        return http_failure(response)
    answer = response.json()
    assert answer["object"] == "list"
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    assert {each["object"] for each in answer["data"]} == {"embedding"}
    rows = [unpacked(each["embedding"]) for each in answer["data"]]
    return Encoded(model=answer["model"], rows=rows, usage=answer["usage"], meta=json_meta(answer))


async def grpc_embeddings(gateway, body):
    response, refusal = await grpc_answer(stub(gateway).CreateEmbeddings(read_embeddings(body).request))
    if refusal:
        return refusal
    rows = [list(each.values) for each in response.embeddings]
    return Encoded(model=response.model, rows=rows, usage=usage_of(response.usage), meta=meta_of(response))


async def http_classify(gateway, body):
    response = await gateway.http.post("/v1/classify", json=body)
    if response.status_code != 200:
        return http_failure(response)
    answer = response.json()
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    rows = []
    for each in answer["data"]:
        if "error" in each:
            rows.append((each["error"], each["message"]))
        elif "spans" in each:
            rows.append([tuple(span.values()) for span in each["spans"]])
        else:
            best = max(each["labels"], key=lambda label: label["probability"])
            assert each["label"] == best["label"]
            assert each["probs"] == [label["probability"] for label in each["labels"]]
            assert each["num_classes"] == len(each["probs"])
            rows.append([(label["label"], label["probability"]) for label in each["labels"]])
    return Encoded(model=answer["model"], rows=rows, usage=answer["usage"], meta=json_meta(answer))


async def grpc_classify(gateway, body):
    response, refusal = await grpc_answer(stub(gateway).Classify(read_classify(body)))
    if refusal:
        return refusal
    rows = []
    for each in response.results:
        if each.error:
            rows.append((each.error, each.message))
        elif each.has_spans:
            rows.append([(s.label, s.start, s.end, s.text, s.probability) for s in each.spans])
        else:
            rows.append([(label.label, label.probability) for label in each.labels])
    return Encoded(model=response.model, rows=rows, usage=usage_of(response.usage), meta=meta_of(response))


async def http_rerank(gateway, body):
    response = await gateway.http.post("/v1/rerank", json=body)
    if response.status_code != 200:
        return http_failure(response)
    answer = response.json()
    rows = [(each["index"], each["relevance_score"]) for each in answer["results"]]
    for each in answer["results"]:
        assert ("document" in each) == bool(body.get("return_documents"))
    return Encoded(model=answer["model"], rows=rows, usage=answer["usage"], meta=json_meta(answer))


async def grpc_rerank(gateway, body):
    response, refusal = await grpc_answer(stub(gateway).Rerank(read_rerank(body).request))
    if refusal:
        return refusal
    rows = [(each.index, each.score) for each in response.results]
    return Encoded(model=response.model, rows=rows, usage=usage_of(response.usage), meta=meta_of(response))


DOORS = {
    "embeddings": (http_embeddings, grpc_embeddings),
    "classify": (http_classify, grpc_classify),
    "rerank": (http_rerank, grpc_rerank),
}


def close_to(value):
    """Equal but for the rounding of another batch."""
    if isinstance(value, list | tuple):
        return [close_to(each) for each in value]
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


def plain(value):
    """Tuples as lists."""
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


async def both(gateway, surface, body):
    """The answer that both doors give."""
    over_http, over_grpc = [await door(gateway, body) for door in DOORS[surface]]
    for name in ("status", "code", "message", "model", "usage", "meta"):
        assert getattr(over_http, name) == getattr(over_grpc, name), name
    assert plain(over_http.rows) == close_to(over_grpc.rows)
    return over_http
