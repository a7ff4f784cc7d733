"""One example of each body, by the name of its schema."""

from __future__ import annotations

from typing import Any

from gateway.openapi.decision_examples import DECISION_EXAMPLES
from gateway.openapi.encode_examples import ENCODE_EXAMPLES

_MODEL = "my-org/my-model"
_CREATED = 1767225600
_USAGE = {
    "prompt_tokens": 25,
    "completion_tokens": 8,
    "total_tokens": 33,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
_CARD = {"id": _MODEL, "object": "model", "created": 0, "owned_by": "self_hosted"}

EXAMPLES: dict[str, Any] = {
    "ChatRequest": {
        "model": _MODEL,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_completion_tokens": 100,
        "temperature": 0.7,
    },
    "CompletionRequest": {"model": _MODEL, "prompt": "The capital of France is", "max_tokens": 8},
    "ResponseRequest": {"model": _MODEL, "input": "What is the capital of France?", "store": False},
    "ChatCompletion": {
        "id": "chatcmpl-5f1d2c3b4a5968778695a4b3",
        "object": "chat.completion",
        "created": _CREATED,
        "model": _MODEL,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "The capital of France is Paris.",
                    "refusal": None,
                    "annotations": [],
                    "reasoning_content": None,
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": _USAGE,
        "system_fingerprint": "default",
        "service_tier": "default",
    },
    "ChatChunk": {
        "id": "chatcmpl-5f1d2c3b4a5968778695a4b3",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": _MODEL,
        "system_fingerprint": "default",
        "choices": [{"index": 0, "delta": {"content": "Paris"}, "logprobs": None, "finish_reason": None}],
    },
    "TextCompletion": {
        "id": "cmpl-5f1d2c3b4a5968778695a4b3",
        "object": "text_completion",
        "created": _CREATED,
        "model": _MODEL,
        "choices": [{"text": " Paris.", "index": 0, "finish_reason": "length"}],
        "usage": _USAGE,
        "system_fingerprint": "default",
    },
    "TextChunk": {
        "id": "cmpl-5f1d2c3b4a5968778695a4b3",
        "object": "text_completion",
        "created": _CREATED,
        "model": _MODEL,
        "system_fingerprint": "default",
        "choices": [{"index": 0, "text": " Paris", "finish_reason": None}],
    },
    "RequestError": {
        "error": {
            "message": "temperature is 3; allowed is from 0 to 2",
            "type": "invalid_request_error",
            "code": 400,
        }
    },
    "GatewayError": {
        "error": {
            "type": "Too Many Requests",
            "code": "admission_queue_full",
            "message": "too many requests are running and waiting; try again later",
            "param": None,
        }
    },
    "ModelCard": _CARD,
    "ModelList": {
        "object": "list",
        "data": [_CARD],
        "models": [],
        "limits": {"max_request_bytes": 50331648},
        "api_version": "5.0.0",
        "systemone_schema": "vllm-sr/5.0",
    },
    "Alive": {"status": "alive", "api_version": "5.0.0"},
    "Stalled": {
        "status": "stalled",
        "reason": "grpc://127.0.0.1:40000: no step for 30 s while sequences ran",
        "api_version": "5.0.0",
    },
    "Ready": {"status": "ready", "healthy_workers": 2, "total_workers": 3},
    "NotReady": {"status": "not ready", "reason": "insufficient healthy workers"},
    **DECISION_EXAMPLES,
    **ENCODE_EXAMPLES,
}
