"""What the document says of embeddings, rankings, classes and bundles."""

from __future__ import annotations

from typing import Any

from gateway.encode.bundle import MAX_ID_CHARS, SURFACES
from gateway.encode.embeddings_form import FORMATS
from gateway.openapi.encode_examples import ENCODE_EXAMPLES
from gateway.openapi.responses import WITH_BODY, WITH_ENGINE, errors, response, schema_ref
from smg.validation.encode import MAX_DEADLINE_MS

Json = dict[str, Any]

TAG: Json = {"name": "encoders", "description": "Vectors of texts, documents ranked, texts put into classes."}
_NUMBER: Json = {"type": ["integer", "null"], "minimum": 1, "maximum": 2**32 - 1}
_FLAG: Json = {"type": ["boolean", "null"]}
_NAME: Json = {"type": ["string", "null"]}
_USAGE: Json = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
        "prompt_tokens": {"type": "integer", "minimum": 0},
        "completion_tokens": {"const": 0},
        "total_tokens": {"type": "integer", "minimum": 0},
        "tokens_lower_bound": {"const": True},
    },
}
_OPTIONS: Json = {"anyOf": [schema_ref("EncodeOptions"), {"type": "null"}]}
_PROBABILITY: Json = {"type": "number", "minimum": 0, "maximum": 1}


def encode_schemas() -> Json:
    """Schemas by name."""
    text: Json = {"type": "string", "minLength": 1}
    ids: Json = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
    meta: Json = {"type": "object"}
    return {
        "EncodeOptions": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "overflow": {
                    "enum": ["reject", "truncate", "window", None],
                    "description": "`window` for /v1/classify alone.",
                },
                "max_tokens": _NUMBER,
                "window": {
                    "type": ["object", "null"],
                    "additionalProperties": False,
                    "properties": {"tokens": _NUMBER, "overlap": {**_NUMBER, "minimum": 0}},
                },
                "deadline_ms": {**_NUMBER, "maximum": MAX_DEADLINE_MS},
                "return_meta": _FLAG,
            },
        },
        "EmbeddingsRequest": {
            "type": "object",
            "required": ["input"],
            "properties": {
                "model": _NAME,
                "input": {
                    "anyOf": [text, ids, {"type": "array", "minItems": 1, "items": {"anyOf": [text, ids]}}]
                },
                "encoding_format": {"enum": [*FORMATS, None]},
                "dimensions": _NUMBER,
                "layer": _NUMBER,
                "user": _NAME,
                "options": _OPTIONS,
            },
        },
        "EmbeddingsAnswer": {
            "type": "object",
            "required": ["object", "data", "model", "usage"],
            "properties": {
                "object": {"const": "list"},
                "data": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["object", "embedding", "index"],
                        "properties": {
                            "object": {"const": "embedding"},
                            "embedding": {
                                "anyOf": [
                                    {"type": "array", "items": {"type": "number"}},
                                    {"type": "string", "contentEncoding": "base64"},
                                ]
                            },
                            "index": {"type": "integer", "minimum": 0},
                        },
                    },
                },
                "model": {"type": "string"},
                "usage": _USAGE,
                "meta": meta,
            },
        },
        "RerankRequest": {
            "type": "object",
            "required": ["query", "documents"],
            "properties": {
                "model": _NAME,
                "query": {"type": "string", "pattern": r"\S"},
                "documents": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "anyOf": [
                            text,
                            {"type": "object", "required": ["text"], "properties": {"text": text}},
                        ]
                    },
                },
                "top_n": _NUMBER,
                "return_documents": _FLAG,
                "raw_scores": _FLAG,
                "options": _OPTIONS,
            },
        },
        "RerankAnswer": {
            "type": "object",
            "required": ["id", "model", "results", "usage"],
            "properties": {
                "id": {"type": "string"},
                "model": {"type": "string"},
                "results": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["index", "relevance_score"],
                        "properties": {
                            "index": {"type": "integer", "minimum": 0},
                            "relevance_score": {"type": "number"},
                            "document": {"type": "object", "properties": {"text": {"type": "string"}}},
                        },
                    },
                },
                "usage": _USAGE,
                "meta": meta,
            },
        },
        "ClassifyRequest": {
            "type": "object",
            "required": ["input"],
            "properties": {
                "model": _NAME,
                "input": {
                    "anyOf": [text, {"type": "array", "minItems": 1, "items": schema_ref("ClassifyInput")}]
                },
                "options": _OPTIONS,
            },
        },
        "ClassifyInput": {
            "anyOf": [
                {"type": "string"},
                _texts("text"),
                _texts("text", "text_pair"),
                _texts("context", "question", "answer"),
            ]
        },
        "ClassifyAnswer": {
            "type": "object",
            "required": ["id", "object", "created", "model", "data", "usage"],
            "properties": {
                "id": {"type": "string"},
                "object": {"const": "list"},
                "created": {"type": "integer"},
                "model": {"type": "string"},
                "data": {"type": "array", "items": schema_ref("Classification")},
                "usage": _USAGE,
                "meta": meta,
            },
        },
        "Classification": {
            "type": "object",
            "description": "Labels, or spans of a model that labels words, or an error of this input alone.",
            "required": ["index"],
            "properties": {
                "index": {"type": "integer", "minimum": 0},
                "label": {"type": "string"},
                "probs": {"type": "array", "items": _PROBABILITY},
                "num_classes": {"type": "integer"},
                "labels": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"label": {"type": "string"}, "probability": _PROBABILITY},
                    },
                },
                "spans": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "label": {"type": "string"},
                            "start": {"type": "integer"},
                            "end": {"type": "integer"},
                            "text": {"type": "string"},
                            "probability": _PROBABILITY,
                        },
                    },
                },
                "error": {"type": "string"},
                "message": {"type": "string"},
            },
        },
        "BundleRequest": {
            "type": "object",
            "required": ["tasks"],
            "additionalProperties": False,
            "properties": {
                "tasks": {
                    "type": "array",
                    "minItems": 1,
                    "description": "Each has an id of its own and the body of one path.",
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "minProperties": 2,
                        "maxProperties": 2,
                        "additionalProperties": False,
                        "properties": {
                            "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS},
                            **{name: {"type": "object"} for name in SURFACES},
                        },
                    },
                },
                "options": {
                    "type": ["object", "null"],
                    "additionalProperties": False,
                    "properties": {"deadline_ms": {**_NUMBER, "maximum": MAX_DEADLINE_MS}},
                },
            },
        },
        "BundleAnswer": {
            "type": "object",
            "required": ["results"],
            "properties": {
                "results": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["id", "status", "body"],
                        "properties": {
                            "id": {"type": "string"},
                            "status": {"type": "integer"},
                            "body": {"type": "object"},
                        },
                    },
                }
            },
        },
    }


def _texts(*names: str) -> Json:
    return {
        "type": "object",
        "required": [*names],
        "additionalProperties": False,
        "properties": {name: {"type": "string"} for name in names},
    }


def encode_paths() -> Json:
    """Path items by path."""
    return {
        "/v1/embeddings": {"post": _encoding("createEmbeddings", "Vectors of texts", "Embeddings")},
        "/v1/rerank": {"post": _encoding("createRerank", "Rank documents for a query", "Rerank")},
        "/v1/classify": {"post": _encoding("createClassification", "Put texts into classes", "Classify")},
        "/v1/bundle": {"post": _encoding("createBundle", "Several of these in one request", "Bundle")},
    }


_TIMED: Json = {"Server-Timing": {"$ref": "#/components/headers/ServerTiming"}}
_FAILED: Json = {
    **_TIMED,
    "X-SMG-Error-Code": {"$ref": "#/components/headers/ErrorCode"},
    "Retry-After": {"$ref": "#/components/headers/RetryAfter"},
}
_OWN = {
    415: "Another coding than one layer of gzip or zstd, or another content type.",
    422: "The model does not do this, or the input is none of text.",
    502: "The engine's numbers cannot be used.",
}


def _encoding(operation_id: str, summary: str, name: str) -> Json:
    headers = ("RequestId", "RoutingKey", "TraceParent")
    failed: Json = {}
    for status, reference in errors(*WITH_BODY, *WITH_ENGINE).items():
        said = str(reference["$ref"]).rsplit("/", 1)[-1]
        # A missing key has no body.
        failed[status] = reference if status == "401" else _failure(said)
    failed |= {str(status): _failure(said) for status, said in _OWN.items()}
    worker: Json = {"x-smg-routed-worker-id": {"$ref": "#/components/headers/RoutedWorkerId"}}
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": [TAG["name"]],
        "security": [{"bearer": []}],
        "parameters": [{"$ref": f"#/components/parameters/{each}"} for each in headers],
        "requestBody": {"required": True, "content": _content(f"{name}Request")},
        "responses": {
            "200": response("The answer.", _content(f"{name}Answer"), {**_TIMED, **worker}),
            **failed,
        },
    }


def _failure(said: str) -> Json:
    schema: Json = {"anyOf": [schema_ref("GatewayError"), schema_ref("RequestError")]}
    return response(said, {"application/json": {"schema": schema}}, _FAILED)


def _content(name: str) -> Json:
    return {
        "application/json": {
            "schema": schema_ref(name),
            "examples": {name: {"value": ENCODE_EXAMPLES[name]}},
        }
    }
