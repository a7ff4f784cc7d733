"""Rules for requests to encoders, checked on the messages, so that both doors have the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InvalidRequest
from smg_proto.embedding.v1 import common_pb2

if TYPE_CHECKING:
    from smg_proto.embedding.v1 import classify_pb2, embedding_pb2, rerank_pb2

CODE = "invalid_request"
MAX_DEADLINE_MS = 600_000


def refused(message: str, param: str) -> InvalidRequest:
    """A broken rule."""
    return InvalidRequest(message, code=CODE, param=param)


def empty_input(param: str, said: str = "is empty") -> InvalidRequest:
    """An input without anything in it."""
    return InvalidRequest(
        f"{param} {said}; it must be a text or token ids, at least one", code="empty_input", param=param
    )


def validate_embeddings(request: embedding_pb2.CreateEmbeddingsRequest, max_inputs: int) -> None:
    """Check a request for embeddings.

    Raises:
        InvalidRequest: a rule is broken.
    """
    if not request.inputs:
        raise empty_input("input")
    _check_count("input", len(request.inputs), max_inputs)
    for number, item in enumerate(request.inputs):
        if not (item.text or item.token_ids.ids):
            raise empty_input("input" if len(request.inputs) == 1 else f"input[{number}]")
    for name in ("dimensions", "layer"):
        if request.HasField(name) and getattr(request, name) < 1:
            raise refused(f"{name} is 0; it must be at least 1", name)
    _check_options(request.options)
    _refuse_windows(request.options)


def validate_rerank(request: rerank_pb2.RerankRequest, max_documents: int) -> None:
    """Check a request to rank.

    Raises:
        InvalidRequest: a rule is broken.
    """
    if not request.query.strip():
        raise refused("query is empty; it must be a text", "query")
    if not request.documents:
        raise refused("documents is empty; there must be at least one", "documents")
    _check_count("documents", len(request.documents), max_documents)
    for index, document in enumerate(request.documents):
        if not document:
            raise refused(f"documents[{index}] is empty; it must be a text", f"documents[{index}]")
    if request.HasField("top_n") and request.top_n < 1:
        raise refused("top_n is 0; it must be at least 1", "top_n")
    _check_options(request.options)
    _refuse_windows(request.options)


def validate_classify(request: classify_pb2.ClassifyRequest, max_inputs: int) -> None:
    """Check a request to classify. What concerns one input fails it alone, later.

    Raises:
        InvalidRequest: a rule is broken.
    """
    if not request.inputs:
        raise empty_input("input")
    _check_count("input", len(request.inputs), max_inputs)
    _check_options(request.options)


def _check_count(name: str, count: int, most: int) -> None:
    if count > most:
        raise refused(f"{name} has {count} entries; at most {most} are allowed", name)


def _refuse_windows(options: common_pb2.EncodeOptions) -> None:
    if options.overflow == common_pb2.OVERFLOW_WINDOW:
        raise refused(
            "options.overflow is window, which only /v1/classify reads; allowed: reject, truncate",
            "options.overflow",
        )


def _check_options(options: common_pb2.EncodeOptions) -> None:
    # Another client's file may know more of them; the wire takes any number.
    if options.overflow not in common_pb2.Overflow.values():
        allowed = ", ".join(common_pb2.Overflow.keys())
        raise refused(f"options.overflow is {options.overflow}; allowed: {allowed}", "options.overflow")
    for name in ("max_tokens", "window_tokens", "deadline_ms"):
        if options.HasField(name) and getattr(options, name) < 1:
            raise refused(f"options.{name} is 0; it must be at least 1", f"options.{name}")
    if options.HasField("deadline_ms") and options.deadline_ms > MAX_DEADLINE_MS:
        raise refused(
            f"options.deadline_ms is {options.deadline_ms}; at most {MAX_DEADLINE_MS} are allowed",
            "options.deadline_ms",
        )
