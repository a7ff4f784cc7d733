"""A paced engine on SGLang's gRPC protocol: one stream per request, one message per token, as SGLang's servicer does.

All sequences step together every `--step-seconds`, like a real engine's batch; 0 answers at once. It computes
nothing, so what it costs is what the protocol costs a Python servicer. Protocol: PyPI `smg-grpc-proto`.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from smg_grpc_proto import sglang_scheduler_pb2 as pb
from smg_grpc_proto import sglang_scheduler_pb2_grpc as pb_grpc

from benchmarks.gateway.prompts import MODEL_ID, PromptWriter
from benchmarks.gateway.tokenizer import CONTEXT_TOKENS, VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# What the stubs of these packages lack or leave half typed.
aio: Any = grpc.aio
health_aio: Any = vars(health)["aio"]

SERVICE = "sglang.grpc.scheduler.SglangScheduler"
PASSAGE_TOKENS = 512  # the answer, repeated where a request wants more
VERSION = "0.5.23"
CAPACITY_TOKENS = 1_000_000
CAPACITY_REQUESTS = 1024


class Steps:
    """The engine's clock: every waiter of a step is woken together."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._step = asyncio.Event()

    async def run(self) -> None:
        """Tick for ever, at fixed times whatever the load."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._step_s, loop.time())
            await asyncio.sleep(due - loop.time())
            step, self._step = self._step, asyncio.Event()
            step.set()

    async def next(self) -> None:
        """Wait for the end of the current step."""
        if self._step_s > 0:
            await self._step.wait()


class Scheduler(pb_grpc.SglangSchedulerServicer):
    """The calls that a gateway makes. Method names are the protocol's."""

    def __init__(self, steps: Steps, model_path: str, answer: list[int]) -> None:
        self._steps = steps
        self._model_path = model_path
        self._answer = answer

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # gRPC's name
        """Stream the passage, one token a step; a request without stream gets it whole, after as many steps."""
        wanted: int = request.sampling_params.max_new_tokens or 16
        prompt_tokens = len(request.tokenized.input_ids)
        ids = [self._answer[i % len(self._answer)] for i in range(wanted)]
        for count, token in enumerate(ids, start=1):
            await self._steps.next()
            if request.stream:
                chunk = pb.GenerateStreamChunk(
                    token_ids=[token], prompt_tokens=prompt_tokens, completion_tokens=count
                )
                yield pb.GenerateResponse(request_id=request.request_id, chunk=chunk)
        complete = pb.GenerateComplete(
            output_ids=ids, finish_reason="length", prompt_tokens=prompt_tokens, completion_tokens=wanted
        )
        yield pb.GenerateResponse(request_id=request.request_id, complete=complete)

    async def HealthCheck(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        """Always well."""
        return pb.HealthCheckResponse(healthy=True)

    async def Abort(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        """A cancelled call ends its stream by itself."""
        return pb.AbortResponse(success=True)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        """The tokenizer's directory stands for the model."""
        return pb.GetModelInfoResponse(
            model_path=self._model_path,
            tokenizer_path=self._model_path,
            is_generation=True,
            served_model_name=MODEL_ID,
            max_context_length=CONTEXT_TOKENS,
            vocab_size=VOCAB_SIZE,
            model_type="llama",
            eos_token_ids=[2],
            architectures=["LlamaForCausalLM"],
        )

    async def GetServerInfo(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        """Version and capacity."""
        return pb.GetServerInfoResponse(
            sglang_version=VERSION, server_type="grpc", max_total_num_tokens=CAPACITY_TOKENS
        )

    async def GetLoads(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        """An idle engine."""
        load = pb.SchedulerLoad(max_total_num_tokens=CAPACITY_TOKENS, max_running_requests=CAPACITY_REQUESTS)
        return pb.GetLoadsResponse(version=VERSION, dp_rank_count=1, loads=[load])


async def serve(port: int, step_s: float, model_path: Path) -> None:
    """Serve until cancelled; the ready line names the port."""
    steps = Steps(step_s)
    answer, _ = PromptWriter(model_path).passage(PASSAGE_TOKENS)
    server: grpc.aio.Server = aio.server(options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_SglangSchedulerServicer_to_server(Scheduler(steps, str(model_path), answer), server)
    health_servicer: Any = health_aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    for service in ("", SERVICE):
        await health_servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print(f"ready grpc://127.0.0.1:{bound}", flush=True)
    async with asyncio.TaskGroup() as group:
        if step_s > 0:
            group.create_task(steps.run())
        group.create_task(server.wait_for_termination())


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway.sglang_mock", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--step-seconds", type=float, default=0.02)
    parser.add_argument("--model-path", type=Path, required=True)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.step_seconds, arguments.model_path))


if __name__ == "__main__":
    main()
