"""What the command line names becomes engines: chat models and encoders, one or several in a process."""

import json

import pytest

from servicers.base import CannotStart, EngineOptions
from servicers.flags import parse_command
from servicers.local.choose import engines_of
from servicers.local.encoders.engine import EncoderEngine
from servicers.local.engine import LocalEngine
from servicers.models_file import read_models_file
from servicers.several import SeveralEngines


@pytest.fixture
def encoder(tmp_path):
    folder = tmp_path / "an-encoder"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    return str(folder)


def test_a_path_alone_is_a_chat_model_or_an_encoder_by_its_config(encoder):
    assert isinstance(engines_of(EngineOptions()), LocalEngine)
    assert isinstance(engines_of(EngineOptions(model_paths=("a/b",))), LocalEngine)
    engine = engines_of(EngineOptions(model_paths=(encoder,)))
    assert isinstance(engine, EncoderEngine)
    assert str(engine.tokenizer_dir("an-encoder")) == encoder


def test_several_paths_are_several_engines(encoder):
    options = EngineOptions(model_paths=("default", encoder), model_ids=("chat", "vectors"))
    assert isinstance(engines_of(options), SeveralEngines)
    with pytest.raises(CannotStart, match="1 names are given for 2 models"):
        engines_of(EngineOptions(model_paths=("default", encoder), model_ids=("chat",)))
    with pytest.raises(CannotStart, match=r"pooling is declared for a\.gguf, which is no encoder"):
        engines_of(EngineOptions(model_paths=("a.gguf",), declared=({"pooling": "cls"},)))


def write(path, text):
    path.write_text(text)
    return str(path)


def test_a_models_file_names_the_models_and_declares_what_their_files_do_not_say(tmp_path):
    file = write(
        tmp_path / "models.yaml",
        "models:\n  - path: a/b\n  - {path: c, id: vectors, dimensions: [8, 16], normalize: false}\n",
    )
    first, second = read_models_file(file)
    assert first == ("a/b", "", {})
    assert second == ("c", "vectors", {"dimensions": [8, 16], "normalize": False})
    options = parse_command(["--engine", "local", "--models-file", file]).options
    assert (options.model_paths, options.model_ids) == (("a/b", "c"), ("", "vectors"))
    assert options.declared[1]["dimensions"] == [8, 16]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: []", "at least one entry"),
        ("- a", "at least one entry"),
        ("models: [a]", r"models\[0\] of .* is 'a'"),
        ("models: [{id: x}]", "path None"),
        ("models: [{path: x, colour: red}]", "has colour; known: path, id, dimensions"),
        ("models: {", "cannot read"),
    ],
)
def test_what_is_wrong_in_a_models_file_is_named(tmp_path, text, words):
    with pytest.raises(CannotStart, match=words):
        read_models_file(write(tmp_path / "m.yaml", text))


def test_a_models_file_and_paths_are_one_or_the_other(tmp_path, capsys):
    file = write(tmp_path / "m.yaml", "models: [{path: x}]")
    with pytest.raises(SystemExit):
        parse_command(["--engine", "local", "--models-file", file, "--model-path", "y"])
    assert "it, or --model-path and --model-id" in capsys.readouterr().err
