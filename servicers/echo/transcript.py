"""Finds the last user message in the text of a prompt. Pure; knows the role marks of common chat templates."""

from __future__ import annotations

from typing import NamedTuple

USER_MARKS = (
    "<|im_start|>user\n",
    "<\uff5cUser\uff5c>",
    "<|user|>",
    "<|start|>user<|message|>",
    "<|im_user|>",
    "<|start_header_id|>user<|end_header_id|>",
    "<start_of_turn>user\n",
    "[INST]",
)
ASSISTANT_MARKS = (
    "<|im_start|>assistant\n",
    "<\uff5cAssistant\uff5c>",
    "<|assistant|>",
    "<|start|>assistant",
    "<|im_assistant|>",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<start_of_turn>model\n",
    "[/INST]",
)
# Templates of the Qwen kind give tool results to the model as user messages.
TOOL_RESULT = "<tool_response>"


class Transcript(NamedTuple):
    """The end of a prompt.

    Attributes:
        user_text: the last real user message; the whole text when no mark is known.
        turn: number of assistant turns that follow it, the one to be generated left out.
        is_thinking: the prompt has opened the reasoning block.
    """

    user_text: str
    turn: int
    is_thinking: bool


def read_transcript(prompt: str) -> Transcript:
    """Find the last real user message."""
    is_thinking = prompt.rstrip("\n").endswith("<think>")
    start = max(_last_user_mark(prompt, mark) for mark in USER_MARKS)
    if start < 0:
        return Transcript(prompt, 0, is_thinking)
    rest = prompt[start:]
    turn = max(0, *(rest.count(mark) - 1 for mark in ASSISTANT_MARKS))
    ends = [end for mark in ASSISTANT_MARKS if (end := rest.find(mark)) >= 0]
    return Transcript(rest[: min(ends)] if ends else rest, turn, is_thinking)


def is_tool_result(text: str) -> bool:
    """Whether the text after a user mark is a tool's result."""
    return text.lstrip("\n").startswith(TOOL_RESULT)


def _last_user_mark(prompt: str, mark: str) -> int:
    at = prompt.rfind(mark)
    while at >= 0 and is_tool_result(prompt[at + len(mark) : at + len(mark) + 64]):
        at = prompt.rfind(mark, 0, at)
    return at
