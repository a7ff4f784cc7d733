"""Writes text completions as OpenAI JSON: server-sent events, or one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from gateway.openai.chunks import usage_json
from gateway.openai.legacy_logprobs import LegacyLists, legacy_json, legacy_lists
from gateway.openai.sinks import JsonSink, SseSink, StreamForm, choice_end
from smg.parsers.events import Content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.openai.sinks import MakeHeaders
    from gateway.reply import Reply
    from smg.parsers.events import Piece
    from smg.pipelines.collected import CollectedChoice
    from smg.pipelines.logprobs import Logprobs, TokenRows
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish


class SseCompletionSink(SseSink):
    """Streams text completions."""

    object_name = "text_completion"
    after_text = b'","finish_reason":null}]}\n\n'
    error_kind = "stream_error"

    def __init__(self, reply: Reply, headers: MakeHeaders, form: StreamForm, *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for. Running usage is for chats alone."""
        super().__init__(reply, headers, StreamForm(usage=form.usage))
        self._logprobs = logprobs

    def _first(self, index: int) -> bytes:
        return self._start_of(index) + b'"text":"'

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """Gather a chunk with text: completions have nothing else."""
        text = "".join(piece.text for piece in pieces if isinstance(piece, Content))
        self._more(index, text, None, logprobs)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Gather the chunk that ends a choice."""
        self._more(index, "", finish.reason)

    def _more(self, index: int, text: str, reason: str | None, logprobs: Logprobs = ()) -> None:
        choice: dict[str, Any] = {"index": index, "text": text, "finish_reason": reason}
        if self._logprobs:
            choice["logprobs"] = (
                orjson.Fragment(b"".join(legacy_json([logprobs.form(legacy_lists)]))) if logprobs else None
            )
        self._gather(choice)


class JsonCompletionSink(JsonSink[LegacyLists]):
    """Collects text completions and writes them as one object."""

    def __init__(self, reply: Reply, headers: MakeHeaders, *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for."""
        super().__init__(reply, headers)
        self._logprobs = logprobs

    def _form(self, rows: TokenRows) -> LegacyLists:
        return rows.form(legacy_lists)

    def _body(
        self, head: AnswerHead, choices: list[tuple[int, CollectedChoice[list[LegacyLists]]]]
    ) -> dict[str, Any]:
        return {
            "id": head.id,
            "object": "text_completion",
            "created": head.created,
            "model": head.model,
            "choices": [self._choice(index, collected) for index, collected in choices],
            "usage": usage_json(head.usage),
            "system_fingerprint": "default",
        }

    def _choice(self, index: int, collected: CollectedChoice[list[LegacyLists]]) -> dict[str, Any]:
        choice: dict[str, Any] = {"text": collected.answer().content or "", "index": index}
        if self._logprobs:
            choice["logprobs"] = self._put(legacy_json(collected.kept))
        return choice | choice_end(collected.finish)
