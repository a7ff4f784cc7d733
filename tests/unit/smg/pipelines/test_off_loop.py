"""Long requests are checked and planned in a thread: the event loop goes on meanwhile."""

import asyncio
import threading
import time

import pytest
from prometheus_client import CollectorRegistry

from smg.errors import InvalidRequest
from smg.pipelines import chat, completion
from smg.pipelines.chat import ChatPipeline
from smg.pipelines.completion import CompletionPipeline
from smg.pipelines.meter import Meters
from smg.pipelines.off_loop import INLINE_BYTES, LongLane, off_loop
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
        (chat, "validate_chat", ChatPipeline(None, None, None), chat_pb2.ChatRequest),
        (completion, "validate_completion", CompletionPipeline(None, None), completion_pb2.CompletionRequest),
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
        await pipeline.run(request, None, None, meter)
    assert (seen[0] == threading.get_ident()) != long


async def test_very_long_work_is_done_one_at_a_time_and_a_failure_frees_the_lane():
    lane, running, most = LongLane(), [], []

    def work(number):
        running.append(number)
        most.append(len(running))
        running.remove(number)
        if number == 2:
            raise ValueError("no")
        return number

    results = await asyncio.gather(*(lane.run(work, number) for number in range(5)), return_exceptions=True)
    assert [each for each in results if not isinstance(each, ValueError)] == [0, 1, 3, 4]
    assert set(most) == {1}


async def test_between_two_pieces_of_very_long_work_is_a_pause_as_long_as_the_first():
    lane, spans = LongLane(), []

    def work():
        begun = time.monotonic()
        time.sleep(0.02)
        spans.append((begun, time.monotonic()))

    await asyncio.gather(lane.run(work), lane.run(work))
    (first, first_end), (second, _) = spans
    assert second - first_end >= first_end - first - 0.001


async def test_who_leaves_while_waiting_for_the_lane_holds_up_nobody():
    lane, free = LongLane(), threading.Event()
    first = asyncio.create_task(lane.run(free.wait))
    await asyncio.sleep(0)
    leaver = asyncio.create_task(lane.run(free.wait))
    await asyncio.sleep(0)
    leaver.cancel()
    free.set()
    assert await first
    assert await lane.run(free.wait)
