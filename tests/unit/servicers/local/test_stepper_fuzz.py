"""Stepper under any order of requests, aborts and closed sessions: every sequence ends once, every slot comes back."""

from hypothesis import given
from hypothesis import strategies as st

from smg_proto.engine.v1 import work_pb2
from tests.examples import examples
from tests.unit.servicers.local.stepping import Driver, Session, generate, prompt_of, to_bytes, tokens_of

NUMBERS = st.integers(0, 30)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("generate"), st.integers(1, 90), st.integers(0, 12), st.booleans()),
        st.tuples(st.just("score"), st.integers(0, 60), st.integers(1, 20)),
        st.tuples(st.just("embed"), st.integers(1, 60)),
        st.tuples(st.just("abort"), NUMBERS),
        st.tuples(st.just("close")),
        st.tuples(st.just("flush")),
        st.tuples(st.just("step"), st.integers(1, 6)),
    ),
    max_size=30,
)


class Play:
    """Carries out operations and remembers what must end."""

    def __init__(self, slots: int) -> None:
        self.driver = Driver(slots=slots, slot_tokens=128, step_tokens=32, max_waiting=8)
        self.session = Session()
        self.expected: set[int] = set()
        self.number = 0

    def generate(self, length: int, new_tokens: int, stream: bool) -> None:
        how = {"stream": stream, "max_new_tokens": new_tokens, "temperature": 0.8, "seed": length}
        self.driver.submit(self.session, generate(self._next(), prompt_of(length % 3, length), **how))

    def score(self, prefix: int, suffix: int) -> None:
        parts = [work_pb2.ScoreSuffix(ids=to_bytes(prompt_of(suffix, suffix)), label_ids=[3])] * 3
        item = work_pb2.Score(
            sequence=self._next(), prefix_ids=to_bytes(prompt_of(0, prefix)), suffixes=parts
        )
        self.driver.submit(self.session, score=[item])

    def embed(self, length: int) -> None:
        item = work_pb2.Embed(sequence=self._next(), input_ids=to_bytes(prompt_of(1, length)))
        self.driver.submit(self.session, embed=[item])

    def abort(self, number: int) -> None:
        self.driver.submit(self.session, abort=[number])

    def close(self) -> None:
        self.driver.stepper.close(self.session)
        self.session, self.expected = Session(), set()

    def flush(self) -> None:
        self.driver.stepper.cache.flush()

    def step(self, count: int) -> None:
        for _ in range(count):
            self.driver.step()

    def _next(self) -> int:
        self.number += 1
        self.expected.add(self.number)
        return self.number


@examples(10)
@given(operations=OPERATIONS, slots=st.integers(1, 4))
def test_every_sequence_ends_once_and_every_slot_comes_back(operations, slots):
    play = Play(slots)
    for name, *arguments in operations:
        getattr(play, name)(*arguments)
    play.driver.finish()
    session, load = play.session, play.driver.load
    assert session.ended == play.expected
    assert sum(map(len, (session.finished, session.failed, session.scored, session.embedded))) == len(
        session.ended
    )
    # Nothing but a full queue is a reason to fail.
    assert {failed.code for failed in session.failed.values()} <= {8}
    assert (load.running, load.waiting) == (0, 0)
    assert load.kv_used_tokens == play.driver.stepper.cache.flush()
    # Whatever was left in the slots, the next output is right.
    play.driver.run(session, *(generate(100 + i, prompt_of(0, 90), temperature=0.0) for i in range(slots)))
    expected = tokens_of(prompt_of(0, 90))
    assert [session.tokens[100 + i] for i in range(slots)] == [expected] * slots


def test_hundreds_of_sequences_leave_nothing():
    play = Play(slots := 4)
    for number in range(400):
        play.generate(1 + number % 20, 2, True)
        if number % 8 == 7:
            play.driver.finish()
    play.driver.finish()
    assert len(play.session.finished) == 400
    assert play.driver.load.kv_used_tokens == play.driver.stepper.cache.flush() <= slots * 128
    assert play.driver.stepper._scheduler.all_jobs() == []
