"""Holds forced calls to the model's own format, where the workers can enforce that.

As an xgrammar structural tag (SGLang) or as a grammar in llguidance's Lark dialect (the local engine); formats whose arguments
are no JSON, or whose marks are special tokens, as a structural tag alone. Sources: xgrammar's "Structural Tag" and llguidance's
"Lark syntax" documentation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from smg.parsers.tools.frames import FRAMES
from smg.parsers.tools.tag_frames import TAG_FRAMES
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smg.parsers.tools.frames import Frame
    from smg.parsers.tools.tag_frames import TagFrame
    from smg.prompt.tokenizer import Tokenizer

_TAG = "structural_tag"
# Best first.
_KINDS = (_TAG, "lark")


def native_kind(tools: str, tokenizer: Tokenizer, enforced: Sequence[Sequence[str]]) -> str | None:
    """The kind of constraint to use; None where calls in this format cannot be enforced.

    Args:
        tools: name of the format.
        tokenizer: its vocabulary must not have the marks of a format for both kinds as special tokens.
        enforced: by worker, the kinds that it enforces.
    """
    if not enforced:
        return None
    if tools in TAG_FRAMES:
        return _TAG if all(_TAG in kinds for kinds in enforced) else None
    frame = FRAMES.get(tools)
    if frame is None or tokenizer.specials_in(frame.marks):
        return None
    return next((kind for kind in _KINDS if all(kind in kinds for kinds in enforced)), None)


def native_constraint(
    kind: str, tools: str, schemas: Mapping[str, Any], *, is_single: bool
) -> work_pb2.Constraint | None:
    """The constraint; None where a function's name could not be told from the format's marks.

    Args:
        kind: from native_kind().
        tools: name of the format, as there.
        schemas: by function, the JSON Schema of its arguments; at least one.
        is_single: there must be one call and no more.
    """
    if tools in TAG_FRAMES:
        tag_frame = TAG_FRAMES[tools]
        if not all(map(tag_frame.takes, schemas)):
            return None
        return work_pb2.Constraint(structural_tag=_structural_tag(tag_frame, schemas, is_single=is_single))
    frame = FRAMES[tools]
    if kind == _TAG:
        return work_pb2.Constraint(structural_tag=_structural_tag(frame, schemas, is_single=is_single))
    return work_pb2.Constraint(lark=_lark(frame, schemas, is_single=is_single))


def _structural_tag(frame: Frame | TagFrame, schemas: Mapping[str, Any], *, is_single: bool) -> str:
    tags = [
        {
            "type": "tag",
            "begin": frame.begin(name),
            "content": frame.content(schema),
            "end": frame.after,
        }
        for name, schema in schemas.items()
    ]
    calls: dict[str, Any] = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": frame.separator,
        "at_least_one": True,
        "stop_after_first": is_single,
    }
    if frame.opening:
        around = [{"type": "const_string", "value": text} for text in (frame.opening, frame.closing)]
        calls = {"type": "sequence", "elements": [around[0], calls, around[1]]}
    return json.dumps({"type": "structural_tag", "format": calls}, ensure_ascii=False)


def _lark(frame: Frame, schemas: Mapping[str, Any], *, is_single: bool) -> str:
    more = "" if is_single else f" ({_text(frame.separator)} call)*"
    parts = [_text(frame.opening)] * bool(frame.opening), [_text(frame.closing)] * bool(frame.closing)
    rules = [
        f"start: {' '.join([*parts[0], 'call' + more, *parts[1]])}",
        f"call: {' | '.join(f'call_{number}' for number in range(len(schemas)))}",
    ]
    for number, (name, schema) in enumerate(schemas.items()):
        rules.append(f"call_{number}: {_text(frame.begin(name))} arguments_{number} {_text(frame.after)}")
        rules.append(f"arguments_{number}: %json {json.dumps(schema, ensure_ascii=False)}")
    return "\n".join(rules) + "\n"


def _text(text: str) -> str:
    """A Lark string; its escapes are JSON's."""
    return json.dumps(text, ensure_ascii=False)
