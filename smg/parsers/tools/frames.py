"""How calls stand in an answer that is nothing but calls, for the formats of which a grammar can be written.

Of these the arguments are JSON and all marks plain text: marks that are special tokens of a vocabulary are nothing that
grammars over text can say. The texts are those of the models' chat templates, so that a model is held to what it was
taught; the formats' own files name the sources.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Frame(NamedTuple):
    """The texts around calls.

    Attributes:
        before: behind it stands the function's name as a JSON string. key: between the name and the arguments.
        after: behind the arguments. separator: between two calls.
        opening: before the first call. closing: behind the last one.
        marks: what must not be special tokens.
    """

    before: str
    key: str
    after: str
    separator: str
    opening: str = ""
    closing: str = ""
    marks: tuple[str, ...] = ()

    def begin(self, name: str) -> str:
        """Everything of a call before its arguments."""
        return self.before + json.dumps(name, ensure_ascii=False) + self.key

    def content(self, schema: Any) -> dict[str, Any]:
        """The arguments, as a format of a structural tag."""
        return {"type": "json_schema", "json_schema": schema}


_ARGUMENTS, _PARAMETERS = ', "arguments": ', ', "parameters": '

FRAMES: Mapping[str, Frame] = MappingProxyType(
    {
        "hermes": Frame(
            '<tool_call>\n{"name": ',
            _ARGUMENTS,
            "}\n</tool_call>",
            "\n",
            marks=("<tool_call>", "</tool_call>"),
        ),
        "llama3_json": Frame('{"name": ', _PARAMETERS, "}", "; "),
        "nemotron": Frame(
            '{"name": ', _ARGUMENTS, "}", ", ", "<TOOLCALL>[", "]</TOOLCALL>", ("<TOOLCALL>", "</TOOLCALL>")
        ),
        "phi4_mini": Frame('{"name": ', _ARGUMENTS, "}", ", ", "functools[", "]"),
        "xlam": Frame('{"name": ', _ARGUMENTS, "}", ", ", "[", "]"),
    }
)
