"""TextStages and Choice together: an answer does not depend on the engine's steps nor on the lane its tokens took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.parsers.assemble import assemble
from smg.pipelines.answer import Answer
from smg.pipelines.choice import Choice
from smg.pipelines.output import OutputForm
from smg.pipelines.stages import TextOptions, TextStages
from smg_proto.engine.v1 import work_pb2
from tests.examples import examples
from tests.unit.smg.pipelines.remembering import RememberingSink, RememberingWorker, ids_of, portions

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call> é"}}\n</tool_call>'
PARTS = [
    "<think>", "</think>", CALL, "<tool_call>", "</tool_call>", "<tool", '{"name": "f"}', "[", "{", " ", "\n\n", "plain words",
    "END", "EN", "naïve 東京 🙂", "a < b", "\u2028", '"',
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
FORMS = {
    "plain": OutputForm(),
    "tools": OutputForm(tools="hermes"),
    "json tools": OutputForm(tools="json"),
    "reasoning": OutputForm(reasoning="think_tag"),
    "thinking": OutputForm(reasoning="think_tag", starts_inside=True),
    "both": OutputForm(reasoning="think_tag", starts_inside=True, tools="hermes"),
    "held": OutputForm(reasoning="think_tag", hold_reasoning=True, tools="hermes", one_call=True),
    "required": OutputForm(tools="hermes", forced=True),
    "named": OutputForm(tools="hermes", forced=True, forced_name="f"),
}
form_names = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def run(tokenizer, ids, sizes, options, *, accepts_fragments=True, reason=work_pb2.FINISH_REASON_STOP):
    sink = RememberingSink(accepts_fragments=accepts_fragments)
    answer = Answer("a", 1, "m", sink)
    choice = Choice(0, answer, tokenizer, options)
    answer.start(RememberingWorker(), [choice], 1)
    for step in portions(ids, sizes):
        entries = [work_pb2.TokenLogprobs(logprob=-1.0)] * len(step) if options.logprobs else ()
        if not choice.is_finished:
            choice.on_step(tuple(step), entries, None)
    if not choice.is_finished:
        choice.on_step((), (), work_pb2.Finished(reason=reason, prompt_tokens=1))
    return sink, answer


@form_names
@given(text=TEXTS, sizes=SIZES, stop=st.sampled_from([(), ("END",), ("\n\n", "wor")]))
@examples(15)
async def test_steps_and_lanes_do_not_change_an_answer(tokenizer, form, text, sizes, stop):
    ids = ids_of(tokenizer, text)
    options = TextOptions(stop=stop, form=form)
    whole, counted = run(tokenizer, ids, [len(ids) or 1], options, accepts_fragments=False)
    for accepts_fragments in (False, True):
        sink, answer = run(tokenizer, ids, sizes, options, accepts_fragments=accepts_fragments)
        assert sink.summary() == whole.summary()
        assert answer.usage.reasoning_tokens == counted.usage.reasoning_tokens
    one_by_one, _ = run(tokenizer, ids, [1], options)
    assert one_by_one.summary() == whole.summary()


@form_names
@given(text=TEXTS, sizes=SIZES)
@examples(10)
async def test_log_probabilities_come_out_once_for_every_token(tokenizer, form, text, sizes):
    ids = ids_of(tokenizer, text)
    sink, _ = run(tokenizer, ids, sizes, TextOptions(logprobs=True, form=form))
    assert [entry.token_id for entry in sink.entries] == ids


@given(text=TEXTS, sizes=SIZES)
async def test_log_probabilities_end_with_the_text_that_a_stop_string_leaves(tokenizer, text, sizes):
    ids = ids_of(tokenizer, text)
    sink, _ = run(tokenizer, ids, sizes, TextOptions(logprobs=True, stop=("END",)))
    content = sink.summary()[0] or ""
    spelled = b"".join(entry.bytes for entry in sink.entries)
    assert spelled.decode("utf-8", "ignore").startswith(content)
    before_last = b"".join(entry.bytes for entry in sink.entries[:-1])
    assert len(before_last.decode("utf-8", "ignore")) <= len(content)


async def test_plain_tokens_take_the_fast_lane_beside_parsers(tokenizer):
    ids = ids_of(tokenizer, "some plain words to read")
    for form in (FORMS["plain"], FORMS["tools"], FORMS["thinking"], FORMS["both"]):
        sink, _ = run(tokenizer, ids, [1], TextOptions(form=form))
        assert sink.fragments >= len(ids) - 1


async def test_reasoning_tokens_are_those_between_the_tags(tokenizer):
    inside = ids_of(tokenizer, "let me think")
    tags = [tokenizer.vocabulary.bytes_with_specials.index(tag) for tag in (b"<think>", b"</think>")]
    ids = [tags[0], *inside, tags[1], *ids_of(tokenizer, "So")]
    for sizes in ([1], [3], [100]):
        _, answer = run(tokenizer, ids, sizes, TextOptions(form=FORMS["reasoning"]))
        assert answer.usage.reasoning_tokens == len(inside)


async def test_a_call_that_is_cut_by_length_is_text_and_says_length(tokenizer):
    ids = ids_of(tokenizer, CALL)[:-8]
    options = TextOptions(form=FORMS["tools"])
    sink, _ = run(tokenizer, ids, [2], options, reason=work_pb2.FINISH_REASON_LENGTH)
    content, _, calls, finish = sink.summary()
    assert (content, calls, finish) == (tokenizer.decode(ids), [], "length")


async def test_calls_get_ids_of_their_own(tokenizer):
    stages = TextStages(tokenizer, TextOptions(form=FORMS["tools"]))
    pieces = [*stages.feed(ids_of(tokenizer, CALL * 2)).pieces, *stages.finish(is_cut=False).pieces]
    ids = [call.id for call in assemble(pieces).calls]
    assert len(set(ids)) == 2
    assert all(call_id.startswith("call_") for call_id in ids)
