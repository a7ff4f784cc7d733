"""Which formats a model writes: told from its name where the family is known, else from its chat template and vocabulary.

A name says more than marks do: many families write <tool_call>, each with something else inside. Names are looked at
segment by segment, as `organisation/model` and paths have them, the last one first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from smg.parsers.harmony import HARMONY
from smg.parsers.reasoning import REASONING_PARSERS

if TYPE_CHECKING:
    from collections.abc import Callable


class Family(NamedTuple):
    """What the models of a family write; None leaves it to the template.

    Attributes:
        tools: one of TOOL_PARSERS, or HARMONY.
        reasoning: HARMONY with it, or a key of REASONING_PARSERS. It is used only where one of its tags is seen: models of one name reason
            or do not.
        always_reasons: it is used all the same, and answers begin inside reasoning unless the prompt says otherwise.
    """

    tools: str | None = None
    reasoning: str | None = None
    always_reasons: bool = False


# Patterns of a segment's beginning, in lower case with "_" and blanks as "-"; the first that fits counts.
FAMILIES: tuple[tuple[str, Family], ...] = (
    (r"deepseek-r1-distill", Family(None, "deepseek_r1")),
    (r"deepseek-v4[.-]1", Family("deepseek_v41", "deepseek_v3")),
    (r"deepseek-v4", Family("deepseek_v4", "deepseek_v3")),
    (r"deepseek-v3\.2-exp", Family("deepseek_v31", "deepseek_v3")),
    (r"deepseek-v3\.2", Family("deepseek_v32", "deepseek_v3")),
    (r"deepseek-v3\.1", Family("deepseek_v31", "deepseek_v3")),
    (r"deepseek-v3", Family("deepseek_v3", "deepseek_v3")),
    (r"deepseek-r1", Family("deepseek_v3", "deepseek_r1")),
    (r"qwen3-coder|qwen3\.[5-9]", Family("qwen3_coder", "qwen3")),
    (r"qwen3.*thinking", Family("hermes", "qwen3_thinking")),
    (r"qwq", Family("hermes", "qwen3_thinking")),
    (r"qwen3", Family("hermes", "qwen3")),
    (r"qwen2|hermes-[234]|.*-hermes-[234]", Family("hermes")),
    (r"kimi-vl", Family(None, "kimi_vl")),
    (r"kimi-k3", Family("kimi_k3", "kimi_k3", always_reasons=True)),
    (r"kimi-k2", Family("kimi_k2", "kimi_k2")),
    (r"glm-?(4\.[5-9]|5)", Family("glm45", "glm45")),
    (r"minimax-m3", Family("minimax_m3", "minimax_m3")),
    (r"minimax-m2", Family("minimax_m2", "minimax_m2", always_reasons=True)),
    (r"magistral|mistral|mixtral|ministral|devstral|codestral|pixtral|voxtral", Family("mistral", "mistral")),
    (r"(meta-)?llama-?4", Family("pythonic")),
    (r"llama.*nemotron|nemotron-nano-.*v2|nvidia-nemotron-nano-(9|12)b-v2", Family("nemotron", "nemotron")),
    (r"(nvidia-)?nemotron-(3|nano-3)", Family("qwen3_coder", "nemotron")),
    (r"llama-?xlam|xlam", Family("xlam")),
    (r"(meta-)?llama-?3\.[1-9]", Family("llama3_json")),
    (r"toolace", Family("pythonic")),
    (r"seed-oss", Family("seed_oss", "seed_oss")),
    (r"step-?3[.-]5|step3p5", Family("qwen3_coder", "step3")),
    (r"step-?3", Family("step3", "step3")),
    (r"(c4ai-)?command-(a|r7b)", Family("cohere", "cohere")),
    (r"functiongemma", Family("functiongemma")),
    (r"gemma-?4", Family("gemma4", "gemma4")),
    (r"lfm2", Family("lfm2")),
    (r"olmo-?3.*think", Family("olmo3", "olmo3")),
    (r"olmo-?3", Family("olmo3")),
    (r"phi-?4-mini", Family("phi4_mini")),
    (r"granite-3", Family("granite")),
    (r"granite-4", Family("hermes")),
    (r"mimo-v2", Family("qwen3_coder", "qwen3")),
    (r"mimo", Family("hermes", "qwen3")),
    (r"gpt-oss", Family(HARMONY, HARMONY)),
)
_PATTERNS = tuple((re.compile(pattern), family) for pattern, family in FAMILIES)

# Texts that stand in templates and vocabularies, the most telling first. All of a row must be there.
TOOL_EVIDENCE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<function=", "<seed:tool_call>"), "seed_oss"),
    (("<function=", "<parameter="), "qwen3_coder"),
    (("<arg_key>",), "glm45"),
    (("]<]minimax[>[",), "minimax_m3"),
    (("<minimax:tool_call>",), "minimax_m2"),
    (("｜DSML｜ calls",), "deepseek_v41"),
    (("｜DSML｜tool_calls",), "deepseek_v4"),
    (("｜DSML｜function_calls",), "deepseek_v32"),
    (("<｜tool▁calls▁begin｜>", "```json"), "deepseek_v3"),
    (("<｜tool▁calls▁begin｜>",), "deepseek_v31"),
    (("<steptml:invoke",), "step3"),
    (("<|open|>", "<|sep|>"), "kimi_k3"),
    (("<|tool_calls_section_begin|>",), "kimi_k2"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<TOOLCALL>",), "nemotron"),
    (("<|START_ACTION|>",), "cohere"),
    (("<start_function_call>",), "functiongemma"),
    (("<|tool_call>",), "gemma4"),
    (("<|tool_call_start|>",), "lfm2"),
    (("<function_calls>",), "olmo3"),
    (("<|/tool_call|>",), "phi4_mini"),
    (("<|tool_call|>",), "granite"),
    (("<|python_start|>",), "pythonic"),
    (("<|python_tag|>",), "llama3_json"),
    (("<tool_call>",), "hermes"),
)
_REASONING_EVIDENCE = ("think_tag", "cohere", "minimax_m3", "mistral", "seed_oss", "kimi_vl")


def tool_parser_name(model_name: str, template_text: str, spells: Callable[[str], bool]) -> str:
    """One of TOOL_PARSERS.

    Args:
        model_name: as the model is served.
        template_text: source of the model's chat templates.
        spells: whether a text is a token of the model's vocabulary.
    """
    family = _family(model_name)
    if family.tools is not None:
        return family.tools
    for texts, name in TOOL_EVIDENCE:
        if all(text in template_text for text in texts):
            return name
    for texts, name in TOOL_EVIDENCE:
        if all(spells(text) for text in texts):
            return name
    return "json"


def reasoning_parser_name(
    model_name: str, template_text: str, has_token: Callable[[str], bool]
) -> str | None:
    """A key of REASONING_PARSERS, or None for a model that does not reason.

    Args:
        model_name: as the model is served.
        template_text: source of the model's chat templates.
        has_token: whether a text is a token of the model's vocabulary.
    """

    def is_seen(name: str) -> bool:
        form = REASONING_PARSERS[name]
        tags = (form.opening.strip(), form.closing)
        return any(tag in template_text or has_token(tag) for tag in tags)

    family = _family(model_name)
    if family.reasoning == HARMONY:
        return HARMONY
    if family.reasoning is not None and (family.always_reasons or is_seen(family.reasoning)):
        return family.reasoning
    if "<|channel>" in template_text:
        return "gemma4"
    return next(filter(is_seen, _REASONING_EVIDENCE), None)


def always_reasons(model_name: str) -> bool:
    """Whether an answer begins inside reasoning though neither template nor vocabulary knows of any."""
    return _family(model_name).always_reasons


def _family(model_name: str) -> Family:
    for segment in reversed(model_name.lower().replace("_", "-").replace(" ", "-").split("/")):
        for pattern, family in _PATTERNS:
            if pattern.match(segment):
                return family
    return Family()


# Families whose models open every answer with reasoning while they think, mostly without writing the tag that their
# prompt has already written. Beginnings of a segment of the model's name.
_REASONS_FIRST = ("qwen3", "qwq", "deepseek-r1", "deepseek-v4", "kimi-k3", "kimi_k3", "minimax-m", "glm-5.3")


def reasons_first(model_name: str) -> bool:
    """Whether an answer begins inside reasoning, tag or no tag, whenever the model thinks.

    Of other models that is known only by the tag, in the prompt or in the answer: one whose template merely allows
    thinking must not have its whole answer taken for reasoning.
    """
    return any(segment.startswith(_REASONS_FIRST) for segment in model_name.lower().split("/"))
