"""The worker that the contract's checks run on: one server per engine for the whole run, on a real socket."""

from __future__ import annotations

import grpc.aio
import pytest
import pytest_asyncio

from servicers.serve import start_server

# Before they are imported, so that a failed assertion tells its values.
pytest.register_assert_rewrite("smg.conformance")

from smg.conformance.worker import meet  # noqa: E402 - see above
from tests.contract.servicers.launchers import LAUNCHERS  # noqa: E402 - as above


@pytest_asyncio.fixture(
    scope="session",
    loop_scope="session",
    params=[pytest.param(each, id=each.name or each.engine, marks=each.marks) for each in LAUNCHERS],
)
async def worker(request, tokenizer_dir):
    """A worker of each engine."""
    server = await start_server(request.param.create(tokenizer_dir))
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://"), options=options) as channel:
        yield await meet(channel)
    await server.stop(0.0)
