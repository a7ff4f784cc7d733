"""The knobs of decisions: how questions are read off a model, and what one request may cost."""

from __future__ import annotations

from typing import Literal

from smg.settings.fields import Section, setting

_MIB = 1024 * 1024


class DecisionSettings(Section):
    """Typed questions about evidence: /v1/decisions and /v1/systemone."""

    systemone_schema: Literal["vllm-sr/5.0", "vllm-sr/4.0"] = setting(
        "vllm-sr/5.0", "Schema of /v1/systemone. 4.0 answers a busy gateway with 429, 5.0 with 529."
    )
    decision_readout: Literal["auto", "labels", "options"] = setting(
        "auto",
        "How answers are read: 'labels' by the probability of one token each, 'options' by that of the options' own"
        " text. 'auto': labels, and where a model's tokenizer has no such tokens, options.",
    )
    decision_thinking: Literal["refuse", "off"] = setting(
        "refuse",
        "/v1/decisions in OpenAI's form, for models that can think or not: 'refuse' them as the original gateway does,"
        " or ask them with thinking 'off', as the System One paths always do.",
    )
    decision_two_orders: bool = setting(
        False, "Score each choice in both orders of its options and average: less bias, twice the work."
    )
    decision_set_threshold: float = setting(
        0.5, "Probability from which a label of a set counts, unless the question says.", ge=0, le=1
    )
    decision_span_threshold: float = setting(
        0.5, "Probability from which a place counts as a span, unless the question says.", ge=0, le=1
    )
    decision_timeout_secs: float = setting(
        30.0, "Longest time of a request that names no deadline of its own.", gt=0
    )
    decision_max_deadline_secs: float = setting(
        600.0, "Longest deadline that a request may name; also the time of a long-context one without.", gt=0
    )
    decision_max_questions: int = setting(1024, "Questions about one state.", ge=1)
    decision_max_states: int = setting(256, "States in one batch.", ge=1)
    decision_concurrent_states: int = setting(16, "States of one batch that are asked about at a time.", ge=1)
    decision_max_rows: int = setting(
        8192,
        "Prompts that the questions about one state may come to: one each, but one for every label of a set, and"
        " one for every word of the text and label of a span.",
        ge=1,
    )
    decision_max_request_tokens: int = setting(
        65_536, "Tokens of one state and all its questions together.", metavar="TOKENS", ge=16
    )
    decision_validated_input_tokens: int | None = setting(
        None,
        "Tokens of a state with one question beyond which a request must ask for long context."
        " Default: no such bound.",
        metavar="TOKENS",
        ge=16,
    )
    decision_max_body_bytes: int = setting(
        48 * _MIB, "Longest body, as sent and once decoded.", metavar="BYTES", ge=1024
    )
    decision_default_names: tuple[str, ...] = setting(
        ("jev-latest",),
        "Names that mean the one decision model, where just one is served: what clients say by default.",
        metavar="NAME",
    )
