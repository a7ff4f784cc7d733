"""sampling_defaults: what a model's files say is used where a request says nothing, and nothing else."""

import json

import numpy as np
import pytest

from servicers.local.jobs import JobMaker
from servicers.sampling_defaults import sampling_defaults
from smg_proto.engine.v1 import card_pb2, work_pb2


def written(folder, content):
    (folder / "generation_config.json").write_text(
        content if isinstance(content, str) else json.dumps(content)
    )
    return sampling_defaults(folder)


def test_values_of_the_file_are_taken(tmp_path):
    found = written(
        tmp_path,
        {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05, "eos_token_id": 2},
    )
    assert (found.temperature, found.top_p, found.top_k, found.repetition_penalty) == (0.6, 0.95, 20, 1.05)
    assert not found.HasField("min_p")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", {"temperature": "hot"}, {"temperature": 9}, {"top_k": 0}, {"top_p": 0}],
    ids=repr,
)
def test_what_is_wrong_or_out_of_range_is_left_out(tmp_path, content):
    assert written(tmp_path, content) == card_pb2.Sampling()


def test_a_file_or_a_directory_without_the_file_has_none(tmp_path):
    assert sampling_defaults(tmp_path) == card_pb2.Sampling()
    assert sampling_defaults(tmp_path / "model.gguf") == card_pb2.Sampling()


def test_a_request_wins_over_the_defaults():
    defaults = card_pb2.Sampling(temperature=0.2, top_p=0.9)
    maker = JobMaker(context_tokens=100, eos_token_ids=(1,), embedding_size=4, defaults=defaults)
    ids = np.arange(3, dtype=np.uint32).tobytes()
    silent = maker.generate(None, work_pb2.Generate(sequence=1, prompt_ids=ids))
    said = maker.generate(
        None, work_pb2.Generate(sequence=2, prompt_ids=ids, sampling=card_pb2.Sampling(temperature=0))
    )
    assert (silent.choice.temperature, silent.choice.top_p) == (0.2, 0.9)
    assert (said.choice.temperature, said.choice.top_p) == (0.0, 0.9)
