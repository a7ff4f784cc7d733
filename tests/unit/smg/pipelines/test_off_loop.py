"""Long requests are checked and planned in a thread: the event loop goes on meanwhile."""

import threading

import pytest
from prometheus_client import CollectorRegistry

from smg.errors import InvalidRequest
from smg.pipelines import chat, completion
from smg.pipelines.chat import ChatPipeline
from smg.pipelines.completion import CompletionPipeline
from smg.pipelines.meter import Meters
from smg.pipelines.off_loop import INLINE_BYTES, off_loop
from smg.telemetry.metrics import RouterMetrics
from smg.types.context import RequestContext
from smg_proto.chat.v1 import chat_pb2, completion_pb2


@pytest.mark.parametrize(("size", "is_inline"), [(INLINE_BYTES, True), (INLINE_BYTES + 1, False)], ids=str)
async def test_the_size_decides_where_work_is_done(size, is_inline):
    here = threading.get_ident()
    assert (await off_loop(threading.get_ident, size=size) == here) == is_inline


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize(
    ("module", "name", "pipeline", "request_type"),
    [
        (chat, "validate_chat", ChatPipeline, chat_pb2.ChatRequest),
        (completion, "validate_completion", CompletionPipeline, completion_pb2.CompletionRequest),
    ],
    ids=["chat", "completion"],
)
async def test_long_requests_are_checked_in_a_thread(monkeypatch, long, module, name, pipeline, request_type):
    seen = []

    def refuse(_):
        seen.append(threading.get_ident())
        raise InvalidRequest("seen")

    monkeypatch.setattr(module, name, refuse)
    request = request_type(model="m" * (INLINE_BYTES if long else 1))
    meter = Meters(RouterMetrics(CollectorRegistry())).start("chat", RequestContext("r"))
    with pytest.raises(InvalidRequest, match="seen"):
        await pipeline(None, None).run(request, None, None, meter)
    assert (seen[0] == threading.get_ident()) != long
