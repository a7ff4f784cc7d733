"""The knobs of embeddings, ranking and classification: what one request may cost."""

from __future__ import annotations

from smg.settings.fields import Section, setting


class EncodingSettings(Section):
    """Vectors, rankings and classes: /v1/embeddings, /v1/rerank, /v1/classify, /v1/bundle."""

    encode_max_inputs: int = setting(2048, "Inputs, or documents, of one request.", ge=1)
    encode_concurrent_inputs: int = setting(
        256, "Inputs of one request that are given to workers at a time.", ge=1
    )
    encode_timeout_secs: float = setting(
        120.0, "Longest time of a request that names no deadline of its own.", gt=0
    )
    encode_max_scan_tokens: int = setting(
        32_768,
        "Tokens of one input that a classifier reads in windows; also the bound where a worker tells none.",
        metavar="TOKENS",
        ge=16,
    )
    bundle_max_tasks: int = setting(64, "Tasks of one /v1/bundle.", ge=1)
