"""Examples of embeddings, rankings, classes and bundles, by the name of their schema."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_USED: Json = {"prompt_tokens": 8, "completion_tokens": 0, "total_tokens": 8}
_CLASSES: Json = {
    "index": 0,
    "label": "math",
    "probs": [0.9, 0.1],
    "num_classes": 2,
    "labels": [{"label": "math", "probability": 0.9}, {"label": "other", "probability": 0.1}],
}
_CLASSIFIED: Json = {
    "id": "classify-1",
    "object": "list",
    "created": 1705312345,
    "model": "my-org/my-classifier",
    "data": [_CLASSES],
    "usage": _USED,
}
_ASKED: Json = {"model": "my-org/my-classifier", "input": ["What is 2 + 2?"]}
ENCODE_EXAMPLES: Json = {
    "EmbeddingsRequest": {"model": "my-org/my-embedder", "input": ["How do I reset my password?"]},
    "EmbeddingsAnswer": {
        "object": "list",
        "data": [{"object": "embedding", "embedding": [0.6, 0.8], "index": 0}],
        "model": "my-org/my-embedder",
        "usage": _USED,
    },
    "RerankRequest": {
        "model": "my-org/my-embedder",
        "query": "How do I reset my password?",
        "documents": ["Open Settings, then Security.", "Our offices are closed on Sunday."],
        "top_n": 1,
    },
    "RerankAnswer": {
        "id": "rerank-1",
        "model": "my-org/my-embedder",
        "results": [{"index": 0, "relevance_score": 0.7}],
        "usage": _USED,
    },
    "ClassifyRequest": _ASKED,
    "ClassifyAnswer": _CLASSIFIED,
    "BundleRequest": {"tasks": [{"id": "kind", "classify": _ASKED}], "options": {"deadline_ms": 80}},
    "BundleAnswer": {"results": [{"id": "kind", "status": 200, "body": _CLASSIFIED}]},
}
