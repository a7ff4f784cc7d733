"""{"name": …, "parameters": {…}}, with or without <|python_tag|> before, several with ";" between.

Source: Meta's description of Llama 3.1 to 3.3 and their chat templates; ";" as in vLLM's and SGLang's parsers. An answer
that begins with an object is a call only if that has a name and parameters; behind <|python_tag|> parameters may be
missing. What else follows that mark (code for Meta's own interpreter) is content, with the mark.
"""

from __future__ import annotations

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.choice_of_parsers import ParserChoice
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_TAGGED = Layout(begins=("<|python_tag|>",), gap="[,];")
_PLAIN = Layout(gap="[,];", first="{[")


class Llama3JsonCalls(ParserChoice):
    """A ToolParser."""

    def __init__(self) -> None:
        writer = CallWriter()
        super().__init__(
            SectionCalls(_TAGGED, CallObject, writer=writer),
            SectionCalls(_PLAIN, lambda each: CallObject(each, needs_arguments=True), writer=writer),
        )
