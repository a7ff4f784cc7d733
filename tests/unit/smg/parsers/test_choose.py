"""Which parsers a model gets when nobody says which."""

from __future__ import annotations

import re

import pytest

from smg.parsers.choose import (
    FAMILIES,
    TOOL_EVIDENCE,
    reasoning_parser_name,
    reasons_first,
    tool_parser_name,
)
from smg.parsers.harmony import HARMONY
from smg.parsers.reasoning import REASONING_PARSERS, reasoning_parser
from smg.parsers.tools import TOOL_PARSERS, reads_schemas, tool_parser

THINKS = "{{ '<think>\\n' }}"


def vocabulary(*tokens: str):
    return lambda text: text in tokens


NOTHING = vocabulary()

# Names as models are published, with the format of their calls.
TOOLS = {
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": "qwen3_coder",
    "Qwen/Qwen3-Coder-Next": "qwen3_coder",
    "Qwen/Qwen3.5-397B-A17B": "qwen3_coder",
    "Qwen/Qwen3-4B-Instruct-2507": "hermes",
    "Qwen/Qwen3-Next-80B-A3B-Thinking": "hermes",
    "Qwen/Qwen2.5-7B-Instruct": "hermes",
    "Qwen/QwQ-32B": "hermes",
    "NousResearch/Hermes-3-Llama-3.1-8B": "hermes",
    "meta-llama/Llama-3.3-70B-Instruct": "llama3_json",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama3_json",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "pythonic",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mistral",
    "mistralai/Devstral-Small-2507": "mistral",
    "mistralai/Magistral-Small-2509": "mistral",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek_v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3.1-Terminus": "deepseek_v31",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek_v31",
    "deepseek-ai/DeepSeek-V3.2": "deepseek_v32",
    "deepseek-ai/deepseek-v4-flash": "deepseek_v4",
    "deepseek-ai/deepseek-v4.1-flash": "deepseek_v41",
    "moonshotai/Kimi-K2-Instruct": "kimi_k2",
    "moonshotai/Kimi-K2-Thinking": "kimi_k2",
    "moonshotai/Kimi-K3": "kimi_k3",
    "zai-org/GLM-4.5-Air": "glm45",
    "zai-org/GLM-4.6": "glm45",
    "zai-org/GLM-4.7-Flash": "glm45",
    "zai-org/GLM-5.1": "glm45",
    "MiniMaxAI/MiniMax-M2": "minimax_m2",
    "MiniMaxAI/MiniMax-M2.1": "minimax_m2",
    "MiniMaxAI/MiniMax-M3": "minimax_m3",
    "nvidia/Llama-3_1-Nemotron-Ultra-253B-v1": "nemotron",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3_coder",
    "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed_oss",
    "stepfun-ai/step3": "step3",
    "stepfun-ai/Step-3.5-Flash": "qwen3_coder",
    "CohereLabs/c4ai-command-r7b-12-2024": "cohere",
    "CohereLabs/command-a-reasoning-08-2025": "cohere",
    "google/functiongemma-270m-it": "functiongemma",
    "google/gemma-4-E4B-it": "gemma4",
    "Salesforce/Llama-xLAM-2-8b-fc-r": "xlam",
    "LiquidAI/LFM2-1.2B-Tool": "lfm2",
    "allenai/Olmo-3-7B-Instruct": "olmo3",
    "microsoft/Phi-4-mini-instruct": "phi4_mini",
    "ibm-granite/granite-3.3-8b-instruct": "granite",
    "ibm-granite/granite-4.0-h-small": "hermes",
    "XiaomiMiMo/MiMo-V2-Flash": "qwen3_coder",
    "/models/kimi-k2-instruct-q4": "kimi_k2",
    "google/gemma-3-12b-it": "json",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "json",
    "": "json",
}


@pytest.mark.parametrize("name", TOOLS, ids=str)
def test_a_known_name_tells_the_format_of_calls(name: str) -> None:
    assert tool_parser_name(name, "", NOTHING) == TOOLS[name]
    assert TOOLS[name] in TOOL_PARSERS


# Names, and what is used where the template has <think>.
REASONING = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "deepseek_r1",
    "deepseek-ai/DeepSeek-V3.1": "deepseek_v3",
    "Qwen/Qwen3-235B-A22B-Thinking-2507": "qwen3_thinking",
    "Qwen/Qwen3-8B": "qwen3",
    "zai-org/GLM-4.6": "glm45",
    "moonshotai/Kimi-K2-Thinking": "kimi_k2",
    "moonshotai/Kimi-K3": "kimi_k3",
    "MiniMaxAI/MiniMax-M2": "minimax_m2",
    "stepfun-ai/step3": "step3",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron",
    "allenai/Olmo-3-32B-Think": "olmo3",
    "mistralai/Magistral-Small-2506": "think_tag",
    "HuggingFaceTB/SmolLM3-3B": "think_tag",
}


@pytest.mark.parametrize("name", REASONING, ids=str)
def test_a_known_name_tells_the_reasoning_of_a_model_with_its_tags(name: str) -> None:
    assert reasoning_parser_name(name, THINKS, NOTHING) == REASONING[name]


@pytest.mark.parametrize(
    ("name", "tag", "found"),
    [
        ("mistralai/Magistral-Small-2509", "[THINK]", "mistral"),
        ("CohereLabs/command-a-reasoning-08-2025", "<|START_THINKING|>", "cohere"),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "<seed:think>", "seed_oss"),
        ("moonshotai/Kimi-VL-A3B-Thinking-2506", "◁think▷", "kimi_vl"),
        ("google/gemma-4-E4B-it", "<channel|>", "gemma4"),
        ("MiniMaxAI/MiniMax-M3", "<mm:think>", "minimax_m3"),
        ("a-fine-tune", "[/THINK]", "mistral"),
    ],
    ids=str,
)
def test_tags_in_the_vocabulary_are_seen(name: str, tag: str, found: str) -> None:
    assert reasoning_parser_name(name, "", vocabulary(tag)) == found


def test_a_model_without_its_familys_tags_does_not_reason() -> None:
    for name in (
        "Qwen/Qwen2.5-7B-Instruct",
        "mistralai/Mistral-7B-Instruct-v0.3",
        "moonshotai/Kimi-K2-Instruct",
    ):
        assert reasoning_parser_name(name, "<tool_call>", vocabulary("<tool_call>")) is None


def test_kimi_k3_reasons_whatever_is_seen() -> None:
    assert reasoning_parser_name("moonshotai/Kimi-K3", "", NOTHING) == "kimi_k3"


def test_families_that_reason_first_are_known_by_name() -> None:
    named = (
        "Qwen/Qwen3-8B",
        "deepseek-ai/DeepSeek-R1",
        "moonshotai/Kimi-K3",
        "MiniMaxAI/MiniMax-M2",
        "zai-org/GLM-5.3",
    )
    assert all(map(reasons_first, named))
    assert not any(
        map(reasons_first, ("zai-org/GLM-4.6", "HuggingFaceTB/SmolLM3-3B", "moonshotai/Kimi-K2-Thinking"))
    )


@pytest.mark.parametrize(
    ("template", "tokens", "name"),
    [
        ("{{ '<tool_call>\n' }}", (), "hermes"),
        ("", ("<tool_call>",), "hermes"),
        ("{{ messages }}", ("<think>",), "json"),
        ("<|python_tag|>", (), "llama3_json"),
        ("<tool_call>\n<function=f>\n<parameter=a>", (), "qwen3_coder"),
        ("<seed:tool_call>\n<function=f>", (), "seed_oss"),
        ("<tool_call>{name}\n<arg_key>", (), "glm45"),
        ("<minimax:tool_call>", ("<tool_call>",), "minimax_m2"),
        ("<｜tool▁calls▁begin｜>…```json", (), "deepseek_v3"),
        ("<｜tool▁calls▁begin｜>", (), "deepseek_v31"),
        ("<｜DSML｜tool_calls>", (), "deepseek_v4"),
        ("", ("[TOOL_CALLS]", "[ARGS]"), "mistral"),
        ("<|tool_calls_section_begin|>", ("<tool_call>",), "kimi_k2"),
    ],
    ids=str,
)
def test_without_a_known_name_the_marks_tell(template: str, tokens: tuple[str, ...], name: str) -> None:
    assert tool_parser_name("a-fine-tune", template, vocabulary(*tokens)) == name


def test_a_template_tells_more_than_a_vocabulary() -> None:
    assert tool_parser_name("x", "<tool_call>", vocabulary("<|python_tag|>")) == "hermes"


@pytest.mark.parametrize(
    ("template", "tokens", "name"),
    [
        (THINKS, (), "think_tag"),
        ("content.split('</think>')", (), "think_tag"),
        ("", ("</think>",), "think_tag"),
        ("'<|channel>thought\n'", (), "gemma4"),
        ("<tool_call>", ("<tool_call>",), None),
        ("", (), None),
    ],
    ids=str,
)
def test_without_a_known_name_the_tags_tell(template: str, tokens: tuple[str, ...], name: str | None) -> None:
    assert reasoning_parser_name("a-fine-tune", template, vocabulary(*tokens)) == name


def test_the_tables_name_formats_that_there_are() -> None:
    families = [family for _, family in FAMILIES]
    assert {family.tools for family in families if family.tools} <= {*TOOL_PARSERS, HARMONY}
    assert {family.reasoning for family in families if family.reasoning} <= {*REASONING_PARSERS, HARMONY}
    assert {name for _, name in TOOL_EVIDENCE} <= set(TOOL_PARSERS)


def test_every_format_of_calls_is_chosen_for_some_model() -> None:
    named = {family.tools for _, family in FAMILIES} | {name for _, name in TOOL_EVIDENCE} | {"json"}
    assert set(TOOL_PARSERS) <= named


def test_only_formats_of_plain_text_read_schemas() -> None:
    assert {name for name in TOOL_PARSERS if reads_schemas(name)} == {
        "deepseek_v32", "deepseek_v4", "deepseek_v41", "glm45", "kimi_k3", "minimax_m2", "minimax_m3", "qwen3_coder", "seed_oss",
        "step3",
    }  # fmt: skip


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    known = ", ".join(sorted(TOOL_PARSERS))
    with pytest.raises(ValueError, match=re.escape(f"unknown tool call parser 'herms'; known: {known}")):
        tool_parser("herms")
    known = ", ".join(sorted(REASONING_PARSERS))
    with pytest.raises(ValueError, match=re.escape(f"unknown reasoning parser 'think'; known: {known}")):
        reasoning_parser("think", starts_inside=False)
