"""runner: what is called never seen was never sent before, and unequal work is no comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from benchmarks.gateway.answers import WrongAnswer
from benchmarks.gateway.runner import compare_prompts, scenario_bodies
from benchmarks.gateway.scenarios import SCENARIOS

if TYPE_CHECKING:
    from benchmarks.gateway.prompts import PromptWriter


def test_no_prompt_is_sent_twice_over_all_scenarios_and_repeats(byte_writer: PromptWriter):
    last_turns = [
        orjson.loads(body)["messages"][-1]["content"]
        for scenario in SCENARIOS
        for seed in ("0", "0/warm", "1", "profile")
        for body in scenario_bodies(byte_writer, scenario, 6, 1, seed)
    ]
    assert len(set(last_turns)) == len(last_turns)


def test_equal_work_needs_no_note():
    assert compare_prompts(SCENARIOS[0], {"original": 1000, "ours": 1000}) is None


def test_prompts_that_differ_by_little_are_noted():
    note = compare_prompts(SCENARIOS[0], {"original": 1000, "ours": 1001})
    assert note is not None
    assert "'ours': 1001" in note


def test_systems_that_got_unequal_work_fail_the_run():
    with pytest.raises(WrongAnswer, match="'ours': 900"):
        compare_prompts(SCENARIOS[0], {"original": 1000, "ours": 900})
