"""THE table of the typed gRPC services: method to who may call it and under which name it is counted.

A method that is not in the table is not ours (health, reflection): it is answered without a key and not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Access = Literal["open", "serving", "admin"]

CHAT_SERVICE = "smg.chat.v1.ChatService"
DECISION_SERVICE = "smg.decision.v1.DecisionService"
EMBEDDING_SERVICE = "smg.embedding.v1.EmbeddingService"
MODEL_SERVICE = "smg.model.v1.ModelService"
ADMIN_SERVICE = "smg.admin.v1.AdminService"
CONVERSATIONS_SERVICE = "smg.responses.v1.ConversationsService"
RESPONSES_SERVICE = "smg.responses.v1.ResponsesService"
# Envoy names it.
ENDPOINT_SERVICE = "envoy.service.endpoint.v3.EndpointDiscoveryService"

CHAT_ROUTE, COMPLETIONS_ROUTE = "grpc_chat", "grpc_completions"
MODELS_ROUTE, ADMIN_ROUTE, DECISIONS_ROUTE = "grpc_models", "grpc_admin", "grpc_decisions"
EMBEDDINGS_ROUTE = "grpc_embeddings"
CONVERSATIONS_ROUTE, RESPONSES_ROUTE = "grpc_conversations", "grpc_responses"
ROUTES = (
    CHAT_ROUTE,
    COMPLETIONS_ROUTE,
    MODELS_ROUTE,
    ADMIN_ROUTE,
    DECISIONS_ROUTE,
    EMBEDDINGS_ROUTE,
    CONVERSATIONS_ROUTE,
    RESPONSES_ROUTE,
)


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    Attributes:
        route: short name for metrics.
        access: who may call: "open" to anybody, "serving" and "admin" by the rules of smg/callers/directory.py.
        id_prefix: prefix of request ids that the gateway makes.
        is_admitted: takes a place among the requests that may run at a time, and may have to wait for it.
        is_read: it only looks; of an admin method, what the role `user` may call.
    """

    route: str
    access: Access
    id_prefix: str = "req"
    is_admitted: bool = False
    is_read: bool = False


_CHAT = Method(CHAT_ROUTE, "serving", "chatcmpl", is_admitted=True)
_COMPLETIONS = Method(COMPLETIONS_ROUTE, "serving", "cmpl", is_admitted=True)
_DECISIONS = Method(DECISIONS_ROUTE, "serving", "dec", is_admitted=True)
_EMBEDDINGS = Method(EMBEDDINGS_ROUTE, "serving", "emb", is_admitted=True)
_ADMIN = Method(ADMIN_ROUTE, "admin")
_CONVERSATIONS = Method(CONVERSATIONS_ROUTE, "serving", is_admitted=True)
_RESPONSES = Method(RESPONSES_ROUTE, "serving", "resp")
_NEW_RESPONSES = Method(RESPONSES_ROUTE, "serving", "resp", is_admitted=True)
_ADMIN_READ = Method(ADMIN_ROUTE, "admin", is_read=True)

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        f"/{CHAT_SERVICE}/CreateChatCompletion": _CHAT,
        f"/{CHAT_SERVICE}/StreamChatCompletion": _CHAT,
        f"/{CHAT_SERVICE}/CreateCompletion": _COMPLETIONS,
        f"/{CHAT_SERVICE}/StreamCompletion": _COMPLETIONS,
        f"/{DECISION_SERVICE}/Decide": _DECISIONS,
        f"/{DECISION_SERVICE}/StreamDecide": _DECISIONS,
        f"/{DECISION_SERVICE}/ListDecisionModels": Method(MODELS_ROUTE, "open"),
        f"/{EMBEDDING_SERVICE}/CreateEmbeddings": _EMBEDDINGS,
        f"/{EMBEDDING_SERVICE}/Rerank": _EMBEDDINGS,
        f"/{EMBEDDING_SERVICE}/Classify": _EMBEDDINGS,
        f"/{MODEL_SERVICE}/ListModels": Method(MODELS_ROUTE, "open"),
        f"/{MODEL_SERVICE}/GetModel": Method(MODELS_ROUTE, "open"),
        f"/{ADMIN_SERVICE}/ListWorkers": _ADMIN_READ,
        f"/{ADMIN_SERVICE}/GetWorker": _ADMIN_READ,
        f"/{ADMIN_SERVICE}/AddWorker": _ADMIN,
        f"/{ADMIN_SERVICE}/UpdateWorker": _ADMIN,
        f"/{ADMIN_SERVICE}/RemoveWorker": _ADMIN,
        f"/{ADMIN_SERVICE}/FlushCaches": _ADMIN,
        f"/{ADMIN_SERVICE}/LoadLora": _ADMIN,
        f"/{ADMIN_SERVICE}/UnloadLora": _ADMIN,
        f"/{ADMIN_SERVICE}/StartProfile": _ADMIN,
        f"/{ADMIN_SERVICE}/StopProfile": _ADMIN,
        f"/{RESPONSES_SERVICE}/CreateResponse": _NEW_RESPONSES,
        f"/{RESPONSES_SERVICE}/StreamResponse": _NEW_RESPONSES,
        f"/{RESPONSES_SERVICE}/GetResponse": _RESPONSES,
        f"/{RESPONSES_SERVICE}/DeleteResponse": _RESPONSES,
        f"/{RESPONSES_SERVICE}/CancelResponse": _RESPONSES,
        f"/{RESPONSES_SERVICE}/ListInputItems": _RESPONSES,
        f"/{CONVERSATIONS_SERVICE}/CreateConversation": _CONVERSATIONS,
        f"/{CONVERSATIONS_SERVICE}/GetConversation": _CONVERSATIONS,
        f"/{CONVERSATIONS_SERVICE}/UpdateConversation": _CONVERSATIONS,
        f"/{CONVERSATIONS_SERVICE}/DeleteConversation": _CONVERSATIONS,
        f"/{CONVERSATIONS_SERVICE}/ListConversationItems": _CONVERSATIONS,
        f"/{CONVERSATIONS_SERVICE}/CreateConversationItems": _CONVERSATIONS,
        f"/{CONVERSATIONS_SERVICE}/GetConversationItem": _CONVERSATIONS,
        f"/{CONVERSATIONS_SERVICE}/DeleteConversationItem": _CONVERSATIONS,
        f"/{ADMIN_SERVICE}/ListLoads": _ADMIN_READ,
        f"/{ENDPOINT_SERVICE}/StreamEndpoints": _ADMIN_READ,
    }
)
