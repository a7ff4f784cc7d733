"""Turns the token ids of a prompt into a script: the plan that its directives make, and the ids that it spells.

Cheap for long prompts: the last user message is found by its mark's token ids in the raw bytes, and is decoded only
if one of its tokens has an opening bracket in it. Of a prompt without marks only the end is read.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from google.protobuf.json_format import MessageToDict

from servicers.echo.directives import NO_PLAN, DirectiveFault, Plan, read_plan
from servicers.echo.output import Material
from servicers.echo.passage import FILLER, FIXED_REPLY, PASSAGE
from servicers.echo.transcript import USER_MARKS, is_tool_result, read_transcript
from servicers.token_bytes import ID_BYTES, ids_from_bytes, ids_to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicers.echo.model import EchoModel
    from smg_proto.engine.v1 import work_pb2

TAIL_TOKENS = 512
CACHE_ENTRIES = 4096
CACHE_BYTES = 16 * 1024 * 1024
_GLANCE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Script:
    """What one sequence answers, before its sampling parameters cut or prolong it.

    Attributes:
        plan: how to answer.
        ids: the reply, without an end token.
        is_endless: there is no reply: the passage follows, from passage_start on, again and again.
        passage_start: where in the passage an endless reply starts.
    """

    plan: Plan
    ids: Sequence[int]
    is_endless: bool = False
    passage_start: int = 0


class Planner:
    """Writes the scripts of one model."""

    def __init__(
        self,
        model: EchoModel,
        *,
        is_endless: bool,
        cache_entries: int = CACHE_ENTRIES,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._model = model
        self._is_endless = is_endless
        self._most_entries = cache_entries
        self._most_bytes = cache_bytes
        self._marks = [mark for text in USER_MARKS if (mark := _mark_bytes(model, text))]
        vocabulary = model.tokenizer.get_vocab(with_added_tokens=True)
        self._opening_ids = frozenset(token for text, token in vocabulary.items() if "[" in text)
        passage = model.encode(PASSAGE)
        self.material = Material(passage, model.encode(FILLER)[0], model.eos_ids, model.context_length)
        self._fixed = self._write(NO_PLAN, (FIXED_REPLY,))
        self._cache: OrderedDict[tuple[bytes, int], Script] = OrderedDict()
        self._cache_bytes = 0

    def script(self, prompt_ids: bytes, choice: int) -> Script:
        """The script of a prompt, for one of its choices.

        Raises:
            DirectiveFault: a directive cannot be obeyed.
        """
        message = prompt_ids[self._message_start(prompt_ids) :]
        if self._opening_ids.isdisjoint(ids_from_bytes(message)):
            return self._default(prompt_ids, choice)
        key = (message, choice)
        found = self._cache.get(key)
        if found is None:
            found = self._read(prompt_ids, message, choice)
            self._remember(key, found)
        else:
            self._cache.move_to_end(key)
        return found

    def mirror(self, request: work_pb2.Generate, plan: Plan) -> Script:
        """The script that shows a sequence its own parameters."""
        shown: dict[str, Any] = MessageToDict(request.sampling, preserving_proto_field_name=True)
        shown.update(MessageToDict(request.constraint, preserving_proto_field_name=True))
        if request.lora:
            shown["lora"] = request.lora
        if request.media:
            shown["media"] = [_shown(medium, request.prompt_ids) for medium in request.media]
        return self._write(plan, (json.dumps(shown, sort_keys=True, ensure_ascii=False),))

    def _read(self, prompt_ids: bytes, message: bytes, choice: int) -> Script:
        plan = read_plan(read_transcript(self._model.decode(ids_from_bytes(message))))
        if plan == NO_PLAN:
            return self._default(prompt_ids, choice)
        pieces = plan.pieces or (FIXED_REPLY,)
        return self._write(plan, (*pieces, f" [{choice}]") if choice else pieces)

    def _default(self, prompt_ids: bytes, choice: int) -> Script:
        if self._is_endless:
            start = (crc32(prompt_ids) + choice) % len(self.material.passage)
            return Script(NO_PLAN, (), is_endless=True, passage_start=start)
        return self._write(NO_PLAN, (FIXED_REPLY, f" [{choice}]")) if choice else self._fixed

    def _write(self, plan: Plan, pieces: Sequence[str | tuple[int, ...]]) -> Script:
        ids: list[int] = []
        text = ""
        for piece in (*pieces, ()):
            if isinstance(piece, str):
                text += piece
                continue
            ids += self._model.encode(text) if text else []
            ids += piece
            text = ""
        highest = max(ids, default=0)
        if highest >= self._model.vocab_size:
            raise DirectiveFault(f"directive ids has {highest}; allowed: 0 to {self._model.vocab_size - 1}")
        return Script(plan, ids)

    def _message_start(self, prompt_ids: bytes) -> int:
        """Offset of the last real user message; without marks, of the last tokens."""
        start = max((self._last_mark(prompt_ids, mark) for mark in self._marks), default=-1)
        return start if start >= 0 else max(0, len(prompt_ids) - TAIL_TOKENS * ID_BYTES)

    def _last_mark(self, prompt_ids: bytes, mark: bytes) -> int:
        end = len(prompt_ids)
        while (at := prompt_ids.rfind(mark, 0, end)) >= 0:
            if at % ID_BYTES:
                # Bytes of two neighbours that look like the mark.
                end = at + len(mark) - 1
                continue
            glance = prompt_ids[at + len(mark) : at + len(mark) + _GLANCE_TOKENS * ID_BYTES]
            if not is_tool_result(self._model.decode(ids_from_bytes(glance))):
                return at
            end = at
        return -1

    def _remember(self, key: tuple[bytes, int], script: Script) -> None:
        self._cache[key] = script
        self._cache_bytes += _cost(key, script)
        while len(self._cache) > self._most_entries or self._cache_bytes > self._most_bytes:
            self._cache_bytes -= _cost(*self._cache.popitem(last=False))


def _shown(medium: work_pb2.Medium, prompt_ids: bytes) -> dict[str, Any]:
    """A medium in words: where it stands, how many of its tokens are placeholders, and its tensors without numbers."""
    own = ids_from_bytes(prompt_ids)[medium.offset : medium.offset + medium.length]
    return {
        "modality": medium.modality,
        "offset": medium.offset,
        "length": medium.length,
        "placeholders": own.count(medium.placeholder_id),
        "tensors": {tensor.name: f"{tensor.dtype} {list(tensor.shape)}" for tensor in medium.tensors},
        "digest": medium.digest.hex(),
    }


def _cost(key: tuple[bytes, int], script: Script) -> int:
    # A list holds a pointer per id.
    return len(key[0]) + 8 * len(script.ids) + 200


def _mark_bytes(model: EchoModel, text: str) -> bytes:
    """The ids of a role mark, if the vocabulary has its first token for itself; else empty.

    A trailing newline is left out: it may be part of one token with the white space after it.
    """
    ids = model.encode(text.rstrip("\n"))
    added = model.tokenizer.get_added_tokens_decoder()
    return ids_to_bytes(ids) if ids and ids[0] in added else b""
