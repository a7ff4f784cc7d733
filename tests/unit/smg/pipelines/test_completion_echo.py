"""PromptEcho and what follows it: offsets count characters of the returned text, however anything is cut."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import EngineError, InternalError
from smg.pipelines import echo as echo_module
from smg.pipelines.answer import Answer
from smg.pipelines.choice import Choice, TextOptions
from smg.pipelines.echo import PromptEcho, SharedEcho, prompt_echo
from smg.pipelines.logprobs import LOWEST_LOGPROB
from smg.prompt.packed import unpack_ids
from smg_proto.engine.v1 import work_pb2
from tests.unit.smg.pipelines.remembering import RememberingSink, RememberingWorker

OPTIONS = TextOptions(logprobs=True, end_logprobs=True)


def rows(count, *, first=True):
    """Log-probabilities, each with a number of its own; the first of a prompt has none."""
    return [
        work_pb2.TokenLogprobs() if first and not number else work_pb2.TokenLogprobs(logprob=-float(number))
        for number in range(count)
    ]


def started(builder, echo, options=OPTIONS):
    sink, worker = RememberingSink(), RememberingWorker()
    answer = Answer("a", 1, "m", sink)
    choice = Choice(0, answer, builder.tokenizer, options, prompt=SharedEcho(builder.tokenizer, echo))
    choice.sequence = 1
    answer.start(worker, [choice], 1)
    return sink, answer, choice, worker


def echoed(builder, text, **fields):
    return prompt_echo(
        builder.tokenizer, builder.text(text), **{"is_text": True, "echo": True, "logprobs": True, **fields}
    )


def end(builder, **fields):
    return work_pb2.Finished(reason=work_pb2.FINISH_REASON_STOP, prompt_tokens=5, **fields)


TEXTS = ["Hello world", "naïve 東京 🙂 x", " leading", "a<|im_end|>b"]


@pytest.mark.parametrize("part_tokens", [1, 3, 512])
@pytest.mark.parametrize("prompt", TEXTS)
async def test_every_offset_is_where_the_token_stands_in_the_returned_text(
    builder, prompt, part_tokens, monkeypatch
):
    monkeypatch.setattr(echo_module, "PART_TOKENS", part_tokens)
    output = " jumps über 🙂 STO"
    echo = echoed(builder, prompt)
    sink, answer, choice, _ = started(builder, echo, OPTIONS._replace(stop=("STOP",)))
    ids = unpack_ids(builder.tokenizer.encode(output))
    choice.on_started(work_pb2.Started(prompt_tokens=5, prompt_logprobs=rows(len(echo.ids))))
    for number, token in enumerate(ids):
        choice.on_step((token,), [work_pb2.TokenLogprobs(logprob=-float(number))], None)
    eos = next(iter(builder.tokenizer.eos_ids))
    choice.on_step((eos,), [work_pb2.TokenLogprobs(logprob=-99.0)], end(builder, matched_token_id=eos))
    await answer.done
    assert sink.texts[0] == prompt + output
    assert [entry.token_id for entry in sink.entries] == [*echo.ids, *ids, eos]
    data = (prompt + output).encode()
    position = 0
    for entry in sink.entries[:-1]:
        # A token that continues a character stands where the character does.
        assert entry.text_offset == len(data[:position].decode("utf-8", "ignore"))
        position += len(entry.bytes)
    assert sink.entries[-1].text_offset == len(sink.texts[0])
    assert not sink.entries[0].HasField("logprob")


@given(st.text(max_size=20), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_offsets_never_go_back_however_the_steps_are_cut(builder, output, sizes):
    async def run():
        echo = echoed(builder, "Say é: ")
        sink, answer, choice, _ = started(builder, echo)
        choice.on_started(work_pb2.Started(prompt_tokens=5, prompt_logprobs=rows(len(echo.ids))))
        ids = unpack_ids(builder.tokenizer.encode(output))
        at = 0
        while at < len(ids):
            size = sizes[at % len(sizes)]
            part = ids[at : at + size]
            choice.on_step(part, rows(len(part), first=False), None)
            at += size
        choice.on_step((), (), end(builder))
        await answer.done
        offsets = [entry.text_offset for entry in sink.entries]
        assert offsets == sorted(offsets)
        assert all(offset <= shown for offset, shown in zip(offsets, sink.shown_at, strict=True))
        assert sink.texts[0] == f"Say é: {output}"
        assert len(offsets) == len(echo.ids) + len(ids)

    asyncio.run(run())


async def test_a_character_that_the_prompts_ids_began_is_completed_by_the_output(builder):
    ids = unpack_ids(builder.tokenizer.encode("x🙂"))
    assert len(ids) > 2  # the character is several tokens
    prompt = builder.ids(ids[:-1])
    echo = prompt_echo(builder.tokenizer, prompt, is_text=False, echo=True, logprobs=True)
    sink, answer, choice, _ = started(builder, echo)
    choice.on_started(work_pb2.Started(prompt_tokens=5, prompt_logprobs=rows(len(ids) - 1)))
    choice.on_step((ids[-1],), rows(1, first=False), end(builder))
    await answer.done
    assert sink.texts[0] == "x🙂"
    assert [entry.text_offset for entry in sink.entries] == [0, *[1] * (len(ids) - 1)]


def test_ids_are_shown_with_their_control_tokens(builder):
    ids = [*unpack_ids(builder.tokenizer.encode("x")), *sorted(builder.tokenizer.special_ids)[:1]]
    echo = prompt_echo(builder.tokenizer, builder.ids(ids), is_text=False, echo=True, logprobs=True)
    assert echo.text == builder.tokenizer.decode(ids, skip_special_tokens=False)
    assert echo.offsets == [0, len(builder.tokenizer.decode(ids[:1], skip_special_tokens=False))]


async def test_a_stop_string_that_only_the_prompt_has_ends_nothing(builder):
    echo = echoed(builder, "this is the STOP, is it", logprobs=False)
    sink, answer, choice, _ = started(builder, echo, TextOptions(stop=("STOP", "it goes"), end_logprobs=True))
    for token in unpack_ids(builder.tokenizer.encode(" goes on")):
        choice.on_step((token,), (), None)
    choice.on_step((), (), end(builder))
    await answer.done
    assert sink.texts[0] == "this is the STOP, is it goes on"


async def test_entries_of_tokens_that_a_stop_string_cut_off_are_not_shown(builder):
    sink, answer, choice, worker = started(builder, PromptEcho(tail=(5,)), OPTIONS._replace(stop=("STOP",)))
    for token in unpack_ids(builder.tokenizer.encode("one STOP two")):
        choice.on_step((token,), [work_pb2.TokenLogprobs(logprob=-1.0)], None)
        if choice.is_finished:
            break
    await answer.done
    assert sink.texts[0] == "one "
    assert all(entry.text_offset < len(sink.texts[0]) for entry in sink.entries)
    assert worker.aborted == [1]


@pytest.mark.parametrize("given_rows", [0, 1, 50])
async def test_a_prompt_without_its_log_probabilities_is_an_error_not_a_wrong_sum(builder, given_rows):
    echo = echoed(builder, "Hello there")
    sink, answer, choice, worker = started(builder, echo)
    choice.on_started(work_pb2.Started(prompt_tokens=5, prompt_logprobs=rows(given_rows)))
    choice.on_step((5,), rows(1, first=False), None)
    with pytest.raises(InternalError, match=f"gave {given_rows} log-probabilities for the {len(echo.ids)} "):
        await answer.done
    assert worker.aborted == [1]
    assert not sink.heads


def test_a_long_text_comes_in_portions(builder, monkeypatch):
    monkeypatch.setattr(echo_module, "PART_CHARS", 4)
    echo = echoed(builder, "Hello there", logprobs=False)
    assert [text for text, _ in echo.parts(builder.tokenizer, ())] == ["Hell", "o th", "ere"]


async def test_numbers_that_json_lacks_are_shown_as_very_unlikely(builder):
    sink, answer, choice, _ = started(builder, PromptEcho(tail=(5,)))
    row = work_pb2.TokenLogprobs(
        logprob=float("nan"), top_token=[5, 6], top_logprob=[float("nan"), -float("inf")]
    )
    choice.on_step((5,), [row], end(builder))
    await answer.done
    [entry] = sink.entries
    assert entry.logprob == LOWEST_LOGPROB
    assert [top.logprob for top in entry.top_logprobs] == [LOWEST_LOGPROB] * 2


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("prompt[2]", EngineError("boom", engine_code=3), "prompt[2]: boom"),
        ("", EngineError("boom", engine_code=3), "boom"),  # the only prompt has no name
        ("prompt[2]", EngineError("gone", engine_code=14, can_retry=True), "gone"),  # no prompt's fault
    ],
    ids=["several prompts", "one prompt", "a lost worker"],
)
async def test_what_is_wrong_with_one_of_several_prompts_names_it(builder, name, error, message):
    _, answer, choice, _ = started(builder, PromptEcho(tail=(5,), name=name))
    choice.on_failed(error)
    with pytest.raises(EngineError) as caught:
        await answer.done
    assert caught.value.message == message
    assert (caught.value.engine_code, caught.value.code) == (error.engine_code, error.code)
    # Other requests may end with the very same error.
    assert error.message in ("boom", "gone")
