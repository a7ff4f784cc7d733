"""The JSON of /v1/rerank: a query and documents; their places with scores, the best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gateway.encode.members import count_of, flag_of, meta_json, options_of, text_of, usage_json
from gateway.openai.explain import shown
from smg.errors import MalformedRequest
from smg.validation.encode import refused
from smg_proto.embedding.v1 import rerank_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping


class RerankForm(NamedTuple):
    """A body that was read.

    Attributes:
        request: what it asks for.
        returns_documents: results hold their documents.
    """

    request: rerank_pb2.RerankRequest
    returns_documents: bool


def read_rerank(members: Mapping[str, Any]) -> RerankForm:
    """Read a body.

    Raises:
        MalformedRequest: a member is missing or of another type.
        InvalidRequest: a member has a value that is not allowed.
    """
    for name in ("query", "documents"):
        if members.get(name) is None:
            raise refused(f"{name} is missing", name)
    documents = members["documents"]
    if not isinstance(documents, list):
        raise MalformedRequest(
            f"documents is {shown(documents)}; it must be a list of texts", param="documents"
        )
    request = rerank_pb2.RerankRequest(
        model=text_of(members, "model"),
        query=text_of(members, "query"),
        documents=[_document(each, number) for number, each in enumerate(cast("list[Any]", documents))],
        top_n=count_of(members, "top_n"),
        options=options_of(members),
        raw_scores=flag_of(members, "raw_scores"),
    )
    return RerankForm(request, flag_of(members, "return_documents"))


def _document(value: Any, number: int) -> str:
    text: Any = cast("dict[str, Any]", value).get("text") if isinstance(value, dict) else value
    if not isinstance(text, str) or not text:
        name = f"documents[{number}]"
        raise refused(f"{name} is {shown(value)}; it must be a text, or an object with a member text", name)
    return text


def write_rerank(
    form: RerankForm, response: rerank_pb2.RerankResponse, request_id: str, timings: Mapping[str, float]
) -> dict[str, Any]:
    """The answer, for orjson."""
    results: list[dict[str, Any]] = []
    for each in response.results:
        entry: dict[str, Any] = {"index": each.index, "relevance_score": each.score}
        if form.returns_documents:
            entry["document"] = {"text": form.request.documents[each.index]}
        results.append(entry)
    answer: dict[str, Any] = {
        "id": request_id,
        "model": response.model,
        "results": results,
        "usage": usage_json(response.usage),
    }
    if response.HasField("meta"):
        answer["meta"] = meta_json(response.meta, timings)
    return answer
