"""The operator's paths: workers, their loads and caches. The same as smg.admin.v1.AdminService, in JSON.

Errors here have a form of their own, which tools for the original gateway read: {"error": text, "code": WORD}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

from pydantic_core import from_json

from gateway.loads import loads_json
from gateway.whole import answer_json
from smg.errors import AlreadyExists, InvalidRequest, NotFound, Overloaded, SmgError
from smg.profiles import profile_for
from smg.services.admin import MAX_LABEL_CHARS, check_labels, check_models, flush_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.reply import Reply
    from gateway.request import HttpRequest
    from smg.pipelines.formats import OutputFormats
    from smg.workers.registered import RegisteredWorker
    from smg.workers.registry import WorkerRegistry

_CODES: tuple[tuple[type[SmgError], str], ...] = (
    (NotFound, "WORKER_NOT_FOUND"),
    (AlreadyExists, "WORKER_ALREADY_EXISTS"),
    (InvalidRequest, "BAD_REQUEST"),
    (Overloaded, "TOO_MANY_WORKERS"),
)
_FALSE = ("0", "false", "no")


class AdminHandlers:
    """The handlers and the registry that they look at."""

    def __init__(
        self, registry: WorkerRegistry, formats_of: Callable[[str], OutputFormats | None] = lambda _: None
    ) -> None:
        """Args: formats_of tells how a model's answers are read, where that is known."""
        self._registry = registry
        self._formats_of = formats_of

    async def list_workers(self, request: HttpRequest, reply: Reply) -> None:
        """GET /workers."""
        workers = self._registry.workers()
        ready = sum(worker.is_ready for worker in workers)
        listed = [worker_json(worker, self._formats_of) for worker in workers]
        # The original's counts of the kinds that it splits requests between; here all are of one kind.
        stats = {
            "healthy": ready,
            "regular_count": len(workers),
            "prefill_count": 0,
            "decode_count": 0,
        }
        answer_json(request, reply, {"workers": listed, "total": len(workers), "stats": stats})

    async def add_worker(self, request: HttpRequest, reply: Reply) -> None:
        """POST /workers: {"url", "labels", "models"}. The worker is connected to in the background."""

        async def add() -> None:
            self._registry.check_changeable()
            body = _object(request)
            url = body.get("url")
            if not isinstance(url, str):
                raise InvalidRequest("url is missing; it must be a string such as grpc://host:port")
            kind = body.get("worker_type")
            if kind not in (None, "", "regular"):
                raise InvalidRequest(f"worker_type is {str(kind)[:40]!r}; only 'regular' is served")
            worker = self._registry.add(url, _labels(body), only_models=_models(body))
            location = f"/workers/{worker.id}"
            accepted = {"status": "accepted", "worker_id": worker.id, "url": worker.url, "location": location}
            message = "the worker is connected to in the background"
            headers = [(b"location", location.encode())]
            answer_json(request, reply, {**accepted, "message": message}, 202, headers)

        await _telling_errors(request, reply, add)

    async def get_worker(self, request: HttpRequest, reply: Reply) -> None:
        """GET /workers/{id}."""

        async def get() -> None:
            worker = self._registry.worker(request.parameters["id"])
            answer_json(request, reply, worker_json(worker, self._formats_of))

        await _telling_errors(request, reply, get)

    async def update_worker(self, request: HttpRequest, reply: Reply) -> None:
        """PUT /workers/{id}: {"labels"} in place of those it has, {"draining"} to take it out of service or back."""

        async def update() -> None:
            self._registry.check_changeable()
            worker_id = request.parameters["id"]
            self._registry.worker(worker_id)
            body = _object(request)
            draining = body.get("draining")
            if draining is not None and not isinstance(draining, bool):
                raise InvalidRequest("draining must be true or false")
            if "labels" in body:
                self._registry.relabel(worker_id, _labels(body))
            if draining is not None:
                self._registry.drain(worker_id, is_draining=draining)
            answer_json(request, reply, {"status": "accepted", "worker_id": worker_id}, 202)

        await _telling_errors(request, reply, update)

    async def remove_worker(self, request: HttpRequest, reply: Reply) -> None:
        """DELETE /workers/{id}: when its running work has ended, or with ?drain=false at once."""

        async def remove() -> None:
            self._registry.check_changeable()
            worker_id = request.parameters["id"]
            drain = parse_qs(request.query).get("drain", [""])[0].lower() not in _FALSE
            self._registry.remove(worker_id, drain=drain)
            message = "it goes when its running work has ended" if drain else "it is gone"
            answer_json(
                request, reply, {"status": "accepted", "worker_id": worker_id, "message": message}, 202
            )

        await _telling_errors(request, reply, remove)

    async def flush_cache(self, request: HttpRequest, reply: Reply) -> None:
        """POST /flush_cache: every worker forgets its cached prefixes."""
        outcomes = await flush_all(self._registry.workers())
        failed = {worker_id: fault for worker_id, fault in outcomes.items() if fault}
        flushed = len(outcomes) - len(failed)
        answer: dict[str, Any] = {
            "status": "partial_success" if failed else "success",
            "message": f"flushed the caches of {flushed} of {len(outcomes)} workers",
            "workers_flushed": flushed,
            # The original tells by protocol.
            "total_http_workers": 0,
            "total_grpc_workers": len(outcomes),
            "total_zmq_workers_skipped": 0,
            "total_workers": len(outcomes),
        }
        if failed:
            answer["failed"] = failed
        answer_json(request, reply, answer, 206 if failed else 200)

    async def loads(self, request: HttpRequest, reply: Reply) -> None:
        """GET /get_loads, and /loads: what each worker does now."""
        answer_json(request, reply, loads_json(self._registry.workers()))


def worker_json(
    worker: RegisteredWorker, formats_of: Callable[[str], OutputFormats | None]
) -> dict[str, Any]:
    """A worker as operators see it."""
    description = worker.description
    models = worker.cards
    state = {"id": worker.id, "url": worker.url}
    if models:
        state["model_id"] = models[0].id
    return {
        **state,
        "models": [
            {
                "id": model.id,
                "hf_model_type": model.model_type,
                "architectures": [model.architecture] if model.architecture else [],
                "context_length": model.context_length,
                "profile": profile_for(model.id).name,
                **_parsers(formats_of(model.id)),
            }
            for model in models
        ],
        "worker_type": "regular",
        "connection_mode": "grpc",
        "protocol": worker.protocol,
        "runtime_type": description.engine if description else "unspecified",
        "labels": dict(worker.labels),
        "origin": worker.origin,
        "is_healthy": worker.is_ready,
        "status": worker.state.value,
        "reason": worker.reason,
        "circuit_breaker": worker.breaker.state.value,
        "load": worker.inflight_requests,
        "added_at": worker.added_at.isoformat(),
    }


def _parsers(formats: OutputFormats | None) -> dict[str, str | None]:
    """By which formats a model's answers are read; they are known when its tokenizer is loaded."""
    if formats is None:
        return {}
    return {"tool_parser": formats.tools, "reasoning_parser": formats.reasoning}


def _object(request: HttpRequest) -> dict[str, Any]:
    try:
        value: Any = from_json(request.body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return cast("dict[str, Any]", value)


def _labels(body: dict[str, Any]) -> dict[str, str]:
    labels: Any = body.get("labels")
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        raise InvalidRequest("labels must be an object of strings")
    items = cast("dict[str, Any]", labels)
    for name, value in items.items():
        if not isinstance(value, str):
            raise InvalidRequest(
                f"labels.{name[:40]} must be a string of at most {MAX_LABEL_CHARS} characters"
            )
    check_labels(items)
    return items


def _models(body: dict[str, Any]) -> list[str]:
    models: Any = body.get("models")
    if models is None:
        models = []
    model_id = body.get("model_id")
    if model_id not in (None, ""):
        models = [model_id]
    if not isinstance(models, list) or not all(isinstance(each, str) for each in cast("list[Any]", models)):
        raise InvalidRequest("models must be an array of names")
    names = cast("list[str]", models)
    check_models(names)
    return names


async def _telling_errors(request: HttpRequest, reply: Reply, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except SmgError as error:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), error.code.upper())
        answer_json(request, reply, {"error": error.message, "code": code}, error.status)
