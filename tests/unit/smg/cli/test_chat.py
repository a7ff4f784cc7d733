"""smg chat: answers appear piece by piece, the conversation is kept, faults are told in words."""

import io

import httpx
import pytest

from smg.cli.chat import Conversation, run
from tests.unit.smg.cli.fake_gateway import MODEL, fake_gateway


@pytest.fixture
def gateway():
    with fake_gateway() as server:
        yield server


@pytest.fixture
def talk(monkeypatch, capsys, gateway):
    """Run `smg chat` with lines on its standard input; returns status, output and error output."""

    def talk(lines: str, *flags: str):
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        status = run(["--url", gateway.url, *flags])
        return status, *capsys.readouterr()

    return talk


def test_lines_are_answered_one_by_one_until_the_input_ends(talk):
    assert talk("hello\n\nthere\n") == (0, "hello hello\nthere there\n", "")


def test_the_first_model_is_asked_and_the_conversation_is_sent_along(talk, gateway):
    talk("one\ntwo\n", "--system", "be brief", "--temperature", "0", "--max-tokens", "5")
    body = gateway.bodies[-1]
    assert (body["model"], body["temperature"], body["max_tokens"], body["stream"]) == (MODEL, 0.0, 5, True)
    assert [(turn["role"], turn["content"]) for turn in body["messages"]] == [
        ("system", "be brief"),
        ("user", "one"),
        ("assistant", "one one"),
        ("user", "two"),
    ]


def test_reset_forgets_all_but_the_system_message(talk, gateway):
    talk("one\n/reset\ntwo\n", "--system", "be brief", "--model", "other")
    assert gateway.bodies[-1]["model"] == "other"
    assert [turn["content"] for turn in gateway.bodies[-1]["messages"]] == ["be brief", "two"]


def test_exit_ends_the_conversation(talk):
    assert talk("one\n/exit\ntwo\n")[1] == "one one\n"


@pytest.mark.parametrize("line", ["/help", "/?"])
def test_help_is_told_without_asking_the_model(talk, gateway, line):
    status, out, err = talk(f"{line}\n")
    assert (status, out) == (0, "")
    assert "/reset" in err
    assert not gateway.bodies


def test_a_refused_question_is_told_and_not_kept(talk, gateway):
    status, out, err = talk("one\nrefuse\ntwo\n")
    assert "the gateway answered 400: temperature must be at most 2" in err
    assert "two two" in out
    assert [turn["content"] for turn in gateway.bodies[-1]["messages"]] == ["one", "one one", "two"]
    assert status == 0


def test_a_script_sees_that_the_last_answer_is_missing(talk):
    status, out, err = talk("break\n")
    assert status == 1
    assert "the engine is gone" in err
    assert "break break" in out


def test_the_key_of_the_environment_is_shown_to_the_gateway(talk, gateway, monkeypatch):
    gateway.key = "s3cret"
    status, _, err = talk("one\n")
    assert (status, "a key is needed; set SMG_API_KEY" in err) == (1, True)
    monkeypatch.setenv("SMG_API_KEY", "s3cret")
    assert talk("one\n")[0] == 0


def test_a_gateway_without_models_is_told(talk, gateway):
    gateway.models = []
    assert "serves no model yet" in talk("one\n")[2]


def test_an_authority_that_cannot_be_read_is_told(talk):
    status, _, err = talk("one\n", "--ca-cert", "/no/ca")
    assert (status, "--ca-cert '/no/ca': No such file" in err) == (1, True)


def test_no_gateway_is_told(capsys):
    assert run(["--url", "http://127.0.0.1:1"]) == 1
    assert "no gateway at http://127.0.0.1:1" in capsys.readouterr().err


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_came(gateway):
    with httpx.Client(base_url=gateway.url) as client:
        conversation = Conversation(client, MODEL)
        pieces = conversation.ask("hello")
        assert next(pieces) == "hello"
        pieces.close()
    assert conversation.turns == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello"},
    ]
