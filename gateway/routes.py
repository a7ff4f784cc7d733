"""THE table: path to handler. Everything that is served over HTTP stands here, once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from gateway.errors import error_answer
from gateway.openapi.handler import openapi, openapi_yaml
from gateway.responses.conversations import refusal
from smg.errors import MethodNotAllowed, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gateway.admin import AdminHandlers
    from gateway.decisions.handlers import DecisionHandlers
    from gateway.encode.bundle import BundleHandler
    from gateway.encode.handlers import EncodeHandlers
    from gateway.openai.handlers import OpenAIHandlers
    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest
    from gateway.responses.conversations import ConversationHandlers
    from gateway.responses.handlers import ResponseHandlers
    from gateway.status import StatusHandlers
    from smg.errors import SmgError

    Failure = Callable[[SmgError], tuple[int, list[Header], bytes]]
    Handler = Callable[[HttpRequest, Reply], Awaitable[None]]

Access = Literal["open", "serving", "admin"]

# The names below, for metrics, which are built before the handlers are.
ROUTE_NAMES = (
    "chat",
    "completions",
    "responses",
    "response",
    "response_cancel",
    "response_input_items",
    "decisions",
    "systemone",
    "systemone_batch",
    "systemone_models",
    "embeddings",
    "rerank",
    "classify",
    "bundle",
    "models",
    "model",
    "health",
    "live",
    "liveness",
    "readiness",
    "metrics",
    "openapi",
    "workers",
    "worker",
    "flush_cache",
    "loads",
    "conversations",
    "conversation",
    "conversation_items",
    "conversation_item",
)


@dataclass(frozen=True, slots=True)
class Route:
    """One path with one method.

    Attributes:
        method: upper case; GET serves HEAD as well.
        path: a segment in braces matches one segment, percent-decoded; a last one with a star matches the rest.
        handler: answers it.
        name: short name for metrics.
        access: who may call: "open" to anybody, "serving" and "admin" by the rules of smg/callers/directory.py.
        id_prefix: prefix of request ids that the gateway makes.
        is_admitted: takes a place among the requests that may run at a time, and may have to wait for it.
        failure: writes errors that come before the handler, or out of it.
    """

    method: str
    path: str
    handler: Handler
    name: str
    access: Access = "serving"
    id_prefix: str = "req"
    is_admitted: bool = False
    failure: Failure = error_answer


def build_routes(
    openai: OpenAIHandlers,
    decide: DecisionHandlers,
    encode: EncodeHandlers,
    bundle: BundleHandler,
    status: StatusHandlers,
    admin: AdminHandlers,
    conversations: ConversationHandlers,
    responses: ResponseHandlers,
) -> list[Route]:
    """The table."""
    one, items = "/v1/conversations/{id}", "/v1/conversations/{id}/items"
    kept = partial(Route, failure=refusal, is_admitted=True)
    return [
        Route("POST", "/v1/chat/completions", openai.chat, "chat", id_prefix="chatcmpl", is_admitted=True),
        Route(
            "POST", "/v1/completions", openai.completions, "completions", id_prefix="cmpl", is_admitted=True
        ),
        Route("POST", "/v1/decisions", decide.decisions, "decisions", id_prefix="dec", is_admitted=True),
        Route(
            "POST",
            "/v1/systemone",
            decide.systemone,
            "systemone",
            id_prefix="dec",
            failure=decide.refusal,
            is_admitted=True,
        ),
        Route(
            "POST",
            "/v1/systemone/batch",
            decide.batch,
            "systemone_batch",
            id_prefix="dec",
            failure=decide.refusal,
            is_admitted=True,
        ),
        Route("GET", "/v1/systemone/models", decide.models, "systemone_models", "open"),
        Route("POST", "/v1/embeddings", encode.embeddings, "embeddings", id_prefix="emb", is_admitted=True),
        Route("POST", "/v1/rerank", encode.ranking, "rerank", id_prefix="rerank", is_admitted=True),
        Route(
            "POST", "/v1/classify", encode.classification, "classify", id_prefix="classify", is_admitted=True
        ),
        Route("POST", "/v1/bundle", bundle.bundle, "bundle", id_prefix="bundle", is_admitted=True),
        Route("POST", "/v1/responses", responses.create, "responses", id_prefix="resp", is_admitted=True),
        Route("GET", "/v1/responses/{id}", responses.get, "response"),
        Route("DELETE", "/v1/responses/{id}", responses.delete, "response"),
        Route("POST", "/v1/responses/{id}/cancel", responses.cancel, "response_cancel"),
        Route("GET", "/v1/responses/{id}/input_items", responses.input_items, "response_input_items"),
        Route("GET", "/v1/models", openai.models, "models", "open"),
        Route("GET", "/v1/models/{model*}", openai.model, "model", "open"),
        Route("GET", "/health", status.health, "health", "open"),
        Route("GET", "/health/live", status.live, "live", "open"),
        Route("GET", "/liveness", status.liveness, "liveness", "open"),
        Route("GET", "/readiness", status.readiness, "readiness", "open"),
        Route("GET", "/metrics", status.metrics, "metrics", "open"),
        Route("GET", "/openapi.json", openapi, "openapi", "open"),
        Route("GET", "/openapi.yaml", openapi_yaml, "openapi", "open"),
        Route("GET", "/workers", admin.list_workers, "workers", "admin"),
        Route("POST", "/workers", admin.add_worker, "workers", "admin"),
        Route("GET", "/workers/{id}", admin.get_worker, "worker", "admin"),
        Route("PUT", "/workers/{id}", admin.update_worker, "worker", "admin"),
        Route("DELETE", "/workers/{id}", admin.remove_worker, "worker", "admin"),
        Route("POST", "/flush_cache", admin.flush_cache, "flush_cache", "admin"),
        Route("GET", "/get_loads", admin.loads, "loads", "admin"),
        Route("GET", "/loads", admin.loads, "loads", "open"),
        kept("POST", "/v1/conversations", conversations.create, "conversations"),
        kept("GET", one, conversations.get, "conversation"),
        kept("POST", one, conversations.update, "conversation"),
        kept("DELETE", one, conversations.delete, "conversation"),
        kept("GET", items, conversations.items, "conversation_items"),
        kept("POST", items, conversations.add_items, "conversation_items"),
        kept("GET", f"{items}/{{item_id}}", conversations.item, "conversation_item"),
        kept("DELETE", f"{items}/{{item_id}}", conversations.remove_item, "conversation_item"),
    ]


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[list[str], dict[str, Route]]] = []
        for route in routes:
            if "{" in route.path:
                self._add_pattern(route)
            else:
                self._exact.setdefault(route.path, {})[route.method] = route

    def _add_pattern(self, route: Route) -> None:
        segments = route.path.split("/")
        for known, methods in self._patterns:
            if known == segments:
                methods[route.method] = route
                return
        self._patterns.append((segments, {route.method: route}))

    def id_prefix(self, path: str) -> str:
        """Prefix for the ids of requests to this path, whatever their method."""
        for route in self._exact.get(path, {}).values():
            return route.id_prefix
        return "req"

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
        """The route of a request and the variable parts of its path.

        Args:
            method: upper case.
            raw_path: as sent: an encoded slash belongs to its segment.

        Raises:
            NotFound: no such path.
            MethodNotAllowed: the path has other methods; `param` lists them, comma-separated.
        """
        methods = self._exact.get(raw_path)
        parameters: dict[str, str] = {}
        if methods is None:
            methods, parameters = self._match(raw_path.split("/"))
        if methods is None:
            raise NotFound(f"no such path: {raw_path[:200]}", code="unknown_url")
        route = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if route is None:
            allowed = [each for name in methods for each in ((name, "HEAD") if name == "GET" else (name,))]
            raise MethodNotAllowed(
                f"{method[:20]} is not allowed on {raw_path[:200]}; allowed: {', '.join(allowed)}",
                param=",".join(allowed),
            )
        return route, parameters

    def _match(self, segments: list[str]) -> tuple[dict[str, Route] | None, dict[str, str]]:
        for pattern, methods in self._patterns:
            parameters: dict[str, str] = {}
            if pattern[-1].endswith("*}"):
                # Names of models have slashes, which many clients send as they are.
                last = len(pattern) - 1
                found_segments = [*segments[:last], "/".join(segments[last:])]
            else:
                found_segments = segments
            if len(pattern) != len(found_segments):
                continue
            for wanted, found in zip(pattern, found_segments, strict=True):
                if wanted.startswith("{") and found:
                    parameters[wanted.strip("{*}")] = unquote(found)
                elif wanted != found:
                    break
            else:
                return methods, parameters
        return None, {}
