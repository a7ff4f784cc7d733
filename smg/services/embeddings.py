"""smg.embedding.v1.EmbeddingService: vectors, rankings and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.services.call import CONTEXT, start_meter
from smg.services.methods import EMBEDDING_SERVICE, EMBEDDINGS_ROUTE
from smg.services.rpc import add_service, unary_method
from smg_proto.embedding.v1 import classify_pb2, embedding_pb2, rerank_pb2

if TYPE_CHECKING:
    import grpc.aio

    from smg.pipelines.encode.classify import ClassifyPipeline
    from smg.pipelines.encode.embed import EmbeddingPipeline
    from smg.pipelines.encode.rerank import RerankPipeline
    from smg.pipelines.meter import Meters
    from smg.services.rpc import Context


class EmbeddingService:
    """The methods and what they need."""

    def __init__(
        self, embed: EmbeddingPipeline, rerank: RerankPipeline, classify: ClassifyPipeline, meters: Meters
    ) -> None:
        self._embed = embed
        self._rerank = rerank
        self._classify = classify
        self._meters = meters

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "CreateEmbeddings": unary_method(self.create_embeddings, embedding_pb2.CreateEmbeddingsRequest),
            "Rerank": unary_method(self.rerank, rerank_pb2.RerankRequest),
            "Classify": unary_method(self.classify, classify_pb2.ClassifyRequest),
        }
        add_service(server, EMBEDDING_SERVICE, methods)

    async def create_embeddings(
        self, request: embedding_pb2.CreateEmbeddingsRequest, _: Context
    ) -> embedding_pb2.CreateEmbeddingsResponse:
        """Embed."""
        return await self._embed.run(request, CONTEXT.get(), start_meter(self._meters, EMBEDDINGS_ROUTE))

    async def rerank(self, request: rerank_pb2.RerankRequest, _: Context) -> rerank_pb2.RerankResponse:
        """Rank documents."""
        return await self._rerank.run(request, CONTEXT.get(), start_meter(self._meters, EMBEDDINGS_ROUTE))

    async def classify(
        self, request: classify_pb2.ClassifyRequest, _: Context
    ) -> classify_pb2.ClassifyResponse:
        """Classify texts."""
        return await self._classify.run(request, CONTEXT.get(), start_meter(self._meters, EMBEDDINGS_ROUTE))
