"""Writes chat answers as OpenAI JSON: server-sent events, or one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.openai.chunks import chat_logprobs, usage_json
from gateway.openai.sinks import JsonSink, SseSink, choice_end
from smg.parsers.events import CallArguments, CallBroken, CallStart, Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.openai.sinks import MakeHeaders
    from gateway.reply import Reply
    from smg.parsers.events import Piece
    from smg.pipelines.collected import CollectedChoice
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish
    from smg_proto.common.v1 import common_pb2


_OPENING: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}


class SseChatSink(SseSink):
    """Streams a chat answer. A choice opens with a chunk that names the role."""

    object_name = "chat.completion.chunk"
    after_text = b'"},"logprobs":null,"finish_reason":null}]}\n\n'

    def _first(self, index: int) -> bytes:
        opening = {"role": "assistant", "content": None} if self._form.is_call else _OPENING
        self._choice(index, opening)
        return self._start_of(index) + b'"delta":{"content":"'

    def pieces(
        self, index: int, pieces: Sequence[Piece], logprobs: Sequence[common_pb2.TokenLogprob]
    ) -> None:
        """Gather a chunk for each piece; the log-probabilities go with the first, or alone."""
        self._opened(index)
        entries = chat_logprobs(logprobs)
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
        self._gather(choice)

    def _choice(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
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


class JsonChatSink(JsonSink):
    """Collects a chat answer and writes it as one object."""

    def __init__(self, reply: Reply, headers: MakeHeaders, *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for, so an answer without tokens has an empty list of them."""
        super().__init__(reply, headers)
        self._logprobs = logprobs

    def _body(self, head: AnswerHead, choices: list[tuple[int, CollectedChoice]]) -> dict[str, Any]:
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

    def _choice(self, index: int, collected: CollectedChoice) -> dict[str, Any]:
        logprobs: dict[str, Any] | None = chat_logprobs(collected.logprobs)
        if self._logprobs and logprobs is None:
            logprobs = {"content": [], "refusal": None}
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
            "logprobs": logprobs,
            **choice_end(collected.finish),
        }
