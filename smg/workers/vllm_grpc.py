"""A worker on vLLM's gRPC protocol: SGLang's shape, a call per prompt, with vLLM's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.errors import Unsupported
from smg.workers.sglang.cards import max_running_of
from smg.workers.sglang_grpc import SglangWorker
from smg.workers.vllm.answers import wire
from smg.workers.vllm.cards import describe_vllm, vllm_waits_for_reasoning
from smg.workers.vllm.client import VllmClient
from smg.workers.vllm.requests import generate_to_vllm

if TYPE_CHECKING:
    from smg.workers.base import ResultListener
    from smg.workers.http2.connection import Connection
    from smg.workers.sglang.client import SglangClient
    from smg.workers.sglang.receiver import Wire
    from smg_proto.engine.v1 import card_pb2, work_pb2


class VllmWorker(SglangWorker):
    """One vLLM server."""

    protocol = "vllm_grpc"

    def score(self, request: work_pb2.Score, listener: ResultListener) -> int:
        """Refuse: the protocol has no field for the labels.

        Raises:
            Unsupported: always.
        """
        del request, listener
        raise Unsupported("vLLM's protocol cannot score labels; serve the model by another engine to decide")

    async def load_lora(self, name: str, path: str) -> None:
        """Refuse: the protocol knows no adapters."""
        del name, path
        raise self._cannot("loads no adapters")

    async def unload_lora(self, name: str) -> None:
        """Refuse: the protocol knows no adapters."""
        del name
        raise self._cannot("loads no adapters")

    def _new_client(self, connection: Connection) -> SglangClient:
        return VllmClient(connection, self._options)

    async def _tell_of_itself(self, client: SglangClient, instance_id: str) -> card_pb2.DescribeResponse:
        model: Any = await client.model_info()
        server: Any = await client.server_info()
        loads = await client.loads()
        description = describe_vllm(model, server, loads.version, instance_id)
        description.max_running = description.max_running or max_running_of(loads)
        self._take_loads(loads)
        self._waits_for_reasoning = vllm_waits_for_reasoning(server)
        return description

    def _message(self, first: work_pb2.Generate, name: str, choices: int) -> Any:
        return generate_to_vllm(
            first, name, self._card(), choices, waits_for_reasoning=self._waits_for_reasoning
        )

    def _wire(self) -> Wire:
        return self._vllm_wire

    @property
    def _vllm_wire(self) -> Wire:
        ids = tuple(self._card().eos_token_ids)
        if self._wire_of is None or self._wire_of[0] != ids:
            self._wire_of = (ids, wire(ids))
        return self._wire_of[1]

    _wire_of: tuple[tuple[int, ...], Wire] | None = None
