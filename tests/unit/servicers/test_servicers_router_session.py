"""RouterSession: events go out in order, what is unsent is bounded, and every sequence is told one end."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from servicers.limits import SessionLimits
from servicers.models import models_by_name
from servicers.router_session import RouterSession, SessionEnd
from smg_proto.engine.v1 import card_pb2, engine_pb2
from tests.unit.servicers.fakes import RemoteControlledEngine, generate


class Wire:
    """Stands for gRPC."""

    def __init__(self) -> None:
        self.messages: list[engine_pb2.SessionEvent] = []
        self._arrived = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.messages.append(engine_pb2.SessionEvent.FromString(data))
        self._arrived.set()

    async def wait_for(self, count: int) -> None:
        """Wait until so many messages have been written."""
        while len(self.messages) < count:
            self._arrived.clear()
            await self._arrived.wait()


def new_session(**limits) -> tuple[RemoteControlledEngine, RouterSession]:
    engine = RemoteControlledEngine()
    return engine, RouterSession(engine, models_by_name(engine.describe()), SessionLimits(**limits))


def submit(session: RouterSession, *items) -> None:
    session.take(engine_pb2.SessionRequest(generate=items))


async def drain(session: RouterSession, wire: Wire) -> SessionEnd | None:
    """Send everything until the session ends."""
    await session.send(wire.write)
    return session.how_it_ended


async def test_events_go_out_in_the_order_of_their_making():
    engine, session = new_session()
    wire = Wire()
    session.greet("abc", 4)
    submit(session, generate(1))
    for token in range(50):
        engine.emit_token(token=token)
    engine.finish()
    session.no_more_requests()
    end = await drain(session, wire)
    assert end.code is grpc.StatusCode.OK
    assert wire.messages[0].ready.instance_id == "abc"
    assert [event.token[0] for event in wire.messages if event.token] == list(range(50))
    assert wire.messages[-1].finished[0].sequence == 1


async def test_an_event_wakes_a_sender_that_waits():
    engine, session = new_session()
    wire = Wire()
    sending = asyncio.create_task(drain(session, wire))
    submit(session, generate(1))
    for number in range(1, 4):
        await asyncio.sleep(0)
        engine.emit_token(token=number)
    engine.finish()
    session.end(SessionEnd(grpc.StatusCode.OK))
    await sending
    assert [event.token[0] for event in wire.messages if event.token] == [1, 2, 3]


@pytest.mark.parametrize(
    ("limits", "events"),
    [({"max_unsent_events": 5}, 6), ({"max_unsent_bytes": 60}, 11)],
    ids=["count", "bytes"],
)
async def test_a_router_that_does_not_read_loses_its_session_and_costs_no_memory(limits, events):
    engine, session = new_session(**limits)
    overflows = []
    session.on_overflow = lambda: overflows.append(session.unsent_events)
    submit(session, generate(1))
    for _ in range(events - 1):
        engine.emit_token()
    assert session.how_it_ended is None
    engine.emit_token()
    assert session.how_it_ended.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "does not read" in session.how_it_ended.details
    assert overflows == [0]
    engine.emit_token()
    assert session.unsent_events == 0


async def test_what_has_been_sent_makes_room():
    engine, session = new_session(max_unsent_events=3, max_unsent_bytes=100)
    wire = Wire()
    sending = asyncio.create_task(drain(session, wire))
    submit(session, generate(1))
    for number in range(100):
        engine.emit_token()
        await wire.wait_for(number + 1)
    engine.finish()
    session.no_more_requests()
    assert (await sending).code is grpc.StatusCode.OK
    assert len(wire.messages) == 101


async def test_closing_the_routers_side_waits_for_what_runs():
    engine, session = new_session()
    submit(session, generate(1), generate(2))
    session.no_more_requests()
    engine.finish(1)
    assert session.how_it_ended is None
    engine.finish(2)
    assert session.how_it_ended.code is grpc.StatusCode.OK


async def test_draining_refuses_new_work_as_retryable_and_ends_when_the_rest_has_ended():
    engine, session = new_session()
    wire = Wire()
    submit(session, generate(1))
    session.refuse_new_work()
    submit(session, generate(2))
    assert len(engine.requests) == 1
    engine.finish(1)
    end = await drain(session, wire)
    assert end.code is grpc.StatusCode.UNAVAILABLE
    [failed] = [each for event in wire.messages for each in event.failed]
    assert (failed.sequence, failed.code, failed.is_retryable) == (2, 14, True)


async def test_an_idle_session_ends_as_soon_as_it_drains():
    _, session = new_session()
    session.refuse_new_work()
    assert session.how_it_ended.code is grpc.StatusCode.UNAVAILABLE


async def test_too_many_sequences_are_refused_as_retryable_and_room_comes_back():
    engine, session = new_session(max_sequences=2)
    wire = Wire()
    submit(session, generate(1), generate(2), generate(3))
    assert [each.sequence for each in engine.requests[0].generate] == [1, 2]
    engine.finish(1)
    submit(session, generate(4))
    assert [each.sequence for each in engine.requests[1].generate] == [4]
    session.end(SessionEnd(grpc.StatusCode.OK))
    await drain(session, wire)
    [failed] = [each for event in wire.messages for each in event.failed]
    assert (failed.sequence, failed.code, failed.is_retryable) == (3, 8, True)


async def test_good_work_reaches_the_engine_as_the_message_that_it_came_in():
    engine, session = new_session()
    request = engine_pb2.SessionRequest(generate=[generate(1)], abort=[9])
    session.take(request)
    assert engine.requests == [request]
    assert engine.requests[0] is request


async def test_a_number_used_twice_in_one_message_fails_once_and_is_aborted():
    engine, session = new_session()
    wire = Wire()
    submit(session, generate(1), generate(1), generate(2))
    assert [each.sequence for each in engine.requests[0].generate] == [1, 2]
    assert list(engine.requests[1].abort) == [1]
    engine.finish(2)
    session.no_more_requests()
    await drain(session, wire)
    ends = [each for event in wire.messages for each in (*event.failed, *event.finished)]
    assert [each.sequence for each in ends] == [1, 2]
    assert ends[0].code == 3


async def test_a_doubled_number_stays_in_use_until_the_engine_has_let_it_go():
    engine, session = new_session()
    wire = Wire()
    engine.answers_aborts = False
    submit(session, generate(1))
    submit(session, generate(1))
    engine.emit_token(1)
    submit(session, generate(1))
    assert [len(request.generate) for request in engine.requests] == [1, 0]
    engine.finish(1)
    submit(session, generate(1))
    assert len(engine.requests) == 3
    session.end(SessionEnd(grpc.StatusCode.OK))
    await drain(session, wire)
    assert [each.code for event in wire.messages for each in event.failed] == [3, 3]
    assert not any(event.token or event.finished for event in wire.messages)


async def test_a_number_may_be_used_again_after_its_end():
    engine, session = new_session()
    submit(session, generate(1))
    engine.finish(1)
    submit(session, generate(1))
    assert len(engine.requests) == 2


async def test_the_load_is_pushed_while_work_runs_and_once_when_it_changes():
    _, session = new_session()
    before = session.unsent_events
    busy, idle = card_pb2.Load(running=1, steps=5), card_pb2.Load(steps=6)
    for load, events in ((busy, 1), (busy, 2), (idle, 3), (idle, 3)):
        session.push_load(load)
        assert session.unsent_events - before == events
