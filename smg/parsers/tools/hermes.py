"""<tool_call>{"name": …, "arguments": {…}}</tool_call>, one pair of tags a call.

Source: chat templates of Hermes 2 Pro, Qwen2.5 and Qwen3. Missing arguments are {}; what else the object may be is told
in call_object.py, and when a call counts in tagged.py.
"""

from __future__ import annotations

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.tagged import TaggedCalls


class HermesCalls(TaggedCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__("<tool_call>", "</tool_call>", CallObject)
