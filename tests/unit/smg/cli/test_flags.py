"""Command lines: every setting has its flag, and what cannot be obeyed is refused by name."""

import subprocess
import sys

import pytest

from smg.cli.flags import build_parser, read_settings
from smg.cli.known_flags import ALREADY_SO, NOT_SERVED_YET
from smg.cli.main import main
from smg.settings import RouterSettings, ServeSettings, SettingsError, options_of


def read(line: str, model=RouterSettings):
    return read_settings("launch", model, line.split(), "about", {})


def faults_of(line: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(line)
    return [str(fault) for fault in caught.value.faults]


def test_a_command_line_of_the_original_gateway_is_understood():
    line = (
        "--host 127.0.0.1 --port 31060 --worker-urls grpc://127.0.0.1:21001 grpc://127.0.0.1:21002"
        " --model-alias my-alias=Qwen/Qwen3 --model-alias ghost=no/such --api-key secret-key"
        " --tenant-api-key team-red:red-secret --tenant-api-key team-blue:blue-secret"
        " --retry-max-retries 1 --max-concurrent-requests 1 --queue-size 1 --queue-timeout-secs 1"
        " --sse-keepalive-secs 1 --request-id-headers x-my-id --prometheus-port 29000 --log-level warn"
    )
    settings = read(line).settings
    assert settings.workers.worker_urls == ("grpc://127.0.0.1:21001", "grpc://127.0.0.1:21002")
    assert dict(settings.models.model_alias) == {"my-alias": "Qwen/Qwen3", "ghost": "no/such"}
    assert [key.tenant for key in settings.callers.tenant_api_key] == ["team-red", "team-blue"]
    assert settings.admission.queue_timeout_secs == 1.0
    assert settings.telemetry.log_level == "warn"


def test_a_switch_can_be_set_and_unset():
    assert read("--log-json").settings.telemetry.log_json is True
    loaded = read_settings("launch", RouterSettings, ["--no-log-json"], "about", {"SMG_LOG_JSON": "true"})
    assert loaded.settings.telemetry.log_json is False


def test_values_may_follow_an_equals_sign():
    assert read("--port=1234").settings.listener.port == 1234


def test_an_unknown_flag_fails_with_the_likeliest_known_one():
    assert faults_of("--prot 3 --policy round_robin") == ["--prot: unknown flag; did you mean --port?"]


def test_flags_are_not_abbreviated():
    assert faults_of("--queue-s 3") == ["--queue-s: unknown flag; did you mean --queue-size?"]


def test_a_flag_that_is_not_served_yet_fails_and_says_so():
    assert faults_of("--enable-wasm true --enable-mesh") == [
        "--enable-wasm: known from the original gateway, not served here yet",
        "--enable-mesh: known from the original gateway, not served here yet",
    ]


def test_a_flag_whose_wish_is_already_true_is_taken_with_a_note():
    assert read("--worker-auto-recovery --port 1").notes == [
        "--worker-auto-recovery changes nothing: a lost worker is connected to until it answers"
    ]


def test_words_that_belong_to_no_flag_are_faults():
    assert faults_of("--log-json stray --port x") == [
        "'stray': is neither a flag nor the value of one",
        "--port: 'x' must be a valid integer, unable to parse string as an integer",
    ]


def test_a_flag_is_either_served_or_not():
    ours = {option.flag for option in options_of(ServeSettings)}
    assert not ours & NOT_SERVED_YET
    assert not ours & set(ALREADY_SO)
    assert not NOT_SERVED_YET & set(ALREADY_SO)


def test_the_help_names_every_flag_variable_and_default():
    text = " ".join(build_parser("serve", ServeSettings, "about").format_help().split())
    for option in options_of(ServeSettings):
        assert f"{option.flag} " in text or f"{option.flag}," in text
        assert f"[{option.environment_name}]" in text
    assert "Default: 30000. [SMG_PORT]" in text


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_the_commands(capsys, words):
    assert main(words) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("serve", "launch", "worker", "chat"))


def test_an_unknown_command_fails_with_a_hint(capsys):
    assert main(["serv"]) == 2
    assert "unknown command 'serv'; did you mean serve?" in capsys.readouterr().err
    assert main(["xyzzy"]) == 2
    assert "known: serve, launch, worker, chat" in capsys.readouterr().err


def test_no_command_shows_the_help_and_fails(capsys):
    assert main([]) == 2
    assert "usage: smg COMMAND" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("smg 0.")


def test_faults_end_the_command_with_status_2(capsys):
    with pytest.raises(SystemExit) as left:
        main(["launch", "--port", "x", "--prot"])
    assert left.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("smg launch: --prot: unknown flag")
    assert lines[1].startswith("smg launch: --port: 'x'")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from smg.cli.main import main; main(['--help']);"
        "heavy = {'pydantic', 'grpc', 'httpx', 'rich', 'asyncio', 'argparse'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=30)
