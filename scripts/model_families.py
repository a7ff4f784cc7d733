"""What docs/models.md says of model families: what cannot be told from the code. The rest is looked up."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from smg.parsers.choose import reasoning_parser_name, tool_parser_name
from smg.parsers.harmony import HARMONY
from smg.parsers.reasoning import REASONING_PARSERS
from smg.profiles import profile_for

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"


class Row(NamedTuple):
    """A family.

    Attributes:
        models: names by which it is found; the first one is looked up.
        template: what its chat template needs or does that others do not.
        reasons: it has models that reason.
        limits: what does not work, or works otherwise than one may think.
    """

    models: tuple[str, ...]
    template: str
    reasons: bool = True
    limits: str = ""


FAMILIES = (
    Row(("deepseek-v4-flash", "deepseek-v4-pro"), "`thinking`, own effort levels"),
    Row(("deepseek-v4.1-flash",), "`thinking`, effort levels and budgets"),
    Row(
        ("DeepSeek-V3.2",),
        "`thinking`",
        limits="the vendor's encoder is no template: give one with --chat-template",
    ),
    Row(("DeepSeek-V3.1", "DeepSeek-V3.2-Exp"), "`thinking`"),
    Row(("DeepSeek-V3",), "tools by a patched template", reasons=False),
    Row(("DeepSeek-R1",), "opens `<think>` itself"),
    Row(("Qwen3-8B", "QwQ-32B"), "`enable_thinking`"),
    Row(("Qwen3-30B-A3B-Thinking-2507",), "opens `<think>` itself"),
    Row(
        ("Qwen3-Coder-30B-A3B-Instruct", "Qwen3.5"),
        "",
        limits="arguments are text; the tools' schemas tell their types",
    ),
    Row(("Qwen2.5-7B-Instruct", "Hermes-3"), "", reasons=False),
    Row(("Kimi-K2-Instruct", "Kimi-K2-Thinking"), "ids `functions.f:0` come from the model and are kept"),
    Row(("Kimi-K3",), "`thinking`, shows tools of messages"),
    Row(("Kimi-VL-A3B-Thinking",), "", limits="no calls of its own format; plain JSON is read"),
    Row(("GLM-4.5", "GLM-4.6", "GLM-4.7", "GLM-5"), "`enable_thinking`, `clear_thinking`"),
    Row(("GLM-5.3",), "effort levels, `clear_thinking`"),
    Row(
        ("MiniMax-M2", "MiniMax-M2.1"),
        "opens `<think>` itself",
        limits="reasoning is told apart; to send it back, use `reasoning_content`, not `<think>` in the content",
    ),
    Row(("MiniMax-M3",), "adaptive thinking"),
    Row(
        ("Mistral-Small-3.2", "Magistral-Small-2507", "Devstral-Small"),
        "ids of nine letters and digits, to which others are changed",
        limits="forms of tokenizers v3 to v13; an id behind the arguments is not read",
    ),
    Row(("Llama-4-Scout",), "", reasons=False),
    Row(("Llama-3.3-70B-Instruct",), "`tools_in_user_message`, `python_tag`", reasons=False),
    Row(("NVIDIA-Nemotron-Nano-9B-v2",), "`/think` and `/no_think` in the system message"),
    Row(("Nemotron-3-Nano",), "`enable_thinking`"),
    Row(("Seed-OSS-36B-Instruct",), "`thinking_budget`"),
    Row(("Step3",), "opens `<think>` itself"),
    Row(("Step-3.5-Flash",), "opens `<think>` itself"),
    Row(
        ("command-a-reasoning-08-2025", "c4ai-command-r7b"),
        "`documents`, `reasoning`",
        limits="citations stay in the text",
    ),
    Row(("gemma-4",), "`enable_thinking`"),
    Row(("functiongemma-270m-it",), "developer role", reasons=False),
    Row(("LFM2-1.2B",), "", reasons=False),
    Row(("Olmo-3-32B-Think",), "opens `<think>` itself"),
    Row(("Phi-4-mini-instruct",), "tools in the system message", reasons=False),
    Row(
        ("granite-3.3-8b-instruct",),
        "`thinking`, `documents`",
        reasons=False,
        limits="`Here is my thought process:` stays in the content",
    ),
    Row(("xLAM-2-8b-fc-r",), "", reasons=False),
    Row(("MiMo-V2-Flash",), "`enable_thinking`"),
    Row(
        ("gpt-oss-20b", "gpt-oss-120b"),
        "none is used: prompts are written in Harmony where the vocabulary has its tokens",
        limits="a forced call comes without reasoning; built-in tools (browser, python) are not offered",
    ),
)


def models_part() -> str:
    """The table."""
    head = "| family | template | calls | reasoning | profile | golden cases | known limits |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *map(_line, FAMILIES)])


def _line(row: Row) -> str:
    name = row.models[0]
    tools = tool_parser_name(name, "", lambda _: False)
    reasoning = reasoning_parser_name(name, "", lambda _: True) if row.reasons else None
    cells = (
        ", ".join(row.models),
        row.template or "-",
        f"`{tools}`",
        f"`{reasoning}`" if reasoning else "-",
        f"`{profile_for(name).name}`",
        str(_golden_cases(tools, reasoning)),
        row.limits or "-",
    )
    return f"| {' | '.join(cells)} |"


def _golden_cases(tools: str, reasoning: str | None) -> int:
    if tools == HARMONY:
        return _lines(GOLDEN / "output" / "harmony.jsonl")
    count = _lines(GOLDEN / "tools" / f"{tools}.jsonl")
    if reasoning is not None:
        form = REASONING_PARSERS[reasoning]._replace(reasons_first=False)
        for path in (GOLDEN / "reasoning").glob("*.jsonl"):
            if REASONING_PARSERS[path.stem]._replace(reasons_first=False) == form:
                count += _lines(path) + _lines(GOLDEN / "output" / f"{path.stem}__{tools}.jsonl")
    return count


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.is_file() else 0
