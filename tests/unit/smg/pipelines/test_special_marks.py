"""Formats whose marks are special tokens of the vocabulary: calls and reasoning are read all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from smg.parsers.assemble import assemble
from smg.parsers.tools import ToolSchema
from smg.pipelines.output import OutputForm
from smg.pipelines.stages import TextOptions, TextStages
from smg.prompt.tokenizer import Tokenizer
from smg.prompt.vocabulary import Vocabulary, byte_alphabet, decoding_of

if TYPE_CHECKING:
    from smg.parsers.assemble import Assembled

BYTES = {byte: character for character, byte in byte_alphabet().items()}
SPECIALS = [
    "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]", "<|tool_calls_section_begin|>", "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>", "<|im_end|>", "｜DSML｜",
]  # fmt: skip
DSML = (
    '<｜DSML｜tool_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="a">5</｜DSML｜parameter>'
    "</｜DSML｜invoke></｜DSML｜tool_calls>"
)
OUTPUTS = {
    "mistral": ("[THINK]hm[/THINK]Ok.[TOOL_CALLS]f[ARGS]{}<|im_end|>", "mistral", "Ok.", "hm", None, "{}"),
    "kimi": (
        "<think>hm</think><|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a": 5}<|tool_call_end|><|tool_calls_section_end|><|im_end|>',
        "kimi_k2", None, "hm", "functions.f:0", '{"a":5}',
    ),
    "dsml": ("<think>hm</think>" + DSML + "<|im_end|>", "deepseek_v4", None, "hm", None, '{"a":"5"}'),
}  # fmt: skip
REASONING = {"mistral": "mistral", "kimi_k2": "kimi_k2", "deepseek_v4": "think_tag"}


def tokenizer_of_bytes() -> Tokenizer:
    tokens = [BYTES[byte] for byte in range(256)] + [
        "".join(BYTES[byte] for byte in text.encode()) for text in SPECIALS
    ]
    special = frozenset(range(256, len(tokens)))
    vocabulary = Vocabulary([*tokens], special, decoding_of({"type": "ByteLevel"}))
    return Tokenizer(vocabulary, encode=str.encode, eos_ids=frozenset())


def ids_of(text: str) -> list[int]:
    """Special tokens by their ids, the rest byte by byte."""
    ids: list[int] = []
    while text:
        found = next((n for n, special in enumerate(SPECIALS) if text.startswith(special)), None)
        if found is None:
            ids += text[0].encode()
            text = text[1:]
        else:
            ids.append(256 + found)
            text = text[len(SPECIALS[found]) :]
    return ids


def read(text: str, form: OutputForm, step: int) -> Assembled:
    stages = TextStages(tokenizer_of_bytes(), TextOptions(form=form))
    ids, pieces = ids_of(text), []
    for at in range(0, len(ids), step):
        pieces += stages.feed(ids[at : at + step]).pieces
    return assemble([*pieces, *stages.finish(is_cut=False).pieces])


@pytest.mark.parametrize("step", [1, 4, 1000], ids=str)
@pytest.mark.parametrize("case", OUTPUTS, ids=str)
def test_calls_with_special_marks(case: str, step: int) -> None:
    text, tools, content, reasoning, own_id, arguments = OUTPUTS[case]
    schemas = (ToolSchema("f", {"properties": {"a": {"type": "string"}}}),)
    answer = read(text, OutputForm(reasoning=REASONING[tools], tools=tools, schemas=schemas), step)
    (call,) = answer.calls
    assert (answer.content, answer.reasoning, call.name, call.arguments) == (
        content,
        reasoning,
        "f",
        arguments,
    )
    if own_id is not None:
        assert call.id == own_id
    elif tools == "mistral":  # its templates take no other ids
        assert len(call.id) == 9
        assert call.id.isalnum()
    else:
        assert call.id.startswith("call_")


def test_special_tokens_of_no_format_stay_out_of_the_text() -> None:
    assert read("[TOOL_CALLS]a<|im_end|>", OutputForm(tools="hermes"), 1).content == "a"
    assert read("[TOOL_CALLS]a b<|im_end|>", OutputForm(tools="mistral"), 1).content == "[TOOL_CALLS]a b"
