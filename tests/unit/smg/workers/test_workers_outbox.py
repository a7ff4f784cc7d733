"""Outbox: what it joins by hand is what protobuf would have written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smg.workers.outbox import Outbox
from smg_proto.engine.v1 import engine_pb2, work_pb2


def taken(outbox: Outbox) -> list[engine_pb2.SessionRequest]:
    messages = []
    while outbox:
        messages.append(engine_pb2.SessionRequest.FromString(outbox.take()))
    return messages


def test_everything_that_gathered_goes_in_one_message():
    outbox = Outbox(1_000_000)
    assert not outbox
    generate = work_pb2.Generate(sequence=1, prompt_ids=b"\1\0\0\0" * 300, stream=True)
    score = work_pb2.Score(sequence=2, prefix_ids=b"\2\0\0\0")
    embed = work_pb2.Embed(sequence=3, input_ids=b"\3\0\0\0")
    outbox.add_generate(generate)
    outbox.add_score(score)
    outbox.add_embed(embed)
    outbox.add_abort(2**63)
    (message,) = taken(outbox)
    assert message == engine_pb2.SessionRequest(
        generate=[generate], score=[score], embed=[embed], abort=[2**63]
    )


def test_a_request_changed_after_it_was_added_is_sent_as_it_was():
    outbox = Outbox(1000)
    request = work_pb2.Generate(sequence=1)
    outbox.add_generate(request)
    request.sequence = 2
    (message,) = taken(outbox)
    assert message.generate[0].sequence == 1


def test_a_command_longer_than_a_message_goes_alone():
    outbox = Outbox(100)
    for length in (10, 500, 10):
        outbox.add_generate(work_pb2.Generate(prompt_ids=b"\0" * length))
    assert [[len(each.prompt_ids) for each in message.generate] for message in taken(outbox)] == [
        [10],
        [500],
        [10],
    ]


def test_an_abort_never_overtakes_the_sequence_that_it_ends():
    outbox = Outbox(100)
    for sequence in range(1, 6):
        outbox.add_generate(work_pb2.Generate(sequence=sequence, prompt_ids=b"\0" * 60))
        outbox.add_abort(sequence)
    messages = taken(outbox)
    assert [list(message.abort) for message in messages] == [[], [], [], [], [1, 2, 3, 4, 5]]


def test_clear_forgets_everything():
    outbox = Outbox(100)
    outbox.add_generate(work_pb2.Generate(sequence=1))
    outbox.add_abort(1)
    outbox.clear()
    assert not outbox


@given(
    prompts=st.lists(st.binary(max_size=400), max_size=20),
    aborts=st.lists(st.integers(0, 2**64 - 1), max_size=20),
    batch_bytes=st.integers(1, 1000),
)
def test_no_command_is_lost_or_reordered_whatever_the_batch_size(prompts, aborts, batch_bytes):
    outbox = Outbox(batch_bytes)
    for prompt in prompts:
        outbox.add_generate(work_pb2.Generate(prompt_ids=prompt))
    for sequence in aborts:
        outbox.add_abort(sequence)
    messages = taken(outbox)
    assert [each.prompt_ids for message in messages for each in message.generate] == prompts
    assert [each for message in messages for each in message.abort] == aborts
