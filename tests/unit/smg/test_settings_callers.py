"""Settings of callers and TLS: written as the original writes them; no fault repeats a key."""

import pytest

from smg.settings import RouterSettings, SettingsError, load
from smg.settings.redaction import secrets_in


def read(variables=None, **flags):
    return load(RouterSettings, flags, variables or {}).settings


def faults(variables=None, **flags):
    with pytest.raises(SettingsError) as caught:
        read(variables, **flags)
    return str(caught.value)


def test_a_control_plane_key_has_four_parts_the_last_of_which_may_hold_colons():
    [key] = read(control_plane_api_keys=["k1:Service Account:Admin:s:e:c"]).callers.control_plane_api_keys
    assert (key.id, key.name, key.role, key.key.get_secret_value()) == (
        "k1",
        "Service Account",
        "admin",
        "s:e:c",
    )


def test_names_may_hold_spaces_in_the_environment_too():
    keys = read({"SMG_CONTROL_PLANE_API_KEYS": "k1:Service Account:admin:s1, k2:Ops:user:s2"}).callers
    assert [(key.name, key.role) for key in keys.control_plane_api_keys] == [
        ("Service Account", "admin"),
        ("Ops", "user"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("control_plane_api_keys", ["verysecret"], "ID:NAME:ROLE:KEY"),
        ("control_plane_api_keys", ["k:verysecret:n"], "ID:NAME:ROLE:KEY"),
        ("control_plane_api_keys", ["k:n:admin:"], "ID:NAME:ROLE:KEY"),
        ("control_plane_api_keys", ["k:n:verysecret:admin"], "'admin' or 'user'"),
        ("control_plane_api_keys", ["a:n:admin:verysecret", "b:n:user:verysecret"], "'a' and 'b'"),
        ("control_plane_api_keys", ["a:n:admin:verysecret", "a:n:user:verysecret2"], "'a' is given twice"),
        ("tenant_api_key", ["verysecret"], "TENANT:KEY"),
        ("tenant_api_key", [":verysecret"], "TENANT:KEY"),
        ("tenant_api_key", ["red:verysecret", "blue:verysecret"], "'red' and tenant 'blue'"),
        ("api_key", "", "at least 1"),
        ("tenant_header_name", "no header", "no header"),
    ],
)
def test_a_fault_says_what_is_allowed_and_not_what_the_key_is(name, value, says):
    text = faults(**{name: value})
    assert says in text
    assert "verysecret" not in text


def test_a_key_of_a_tenant_cannot_be_the_shared_one():
    text = faults(api_key="verysecret", tenant_api_key=["red:verysecret"])
    assert "tenant 'red' and api_key" in text
    assert "verysecret" not in text


def test_one_key_may_open_both_planes():
    settings = read(api_key="same", control_plane_api_keys=["k:n:admin:same"])
    assert list(secrets_in(settings)) == ["same", "same"]


def test_every_secret_is_found_and_the_password_in_an_address_too():
    settings = read(api_key="one", tenant_api_key=["t:two"], redis_url="redis://user:pass%21word@host:1/0")
    assert list(secrets_in(settings)) == [
        "one",
        "two",
        "redis://user:pass%21word@host:1/0",
        "pass%21word",
        "pass!word",
    ]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"tls_cert_path": "c"}, "--tls-cert-path needs --tls-key-path"),
        ({"tls_key_path": "k"}, "--tls-key-path needs --tls-cert-path"),
        ({"client_key_path": "k"}, "--client-key-path needs --client-cert-path"),
        ({"tls_client_ca_paths": ["a"]}, "--tls-client-ca-paths needs"),
        ({"tls_handshake_timeout_secs": "0"}, "greater than 0"),
    ],
)
def test_half_a_pair_is_refused(flags, says):
    assert says in faults(**flags)
