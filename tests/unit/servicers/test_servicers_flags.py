"""parse_command: flags become options; what is wrong is named, with what is allowed."""

from __future__ import annotations

import pytest

from servicers.flags import parse_command
from servicers.limits import MIB


def complaint(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        parse_command(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_all_flags_arrive():
    command = parse_command(
        [
            "--engine",
            "echo",
            "--host",
            "0.0.0.0",
            "--port",
            "7",
            "--model-path",
            "a",
            "--model-path",
            "b",
            "--model-id",
            "x",
            "--model-id",
            "y",
            "--max-context",
            "99",
            "--step-seconds",
            "0.02",
            "--device",
            "cuda",
            "--dtype",
            "fp32",
            "--threads",
            "3",
            "--max-running",
            "4",
            "--grace-secs",
            "1.5",
            "--echo-endless",
            "--max-unsent-mb",
            "2",
            "--log-level",
            "debug",
        ]
    )
    options = command.options
    assert (command.engine, command.host, command.port, command.grace_s) == ("echo", "0.0.0.0", 7, 1.5)
    assert (options.model_paths, options.model_ids) == (("a", "b"), ("x", "y"))
    assert (options.max_context, options.step_seconds, options.device, options.dtype) == (
        99,
        0.02,
        "cuda",
        "fp32",
    )
    assert (options.threads, options.max_running, options.echo_endless) == (3, 4, True)
    assert command.limits.max_unsent_bytes == 2 * MIB


def test_one_path_may_have_several_names():
    assert parse_command(
        ["--engine", "echo", "--model-path", "a", "--model-id", "x", "--model-id", "y"]
    ).options.model_ids == ("x", "y")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--engine echo --modelpath x", "unknown flag --modelpath, did you mean --model-path?"),
        ("--engine echo --step-second=1", "did you mean --step-seconds?"),
        ("--engine echo --zzz", "unknown flag --zzz\n"),
        ("--engine echo stray", "unknown word stray"),
        ("--engine ehco", "'echo'"),
        ("", "--engine"),
        ("--engine echo --port 65536", "'65536'; allowed: a whole number from 0 to 65535"),
        ("--engine echo --threads 0", "'0'; allowed: a whole number from 1"),
        ("--engine echo --step-seconds nan", "'nan'; allowed: a number of seconds from 0"),
        ("--engine echo --grace-secs inf", "'inf'"),
        ("--engine echo --model-path a --model-path b --model-id x", "1 --model-id for 2 --model-path"),
    ],
)
def test_what_is_wrong_is_named(capsys, arguments, words):
    assert words in complaint(capsys, *arguments.split())
