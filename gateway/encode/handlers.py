"""Handlers of /v1/embeddings, /v1/rerank, /v1/classify: read the body, ask the pipeline, write the answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from gateway.decisions.body import read_body, refuse_other_type
from gateway.decisions.timing import Phases
from gateway.encode.embeddings_form import read_embeddings, write_embeddings
from gateway.errors import error_answer
from smg.errors import SmgError
from smg.pipelines.off_loop import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest
    from smg.pipelines.encode.embed import EmbeddingPipeline
    from smg.pipelines.meter import Meters, RequestMeter
    from smg.types.context import RequestContext
    from smg_proto.embedding.v1 import common_pb2

# Reading so much JSON, or writing so many numbers, takes about a millisecond.
INLINE_BODY_BYTES = 64_000
INLINE_NUMBERS = 4_000
JSON: Header = (b"content-type", b"application/json")


class Answered(NamedTuple):
    """An answer.

    Attributes:
        body: as JSON.
        worker_url: who gave it; empty where nobody was asked.
    """

    body: bytes
    worker_url: str


class _Response(Protocol):
    @property
    def timings(self) -> common_pb2.EncodeTimings: ...


class EncodeHandlers:
    """The handlers and what they need."""

    def __init__(self, embed: EmbeddingPipeline, meters: Meters, max_body_bytes: int) -> None:
        self._embed = embed
        self._meters = meters
        self._max_body_bytes = max_body_bytes

    async def embeddings(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/embeddings."""
        await self._serve(request, reply, "embeddings", self.embed)

    async def embed(
        self, members: Mapping[str, Any], context: RequestContext, meter: RequestMeter, phases: Phases
    ) -> Answered:
        """The answer to a body."""
        form = await _off_loop(lambda: read_embeddings(members), _is_long(members))
        phases.parsed()
        response = await self._embed.run(form.request, context, meter)
        phases.answered(response.timings)
        numbers = sum(len(each.values) for each in response.embeddings)
        return Answered(
            await _off_loop(
                lambda: orjson.dumps(write_embeddings(form, response, phases.timings())), numbers > INLINE_NUMBERS
            ),
            response.worker_url,
        )

    async def _serve(
        self,
        request: HttpRequest,
        reply: Reply,
        route: str,
        answer: Callable[[Mapping[str, Any], RequestContext, RequestMeter, Phases], Awaitable[Answered]],
    ) -> None:
        phases = Phases()
        try:
            body = await read_body(request, self._max_body_bytes)
            refuse_other_type(body)
            meter = reply.meter = self._meters.start(route, request.context, request.arrived_at)
            answered = await answer(body.members, request.context, meter, phases)
        except SmgError as error:
            status, headers, data = error_answer(error)
            _send(request, reply, status, headers, data, phases)
            return
        headers: list[Header] = [JSON]
        if answered.worker_url:
            headers.append((b"x-smg-routed-worker-id", answered.worker_url.encode()))
        _send(request, reply, 200, headers, answered.body, phases)


def _is_long(members: Mapping[str, Any]) -> bool:
    """Whether reading a body's members takes long: token ids are looked at one by one."""
    value = members.get("input")
    if not isinstance(value, list):
        return False
    items: list[Any] = value
    return sum(len(item) if isinstance(item, list) else 1 for item in items) > INLINE_NUMBERS


async def _off_loop(work: Callable[[], Any], is_long: bool) -> Any:  # noqa: FBT001 - one caller's own words
    return await in_thread(work) if is_long else work()


def _send(
    request: HttpRequest, reply: Reply, status: int, headers: list[Header], data: bytes, phases: Phases
) -> None:
    ids = (b"x-request-id", request.context.request_id.encode())
    length = (b"content-length", b"%d" % len(data))
    reply.start(status, [*headers, length, ids, phases.header()])
    reply.end(data)
