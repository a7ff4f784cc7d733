"""The doors that embeddings, rankings and classes come through: HTTP and gRPC, with one form of answer."""

import base64
import struct
from dataclasses import dataclass, field

import grpc
from grpc_status import rpc_status

from gateway.encode.embeddings_form import read_embeddings
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
