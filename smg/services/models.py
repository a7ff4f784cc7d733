"""smg.model.v1.ModelService: which models can be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InvalidRequest, ModelNotFound, WorkerUnavailable
from smg.services.methods import MODEL_SERVICE
from smg.services.rpc import add_service, unary_method
from smg_proto.model.v1 import model_pb2

if TYPE_CHECKING:
    import grpc.aio

    from smg.pipelines.catalog import ModelCatalog
    from smg.services.rpc import Context
    from smg.workers.registry import WorkerRegistry

OWNER = "self_hosted"
CAPABILITIES = ("generate", "score", "embed", "classify")


class ModelService:
    """The methods and what they need."""

    def __init__(self, catalog: ModelCatalog, registry: WorkerRegistry) -> None:
        self._catalog = catalog
        self._registry = registry

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "ListModels": unary_method(self.list_models, model_pb2.ListModelsRequest),
            "GetModel": unary_method(self.get_model, model_pb2.GetModelRequest),
        }
        add_service(server, MODEL_SERVICE, methods)

    async def list_models(
        self, _request: model_pb2.ListModelsRequest, _: Context
    ) -> model_pb2.ListModelsResponse:
        """List the models.

        Raises:
            WorkerUnavailable: there are none.
        """
        models = [self._model(model_id) for model_id in sorted(self._catalog.model_ids())]
        if not models:
            raise WorkerUnavailable("no models available: no worker has told yet what it serves")
        return model_pb2.ListModelsResponse(models=models)

    async def get_model(self, request: model_pb2.GetModelRequest, _: Context) -> model_pb2.GetModelResponse:
        """Tell about one model.

        Raises:
            InvalidRequest: no id.
            ModelNotFound: no worker serves it.
        """
        if not request.id:
            raise InvalidRequest("id is empty; name a model of ListModels", param="id")
        model_id = self._catalog.canonical(request.id)
        if model_id not in self._catalog.model_ids():
            raise ModelNotFound(
                f"no worker serves the model {request.id[:200]!r}; ListModels lists the served ones",
                param="id",
            )
        return model_pb2.GetModelResponse(model=self._model(model_id))

    def _model(self, model_id: str) -> model_pb2.Model:
        card = self._registry.card(model_id)
        workers = self._registry.models().get(model_id, ())
        model = model_pb2.Model(
            id=model_id, owned_by=OWNER, ready_workers=sum(worker.is_ready for worker in workers)
        )
        if card is not None:
            model.context_length = card.context_length
            model.capabilities.extend(name for name in CAPABILITIES if getattr(card.capabilities, name))
        return model
