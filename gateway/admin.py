"""The operator's paths: workers, their loads and caches. The same as smg.admin.v1.AdminService, in JSON.

Errors here have a form of their own, which tools for the original gateway read: {"error": text, "code": WORD}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

from pydantic_core import from_json

from gateway.whole import answer_json
from smg.errors import AlreadyExists, InvalidRequest, NotFound, SmgError
from smg.profiles import profile_for
from smg.services.admin import flush_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.reply import Reply
    from gateway.request import HttpRequest
    from smg.pipelines.formats import OutputFormats
    from smg.workers.registered import RegisteredWorker
    from smg.workers.registry import WorkerRegistry

MAX_LABELS = 64
MAX_LABEL_CHARS = 256
_CODES: tuple[tuple[type[SmgError], str], ...] = (
    (NotFound, "WORKER_NOT_FOUND"),
    (AlreadyExists, "WORKER_ALREADY_EXISTS"),
    (InvalidRequest, "BAD_REQUEST"),
)
_TRUE = ("1", "true", "yes")


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
        answer_json(request, reply, {"workers": listed, "total": len(workers), "stats": {"healthy": ready}})

    async def add_worker(self, request: HttpRequest, reply: Reply) -> None:
        """POST /workers: {"url", "labels"}. The worker is connected to in the background."""

        async def add() -> None:
            body = _object(request)
            url = body.get("url")
            if not isinstance(url, str):
                raise InvalidRequest("url is missing; it must be a string such as grpc://host:port")
            worker = self._registry.add(url, _labels(body))
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
        """PUT /workers/{id}: {"labels"} in place of those it has."""

        async def update() -> None:
            worker_id = request.parameters["id"]
            self._registry.relabel(worker_id, _labels(_object(request)))
            answer_json(request, reply, {"status": "accepted", "worker_id": worker_id}, 202)

        await _telling_errors(request, reply, update)

    async def remove_worker(self, request: HttpRequest, reply: Reply) -> None:
        """DELETE /workers/{id}, with ?drain=true when its running work has ended."""

        async def remove() -> None:
            worker_id = request.parameters["id"]
            drain = parse_qs(request.query).get("drain", [""])[0].lower() in _TRUE
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
            "total_workers": len(outcomes),
        }
        if failed:
            answer["failed"] = failed
        answer_json(request, reply, answer, 206 if failed else 200)

    async def loads(self, request: HttpRequest, reply: Reply) -> None:
        """GET /get_loads, and /loads: what each worker does now."""
        answer_json(request, reply, {"workers": [_load(worker) for worker in self._registry.workers()]})


def worker_json(
    worker: RegisteredWorker, formats_of: Callable[[str], OutputFormats | None]
) -> dict[str, Any]:
    """A worker as operators see it."""
    description = worker.description
    models = list(description.models) if description else []
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
        "is_healthy": worker.is_ready,
        "status": worker.state.value,
        "reason": worker.reason,
        "load": worker.inflight_requests,
        "added_at": worker.added_at.isoformat(),
    }


def _parsers(formats: OutputFormats | None) -> dict[str, str | None]:
    """By which formats a model's answers are read; they are known when its tokenizer is loaded."""
    if formats is None:
        return {}
    return {"tool_parser": formats.tools, "reasoning_parser": formats.reasoning}


def _load(worker: RegisteredWorker) -> dict[str, Any]:
    load = worker.load
    return {
        "worker": worker.url,
        "worker_id": worker.id,
        "load": worker.inflight_requests,
        "running": load.running,
        "waiting": load.waiting,
        "is_healthy": worker.is_ready,
    }


def _object(request: HttpRequest) -> dict[str, Any]:
    try:
        value: Any = from_json(request.body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return cast("dict[str, Any]", value)


def _labels(body: dict[str, Any]) -> dict[str, str]:
    labels: Any = body.get("labels") or {}
    if not isinstance(labels, dict):
        raise InvalidRequest("labels must be an object of strings")
    items = cast("dict[str, Any]", labels)
    if len(items) > MAX_LABELS:
        raise InvalidRequest(f"labels has {len(items)} members; at most {MAX_LABELS} are allowed")
    for name, value in items.items():
        if not isinstance(value, str) or max(len(name), len(value)) > MAX_LABEL_CHARS:
            raise InvalidRequest(
                f"labels.{name[:40]} must be a string of at most {MAX_LABEL_CHARS} characters"
            )
    return items


async def _telling_errors(request: HttpRequest, reply: Reply, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except SmgError as error:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), error.code.upper())
        answer_json(request, reply, {"error": error.message, "code": code}, error.status)
