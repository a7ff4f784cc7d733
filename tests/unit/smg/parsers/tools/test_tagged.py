"""TaggedCalls: another format with a begin and an end marker is its two markers and its payload."""

from __future__ import annotations

import pytest

from smg.parsers.output import OutputParser
from smg.parsers.tools.json_scan import JsonScanner
from smg.parsers.tools.tagged import TaggedCalls
from tests.unit.smg.parsers.replay import assembled, replay


class NameThenObject:
    """name{"a": 1}, with the model's own id behind a colon: functions.f:0{}."""

    def __init__(self, writer) -> None:
        self.is_done = self.is_broken = False
        self._writer = writer
        self._name = ""
        self._scanner = JsonScanner()

    def feed(self, text: str, start: int) -> int:
        at = start
        while at < len(text) and not self._writer.is_started:
            if text[at] == "{":
                self._writer.start(self._name.partition(":")[0], self._name)
            else:
                self._name += text[at]
                at += 1
        out: list[str] = []
        if self._writer.is_started:
            at = self._scanner.feed(text, at, out)
        self._writer.arguments("".join(out))
        self.is_done, self.is_broken = self._scanner.is_done, self._scanner.is_broken
        return at


@pytest.mark.parametrize("step", [1, 2, 5, 100], ids=str)
def test_a_format_with_ids_of_its_own(step: int) -> None:
    text = '[CALL]f:0{"a": "[END]"}[END] and [CALL]g:1{}[END][CALL]h:2{]'
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    answer = assembled(replay(OutputParser(None, TaggedCalls("[CALL]", "[END]", NameThenObject)), parts))
    assert answer.content == " and [CALL]h:2{]"
    assert answer.calls == (("f", "f:0", '{"a":"[END]"}'), ("g", "g:1", "{}"))
