"""Settings: one field gives flag, variable and key; sources are ranked; every fault is told at once."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from smg.policies import POLICIES
from smg.settings import (
    AdmissionSettings,
    BreakerSettings,
    CallerSettings,
    ListenerSettings,
    ModelSettings,
    RetrySettings,
    RouterSettings,
    ServeSettings,
    SettingsError,
    TelemetrySettings,
    TenantKey,
    WorkerSettings,
    load,
    options_of,
)

ROOT = Path(__file__).resolve().parents[3]


def write(folder: Path, text: str) -> Path:
    path = folder / "smg.yaml"
    path.write_text(text)
    return path


def faults_of(flags=None, variables=None, config=None, model=RouterSettings) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(model, flags or {}, variables or {}, config)
    return [str(fault) for fault in caught.value.faults]


def test_defaults_need_no_source():
    assert load(RouterSettings, {}, {}).settings == RouterSettings()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("file", 1),
        ("file variable", 2),
        ("file flag", 3),
        ("variable flag", 3),
        ("file variable flag", 3),
        ("variable", 2),
        ("", 100),
    ],
)
def test_flags_beat_variables_beat_the_file_beat_defaults(tmp_path, given, expected):
    config = write(tmp_path, "admission: {queue_size: 1}") if "file" in given else None
    variables = {"SMG_QUEUE_SIZE": "2"} if "variable" in given else {}
    flags = {"queue_size": "3"} if "flag" in given else {"queue_size": None}
    assert load(RouterSettings, flags, variables, config).settings.admission.queue_size == expected


def test_a_list_of_a_stronger_source_replaces_that_of_a_weaker():
    loaded = load(RouterSettings, {"worker_urls": ["a:1"]}, {"SMG_WORKER_URLS": "b:1, c:1"})
    assert loaded.settings.workers.worker_urls == ("grpc://a:1",)


def test_a_variable_holds_several_values_between_commas_or_spaces():
    loaded = load(RouterSettings, {}, {"SMG_WORKER_URLS": "b:1, grpc://c:1  d:2"})
    assert loaded.settings.workers.worker_urls == ("grpc://b:1", "grpc://c:1", "grpc://d:2")


def test_the_file_is_found_by_its_variable(tmp_path):
    config = write(tmp_path, "routing: {policy: round_robin}")
    assert load(RouterSettings, {}, {"SMG_CONFIG": str(config)}).settings.routing.policy == "round_robin"


def test_every_fault_of_every_source_is_told_with_its_source_and_value(tmp_path):
    config = write(
        tmp_path, "admission: {queue_size: -4, queue_sise: 1}\nport: 1\nlistener: {port: x}\nroutng: {}"
    )
    faults = faults_of({"policy": "fastest"}, {"SMG_RETRY_MAX_RETRIES": "0"}, config)
    assert len(faults) == 7
    wanted = [
        f"{config}: admission.queue_size: '-4' must be greater than or equal to 0",
        f"{config}: admission.queue_sise: unknown setting; did you mean queue_size?",
        f"{config}: port: unknown section; it belongs under 'listener'",
        f"{config}: routng: unknown section; did you mean routing?",
        f"{config}: listener.port: 'x' must be a valid integer, unable to parse string as an integer",
        "--policy: 'fastest' must be 'bucket', 'cache_aware', 'consistent_hashing', 'least_load', 'manual',"
        " 'passthrough', 'power_of_two', 'prefix_hash', 'random' or 'round_robin'",
        "SMG_RETRY_MAX_RETRIES: '0' must be greater than or equal to 1",
    ]
    assert sorted(faults) == sorted(wanted)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- 1", "must be a mapping of sections"),
        ("listener: 3", "must be a mapping of settings"),
        ("listener: {host: a, queue_size: 1}", "it belongs under 'admission'"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_file_of_the_wrong_shape_is_a_fault(tmp_path, text, problem):
    assert problem in faults_of(config=write(tmp_path, text))[0]


def test_a_missing_file_is_a_fault(tmp_path):
    assert "cannot be read: No such file" in faults_of(config=tmp_path / "none.yaml")[0]


@pytest.mark.parametrize("text", ["", "listener:", "listener: {port: null}"])
def test_what_the_file_leaves_empty_keeps_its_default(tmp_path, text):
    assert load(RouterSettings, {}, {}, write(tmp_path, text)).settings == RouterSettings()


def test_secrets_stay_out_of_faults_and_representations():
    faults = faults_of({"tenant_api_key": ["t0psecret"], "api_key": ""})
    assert not [fault for fault in faults if "t0psecret" in fault]
    settings = load(
        RouterSettings, {"tenant_api_key": ["team:t0psecret"], "api_key": "other-secret"}, {}
    ).settings
    text = f"{settings} {settings!r}"
    assert "t0psecret" not in text
    assert "other-secret" not in text
    assert settings.callers.tenant_api_key[0].key.get_secret_value() == "t0psecret"


def test_variables_that_kubernetes_sets_for_a_service_named_smg_are_ignored():
    variables = {
        "SMG_PORT": "tcp://10.0.0.1:30000",
        "SMG_SERVICE_HOST": "10.0.0.1",
        "SMG_SERVICE_PORT": "30000",
        "SMG_PORT_30000_TCP_ADDR": "10.0.0.1",
    }
    loaded = load(RouterSettings, {}, variables)
    assert loaded.settings == RouterSettings()
    assert loaded.notes == []


def test_a_misspelt_variable_is_noted():
    assert load(RouterSettings, {}, {"SMG_QUEU_SIZE": "3"}).notes == [
        "SMG_QUEU_SIZE is not a setting; did you mean SMG_QUEUE_SIZE?"
    ]


@pytest.mark.parametrize(("port", "expected"), [(30000, 30001), (0, 0), (65535, 0), ("8000", 8001)])
def test_the_grpc_port_follows_the_http_port(port, expected):
    assert ListenerSettings(port=port).grpc_port == expected


def test_the_two_ports_must_differ():
    assert faults_of({"port": "5", "grpc_port": "5"}) == [
        "listener: port and grpc_port are both 5; they must differ"
    ]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("host:1", "grpc://host:1"),
        ("grpc://host:1/", "grpc://host:1"),
        ("grpc://[::1]:5", "grpc://[::1]:5"),
        ("GRPC://Host:1", "grpc://host:1"),
    ],
)
def test_worker_addresses_are_normalised(url, expected):
    assert WorkerSettings(worker_urls=(url,)).worker_urls == (expected,)


@pytest.mark.parametrize(
    "url",
    [
        "grpc://host",
        "host",
        "ftp://host:1",
        "grpc://host:99999",
        "grpc://host:1/path",
        "grpc://u@host:1",
        "http://h:1",
        "",
    ],
)
def test_other_worker_addresses_are_refused(url):
    with pytest.raises(ValidationError, match=r"grpc://host:port|not an address"):
        WorkerSettings(worker_urls=(url,))


def test_failures_that_a_breaker_remembers_are_bounded():
    with pytest.raises(ValidationError, match="cb_failure_threshold"):
        BreakerSettings(cb_failure_threshold=2**63)


def test_a_worker_may_not_be_given_twice():
    with pytest.raises(ValidationError, match="given twice: grpc://a:1"):
        WorkerSettings(worker_urls=("a:1", "grpc://a:1/"))


def test_aliases_are_pairs():
    assert dict(ModelSettings(model_alias=["a=b", "c = d=e"]).model_alias) == {"a": "b", "c": "d=e"}
    assert dict(ModelSettings(model_alias={"a": "b"}).model_alias) == {"a": "b"}


@pytest.mark.parametrize("pairs", [["a"], ["=b"], ["a="], ["a=b", "a=c"]])
def test_aliases_that_are_no_pairs_are_refused(pairs):
    with pytest.raises(ValidationError, match=r"ALIAS=MODEL|given twice"):
        ModelSettings(model_alias=pairs)


def test_a_tenant_key_is_cut_at_its_first_colon():
    keys = CallerSettings(tenant_api_key=["team:a:b"]).tenant_api_key
    assert keys == (TenantKey(tenant="team", key="a:b"),)


def test_header_names_are_lower_cased_and_checked():
    assert TelemetrySettings(request_id_headers=("X-My-Id",)).request_id_headers == ("x-my-id",)
    with pytest.raises(ValidationError, match="not a header name"):
        TelemetrySettings(request_id_headers=("a b",))


def test_the_first_backoff_may_not_be_above_the_longest():
    with pytest.raises(ValidationError, match="is above"):
        RetrySettings(retry_initial_backoff_ms=10, retry_max_backoff_ms=5)


def test_settings_cannot_be_changed():
    settings = RouterSettings()
    with pytest.raises(ValidationError):
        settings.admission = AdmissionSettings()
    with pytest.raises(ValidationError):
        settings.admission.queue_size = 3
    with pytest.raises(TypeError):
        settings.models.model_alias["a"] = "b"


def test_serve_listens_on_this_machine_alone():
    assert ServeSettings().listener.host == "127.0.0.1"
    assert RouterSettings().listener.host == "0.0.0.0"


def test_the_policies_are_those_that_exist():
    policy = next(option for option in options_of(RouterSettings) if option.name == "policy")
    assert sorted(policy.choices) == sorted(POLICIES)


def test_every_option_has_a_help_text_and_its_own_name():
    options = options_of(ServeSettings)
    assert all(option.help.endswith(".") for option in options)
    assert len({option.flag for option in options}) == len(options)


def test_every_setting_is_read_by_something():
    """A flag that is accepted and does nothing is worse than none."""
    sources = [
        path.read_text()
        for package in ("smg", "gateway")
        for path in (ROOT / package).rglob("*.py")
        if path.parent.name != "settings"
    ]
    unread = [
        option.name
        for option in options_of(ServeSettings)
        if not any(re.search(rf"\.{option.name}\b", source) for source in sources)
    ]
    assert not unread
