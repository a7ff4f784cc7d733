"""Handlers of /v1/decisions and System One: read the body, find its form, ask the pipeline, write the form's answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gateway.decisions.body import Body, is_json, read_body, refuse_other_type
from gateway.decisions.cards import model_list
from gateway.decisions.failures import failure_answer, failure_body
from gateway.decisions.forms import form_of, neither
from gateway.decisions.openai_form import UNSUPPORTED, read_openai, write_openai
from gateway.decisions.state_answer import failed_request, failures_of, first_failure, write_state
from gateway.decisions.state_form import NoQuestionValid, read_state
from gateway.decisions.timing import Phases
from gateway.openai.explain import shown
from gateway.whole import answer_json
from smg.decisions.json_text import json_bytes
from smg.errors import (
    DecisionsRefused,
    MalformedRequest,
    ModelNotFound,
    SmgError,
    Unsupported,
    UnsupportedSurface,
)
from smg.pipelines.off_loop import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest
    from smg.pipelines.decide.pipeline import DecisionPipeline
    from smg.pipelines.meter import Meters, RequestMeter
    from smg_proto.decision.v1 import decision_pb2

LONG_CONTEXT = b"typesafe-danger-zone-long-context"
MAX_BATCH = 256
# Reading the questions of so long a body takes about a millisecond, and so does writing their answers.
INLINE_BODY_BYTES = 6_000
ResultT = TypeVar("ResultT")
JSON: Header = (b"content-type", b"application/json")


class DecisionHandlers:
    """The handlers and what they need."""

    def __init__(self, pipeline: DecisionPipeline, meters: Meters, max_tasks: int) -> None:
        self._pipeline = pipeline
        self._max_tasks = max_tasks
        self._meters = meters
        self._has_529 = pipeline.settings.systemone_schema == "vllm-sr/5.0"

    async def decisions(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/decisions: either form."""
        phases = Phases()
        try:
            body = await read_body(request, self._pipeline.settings.decision_max_body_bytes)
        except MalformedRequest:
            # Nobody can tell which form this was to be.
            raise
        except SmgError as error:
            self._fail(request, reply, error, phases)
            return
        max_questions = self._pipeline.settings.decision_max_questions
        form = "state" if body.is_multipart else form_of(body.members)
        if form == "neither":
            raise MalformedRequest(neither(body.members), param="questions")
        if form == "openai":
            await self._openai(request, reply, body, phases)
            return
        try:
            refuse_other_type(body)
            found = await _off_loop(request, lambda: read_state(body.members, body.parts, max_questions))
            self._allow_long_context(request, found.request)
            phases.parsed()
            meter = reply.meter = self._started("decisions", request)
            response = await self._pipeline.run(found.request, request.context, meter, are_checked=True)
            phases.answered(response.timings)
            written = await _off_loop(request, lambda: write_state(found, response, phases.timings()))
            self._write(request, reply, written, phases, response.worker_url)
        except SmgError as error:
            self._fail(request, reply, error, phases)

    async def answer_state(self, request: HttpRequest, members: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The answer to a body in the state form, of a task that came inside another request, and who gave it.

        Raises:
            SmgError: it is refused.
        """
        phases = Phases()
        max_questions = self._pipeline.settings.decision_max_questions
        found = await _off_loop(request, lambda: read_state(members, (), max_questions))
        meter = self._started("decisions", request)
        response = await self._pipeline.run(found.request, request.context, meter, are_checked=True)
        phases.answered(response.timings)
        written = await _off_loop(request, lambda: write_state(found, response, phases.timings()))
        return written, response.worker_url

    async def systemone(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/systemone: a failed question fails the request."""
        phases = Phases()
        try:
            body = await self._body(request)
            written, worker_url = await self._whole(request, body, phases)
            self._write(request, reply, written, phases, worker_url)
        except SmgError as error:
            self._fail(request, reply, error, phases, has_529=self._has_529)

    async def batch(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/systemone/batch: each request as it would be alone, under its name."""
        phases = Phases()
        try:
            body = await self._body(request)
            entries = _batch(body)
            phases.parsed()
            places = asyncio.Semaphore(self._pipeline.settings.decision_concurrent_states)

            async def one(members: dict[str, Any]) -> dict[str, Any]:
                async with places:
                    return await self._alone(request, members)

            async with asyncio.TaskGroup() as group:
                tasks = {name: group.create_task(one(members)) for name, members in entries.items()}
            responses = {name: task.result() for name, task in tasks.items()}
            self._write(request, reply, {"responses": responses, "usage": _total(responses)}, phases, "")
        except SmgError as error:
            self._fail(request, reply, error, phases, has_529=self._has_529)

    async def models(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/systemone/models."""
        answer_json(request, reply, await model_list(self._pipeline, self._max_tasks))

    async def _openai(self, request: HttpRequest, reply: Reply, body: Body, phases: Phases) -> None:
        if not is_json(body.content_type):
            said = shown(body.content_type) if body.content_type else "missing"
            raise MalformedRequest(
                f"Content-Type is {said}; it must be application/json", param="Content-Type"
            )
        found = await _off_loop(request, lambda: read_openai(body.members))
        phases.parsed()
        if not found.model:
            raise ModelNotFound("model is empty; name a model of GET /v1/models", param="model")
        try:
            model = await self._pipeline.resolve(found.model)
            found.refuse_unsupported()
            if self._pipeline.can_score(model):
                surface = await self._pipeline.surfaces.of(model)
                if fault := self._pipeline.openai_fault(surface):
                    raise DecisionsRefused(f"{model.id} cannot be asked: {fault}", code=UNSUPPORTED)
            meter = reply.meter = self._started("decisions", request)
            response = await self._pipeline.run(found.request, request.context, meter, are_checked=True)
        except UnsupportedSurface as error:
            raise Unsupported(error.message, code="decisions_not_supported") from error
        phases.answered(response.timings)
        written = await _off_loop(request, lambda: write_openai(found, response))
        self._write(request, reply, written, phases, response.worker_url)

    async def _body(self, request: HttpRequest) -> Body:
        body = await read_body(request, self._pipeline.settings.decision_max_body_bytes)
        refuse_other_type(body)
        return body

    async def _whole(self, request: HttpRequest, body: Body, phases: Phases) -> tuple[dict[str, Any], str]:
        """The answer to one System One request, and who gave it.

        Raises:
            SmgError: the request is refused, or a question of it failed.
        """
        max_questions = self._pipeline.settings.decision_max_questions
        try:
            found = await _off_loop(request, lambda: read_state(body.members, body.parts, max_questions))
        except NoQuestionValid as error:
            failures = [each for view in error.views for each in failures_of(view, None)]
            raise failed_request(failures) from error
        self._allow_long_context(request, found.request)
        phases.parsed()
        if (failure := first_failure(found, None)) is not None:
            raise failure
        meter = self._started("systemone", request)
        response = await self._pipeline.run(found.request, request.context, meter, are_checked=True)
        phases.answered(response.timings)
        if (failure := first_failure(found, response)) is not None:
            raise failure
        written = await _off_loop(request, lambda: write_state(found, response, phases.timings()))
        return written, response.worker_url

    async def _alone(self, request: HttpRequest, members: dict[str, Any]) -> dict[str, Any]:
        try:
            written, _ = await self._whole(request, Body(members, (), False, "application/json"), Phases())
        except SmgError as error:
            status, failed = failure_body(error)
            return {**failed, "status": status}
        return written

    def refusal(self, error: SmgError) -> tuple[int, list[Header], bytes]:
        """The answer of a System One path to what is refused before it is read: no key, no place, too many bytes."""
        return failure_answer(error, has_529=self._has_529)

    def _started(self, route: str, request: HttpRequest) -> RequestMeter:
        return self._meters.start(route, request.context, request.arrived_at)

    def _allow_long_context(self, request: HttpRequest, message: decision_pb2.DecideRequest) -> None:
        if request.header(LONG_CONTEXT).strip().lower() == "true":
            message.options.long_context = True

    def _write(
        self, request: HttpRequest, reply: Reply, value: Mapping[str, Any], phases: Phases, worker_url: str
    ) -> None:
        began = time.perf_counter()
        data = json_bytes(value)
        phases.serialized(began)
        headers: list[Header] = [JSON]
        if worker_url:
            headers.append((b"x-smg-routed-worker-id", worker_url.encode()))
        _send(request, reply, 200, headers, data, phases)

    def _fail(
        self, request: HttpRequest, reply: Reply, error: SmgError, phases: Phases, *, has_529: bool = False
    ) -> None:
        status, headers, data = failure_answer(error, has_529=has_529)
        _send(request, reply, status, headers, data, phases)


async def _off_loop(request: HttpRequest, work: Callable[[], ResultT]) -> ResultT:
    """Read or write many questions in a thread, a few right here."""
    if len(request.body) <= INLINE_BODY_BYTES:
        return work()
    return await in_thread(work)


def _send(
    request: HttpRequest, reply: Reply, status: int, headers: list[Header], data: bytes, phases: Phases
) -> None:
    ids = (b"x-request-id", request.context.request_id.encode())
    # The SDK of the standard reads its own header.
    own = (b"x-typesafe-request-id", ids[1])
    length = (b"content-length", b"%d" % len(data))
    reply.start(status, [*headers, length, ids, own, phases.header()])
    reply.end(data)


def _batch(body: Body) -> dict[str, dict[str, Any]]:
    """The requests of a batch by name: under `requests`, or as `states` that share the model and the options."""
    members = body.members
    entries = members.get("requests")
    known = ("requests",)
    shared: dict[str, Any] = {}
    if "requests" not in members and "states" in members:
        entries, known = members["states"], ("states", "model", "options")
        shared = {name: members[name] for name in ("model", "options") if name in members}
    unknown = [name[:60] for name in members if name not in known]
    if unknown or body.parts:
        raise DecisionsRefused(
            f"the batch does not take {unknown[:10] or 'parts'}; it takes {', '.join(known)}"
        )
    if not isinstance(entries, dict) or not entries:
        raise DecisionsRefused(
            f"requests is {shown(entries)}; it must be an object with at least one request", param="requests"
        )
    named = cast("dict[str, Any]", entries)
    if len(named) > MAX_BATCH:
        raise DecisionsRefused(
            f"the batch has {len(named)} requests; at most {MAX_BATCH} are allowed", limit=MAX_BATCH
        )
    for name, entry in named.items():
        if not isinstance(entry, dict):
            raise DecisionsRefused(f"requests.{name[:60]} is {shown(entry)}; it must be an object")
    return {name: {**shared, **entry} for name, entry in named.items()}


def _total(responses: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    used = [each["usage"]["input_tokens"] for each in responses.values() if "usage" in each]
    return {"input_tokens": sum(used), "output_tokens": 0}
