"""Choice and Answer: token ids become text in the sink, the same however the engine cuts them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import EngineError
from smg.pipelines.answer import Answer
from smg.pipelines.choice import Choice, TextOptions
from smg_proto.engine.v1 import work_pb2
from tests.unit.smg.pipelines.remembering import RememberingSink, RememberingWorker, ids_of, portions


def started(sink, tokenizer, count=1, **options):
    answer, worker = Answer("a", 1, "m", sink), RememberingWorker()
    choices = [Choice(index, answer, tokenizer, TextOptions(**options)) for index in range(count)]
    for number, choice in enumerate(choices, 1):
        choice.sequence = number
    answer.start(worker, choices, len(choices))
    return answer, choices, worker


def end(reason=work_pb2.FINISH_REASON_STOP, **fields):
    return work_pb2.Finished(reason=reason, prompt_tokens=5, **fields)


async def test_text_goes_out_with_each_step_and_the_end_closes_the_answer(tokenizer):
    sink = RememberingSink()
    answer, (choice,), _ = started(sink, tokenizer)
    choice.on_started(work_pb2.Started(prompt_tokens=5, cached_tokens=3))
    for token in ids_of(tokenizer, "Hello world"):
        choice.on_step((token,), (), None)
    assert sink.texts == {0: "Hello world"}
    eos = next(iter(tokenizer.eos_ids))
    choice.on_step((eos,), (), end(matched_token_id=eos))
    await answer.done
    assert sink.is_closed
    assert (sink.finishes[0].reason, sink.finishes[0].matched_stop) == ("stop", eos)
    assert answer.usage.prompt_tokens == 5
    assert answer.usage.cached_tokens == 3
    assert answer.usage.completion_tokens == len(ids_of(tokenizer, "Hello world")) + 1
    assert sink.heads[0].worker_url == "grpc://w:1"


TEXTS = [
    "plain words here",
    "naïve café 東京 🙂👩‍💻 end",
    'tabs\tand "quotes" \\ back',
    "STOP",
    "ab STOPgap",
    "no stop ST",
]


@pytest.mark.parametrize("stop", [(), ("STOP",), ("STOP", "gap"), ("é",), ("🙂",)], ids=str)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("fragments", [True, False])
async def test_the_text_does_not_depend_on_how_it_is_cut(tokenizer, text, stop, fragments):
    wanted = text
    for each in sorted(text.find(each) for each in stop if each in text):
        wanted = text[:each]
        break
    ids = ids_of(tokenizer, text)
    for sizes in ([1], [2], [3], [1, 4], [100]):
        sink = RememberingSink(accepts_fragments=fragments)
        answer, (choice,), worker = started(sink, tokenizer, stop=stop)
        for piece in portions(ids, sizes):
            if not choice.is_finished:
                choice.on_step(piece, (), None)
        if not choice.is_finished:
            choice.on_step((), (), end(work_pb2.FINISH_REASON_LENGTH))
        await answer.done
        assert sink.texts.get(0, "") == wanted
        assert sink.finishes[0].reason == ("stop" if wanted != text else "length")
        assert bool(worker.aborted) == (wanted != text)


async def test_a_stop_string_ends_the_choice_and_stops_the_engine(tokenizer):
    sink = RememberingSink()
    answer, (choice,), worker = started(sink, tokenizer, stop=("world",), keep_stop=True)
    for token in ids_of(tokenizer, "Hello world and more"):
        if not choice.is_finished:
            choice.on_step((token,), (), None)
    await answer.done
    assert sink.texts == {0: "Hello world"}
    assert sink.finishes[0].matched_stop == "world"
    assert worker.aborted == [1]


async def test_a_stop_token_is_not_shown_even_when_its_end_comes_later(tokenizer):
    ids = ids_of(tokenizer, "one two three")
    for late in (False, True):
        sink = RememberingSink()
        answer, (choice,), _ = started(sink, tokenizer, stop_token_ids=frozenset({ids[-1]}))
        choice.on_step(ids[:-1], (), None)
        final = end(matched_token_id=ids[-1])
        if late:
            choice.on_step(ids[-1:], (), None)
            choice.on_step((), (), final)
        else:
            choice.on_step(ids[-1:], (), final)
        await answer.done
        assert sink.texts[0] == tokenizer.decode(ids[:-1])


async def test_a_stop_token_that_ended_nothing_is_shown(tokenizer):
    ids = ids_of(tokenizer, "one two three")
    sink = RememberingSink()
    answer, (choice,), _ = started(sink, tokenizer, stop_token_ids=frozenset({ids[0]}))
    for token in ids:
        choice.on_step((token,), (), None)
    choice.on_step((), (), end(work_pb2.FINISH_REASON_LENGTH))
    await answer.done
    assert sink.texts[0] == "one two three"


async def test_an_incomplete_character_at_the_end_is_told_once(tokenizer):
    ids = ids_of(tokenizer, "🙂")
    assert len(ids) > 1, "the tokenizer under test must split this character"
    sink = RememberingSink()
    answer, (choice,), _ = started(sink, tokenizer)
    choice.on_step(ids[:1], (), None)
    assert sink.texts == {}
    choice.on_step((), (), end(work_pb2.FINISH_REASON_LENGTH))
    await answer.done
    assert sink.texts[0] == "\ufffd"


async def test_several_choices_close_the_answer_together_and_share_the_prompt(tokenizer):
    sink = RememberingSink()
    answer, choices, _ = started(sink, tokenizer, count=3)
    for choice in choices:
        choice.on_started(work_pb2.Started(prompt_tokens=5, cached_tokens=choice.index))
        choice.on_step(ids_of(tokenizer, "x"), (), end())
        assert sink.is_closed == (choice.index == 2)
    await answer.done
    assert (answer.usage.prompt_tokens, answer.usage.cached_tokens) == (5, 2)
    assert len(sink.heads) == 1


async def test_a_failure_stops_the_other_choices_and_is_raised(tokenizer):
    answer, choices, worker = started(RememberingSink(), tokenizer, count=3)
    choices[0].on_step(ids_of(tokenizer, "x"), (), end())
    choices[1].on_failed(EngineError("lost", engine_code=14))
    with pytest.raises(EngineError):
        await answer.done
    assert worker.aborted == [3]


async def test_log_probabilities_leave_out_the_stop_token(tokenizer):
    ids = ids_of(tokenizer, "Hi")
    eos = next(iter(tokenizer.eos_ids))
    sink = RememberingSink(accepts_fragments=False)
    answer, (choice,), _ = started(sink, tokenizer, logprobs=True)
    entries = [
        work_pb2.TokenLogprobs(logprob=-0.5, top_token=[token], top_logprob=[-0.5]) for token in (*ids, eos)
    ]
    choice.on_step((*ids, eos), entries, end(matched_token_id=eos))
    await answer.done
    assert b"".join(each.bytes for each in sink.entries) == b"Hi"
    assert all(each.top_logprobs[0].token == each.token for each in sink.entries)


async def test_log_probabilities_leave_out_a_stop_token_whose_end_comes_later(tokenizer):
    ids = ids_of(tokenizer, "Hi")
    eos = next(iter(tokenizer.eos_ids))
    sink = RememberingSink(accepts_fragments=False)
    answer, (choice,), _ = started(sink, tokenizer, logprobs=True)
    choice.on_step((*ids, eos), [work_pb2.TokenLogprobs(logprob=-0.5) for _ in (*ids, eos)], None)
    choice.on_step((), (), end(matched_token_id=eos))
    await answer.done
    assert b"".join(each.bytes for each in sink.entries) == b"Hi"


async def test_an_infinite_log_probability_is_a_number(tokenizer):
    sink = RememberingSink(accepts_fragments=False)
    answer, (choice,), _ = started(sink, tokenizer, logprobs=True)
    choice.on_step(ids_of(tokenizer, "x"), [work_pb2.TokenLogprobs(logprob=float("-inf"))], end())
    await answer.done
    assert sink.entries[0].logprob == -9999.0


async def test_an_id_outside_the_vocabulary_is_no_text(tokenizer):
    sink = RememberingSink()
    answer, (choice,), _ = started(sink, tokenizer)
    choice.on_step((tokenizer.vocab_size + 5,), (), None)
    choice.on_step((*ids_of(tokenizer, "a"), 2**32 - 1), (), end())
    await answer.done
    assert sink.texts == {0: "a"}


@given(text=st.text(max_size=40), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_any_text_cut_anyhow_arrives_whole(tokenizer, text, sizes):
    async def run():
        sink = RememberingSink(accepts_fragments=False)
        answer, (choice,), _ = started(sink, tokenizer)
        for piece in portions(ids_of(tokenizer, text), sizes):
            choice.on_step(piece, (), None)
        choice.on_step((), (), end())
        await answer.done
        return sink.texts.get(0, "")

    assert asyncio.run(run()) == text
