"""SGLang's model and server info to our cards and loads."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb

from smg.workers.sglang.cards import describe, load_of, max_running_of, waits_for_reasoning


def model_info(**fields):
    fields.setdefault("served_model_name", "m")
    fields.setdefault("is_generation", True)
    return pb.GetModelInfoResponse(**fields)


def card(server=None, **fields):
    return describe(model_info(**fields), server or pb.GetServerInfoResponse(), "i").models[0]


def server_info(**args):
    server = pb.GetServerInfoResponse(sglang_version="0.5.23")
    server.server_args.update(args)
    return server


def test_the_models_facts_arrive():
    found = card(
        model_path="/models/qwen",
        max_context_length=32768,
        vocab_size=151936,
        eos_token_ids=[5, 6],
        bos_token_id=1,
        pad_token_id=2,
        architectures=["Qwen3ForCausalLM"],
        model_type="qwen3",
        supports_vision=True,
    )
    assert (found.id, found.path, found.context_length, found.vocab_size) == (
        "m",
        "/models/qwen",
        32768,
        151936,
    )
    assert (list(found.eos_token_ids), found.bos_token_id, found.pad_token_id) == ([5, 6], 1, 2)
    assert (found.architecture, found.model_type) == ("Qwen3ForCausalLM", "qwen3")
    assert list(found.capabilities.modalities) == ["image"]
    assert found.capabilities.generate
    assert not found.capabilities.embed


def test_a_model_without_a_name_is_called_by_its_path():
    assert card(served_model_name="", model_path="/models/qwen").id == "/models/qwen"


def test_counts_of_minus_one_are_unknown():
    assert card(max_context_length=-1).context_length == 0


def test_an_embedding_model_embeds_and_generates_nothing():
    capabilities = card(is_generation=False).capabilities
    assert capabilities.embed
    assert not (capabilities.generate)
    assert not (capabilities.score)
    assert not (capabilities.constraints)


ALL_KINDS = ["json_schema", "regex", "ebnf", "structural_tag"]


@pytest.mark.parametrize(
    ("backend", "served"),
    [("xgrammar", ALL_KINDS), ("another", ALL_KINDS), ("outlines", ["json_schema", "regex"]), ("none", [])],
    ids=str,
)
def test_the_grammar_backend_tells_what_constraints_are_served(backend, served):
    assert list(card(server_info(grammar_backend=backend)).capabilities.constraints) == served


def test_sampling_defaults_arrive_and_what_is_no_number_does_not(caplog):
    text = '{"temperature": 0.5, "top_k": 20, "top_p": null, "min_p": "x", "unknown": 1}'
    defaults = card(default_sampling_params_json=text).defaults
    assert (defaults.temperature, defaults.top_k) == (0.5, 20)
    assert not defaults.HasField("top_p")
    assert not defaults.HasField("min_p")
    assert "min_p='x'" in caplog.text


def test_preferred_parameters_stand_in_for_defaults():
    assert card(preferred_sampling_params='{"temperature": 0.25}').defaults.temperature == 0.25


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_defaults_that_cannot_be_read_are_ignored_with_a_warning(text, caplog):
    assert card(default_sampling_params_json=text).defaults.ByteSize() == 0
    assert "sampling defaults" in caplog.text


def test_labels_come_in_the_order_of_their_numbers():
    found = card(id2label_json='{"1": "good", "0": "bad"}', num_labels=3)
    assert list(found.labels) == ["bad", "good", "LABEL_2"]


def test_the_start_time_tells_one_process_from_the_next():
    server = pb.GetServerInfoResponse(start_time=Timestamp(seconds=7, nanos=5))
    assert describe(model_info(), server, "fallback").instance_id == "7.000000005"
    assert describe(model_info(), pb.GetServerInfoResponse(), "fallback").instance_id == "fallback"


def test_the_maximum_comes_from_the_servers_arguments():
    description = describe(model_info(), server_info(max_running_requests=64), "i")
    assert (description.max_running, description.engine_version) == (64, "0.5.23")


def test_loads_of_all_ranks_add_up():
    answer = pb.GetLoadsResponse(
        loads=[
            pb.SchedulerLoad(
                num_running_reqs=3, num_waiting_reqs=1, max_running_requests=8, gen_throughput=10
            ),
            pb.SchedulerLoad(
                num_running_reqs=4, num_used_tokens=50, max_total_num_tokens=100, max_running_requests=8
            ),
        ]
    )
    load = load_of(answer)
    assert (load.running, load.waiting, load.kv_used_tokens, load.kv_capacity_tokens) == (7, 1, 50, 100)
    assert load.tokens_per_second == 10
    assert max_running_of(answer) == 16


def test_negative_loads_are_nothing():
    assert load_of(pb.GetLoadsResponse(loads=[pb.SchedulerLoad(num_running_reqs=-1)])).running == 0


@pytest.mark.parametrize(
    ("args", "waits"),
    [({}, True), ({"reasoning_parser": "qwen3"}, True), ({"reasoning_parser": None}, False)],
    ids=str,
)
def test_a_server_that_does_not_tell_its_reasoning_parser_is_believed_to_have_one(args, waits):
    assert waits_for_reasoning(server_info(**args)) is waits
