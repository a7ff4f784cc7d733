"""Measures what each parser takes for a token, and whether long arguments cost more than short ones.

usage: python -m benchmarks.parsers [--rounds 15] [--format NAME ...]
CPU time of this process, the fastest of the rounds. Texts come in pieces of four characters, about a token of English. What
is plain text in a lane goes past the parser, as it does in the gateway; calls are one call of a function whose argument is
a text of 64 KB and of 1 MB: a parser that is linear takes the same for each token of both.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING

from smg.parsers.harmony import HARMONY, HarmonyParser
from smg.parsers.output import OutputParser
from smg.parsers.reasoning import reasoning_parser
from smg.parsers.tools import TOOL_PARSERS, ToolSchema, tool_parser

if TYPE_CHECKING:
    from collections.abc import Callable

    Parser = OutputParser | HarmonyParser

TOKEN_CHARS = 4
PROSE = "The quick brown fox, they say, jumps over 13 lazy dogs. "
LENGTHS = (1 << 16, 1 << 20)
TOOLS = (ToolSchema("f", {"type": "object", "properties": {"a": {"type": "string"}}}),)
_KIMI_K3 = (
    '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="string"<|sep|>'
)
_JSON = '{"name": "f", "arguments": {"a": "%s"}}'
_DSML = '<｜DSML｜{0}><｜DSML｜{1}invoke name="f"><｜DSML｜{1}parameter name="a" string="true">%s'
# How a call with a long value begins; its end is not needed to measure.
CALLS = {
    "cohere": f"<|START_ACTION|>[{_JSON.replace('arguments', 'parameters')}",
    "deepseek_v3": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": "%s"}',
    "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "%s"}',
    "deepseek_v32": _DSML.format("function_calls", ""),
    "deepseek_v4": _DSML.format("tool_calls", ""),
    "deepseek_v41": _DSML.format(" calls", " "),
    "functiongemma": "<start_function_call>call:f{a:<escape>%s<escape>}",
    "gemma4": '<|tool_call>call:f{a:<|"|>%s<|"|>}',
    "glm45": "<tool_call>f<arg_key>a</arg_key><arg_value>%s</arg_value>",
    "granite": f"<|tool_call|>[{_JSON}",
    "hermes": f"<tool_call>{_JSON}",
    "json": _JSON,
    "kimi_k2": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "%s"}'
    ),
    "kimi_k3": _KIMI_K3 + "%s",
    "lfm2": "<|tool_call_start|>[f(a='%s')",
    "llama3_json": _JSON.replace("arguments", "parameters"),
    "minimax_m2": '<minimax:tool_call><invoke name="f"><parameter name="a">%s</parameter>',
    "minimax_m3": ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>%s',
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": "%s"}',
    "nemotron": f"<TOOLCALL>[{_JSON}",
    "olmo3": "<function_calls>f(a='%s')",
    "phi4_mini": f"functools[{_JSON}",
    "pythonic": "[f(a='%s')",
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n%s",
    "seed_oss": "<seed:tool_call><function=f><parameter=a>%s",
    "step3": '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="a">%s',
    "xlam": f"[{_JSON}",
    HARMONY: '<|channel|>commentary to=functions.f<|message|>{"a": "%s"}',
}


def new_parser(name: str, *, reasons: bool) -> Parser:
    """A fresh parser of a format of calls; with reasoning before them where it is told apart."""
    if name == HARMONY:
        return HarmonyParser(takes_calls=True)
    reasoning = reasoning_parser("qwen3", starts_inside=True) if reasons else None
    return OutputParser(reasoning, tool_parser(name, TOOLS))


def tokens_of(text: str) -> list[str]:
    """The text in pieces."""
    return [text[at : at + TOKEN_CHARS] for at in range(0, len(text), TOKEN_CHARS)]


def cost_us(make: Callable[[], Parser], text: str, rounds: int) -> float:
    """Microseconds for each token of a text, as the gateway reads it."""
    tokens, best = tokens_of(text), float("inf")
    for _ in range(rounds):
        parser = make()
        openers = parser.openers
        begun = time.process_time()
        for token in tokens:
            if parser.lane is None or not openers.isdisjoint(token):
                parser.feed(token)
        best = min(best, time.process_time() - begun)
    return best / len(tokens) * 1e6


def main() -> None:
    """Print one line a format."""
    arguments = argparse.ArgumentParser(description="Measure the parsers.")
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument(
        "--format", nargs="*", default=[*TOOL_PARSERS, HARMONY], choices=[*TOOL_PARSERS, HARMONY]
    )
    options = arguments.parse_args()
    prose = PROSE * 400
    print("| format | µs a token: text | reasoning | argument of 64 KB | of 1 MB |\n|---|---|---|---|---|")
    for name in options.format:
        head, _, tail = CALLS[name].partition("%s")
        opening = "<|channel|>analysis<|message|>" if name == HARMONY else ""
        final = "<|channel|>final<|message|>" if name == HARMONY else ""
        numbers = [
            cost_us(partial(new_parser, name, reasons=False), final + prose, options.rounds),
            cost_us(partial(new_parser, name, reasons=True), opening + prose, options.rounds),
        ]
        for length in LENGTHS:
            value = (PROSE * (length // len(PROSE) + 1))[:length]
            rounds = max(3, options.rounds // (length >> 16))
            numbers.append(cost_us(partial(new_parser, name, reasons=False), head + value + tail, rounds))
        print(f"| {name} | {' | '.join(f'{number:.2f}' for number in numbers)} |", flush=True)


if __name__ == "__main__":
    main()
