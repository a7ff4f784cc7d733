"""What chat and text completions share when they write answers: an event stream, or one JSON object.

A streamed token costs one join of three byte strings: what stands before and after the text in a chunk is the
same for all tokens of a choice and is made once.
"""

from __future__ import annotations

import abc
import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import orjson

from gateway.errors import error_answer, stream_error
from gateway.openai.chunks import usage_json
from gateway.sse import DONE, HEADERS, frame
from smg.pipelines.collected import CollectingSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.reply import Header, Reply
    from smg.errors import SmgError
    from smg.parsers.events import Piece
    from smg.pipelines.collected import CollectedChoice
    from smg.pipelines.logprobs import Logprobs, TokenRows
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish

    MakeHeaders = Callable[[str], list[Header]]

FormT = TypeVar("FormT")

_CHUNK_END = b"}\n\n"
# JSON never has this byte: it stands where something else is put in afterwards.
PLACE = b"\0"
_PLACE = orjson.Fragment(PLACE)
# So much is copied in some 100 µs.
INLINE_JOIN_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class StreamForm:
    """What a stream carries beside the text.

    Attributes:
        usage: send the counts in a last chunk without choices.
        running_usage: send the counts so far in every chunk.
        finish_usage: send the counts in the chunk that ends the last choice, and in no chunk of their own. With usage,
            the chunks before it have a null in their place.
        is_call: a call must come: the first chunk of a choice has no content to begin with.
    """

    usage: bool = False
    running_usage: bool = False
    finish_usage: bool = False
    is_call: bool = False


class SseSink(abc.ABC):
    """Streams an answer. Headers leave with the first event; finish, usage and [DONE] leave together."""

    object_name: ClassVar[str]
    after_text: bytes
    """What follows the text in a chunk that carries nothing else."""
    error_kind: ClassVar[str] = "internal_error"

    def __init__(self, reply: Reply, headers: MakeHeaders, form: StreamForm) -> None:
        """Args: headers makes the headers beside SSE's own from the worker's address."""
        self._reply = reply
        self._headers = headers
        self._form = form
        self._pieces: list[bytes] = []
        self._before_text: dict[int, bytes] = {}
        self._before_reasoning: dict[int, bytes] = {}
        self._common = b""
        self._head: AnswerHead | None = None
        self._is_closed = False
        self._ending: dict[str, Any] | None = None  # a choice's end, which may be the last one's
        self._after = b',"usage":null' if form.finish_usage and form.usage else b""
        if self._after:
            self.after_text = self.after_text[: -len(_CHUNK_END)] + self._after + _CHUNK_END
        self.accepts_fragments = not form.running_usage

    @abc.abstractmethod
    def _first(self, index: int) -> bytes:
        """What precedes the text in a plain chunk of a choice; gathers the chunks that open the choice."""

    @abc.abstractmethod
    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """Gather the chunks of pieces."""

    @abc.abstractmethod
    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Gather the chunk that ends a choice."""

    def begin(self, worker_url: str = "", parsers: str = "") -> None:
        """Start the stream: with the first event, or before it when a comment has to go out."""
        self._reply.start(200, [*HEADERS, *self._headers(worker_url), *parser_header(parsers)])

    def open(self, head: AnswerHead) -> None:
        """Fix what all chunks share."""
        self._head = head
        if not self._reply.is_started:
            self.begin(head.worker_url, head.parsers)
        shared = {
            "id": head.id,
            "object": self.object_name,
            "created": head.created,
            "model": head.model,
            "system_fingerprint": "default",
        }
        # Without the closing brace: choices and usage follow.
        self._common = orjson.dumps(shared)[:-1]

    def fragment(self, index: int, fragment: bytes) -> None:
        """Write a piece of JSON-escaped text at once."""
        before = self._before_text.get(index)
        if before is None:
            before = self._opened(index)
        self._write(before + fragment + self.after_text)

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """Write a piece of JSON-escaped reasoning at once."""
        before = self._before_reasoning.get(index)
        if before is None:
            self._opened(index)
            before = self._before_reasoning[index] = self._start_of(index) + b'"delta":{"reasoning_content":"'
        self._write(before + fragment + self.after_text)

    def close(self) -> None:
        """Gather the usage, if asked for, and the end."""
        if self._form.finish_usage:
            self._put_ending(is_last=True)
        elif self._form.usage and self._head is not None:
            usage = orjson.dumps(usage_json(self._head.usage))
            self._pieces.append(frame(b'%b,"choices":[],"usage":%b}' % (self._common, usage)))
        self._pieces.append(DONE)
        self._is_closed = True

    def fail(self, error: SmgError) -> None:
        """End the stream with the error."""
        self._pieces += [frame(stream_error(error, self.error_kind)), DONE]
        self._is_closed = True
        self.flush()

    def flush(self) -> None:
        """Write what has gathered."""
        if self._ending is not None:
            self._put_ending(is_last=False)
        if not self._pieces:
            return
        data = b"".join(self._pieces)
        self._pieces.clear()
        if self._is_closed:
            self._reply.end(data)
        else:
            self._reply.write(data)

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client's socket is full."""
        return self._reply.is_behind(go_on)

    def keep(self, indexes: Sequence[int]) -> None:
        """Never called: what has been streamed stays."""
        raise AssertionError(indexes)

    def _write(self, chunk: bytes) -> None:
        if self._pieces:
            self._pieces.append(chunk)
            self.flush()
        else:
            self._reply.write(chunk)

    def _opened(self, index: int) -> bytes:
        before = self._before_text.get(index)
        if before is None:
            before = self._before_text[index] = self._first(index)
        return before

    def _start_of(self, index: int) -> bytes:
        return b'data: %b,"choices":[{"index":%d,' % (self._common, index)

    def _gather(self, choice: dict[str, Any]) -> None:
        after = self._after
        if self._form.running_usage:
            after = self._usage()
        self._pieces.append(frame(b'%b,"choices":[%b]%b}' % (self._common, orjson.dumps(choice), after)))

    def _gather_end(self, choice: dict[str, Any]) -> None:
        """Gather a choice's last chunk; it waits where the usage may have to go with it."""
        if not self._form.finish_usage:
            self._gather(choice)
            return
        self._put_ending(is_last=False)
        self._ending = choice

    def _put_ending(self, *, is_last: bool) -> None:
        choice, self._ending = self._ending, None
        if choice is not None:
            after = self._usage() if is_last else self._after
            chunk = b'%b,"choices":[%b]%b}' % (self._common, orjson.dumps(choice), after)
            self._pieces.append(frame(chunk))

    def _usage(self) -> bytes:
        return b',"usage":' + orjson.dumps(usage_json(self._head.usage)) if self._head is not None else b""


class JsonSink(CollectingSink[list[FormT]], abc.ABC):
    """Collects an answer and writes it as one object."""

    def __init__(self, reply: Reply, headers: MakeHeaders) -> None:
        """Args: headers makes the headers beside JSON's own from the worker's address."""
        super().__init__()
        self._reply = reply
        self._headers = headers
        self._long: list[list[bytes]] = []
        self._worker_url = ""
        self._parsers = ""
        self._joining: asyncio.Future[bytes] | None = None

    @abc.abstractmethod
    def _form(self, rows: TokenRows) -> FormT:
        """Log-probabilities as JSON."""

    def _begin(self) -> list[FormT]:
        return []

    def _add(self, kept: list[FormT], rows: TokenRows) -> None:
        kept.append(self._form(rows))

    @abc.abstractmethod
    def _body(
        self, head: AnswerHead, choices: list[tuple[int, CollectedChoice[list[FormT]]]]
    ) -> dict[str, Any]:
        """The whole answer; choices by index."""

    def _put(self, parts: list[bytes]) -> orjson.Fragment:
        """What stands in the body for JSON that is too long to be copied more than once."""
        self._long.append(parts)
        return _PLACE

    def close(self) -> None:
        """Write the answer. One of megabytes is put together in a thread; written() waits for it."""
        super().close()
        head, choices = self.outcome()
        self._worker_url = head.worker_url
        self._parsers = head.parsers
        first, *rest = orjson.dumps(self._body(head, choices)).split(PLACE)
        parts = [first]
        for long, after in zip(self._long, rest, strict=True):
            parts += long
            parts.append(after)
        self._long.clear()
        if sum(map(len, parts)) <= INLINE_JOIN_BYTES:
            self._write(b"".join(parts))
        else:
            self._joining = asyncio.get_running_loop().run_in_executor(None, b"".join, parts)

    async def written(self) -> None:
        """Return when the answer is written. To be awaited once it is complete."""
        if self._joining is not None:
            self._write(await self._joining)

    def _write(self, body: bytes) -> None:
        headers = [*self._headers(self._worker_url), *parser_header(self._parsers)]
        self._reply.start(200, json_headers(body, headers))
        self._reply.end(body)

    def fail(self, error: SmgError) -> None:
        """Answer with the error: nothing has been written yet."""
        status, headers, body = error_answer(error)
        self._reply.start(status, [*headers, content_length(body), *self._headers("")])
        self._reply.end(body)


def choice_end(finish: ChoiceFinish | None) -> dict[str, Any]:
    """The members of a whole choice that tell why it ended."""
    if finish is None:
        return {"finish_reason": None}
    if finish.matched_stop is None:
        return {"finish_reason": finish.reason}
    return {"finish_reason": finish.reason, "matched_stop": finish.matched_stop}


def parser_header(parsers: str) -> list[Header]:
    """What tells how the model's text was read."""
    return [(b"x-smg-parser", parsers.encode())] if parsers else []


def content_length(body: bytes) -> Header:
    """The header; with it a server need not chunk the answer."""
    return (b"content-length", b"%d" % len(body))


def json_headers(body: bytes, more: list[Header]) -> list[Header]:
    """Headers of a JSON answer."""
    return [(b"content-type", b"application/json"), content_length(body), *more]
