"""Field by field: what of our messages reaches SGLang, what of SGLang's reaches us, and why the rest does not."""

from __future__ import annotations

from array import array

import pytest
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb

from smg.workers.sglang.receiver import CallReceiver, Progress
from smg.workers.sglang.requests import generate_to_sglang
from smg_proto.engine.v1 import card_pb2, work_pb2

IDS = array("I", [1, 2, 3]).tobytes()


def sampling(**fields):
    return {"sampling": card_pb2.Sampling(**fields)}


def logprobs(**fields):
    return {"logprobs": work_pb2.LogprobsOptions(**fields)}


def form(**fields):
    return {"constraint": work_pb2.Constraint(**fields)}


def image():
    tensors = [work_pb2.Tensor(name="pixel_values", dtype="uint8", shape=(1,), data=b"x")]
    medium = work_pb2.Medium(
        modality="image", offset=1, length=2, placeholder_id=9, tensors=tensors, digest=bytes(32)
    )
    return {"media": [medium]}


# Field of SGLang's request, fields of ours that fill it, and its value then.
SENT = [
    ("request_id", {}, "name"),
    ("tokenized.input_ids", {}, [1, 2, 3]),
    ("tokenized.input_ids", {"output_ids": array("I", [4]).tobytes()}, [1, 2, 3, 4]),
    ("stream", {"stream": True}, True),
    ("lora_id", {"lora": "adapter"}, "adapter"),
    ("data_parallel_rank", {"data_parallel_rank": 0}, 0),
    ("data_parallel_rank", {"data_parallel_rank": 3}, 3),
    ("require_reasoning", {"reasoning": True}, True),
    ("require_reasoning", {}, False),
    ("require_reasoning", form(regex="a", begins_after="</think>"), True),
    # The form is wanted from the first token: the server must not wait for the end of any reasoning.
    ("require_reasoning", {"reasoning": True, **form(regex="a")}, False),
    ("return_logprob", logprobs(output=True), True),
    ("return_logprob", logprobs(prompt_start=0), True),
    ("return_logprob", logprobs(token_ids=[5]), True),
    ("logprob_start_len", logprobs(output=True), -1),
    ("logprob_start_len", logprobs(prompt_start=0), 0),
    ("logprob_start_len", logprobs(prompt_start=3), 2),
    ("top_logprobs_num", logprobs(output=True, top_k=7), 7),
    ("top_logprobs_num", logprobs(prompt_start=0, top_k=3), 3),
    ("token_ids_logprob", logprobs(token_ids=[8, 9]), [8, 9]),
    ("sampling_params.temperature", sampling(temperature=0.5), 0.5),
    ("sampling_params.top_p", sampling(top_p=0.25), 0.25),
    ("sampling_params.top_k", sampling(top_k=40), 40),
    ("sampling_params.min_p", sampling(min_p=0.125), 0.125),
    ("sampling_params.frequency_penalty", sampling(frequency_penalty=1.5), 1.5),
    ("sampling_params.presence_penalty", sampling(presence_penalty=-1.5), -1.5),
    ("sampling_params.repetition_penalty", sampling(repetition_penalty=1.25), 1.25),
    ("sampling_params.max_new_tokens", sampling(max_new_tokens=0), 0),
    ("sampling_params.max_new_tokens", sampling(max_new_tokens=9), 9),
    ("sampling_params.min_new_tokens", sampling(min_new_tokens=4), 4),
    ("sampling_params.stop", sampling(stop=["END"]), ["END"]),
    ("sampling_params.stop_token_ids", sampling(stop_token_ids=[6, 7]), [6, 7]),
    ("sampling_params.ignore_eos", sampling(ignore_eos=True), True),
    (
        "sampling_params.logit_bias",
        sampling(logit_bias_token=[5, 6], logit_bias_value=[-100, 2.5]),
        {"5": -100, "6": 2.5},
    ),
    ("sampling_params.custom_params", sampling(seed=41, choice_index=1), {"sampling_seed": 42}),
    ("sampling_params.n", sampling(choice_index=1), 1),
    ("sampling_params.skip_special_tokens", {}, True),
    ("sampling_params.spaces_between_special_tokens", {}, True),
    ("sampling_params.regex", form(regex="a+"), "a+"),
    ("sampling_params.json_schema", form(json_schema="{}"), "{}"),
    ("sampling_params.ebnf_grammar", form(ebnf='root ::= "a"'), 'root ::= "a"'),
    ("sampling_params.structural_tag", form(structural_tag="{}"), "{}"),
    ("sampling_params.json_schema", form(json_schema="{}", begins_after="</think>"), "{}"),
    ("mm_inputs.modalities", image(), ["image"]),
    ("mm_inputs.pixel_values", image(), pb.TensorData(data=b"x", shape=[1], dtype="uint8")),
    ("mm_inputs.im_token_id", image(), 9),
    ("mm_inputs.mm_placeholders", image(), [pb.PlaceholderRange(offset=1, length=2)]),
]
NOT_SENT = {
    "mm_inputs.model_specific_tensors": "sent, where a model has more tensors (test_workers_sglang_requests.py)",
    "mm_inputs.image_urls": "the router fetches: servers are not sent where clients point",
    "mm_inputs.video_urls": "the same",
    "mm_inputs.audio_urls": "the same",
    "mm_inputs.image_data": "the model's processor has run in the router",
    "mm_inputs.video_data": "no video is taken",
    "mm_inputs.audio_data": "no sound is taken",
    "input_embeds": "Generate carries token ids and tensors of media",
    "tokenized.original_text": "for the server's logs; the router does not hand texts to engines",
    "return_hidden_states": "Generate cannot ask for them",
    "disaggregated_params": "prefill and decode on two servers is not served",
    "custom_logit_processor": "code of a client's is not run",
    "timestamp": "servicers do not read it",
    "log_metrics": "servicers do not read it",
    "sampling_params.no_stop_trim": "acts on text; the router cuts the text itself",
    "sampling_params.stream_interval": "would hold tokens back",
}
# Fields of ours that SGLang's request has no field for.
KEPT_HERE = {
    "sequence": "the router's number of the answer",
    "model": "a server has one model",
    "traceparent": "travels as metadata",
    "tracestate": "travels as metadata",
    "request_id": "becomes the name that the server knows the request by",
    "constraint.lark": "refused: SGLang does not know it",
    "media.digest": "for prefix caches: SGLang hashes tensors itself",
}


def sent(fields) -> pb.GenerateRequest:
    request = work_pb2.Generate(**{"prompt_ids": IDS, **fields})
    return generate_to_sglang(request, "name", card_pb2.Sampling())


def plain(value):
    if isinstance(value, (str, bytes, bool, int, float, pb.TensorData)):
        return value
    return dict(value.items()) if hasattr(value, "items") else list(value)


@pytest.mark.parametrize(
    ("path", "fields", "expected"), SENT, ids=[f"{number}-{path}" for number, (path, *_) in enumerate(SENT)]
)
def test_a_field_is_sent(path, fields, expected):
    value = sent(fields)
    for name in path.split("."):
        value = getattr(value, name)
    assert plain(value) == expected


def test_every_field_of_sglang_s_request_is_filled_or_left_out_for_a_reason():
    paths = set()
    for field in pb.GenerateRequest.DESCRIPTOR.fields:
        inner = {
            "tokenized": pb.TokenizedInput,
            "sampling_params": pb.SamplingParams,
            "mm_inputs": pb.MultimodalInputs,
        }.get(field.name)
        paths |= {f"{field.name}.{each.name}" for each in inner.DESCRIPTOR.fields} if inner else {field.name}
    filled = {path for path, *_ in SENT}
    assert filled | NOT_SENT.keys() == paths
    assert not filled & NOT_SENT.keys()


def test_every_field_of_ours_is_in_the_table():
    used = set()
    for _, fields, _ in SENT:
        message = work_pb2.Generate(**{"prompt_ids": IDS, **fields})
        for field, value in message.ListFields():
            one = value[0] if field.name == "media" else value
            inner = [each.name for each, _ in one.ListFields()] if hasattr(one, "ListFields") else []
            used |= {f"{field.name}.{name}" for name in inner} or {field.name}
    names = set()
    for field in work_pb2.Generate.DESCRIPTOR.fields:
        inner = field.message_type
        names |= {f"{field.name}.{each.name}" for each in inner.fields} if inner else {field.name}
    assert used | KEPT_HERE.keys() == names


class Heard:
    """A listener that keeps the last of each."""

    def on_started(self, started) -> None:
        self.started = started

    def on_step(self, token_ids, rows, finished) -> None:
        self.ids, self.rows, self.finished = list(token_ids), list(rows), finished

    def on_failed(self, error) -> None:
        self.error = error


OPTIONS = {"output": True, "top_k": 1, "token_ids": [8], "prompt_start": 0}


def answered(*responses, stream=False, **fields) -> Heard:
    heard = Heard()
    request = work_pb2.Generate(prompt_ids=IDS, stream=stream, **fields)
    receiver = CallReceiver((request,), (heard,), Progress(), lambda _: None)
    receiver.on_messages([response.SerializeToString() for response in responses])
    return heard


def whole(**fields) -> Heard:
    complete = pb.GenerateComplete(**{"prompt_tokens": 3, **fields})
    return answered(pb.GenerateResponse(complete=complete), **logprobs(**OPTIONS))


OUTPUT_ROWS = pb.OutputLogProbs(
    token_logprobs=[-0.5],
    token_ids=[5],
    top_logprobs=[pb.TopLogProbs(values=[-0.25], token_ids=[6])],
    token_ids_logprobs=[pb.TopLogProbs(values=[-2], token_ids=[8])],
)
INPUT_ROWS = pb.InputLogProbs(
    token_logprobs=[pb.InputTokenLogProb(), *[pb.InputTokenLogProb(value=-value) for value in (1, 2)]],
    token_ids=[1, 2, 3],
    top_logprobs=[pb.TopLogProbs(), *[pb.TopLogProbs(values=[-0.5], token_ids=[7])] * 2],
)
TOLD_ROWS = [
    work_pb2.TokenLogprobs(),
    work_pb2.TokenLogprobs(logprob=-1, top_token=[7], top_logprob=[-0.5]),
    work_pb2.TokenLogprobs(logprob=-2, top_token=[7], top_logprob=[-0.5]),
]
TOLD_ROW = work_pb2.TokenLogprobs(logprob=-0.5, top_token=[6], top_logprob=[-0.25], asked_logprob=[-2])

# Field of GenerateComplete, its value, where it is heard, and what is heard there.
HEARD = [
    ("output_ids", [5, 6], lambda heard: heard.ids, [5, 6]),
    ("finish_reason", "length", lambda heard: heard.finished.reason, work_pb2.FINISH_REASON_LENGTH),
    ("finish_reason", "abort", lambda heard: heard.finished.reason, work_pb2.FINISH_REASON_ABORT),
    ("finish_reason", "error", lambda heard: heard.error.code, "worker_stream_failed"),
    ("finish_reason", "own", lambda heard: heard.finished.reason_text, "own"),
    ("prompt_tokens", 3, lambda heard: (heard.started.prompt_tokens, heard.finished.prompt_tokens), (3, 3)),
    ("completion_tokens", 4, lambda heard: heard.finished.completion_tokens, 4),
    ("cached_tokens", 2, lambda heard: (heard.started.cached_tokens, heard.finished.cached_tokens), (2, 2)),
    ("output_logprobs", OUTPUT_ROWS, lambda heard: heard.rows, [TOLD_ROW]),
    ("matched_token_id", 0, lambda heard: heard.finished.HasField("matched_token_id"), True),
    ("matched_token_id", 9, lambda heard: heard.finished.matched_token_id, 9),
    ("matched_stop_str", "END", lambda heard: heard.finished.matched_stop, "END"),
    ("input_logprobs", INPUT_ROWS, lambda heard: list(heard.started.prompt_logprobs), TOLD_ROWS),
    ("spec_accepted_tokens", 6, lambda heard: heard.finished.accepted_tokens, 6),
    ("spec_draft_tokens", 7, lambda heard: heard.finished.draft_tokens, 7),
]
NOT_HEARD = {
    "all_hidden_states": "never asked for",
    "hidden_states": "never asked for",
    "index": "chooses the sequence",
    "reasoning_tokens": "below: never more than there are tokens",
}


@pytest.mark.parametrize(
    ("name", "value", "place", "expected"),
    HEARD,
    ids=[f"{number}-{name}" for number, (name, *_) in enumerate(HEARD)],
)
def test_a_field_is_heard(name, value, place, expected):
    assert place(whole(**{name: value})) == expected


def test_reasoning_tokens_are_heard():
    assert whole(completion_tokens=5, reasoning_tokens=3).finished.reasoning_tokens == 3
    assert whole(completion_tokens=5, reasoning_tokens=9).finished.reasoning_tokens == 5


def test_every_field_of_sglang_s_answers_is_heard_or_left_out_for_a_reason():
    final = {field.name for field in pb.GenerateComplete.DESCRIPTOR.fields}
    assert {name for name, *_ in HEARD} | NOT_HEARD.keys() == final | {"hidden_states"}
    chunk = {field.name for field in pb.GenerateStreamChunk.DESCRIPTOR.fields}
    assert chunk - final == {"token_ids", "hidden_states"}


def test_the_first_chunk_of_a_stream_brings_the_prompt_s_counts_and_logprobs():
    chunk = pb.GenerateStreamChunk(
        token_ids=[5],
        prompt_tokens=3,
        cached_tokens=2,
        output_logprobs=OUTPUT_ROWS,
        input_logprobs=INPUT_ROWS,
    )
    heard = answered(pb.GenerateResponse(chunk=chunk), stream=True, **logprobs(**OPTIONS))
    assert (heard.ids, heard.rows) == ([5], [TOLD_ROW])
    assert (heard.started.prompt_tokens, heard.started.cached_tokens) == (3, 2)
    assert list(heard.started.prompt_logprobs) == TOLD_ROWS


@pytest.mark.parametrize("stream", [True, False])
def test_a_token_that_came_although_none_was_asked_for_is_dropped(stream):
    # Servers end a prompt by choosing a token; older ones give it out as well.
    chunks = [pb.GenerateStreamChunk(token_ids=[5], prompt_tokens=3, input_logprobs=INPUT_ROWS)] * stream
    complete = pb.GenerateComplete(
        output_ids=[5],
        prompt_tokens=3,
        completion_tokens=1,
        finish_reason="length",
        output_logprobs=OUTPUT_ROWS,
        input_logprobs=INPUT_ROWS,
    )
    heard = answered(
        *(pb.GenerateResponse(chunk=chunk) for chunk in chunks),
        pb.GenerateResponse(complete=complete),
        stream=stream,
        **sampling(max_new_tokens=0),
        **logprobs(**OPTIONS),
    )
    assert (heard.ids, heard.rows) == ([], [])
    assert list(heard.started.prompt_logprobs) == TOLD_ROWS
    assert heard.finished.completion_tokens == 0
    assert heard.finished.reason == work_pb2.FINISH_REASON_LENGTH


def test_logprobs_of_delivered_tokens_are_not_those_of_the_prompt():
    rows = pb.InputLogProbs(
        token_logprobs=[pb.InputTokenLogProb(), *[pb.InputTokenLogProb(value=-value) for value in (1, 2, 3)]]
    )
    complete = pb.GenerateComplete(output_ids=[5], prompt_tokens=4, input_logprobs=rows)
    heard = answered(
        pb.GenerateResponse(complete=complete),
        output_ids=array("I", [4]).tobytes(),
        **logprobs(prompt_start=0),
    )
    assert [row.logprob for row in heard.started.prompt_logprobs] == [0, -1, -2]
