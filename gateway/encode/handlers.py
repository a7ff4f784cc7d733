"""Handlers of /v1/embeddings, /v1/rerank, /v1/classify: read the body, ask the pipeline, write the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import orjson

from gateway.decisions.body import read_body, refuse_other_type
from gateway.decisions.timing import Phases
from gateway.encode.classify_form import read_classify, write_classify
from gateway.encode.embeddings_form import read_embeddings, write_embeddings
from gateway.encode.rerank_form import read_rerank, write_rerank
from gateway.errors import error_answer
from smg.errors import SmgError
from smg.pipelines.off_loop import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest
    from smg.pipelines.encode.classify import ClassifyPipeline
    from smg.pipelines.encode.embed import EmbeddingPipeline
    from smg.pipelines.encode.rerank import RerankPipeline
    from smg.pipelines.meter import Meters, RequestMeter
    from smg.types.context import RequestContext

    Answer = Callable[[Mapping[str, Any], RequestContext, RequestMeter, Phases], Awaitable["Answered"]]

# Reading or writing so many numbers takes about a millisecond.
INLINE_NUMBERS = 4_000
ResultT = TypeVar("ResultT")
JSON: Header = (b"content-type", b"application/json")


class Answered(NamedTuple):
    """An answer.

    Attributes:
        body: as JSON.
        worker_url: who gave it; empty where nobody was asked.
    """

    body: bytes
    worker_url: str


class EncodeHandlers:
    """The handlers and what they need."""

    def __init__(
        self,
        embed: EmbeddingPipeline,
        rerank: RerankPipeline,
        classify: ClassifyPipeline,
        meters: Meters,
        max_body_bytes: int,
    ) -> None:
        self._embed = embed
        self._rerank = rerank
        self._classify = classify
        self._meters = meters
        self.max_body_bytes = max_body_bytes

    async def embeddings(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/embeddings."""
        await self._serve(request, reply, "embeddings", self.embed)

    async def ranking(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/rerank."""
        await self._serve(request, reply, "rerank", self.rerank)

    async def classification(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/classify."""
        await self._serve(request, reply, "classify", self.classify)

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
                lambda: orjson.dumps(write_embeddings(form, response, phases.timings())),
                numbers > INLINE_NUMBERS,
            ),
            response.worker_url,
        )

    async def rerank(
        self, members: Mapping[str, Any], context: RequestContext, meter: RequestMeter, phases: Phases
    ) -> Answered:
        """The answer to a body."""
        form = read_rerank(members)
        phases.parsed()
        response = await self._rerank.run(form.request, context, meter)
        phases.answered(response.timings)
        written = write_rerank(form, response, context.request_id, phases.timings())
        return Answered(orjson.dumps(written), response.worker_url)

    async def classify(
        self, members: Mapping[str, Any], context: RequestContext, meter: RequestMeter, phases: Phases
    ) -> Answered:
        """The answer to a body."""
        form = read_classify(members)
        phases.parsed()
        response = await self._classify.run(form, context, meter)
        phases.answered(response.timings)
        written = write_classify(response, context.request_id, meter.created, phases.timings())
        return Answered(orjson.dumps(written), response.worker_url)

    async def _serve(
        self,
        request: HttpRequest,
        reply: Reply,
        route: str,
        answer: Answer,
    ) -> None:
        phases = Phases()
        try:
            body = await read_body(request, self.max_body_bytes)
            refuse_other_type(body)
            meter = reply.meter = self._meters.start(route, request.context, request.arrived_at)
            answered = await answer(body.members, request.context, meter, phases)
        except SmgError as error:
            status, headers, data = error_answer(error)
            send(request, reply, status, headers, data, phases)
            return
        headers: list[Header] = [JSON]
        if answered.worker_url:
            headers.append((b"x-smg-routed-worker-id", answered.worker_url.encode()))
        send(request, reply, 200, headers, answered.body, phases)


def _is_long(members: Mapping[str, Any]) -> bool:
    """Whether reading a body's members takes long: token ids are looked at one by one."""
    value = members.get("input")
    if not isinstance(value, list):
        return False
    items = cast("list[Any]", value)
    return (
        sum(len(cast("list[Any]", item)) if isinstance(item, list) else 1 for item in items) > INLINE_NUMBERS
    )


async def _off_loop(work: Callable[[], ResultT], is_long: bool) -> ResultT:
    return await in_thread(work) if is_long else work()


def send(
    request: HttpRequest, reply: Reply, status: int, headers: list[Header], data: bytes, phases: Phases
) -> None:
    """Write a whole answer with the headers that all of these have."""
    ids = (b"x-request-id", request.context.request_id.encode())
    length = (b"content-length", b"%d" % len(data))
    reply.start(status, [*headers, length, ids, phases.header()])
    reply.end(data)
