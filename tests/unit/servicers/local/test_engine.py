"""LocalEngine: the compute thread serves the loop, loses nothing, and ends when told."""

import asyncio
import dataclasses
import threading

import pytest
import torch

from servicers.base import CannotStart, EngineOptions
from servicers.local import create_engine
from servicers.local.engine import LocalEngine
from servicers.local.grammar import GrammarCompiler, GrammarPool
from servicers.local.jobs import JobMaker
from servicers.local.loading import LoadedEngine
from servicers.local.model import Model
from servicers.local.settings import LocalSettings
from servicers.local.stepper import Stepper
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2
from tests.unit.servicers.local import byte_tokenizer
from tests.unit.servicers.local.stepping import Session, generate, prompt_of, to_bytes
from tests.unit.servicers.local.tiny_model import TINY, random_weights

CONFIG = dataclasses.replace(TINY, vocab_size=byte_tokenizer.VOCAB_SIZE)
PROMPT = prompt_of(1, 12)


class Listener(Session):
    """A session on the loop that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def emit(self, event) -> None:
        assert asyncio.get_running_loop() is self._loop
        super().emit(event)
        self._changed.set()

    async def until(self, is_true) -> None:
        while not is_true():
            self._changed.clear()
            await self._changed.wait()


def load_tiny(settings, call_later):
    model = Model.from_state_dict(CONFIG, random_weights(CONFIG), dtype=torch.float32)
    memory = model.new_cache(3, 512)
    eos = (byte_tokenizer.EOS,)
    compiler = GrammarCompiler(
        byte_tokenizer.byte_tokenizer_json(), vocab_size=CONFIG.vocab_size, eos_token_ids=eos, capacity=4
    )
    grammars = GrammarPool(compiler)
    maker = JobMaker(context_tokens=512, eos_token_ids=eos, embedding_size=CONFIG.hidden_size)
    stepper = Stepper(
        model,
        memory,
        maker,
        grammars,
        step_tokens=64,
        max_waiting=settings.max_waiting,
        call_later=call_later,
    )
    description = card_pb2.DescribeResponse(
        models=[card_pb2.ModelCard(id="tiny")], engine="local", max_running=3
    )
    return LoadedEngine(stepper, description, None, grammars)


@pytest.fixture
async def engine():
    engine = LocalEngine(LocalSettings(), load=load_tiny)
    await engine.start()
    yield engine
    await engine.stop()


def request(*generates, **lists):
    return engine_pb2.SessionRequest(generate=generates, **lists)


async def test_many_sequences_of_many_sessions_all_end(engine):
    sessions = [Listener() for _ in range(3)]
    for session in sessions:
        for number in range(20):
            engine.submit(session, request(generate(number, prompt_of(number, 5 + number), ignore_eos=True)))
    for session in sessions:
        await session.until(lambda session=session: len(session.ended) == 20)
        assert session.tokens == sessions[0].tokens
        assert not session.failed
    assert engine.load().running == 0


async def test_an_abort_and_a_close_act_while_the_engine_computes(engine):
    staying, leaving = Listener(), Listener()
    engine.submit(staying, request(generate(1, PROMPT, max_new_tokens=500, ignore_eos=True)))
    engine.submit(leaving, request(generate(1, PROMPT, max_new_tokens=500, ignore_eos=True)))
    await leaving.until(lambda: leaving.tokens[1])
    engine.close(leaving)
    heard = len(leaving.events)
    await staying.until(lambda: len(staying.tokens[1]) > 3)
    engine.submit(staying, engine_pb2.SessionRequest(abort=[1]))
    await staying.until(lambda: staying.finished)
    assert staying.reason(1) == "ABORT"
    assert len(leaving.events) == heard
    assert engine.load().running == 0


async def test_an_idle_engine_computes_nothing_and_wakes_for_work(engine):
    session = Listener()
    engine.submit(session, request(generate(1, PROMPT)))
    await session.until(lambda: session.finished)
    steps = engine.load().steps
    engine.submit(session, engine_pb2.SessionRequest(abort=[99]))
    engine.submit(session, request(generate(2, PROMPT)))
    await session.until(lambda: len(session.finished) == 2)
    assert engine.load().steps == steps + len(session.tokens[2])
    assert session.finished[2].cached_tokens == len(PROMPT) - 1
    assert engine.flush_cache() > 0


async def test_constrained_output_follows_its_constraint(engine):
    session = Listener()
    constraint = work_pb2.Constraint(regex="[0-9]{2}(cat|dog)")
    bad = work_pb2.Constraint(regex="(")
    engine.submit(
        session,
        request(
            *(generate(n, PROMPT, temperature=1.0, seed=n, constraint=constraint) for n in range(5)),
            generate(5, PROMPT, constraint=bad),
            generate(6, PROMPT, constraint=constraint, output=byte_tokenizer.ids_of("42c")),
            generate(7, PROMPT, constraint=constraint, output=byte_tokenizer.ids_of("42cat")),
            generate(8, PROMPT, constraint=constraint, max_new_tokens=3),
            generate(9, PROMPT, constraint=constraint, ignore_eos=True),
            generate(10, PROMPT, constraint=constraint, output=byte_tokenizer.ids_of("no")),
        ),
    )
    await session.until(lambda: len(session.ended) == 11)
    for number in (*range(5), 9):
        text = byte_tokenizer.text_of(session.tokens[number])
        assert (text[:2].isdigit(), text[2:]) in {(True, "cat"), (True, "dog")}
        assert session.reason(number) == "STOP"
    assert session.failed.keys() == {5, 10}
    assert session.failed[5].code == session.failed[10].code == 3
    assert byte_tokenizer.text_of(session.tokens[6]) == "at"
    assert (session.tokens[7], session.reason(7)) == ([], "STOP")
    assert (len(session.tokens[8]), session.reason(8)) == (3, "LENGTH")


async def test_an_abort_while_a_constraint_compiles_ends_the_sequence(engine):
    session = Listener()
    constraint = work_pb2.Constraint(regex="[a-z]{1,400}x[0-9]{1,400}")
    engine.submit(session, request(generate(1, PROMPT, constraint=constraint), abort=[1]))
    engine.submit(session, request(generate(2, PROMPT)))
    await session.until(lambda: len(session.ended) == 2)
    assert session.reason(1) == "ABORT"


async def test_scores_and_embeddings_come_back(engine):
    session = Listener()
    suffix = work_pb2.ScoreSuffix(ids=to_bytes([5]), label_ids=[6, 7])
    engine.submit(
        session,
        engine_pb2.SessionRequest(
            score=[work_pb2.Score(sequence=1, prefix_ids=to_bytes(PROMPT), suffixes=[suffix])],
            embed=[work_pb2.Embed(sequence=2, input_ids=to_bytes(PROMPT))],
        ),
    )
    await session.until(lambda: len(session.ended) == 2)
    assert len(session.scored[1].suffixes[0].logprobs) == 2
    assert len(session.embedded[2].values) == CONFIG.hidden_size


async def test_stop_ends_the_thread_in_the_middle_of_work():
    # Other tests of the same process may have an engine of their own.
    before = set(threading.enumerate())
    engine = LocalEngine(LocalSettings(), load=load_tiny)
    await engine.start()
    session = Listener()
    engine.submit(session, request(generate(1, PROMPT, max_new_tokens=400, ignore_eos=True)))
    await session.until(lambda: session.tokens[1])
    await engine.stop()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("smg-")]


async def test_the_loop_is_free_while_the_model_loads():
    loading, go_on = threading.Event(), threading.Event()

    def load_slowly(settings, call_later):
        loading.set()
        assert go_on.wait(30)
        return load_tiny(settings, call_later)

    engine = LocalEngine(LocalSettings(), load=load_slowly)
    start = asyncio.create_task(engine.start())
    await asyncio.to_thread(loading.wait, 30)
    assert not start.done()
    go_on.set()
    await start
    assert engine.describe().models[0].id == "tiny"
    assert engine.describe().engine_version
    await engine.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EngineOptions(model_paths=("missing-model.gguf",)), "missing-model.gguf does not exist"),
        (EngineOptions(model_paths=("missing",), dtype="fp8"), "dtype 'fp8' is not served"),
    ],
)
async def test_a_model_that_cannot_be_loaded_is_named(options, message):
    engine = create_engine(options)
    with pytest.raises(CannotStart, match=message):
        await engine.start()
    await engine.stop()
