"""What serve, launch and worker do around the router: words, ports, child command lines."""

import itertools
import json
import shlex
import socket

import pytest

from smg.cli import extras
from smg.cli.main import main
from smg.cli.probe import models_when_ready
from smg.cli.router_run import local_url, port_fault, secrets_of
from smg.cli.screen import PlainScreen, Readiness, TerminalScreen
from smg.cli.serve import engine_command
from smg.settings import CallerSettings, EngineSettings, RouterSettings
from tests.unit.smg.cli.fake_gateway import MODEL, fake_gateway

READINESS = Readiness("http://127.0.0.1:1", "grpc://127.0.0.1:2", ("a 'b'",), needs_key=True)


def test_the_engine_gets_only_the_flags_that_were_chosen():
    words = engine_command(EngineSettings(embedding_model="none"), 7)
    assert words[1:] == [
        *("-m", "servicers", "--engine", "local", "--host", "127.0.0.1", "--port", "7"),
        *("--device", "cpu", "--dtype", "bf16"),
    ]
    engine = EngineSettings(model="/m", model_id="name", dtype="fp32", threads=2, max_context=512)
    given = engine_command(engine, 0)
    pairs = dict(zip(given[3::2], given[4::2], strict=True))
    assert pairs["--model-path"] == "/m"
    assert pairs["--model-id"] == "name"
    assert (pairs["--threads"], pairs["--max-context"], pairs["--dtype"]) == ("2", "512", "fp32")


def test_an_embedding_model_is_served_beside_the_chat_model():
    def models(**settings):
        words = engine_command(EngineSettings(**settings), 0)
        return [word for flag, word in itertools.pairwise(words) if flag in ("--model-path", "--model-id")]

    assert models(embedding_model="/e") == ["default", "/e"]
    assert models(model="/m", model_id="name", embedding_model="/e") == ["/m", "name", "/e", ""]
    # Beside a model of one's own none is served unless it is named.
    assert models(model="/m") == ["/m"]
    assert models(model_id="name") == ["name"]


def test_the_curl_line_survives_a_shell():
    words = shlex.split(READINESS.curl())
    assert json.loads(words[-1])["messages"][0]["content"] == "What is the capital of France?"
    assert "authorization: Bearer YOUR_KEY" in words


def test_plain_output_starts_with_a_line_for_scripts(capsys):
    PlainScreen().ready(READINESS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ready http://127.0.0.1:1 grpc://127.0.0.1:2"
    assert "  gRPC   127.0.0.1:2" in lines
    assert lines[-1].split() == ["stop", "Ctrl-C"]


def test_without_models_nothing_to_try_is_shown(capsys):
    PlainScreen().ready(Readiness("http://h:1", "grpc://h:2", ()))
    out = capsys.readouterr().out
    assert "no worker is ready" in out
    assert "curl" not in out


def test_the_banner_of_a_terminal_shows_values_as_they_are(capsys):
    screen = TerminalScreen()
    screen.step("loading [bold]x[/]")
    screen.step("more")
    screen.ready(Readiness("http://h:1", "grpc://h:2", ("[red]m",)))
    screen.close()
    out = capsys.readouterr().out
    assert "SMG is ready" in out
    assert "model  [red]m" in out


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("0.0.0.0", "http://127.0.0.1:5"),
        ("::", "http://[::1]:5"),
        ("::1", "http://[::1]:5"),
        ("a.example", "http://a.example:5"),
    ],
)
def test_the_address_shown_is_reachable_from_this_machine(host, expected):
    assert local_url(host, 5) == expected


def test_a_port_in_use_is_told_before_anything_starts(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "already in use on 127.0.0.1" in port_fault("127.0.0.1", port)
        with pytest.raises(SystemExit) as left:
            main(["launch", "--host", "127.0.0.1", "--port", str(port)])
    assert left.value.code == 2
    assert f"smg launch: --port {port}: already in use on 127.0.0.1" in capsys.readouterr().err


def test_a_free_port_is_no_fault():
    assert port_fault("127.0.0.1", 0) == ""


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_told(host):
    assert port_fault(host, 0) == f"'{host}' is not an address of this machine"


def test_all_keys_are_secrets():
    keys = CallerSettings(api_key="1", tenant_api_key=["t:2"], control_plane_api_keys=["i:n:user:3"])
    assert sorted(secrets_of(RouterSettings(callers=keys))) == ["1", "2", "3"]


def test_files_for_tls_that_cannot_be_used_are_told_before_anything_starts(capsys):
    words = ["--tls-cert-path", "/no/cert", "--tls-key-path", "/no/key", "--ca-cert-paths", "/no/ca"]
    with pytest.raises(SystemExit) as left:
        main(["launch", "--host", "127.0.0.1", "--port", "0", *words])
    assert left.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert "smg launch: --tls-cert-path '/no/cert': cannot be read: No such file or directory" in lines
    assert "smg launch: --ca-cert-paths '/no/ca': cannot be read: No such file or directory" in lines


def test_a_banner_of_encrypted_doors_says_so(capsys):
    PlainScreen().ready(Readiness("https://h:1", "grpcs://h:2", ("m",)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ready https://h:1 grpcs://h:2"
    assert "  gRPC   h:2 (TLS)" in lines


def test_a_missing_extra_is_told_with_the_commands_that_install_it(capsys, monkeypatch):
    monkeypatch.setattr(extras, "_NEEDED", ("a_module_that_nobody_has",))
    assert main(["serve"]) == 1
    err = capsys.readouterr().err
    assert "the local engine needs a_module_that_nobody_has" in err
    assert "pip install torch==2.13.0" in err


async def test_models_are_told_once_the_gateway_is_ready():
    with fake_gateway() as gateway:
        gateway.unready_answers = 2
        gateway.key = "k"
        assert await models_when_ready(gateway.url, "k", 30) == (MODEL,)
        assert await models_when_ready(gateway.url, "wrong", 30) == ()


async def test_a_gateway_that_never_gets_ready_leaves_the_models_untold():
    with fake_gateway() as gateway:
        gateway.unready_answers = 1_000_000
        assert await models_when_ready(gateway.url, None, 0.2) == ()
    assert await models_when_ready("http://127.0.0.1:1", None, 0.2) == ()


@pytest.mark.parametrize("flag", ["--tool-call-parser", "--reasoning-parser"])
def test_a_format_that_does_not_exist_is_told_at_the_start_with_those_that_do(flag, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["launch", "--port", "0", "--grpc-port", "0", flag, "qwen33"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"{flag} 'qwen33': there is no such format; known are " in told
    assert "harmony" in told
