"""The `[[directives]]`: what a prompt's text makes the echo engine plan."""

from __future__ import annotations

import pytest

from servicers.echo.directives import CODES, NO_PLAN, DirectiveFault, Failure, read_plan
from servicers.echo.transcript import read_transcript


def user(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n"


def assistant(text: str) -> str:
    return f"<|im_start|>assistant\n{text}<|im_end|>\n"


OPEN = "<|im_start|>assistant\n"


def plan(prompt: str):
    return read_plan(read_transcript(prompt))


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        ("[[say:Hi there]]", "Hi there"),
        ("[[say:a\\nb]]", "a\nb"),
        ('[[tool:get:{"a": 1}]]', '<tool_call>\n{"name": "get", "arguments": {"a": 1}}\n</tool_call>'),
        ("[[tool:get]]", '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>'),
        (
            '[[calls:a:{"x":1}|b:{}]]',
            '[{"name": "a", "parameters": {"x":1}}, {"name": "b", "parameters": {}}]',
        ),
        ("[[reason:hm]]", "<think>\nhm\n</think>\n\n"),
        ("[[think:hm]]", "<think>\nhm"),
        ("[[len:3]]", "w0 w1 w2"),
    ],
)
def test_texts(directive, text):
    assert plan(user(directive) + OPEN).pieces == (text,)


def test_pieces_keep_their_order_and_ids_stay_ids():
    assert plan("[[say:a]] words between [[ids:5,6]][[say:b]]").pieces == ("a", (5, 6), "b")


def test_reasoning_is_not_opened_twice():
    prompt = user("[[reason:hm]][[think:so]]") + OPEN + "<think>\n"
    assert plan(prompt).pieces == ("hm\n</think>\n\n", "so")


@pytest.mark.parametrize(
    ("directive", "field", "value"),
    [
        ("finish:content_filter", "finish", "content_filter"),
        ("eos:0", "has_eos", False),
        ("error:UNAVAILABLE:gone", "failure", Failure(14, "gone")),
        ("error:INTERNAL", "failure", Failure(13, "echo engine: INTERNAL")),
        ("errorafter:3:ABORTED:mid: way", "failure_after", (3, Failure(10, "mid: way"))),
        ("nocomplete", "never_ends", True),
        ("hang", "hangs", True),
        ("hang0:250", "first_wait_s", 0.25),
        ("delay:20", "chunk_wait_s", 0.02),
        ("chunk:4", "chunk_tokens", 4),
        ("cached:7", "cached_tokens", 7),
        ("rtok:2", "reasoning_tokens", 2),
        ("spec:10:6", "draft_tokens", 10),
        ("spec:10:6", "accepted_tokens", 6),
        ("lp:-1,-2.5", "label_logprobs", (-1.0, -2.5)),
        ("norows", "gives_rows", False),
        ("mirror", "mirrors", True),
    ],
)
def test_ways_of_answering(directive, field, value):
    made = plan(f"[[{directive}]]")
    assert getattr(made, field) == value
    assert getattr(NO_PLAN, field) != value


def test_a_failed_constraint_has_its_own_code():
    assert plan("[[constraintfail]]").failure.code == CODES["FAILED_PRECONDITION"]


@pytest.mark.parametrize(
    ("directive", "words"),
    [
        ("len:many", "directive len is 'many'"),
        ("len:-1", "directive len is '-1'"),
        ("len:999999999", "allowed: a whole number from 0 to 100000"),
        ("ids:1,x", "directive ids is 'x'"),
        ("chunk:0", "from 1 to"),
        ("error:NO_SUCH_CODE", "has code 'NO_SUCH_CODE'"),
        ("errorafter:x:INTERNAL", "directive errorafter is 'x'"),
        ("lp:a", "directive lp is 'a'"),
        ("hang0:soon", "directive hang0 is 'soon'"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(directive, words):
    with pytest.raises(DirectiveFault, match=words.replace("[", r"\[")):
        plan(f"[[{directive}]]")


def test_unknown_names_and_lone_brackets_are_text():
    assert plan("[[foo]] [[Say:x]] [[]] [say:x] ]] [[") == NO_PLAN


def test_only_the_last_user_message_counts():
    prompt = user("[[say:old]]") + assistant("[[say:mine]]") + user("new") + OPEN
    assert plan(prompt) == NO_PLAN


def test_tool_results_are_not_user_messages_and_turns_are_counted():
    ask = user("[[tool:f:{}]][[next]][[say:done]]")
    result = user("<tool_response>\n[[say:wrong]]\n</tool_response>")
    call = assistant("<tool_call>…</tool_call>")
    assert "tool_call" in plan(ask + OPEN).pieces[0]
    assert plan(ask + call + result + OPEN).pieces == ("done",)
    assert plan(ask + call + result + call + result + OPEN) == NO_PLAN


def test_loop_repeats_the_last_turn():
    ask = user("[[say:one]][[next]][[say:two]][[loop]]")
    rest = assistant("x") + user("<tool_response>\nr\n</tool_response>")
    assert [plan(ask + rest * n + OPEN).pieces for n in range(4)] == [("one",), ("two",), ("two",), ("two",)]


def test_counters_and_pauses_hold_for_every_turn():
    ask = user("[[say:one]][[chunk:2]][[next]][[say:two]]")
    later = plan(ask + assistant("x") + user("<tool_response>\nr\n</tool_response>") + OPEN)
    assert (later.pieces, later.chunk_tokens) == (("two",), 2)


@pytest.mark.parametrize(
    ("mark", "answer"),
    [
        ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
        ("<|user|>", "<|assistant|>"),
        ("<|start_header_id|>user<|end_header_id|>", "<|start_header_id|>assistant<|end_header_id|>"),
        ("<start_of_turn>user\n", "<start_of_turn>model\n"),
        ("[INST]", "[/INST]"),
    ],
)
def test_other_templates_are_understood(mark, answer):
    prompt = f"{mark}[[say:old]]{answer}reply{mark}[[say:new]]{answer}"
    assert plan(prompt).pieces == ("new",)


def test_a_prompt_without_marks_is_read_whole():
    assert plan("Complete this: [[say:it]]").pieces == ("it",)
