"""AsgiReply: what is written reaches the server at once, in order, and a slow client is held back, then dropped."""

import asyncio

from gateway.reply import AsgiReply, HandDriven, watch_disconnect


class Server:
    """An ASGI send that suspends while `blocked`, as a server does when the client's socket is full."""

    def __init__(self):
        self.messages = []
        self.free = asyncio.Event()
        self.free.set()
        self.error = None

    async def send(self, message):
        await self.free.wait() if not self.free.is_set() else None
        if self.error:
            raise self.error
        self.messages.append(message)

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.messages)


def reply_on(server, max_held_bytes=1000, on_drop=lambda: None):
    reply = AsgiReply(server.send, max_held_bytes, on_drop)
    reply.start(200, [(b"a", b"b")])
    return reply


async def test_a_write_is_with_the_server_when_it_returns():
    server = Server()
    reply = reply_on(server)
    reply.write(b"one")
    assert [message["type"] for message in server.messages] == ["http.response.start", "http.response.body"]
    reply.write(b"two")
    reply.end(b"three")
    assert server.body == b"onetwothree"
    assert [message.get("more_body") for message in server.messages] == [None, True, True, False]


async def test_text_for_a_slow_client_is_merged_into_one_write():
    server = Server()
    reply = reply_on(server)
    reply.write(b"0")
    server.free.clear()
    for number in range(1, 6):
        reply.write(b"%d" % number)
    reply.end(b"!")
    assert server.body == b"0"
    server.free.set()
    await reply.drained(5)
    assert server.body == b"012345!"
    assert len(server.messages) == 4
    assert server.messages[-1]["more_body"] is False


async def test_the_head_may_be_held_back_as_well():
    server = Server()
    server.free.clear()
    reply = reply_on(server)
    reply.write(b"x")
    reply.write(b"y")
    server.free.set()
    reply.end()
    await reply.drained(5)
    assert [message["type"] for message in server.messages][:1] == ["http.response.start"]
    assert server.body == b"xy"


async def test_a_client_that_stays_behind_the_bound_is_dropped_once():
    server = Server()
    drops = []
    reply = reply_on(server, max_held_bytes=10, on_drop=lambda: drops.append(1))
    reply.write(b"x")
    server.free.clear()
    for _ in range(20):
        reply.write(b"1234")
    assert drops == [1]
    assert reply.is_too_slow
    assert reply.is_dropped


async def test_a_broken_connection_drops_the_client_and_takes_no_more():
    server = Server()
    drops = []
    reply = reply_on(server, on_drop=lambda: drops.append(1))
    reply.write(b"x")
    server.error = OSError("broken pipe")
    reply.write(b"y")
    server.error = None
    reply.write(b"z")
    reply.end()
    assert drops == [1]
    assert server.body == b"x"
    assert not reply.is_too_slow


async def test_a_client_that_never_reads_the_end_is_dropped():
    server = Server()
    reply = reply_on(server)
    reply.write(b"x")
    server.free.clear()
    reply.end(b"12345678")
    await reply.drained(0)
    assert reply.is_dropped
    assert reply.is_too_slow


async def test_a_client_that_leaves_while_held_back_is_waited_for_no_more():
    server = Server()
    reply = reply_on(server)
    reply.write(b"x")
    server.free.clear()
    reply.end(b"12345678")
    server.error = OSError("gone")
    asyncio.get_running_loop().call_soon(server.free.set)
    await reply.drained(5)
    assert reply.is_dropped
    assert not reply.is_too_slow


async def test_writes_after_the_end_are_dropped():
    server = Server()
    reply = reply_on(server)
    reply.end(b"end")
    reply.write(b"more")
    assert server.body == b"end"


async def test_every_write_resets_the_idle_count():
    reply = reply_on(Server())
    reply.idle_ticks = 7
    reply.write(b"x")
    assert reply.idle_ticks == 0


async def test_a_hand_driven_coroutine_may_yield_bare_and_wait_for_futures():
    ended = asyncio.get_running_loop().create_future()

    async def work():
        await asyncio.sleep(0)
        waiter = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(waiter.set_result, 5)
        return await waiter

    HandDriven(work(), lambda result, error: ended.set_result((result, error))).step()
    assert await ended == (5, None)


async def test_a_hand_driven_coroutine_reports_its_exception():
    seen = []

    async def work():
        raise ValueError("no")

    HandDriven(work(), lambda result, error: seen.append((result, str(error)))).step()
    assert seen == [(None, "no")]


async def test_leaving_is_noticed_after_whatever_else_arrives():
    queue = asyncio.Queue()
    gone = asyncio.Event()
    watch_disconnect(queue.get, gone.set)
    await queue.put({"type": "http.request", "body": b"", "more_body": False})
    await asyncio.sleep(0)
    assert not gone.is_set()
    await queue.put({"type": "http.disconnect"})
    await gone.wait()
