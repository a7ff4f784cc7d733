"""What the servicer calls of SGLang is there, by the source of the installed package; nothing of it is imported.

The package needs CUDA to be imported; its wheel can be unpacked anywhere and put on PYTHONPATH.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from functools import cache
from pathlib import Path

import pytest

from servicers.base import EngineOptions
from servicers.sglang import engine
from servicers.sglang.requests import CONSTRAINTS, generate_call, score_batch, score_call
from servicers.sglang.settings import settings_from_options
from smg_proto.engine.v1 import card_pb2, work_pb2
from tests.contract.servicers.sglang_stand_in import StandInEngine
from tests.unit.servicers.sglang.serving import served

SPEC = importlib.util.find_spec("sglang")
needs_sglang = pytest.mark.skipif(SPEC is None, reason="SGLang is not installed, nor its wheel on PYTHONPATH")

MANAGER = (
    "srt/managers/tokenizer_manager.py",
    "srt/managers/tokenizer_control_mixin.py",
)
PLACES = {
    engine.EngineApi: (("srt/entrypoints/engine.py",), ("Engine",)),
    engine.TokenizerManager: (MANAGER, ("TokenizerManager", "TokenizerControlMixin")),
    engine.ModelConfig: (("srt/configs/model_config.py",), ("ModelConfig",)),
    engine.LoraRegistry: (("srt/lora/lora_registry.py",), ("LoRARegistry",)),
}
# Keys of "meta_info" that are read.
META = (
    "finish_reason", "prompt_tokens", "cached_tokens", "reasoning_tokens", "output_token_logprobs",
    "input_token_logprobs", "output_top_logprobs", "input_top_logprobs", "output_token_ids_logprobs",
    "spec_num_proposed_drafts", "spec_num_correct_drafts",
)  # fmt: skip
LOADS = (
    "timestamp", "num_waiting_uncached_tokens", "num_used_tokens", "max_total_num_tokens", "max_running_requests",
    "gen_throughput",
)  # fmt: skip


def text_of(file: str) -> str:
    return (Path(SPEC.submodule_search_locations[0]) / file).read_text(encoding="utf-8")


@cache
def classes_of(file: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(text_of(file)).body if isinstance(node, ast.ClassDef)}


def methods(protocol) -> dict[str, object]:
    return {
        name: each for name, each in vars(protocol).items() if inspect.isfunction(each) and name[0] != "_"
    }


def classes_for(protocol) -> list[ast.ClassDef]:
    files, names = PLACES[protocol]
    return [classes_of(file)[name] for file in files for name in names if name in classes_of(file)]


def fields_of(file: str, name: str) -> set[str]:
    return {
        node.target.id
        for node in classes_of(file)[name].body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@needs_sglang
@pytest.mark.parametrize("protocol", PLACES, ids=lambda each: each.__name__)
def test_methods_have_the_parameters_that_are_passed(protocol):
    functions = {
        node.name: node
        for each in classes_for(protocol)
        for node in each.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for name, method in methods(protocol).items():
        found = functions[name]
        arguments = found.args
        known = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        assert set(inspect.signature(method).parameters) <= known, name
        is_awaited = inspect.iscoroutinefunction(method)
        # An async generator is not awaited; a coroutine is.
        is_generator = any(isinstance(node, ast.Yield) for node in ast.walk(found))
        assert (isinstance(found, ast.AsyncFunctionDef) and not is_generator) == is_awaited, name


@needs_sglang
@pytest.mark.parametrize("protocol", PLACES, ids=lambda each: each.__name__)
def test_attributes_are_set(protocol):
    is_set = {
        node.attr
        for each in classes_for(protocol)
        for node in ast.walk(each)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    assert set(vars(protocol).get("__annotations__", ())) <= is_set


@needs_sglang
def test_requests_that_are_objects_have_the_fields_that_are_filled():
    file = "srt/managers/io_struct.py"
    assert {"input_ids", "rid", "lora_path"} <= fields_of(file, "EmbeddingReqInput")
    assert "output_dir" in fields_of(file, "ProfileReq")
    assert {"success", "error_message"} <= fields_of(file, "LoRAUpdateOutput")
    assert "success" in fields_of(file, "FlushCacheReqOutput")
    assert set(LOADS) <= fields_of("srt/managers/load_snapshot.py", "LoadSnapshot")


@needs_sglang
def test_outputs_have_the_keys_that_are_read():
    source = text_of(MANAGER[0])
    for key in (*META, "output_ids", "embedding"):
        assert f'"{key}"' in source, key


@needs_sglang
def test_sampling_parameters_have_the_names_that_are_sent():
    known = fields_of("srt/sampling/sampling_params.py", "SamplingParams")
    sampling = card_pb2.Sampling(
        temperature=1, top_p=1, top_k=1, min_p=0, presence_penalty=0, frequency_penalty=0, repetition_penalty=1,
        max_new_tokens=1, min_new_tokens=1, seed=1, stop_token_ids=[1], stop=["a"], ignore_eos=True,
        logit_bias_token=[1], logit_bias_value=[1],
    )  # fmt: skip
    request = work_pb2.Generate(prompt_ids=b"\1\0\0\0", sampling=sampling, stream=False)
    sent = set(generate_call(request, "r", served())["sampling_params"])
    sent |= set(score_batch([score_call([1], [1])], "r", "")["sampling_params"])
    assert sent | set(CONSTRAINTS) <= known


@needs_sglang
def test_server_arguments_have_the_names_that_are_set():
    options = EngineOptions(("/models/m",), max_context=10, max_running=3)
    source = text_of("srt/arg_groups/field_order.py")
    for name in settings_from_options(options).arguments:
        assert f'"{name}"' in source, name


@pytest.mark.parametrize(
    "protocol", [engine.EngineApi, engine.TokenizerManager], ids=lambda each: each.__name__
)
def test_the_stand_in_takes_every_call(protocol):
    for name, method in methods(protocol).items():
        wanted = inspect.signature(method).parameters
        found = inspect.signature(getattr(StandInEngine, name)).parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in found.values())
        assert takes_any or set(wanted) <= set(found), name
        assert inspect.iscoroutinefunction(getattr(StandInEngine, name)) == inspect.iscoroutinefunction(
            method
        )
