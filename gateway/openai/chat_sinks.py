"""Writes chat answers as OpenAI JSON: server-sent events, or one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from gateway.openai.chunks import chat_entries, chat_json, usage_json
from gateway.openai.sinks import JsonSink, SseSink, choice_end
from smg.parsers.events import CallArguments, CallBroken, CallStart, Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.openai.sinks import MakeHeaders
    from gateway.reply import Reply
    from smg.parsers.events import Piece
    from smg.pipelines.collected import CollectedChoice
    from smg.pipelines.logprobs import Logprobs, TokenRows
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish


_OPENING: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}


class SseChatSink(SseSink):
    """Streams a chat answer. A choice opens with a chunk that names the role."""

    object_name = "chat.completion.chunk"
    after_text = b'"},"logprobs":null,"finish_reason":null}]}\n\n'

    def _first(self, index: int) -> bytes:
        opening = {"role": "assistant", "content": None} if self._form.is_call else _OPENING
        self._choice(index, opening)
        return self._start_of(index) + b'"delta":{"content":"'

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """Gather a chunk for each piece; the log-probabilities go with the first, or alone."""
        self._opened(index)
        entries = orjson.Fragment(b"".join(chat_json([chat_entries(logprobs)]))) if logprobs else None
        for piece in pieces:
            delta = _delta(piece)
            if delta is not None:
                self._choice(index, delta, logprobs=entries)
                entries = None
        if entries is not None:
            self._choice(index, {}, logprobs=entries)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Gather the chunk that ends a choice."""
        self._opened(index)
        choice: dict[str, Any] = {
            "index": index,
            "delta": {},
            "logprobs": None,
            "finish_reason": finish.reason,
        }
        # A stop sequence is worth telling; that a model ended with its own end token is not.
        if isinstance(finish.matched_stop, str):
            choice["matched_stop"] = finish.matched_stop
        self._gather_end(choice)

    def _choice(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: orjson.Fragment | None = None,
    ) -> None:
        self._gather({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None})


def _delta(piece: Piece) -> dict[str, Any] | None:
    """What a chunk says of a piece; None for the pieces that a stream does not show."""
    match piece:
        case Content(text) | CallBroken(_, text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStart(call, name, call_id):
            begun = {"index": call, "id": call_id, "type": "function", "function": {"name": name}}
            return {"tool_calls": [begun]}
        case CallArguments(call, text):
            return {"tool_calls": [{"index": call, "function": {"arguments": text}}]}
        case _:
            return None


class JsonChatSink(JsonSink[bytes]):
    """Collects a chat answer and writes it as one object."""

    def __init__(self, reply: Reply, headers: MakeHeaders, *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for, so an answer without tokens has an empty list of them."""
        super().__init__(reply, headers)
        self._logprobs = logprobs

    def _form(self, rows: TokenRows) -> bytes:
        return rows.form(chat_entries)

    def _body(
        self, head: AnswerHead, choices: list[tuple[int, CollectedChoice[list[bytes]]]]
    ) -> dict[str, Any]:
        return {
            "id": head.id,
            "object": "chat.completion",
            "created": head.created,
            "model": head.model,
            "choices": [self._choice(index, collected) for index, collected in choices],
            "usage": usage_json(head.usage),
            "system_fingerprint": "default",
            "service_tier": "default",
        }

    def _choice(self, index: int, collected: CollectedChoice[list[bytes]]) -> dict[str, Any]:
        answer = collected.answer()
        message: dict[str, Any] = {
            "role": "assistant",
            "content": answer.content,
            "refusal": None,
            "annotations": [],
            "reasoning_content": answer.reasoning,
        }
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.calls
            ]
        return {
            "index": index,
            "message": message,
            "logprobs": self._put(chat_json(collected.kept)) if self._logprobs or collected.kept else None,
            **choice_end(collected.finish),
        }
