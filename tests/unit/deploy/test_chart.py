"""The Helm chart: what it makes is valid, holds together, and is what our own programs take."""

import base64
import json
import os
import subprocess
from types import SimpleNamespace

import helm_python
import jsonschema_rs
import pytest
import yaml

from gateway.status import StatusHandlers
from scripts.write_deploy import CHART, MANIFESTS, ROOT, VALUES, main, render, values_of
from servicers.flags import parse_command
from smg.cli.flags import read_settings
from smg.services.methods import ADMIN_SERVICE, METHODS
from smg.settings import RouterSettings
from smg.workers.discovery.kubernetes import workers_of
from tests.unit.deploy.kubernetes_objects import faults_of

NAMES = sorted(path.stem for path in VALUES.glob("*.yaml"))
# Settings that the chart's objects rely on.
PORTS = {"http": "port", "grpc": "grpc_port", "probe": "health_check_port", "metrics": "prometheus_port"}


def objects(values, release="smg"):
    """By kind and name."""
    found = {}
    for name, text in render(values, release).items():
        if name.endswith(".yaml"):
            for each in yaml.safe_load_all(text):
                if each:
                    found[each["kind"], each["metadata"]["name"]] = each
    return found


@pytest.fixture(scope="module", params=NAMES)
def made(request):
    return objects(values_of(request.param))


def of_kind(made, *kinds):
    return [each for (kind, _), each in made.items() if kind in kinds]


def component(found):
    return found["metadata"]["labels"]["app.kubernetes.io/component"]


def deployment(made, part):
    return next(each for each in of_kind(made, "Deployment") if component(each) == part)


def container(found):
    return found["spec"]["template"]["spec"]["containers"][0]


def router_settings(made):
    """The settings of the rendered router, read by our own loader as its container would."""
    found = deployment(made, "router")
    volumes = {each["name"]: each for each in found["spec"]["template"]["spec"]["volumes"]}
    text = made["ConfigMap", volumes["settings"]["configMap"]["name"]]["data"]["smg.yaml"]
    arguments = container(found)["args"]
    mount = next(each for each in container(found)["volumeMounts"] if each["name"] == "settings")
    assert arguments[0] == "launch"
    assert arguments[1:] == ["--config", f"{mount['mountPath']}/smg.yaml"]
    return text


def loaded(made, tmp_path):
    path = tmp_path / "smg.yaml"
    path.write_text(router_settings(made))
    variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    if container(deployment(made, "router")).get("envFrom"):
        # What a Secret would hold.
        variables["SMG_POSTGRES_DB_URL"] = "postgresql://user:password@host:5432/name"
        variables["SMG_REDIS_URL"] = "redis://host:6379/0"
    found = read_settings("launch", RouterSettings, ["--config", str(path)], "", variables)
    assert found.notes == []
    return found.settings


def test_generated_files_are_up_to_date(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["write_deploy", "--check"])
    assert main() == 0, capsys.readouterr().out


def test_helm_finds_nothing_to_complain_about():
    found = helm_python.lint(str(CHART))
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]
    assert not found["errors"]


def test_every_object_has_the_fields_and_types_of_the_api(made):
    assert {name: faults for name, each in made.items() if (faults := faults_of(each))} == {}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda found: found["spec"].update(replica=1), "unknown field replica"),
        (lambda found: found["spec"].update(replicas="1"), "'1' is no int"),
        (lambda found: found["spec"].pop("selector"), "selector is missing"),
        (lambda found: found["metadata"]["labels"].update(n=1), "1 is no str"),
        (lambda found: container(found).update(args="launch"), "no list"),
        (lambda found: container(found)["livenessProbe"]["httpGet"].pop("port"), "port is missing"),
    ],
)
def test_the_check_of_objects_sees_faults(change, fault):
    found = deployment(objects(values_of("minimal")), "router")
    change(found)
    assert any(fault in each for each in faults_of(found))


def test_the_check_of_custom_objects_sees_faults():
    route = objects(values_of("everything"))["HTTPRoute", "llm"]
    route["spec"]["rules"][0]["timeout"] = "1s"
    route["spec"]["rules"][0]["timeouts"]["request"] = "0"
    assert len(faults_of(route)) == 2


def test_every_object_is_in_the_release_s_namespace_or_where_the_engines_are(made):
    spaces = {each["metadata"]["namespace"] for each in made.values()}
    assert spaces <= {"smg", "engines"}


@pytest.mark.parametrize("name", NAMES)
def test_names_follow_the_release(name):
    longest = "r" * 53
    made = objects({**values_of(name), "fullnameOverride": ""}, longest)
    # A label's value, and the name of a service, may have 63 characters.
    assert max(len(each["metadata"]["name"]) for each in made.values()) <= 63
    assert all(each["metadata"]["name"].startswith("r" * 50) for each in made.values())


def test_selectors_choose_pods_of_one_part_each(made):
    pods = {
        component(each): each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(made, "Deployment")
    }
    chosen = [
        (each, each["spec"]["selector"].get("matchLabels", each["spec"]["selector"]))
        for each in of_kind(made, "Deployment", "Service", "PodDisruptionBudget")
    ] + [(each, each["spec"]["podSelector"]["matchLabels"]) for each in of_kind(made, "NetworkPolicy")]
    for each, wanted in chosen:
        assert [part for part, labels in pods.items() if wanted.items() <= labels.items()] == [
            component(each)
        ]


def test_services_lead_to_ports_of_their_pods(made):
    for service in of_kind(made, "Service"):
        names = {each["name"] for each in container(deployment(made, component(service)))["ports"]}
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= names


def test_routes_lead_to_services(made):
    for route in of_kind(made, "HTTPRoute", "GRPCRoute"):
        for rule in route["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                ports = made["Service", backend["name"]]["spec"]["ports"]
                assert backend["port"] in [each["port"] for each in ports]


def test_grpc_routes_have_every_service_but_the_operator_s():
    route = objects(values_of("everything"))["GRPCRoute", "llm"]
    named = {each["method"]["service"] for each in route["spec"]["rules"][0]["matches"]}
    served = {path.split("/")[1] for path in METHODS if path.startswith("/smg.")}
    assert named == {*served, "grpc.health.v1.Health"} - {ADMIN_SERVICE}
    assert ADMIN_SERVICE in served


def test_autoscalers_scale_what_is_there_and_leave_its_number_to_them(made):
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in of_kind(made, "HorizontalPodAutoscaler")}
    for each in of_kind(made, "Deployment"):
        assert (each["metadata"]["name"] in scaled) != ("replicas" in each["spec"])
    assert scaled <= {each["metadata"]["name"] for each in of_kind(made, "Deployment")}


def test_the_router_takes_its_settings_and_listens_where_the_pod_says(made, tmp_path):
    settings = loaded(made, tmp_path)
    found = {
        **settings.listener.model_dump(),
        **settings.fleet.model_dump(),
        **settings.telemetry.model_dump(),
    }
    ports = {each["name"]: each["containerPort"] for each in container(deployment(made, "router"))["ports"]}
    assert ports == {name: found[setting] for name, setting in PORTS.items()}
    assert settings.telemetry.log_json


def test_values_beat_the_chart_s_defaults_and_large_numbers_stay_whole(tmp_path):
    values = {
        "router": {"settings": {"telemetry": {"log_json": False}, "listener": {"max_payload_size": 2**40}}}
    }
    settings = loaded(objects(values), tmp_path)
    assert settings.listener.max_payload_size == 2**40
    assert not settings.telemetry.log_json


def test_probes_ask_paths_that_the_probe_port_has(made):
    paths = StatusHandlers(SimpleNamespace(workers=list), bool, bool, bytes).probes()
    found = container(deployment(made, "router"))
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert found[probe]["httpGet"]["path"] in paths
        assert found[probe]["httpGet"]["port"] == "probe"


def test_pods_get_the_time_that_their_drain_takes(made, tmp_path):
    for found in of_kind(made, "Deployment"):
        pod = found["spec"]["template"]["spec"]
        hook = container(found).get("lifecycle", {}).get("preStop", {})
        if component(found) == "router":
            listener = loaded(made, tmp_path).listener
            needed = listener.shutdown_delay_secs + listener.shutdown_grace_period_secs
        elif component(found) == "engine":
            needed = parse_command(container(found)["args"][1:]).grace_s
        else:
            needed = float(hook["exec"]["command"][-1].split()[-1])
            hook = {}
        needed += hook.get("sleep", {}).get("seconds", 0)
        # What did not finish in time is told so after that.
        assert pod["terminationGracePeriodSeconds"] >= needed + 5


def test_routers_find_the_engines_of_the_release(tmp_path):
    for name in ("minimal", "everything", "tls"):
        made = objects(values_of(name))
        settings, engine = loaded(made, tmp_path), deployment(made, "engine")
        command = parse_command(container(engine)["args"][1:])
        labels = engine["spec"]["template"]["metadata"]["labels"]
        assert all(
            labels[each.partition("=")[0]] == each.partition("=")[2] for each in settings.discovery.selector
        )
        pod = {
            "metadata": {"labels": labels, "uid": "1", "name": "engine-1", "namespace": "smg"},
            "status": {
                "podIP": "10.1.1.1",
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        (worker,) = workers_of(pod, settings.discovery.service_discovery_port)
        assert worker.url == f"grpc://10.1.1.1:{command.port}"
        assert command.host == "0.0.0.0"
        assert container(engine)["ports"] == [{"name": "grpc", "containerPort": command.port}]
        assert all(
            container(engine)[probe]["grpc"]["port"] == command.port
            for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        )


def test_discovery_may_see_pods_where_it_looks_and_nothing_else(made, tmp_path):
    settings = loaded(made, tmp_path).discovery
    (role,) = of_kind(made, "Role")
    (binding,) = of_kind(made, "RoleBinding")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    assert role["metadata"]["namespace"] == settings.service_discovery_namespace
    assert binding["metadata"]["namespace"] == settings.service_discovery_namespace
    pod = deployment(made, "router")["spec"]["template"]["spec"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (pod["serviceAccountName"], "smg")
    assert pod["automountServiceAccountToken"] is True
    assert not of_kind(made, "ClusterRole", "ClusterRoleBinding")


def test_without_discovery_a_router_has_no_token_and_no_rights():
    made = objects({"discovery": {"enabled": False}, "engine": {"enabled": False}})
    assert not of_kind(made, "Role", "RoleBinding")
    assert deployment(made, "router")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_no_container_may_more_than_it_needs(made):
    for found in of_kind(made, "Deployment"):
        security = container(found)["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        pod = found["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert component(found) == "router" or pod["automountServiceAccountToken"] is False
        assert {"name": "tmp", "mountPath": "/tmp"} in container(found)["volumeMounts"]


def test_mounts_have_volumes_and_certificates_lie_where_the_settings_say(made, tmp_path):
    for found in of_kind(made, "Deployment"):
        volumes = {each["name"] for each in found["spec"]["template"]["spec"]["volumes"]}
        assert {each["name"] for each in container(found)["volumeMounts"]} == volumes
    tls = loaded(made, tmp_path).tls
    mounts = [each["mountPath"] for each in container(deployment(made, "router"))["volumeMounts"]]
    for path in (tls.tls_cert_path, tls.tls_key_path, *tls.tls_client_ca_paths):
        assert path is None or os.path.dirname(path) in mounts  # noqa: PTH120 - a path in the container


def test_engines_hear_routers_alone_and_reach_nothing():
    for name in ("minimal", "everything"):
        (policy,) = [
            each for each in of_kind(objects(values_of(name)), "NetworkPolicy") if component(each) == "engine"
        ]
        assert policy["spec"]["egress"] == []
        (rule,) = policy["spec"]["ingress"]
        (peer,) = rule["from"]
        assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "router"


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"routers": {}}, "routers"),
        ({"router": {"replicas": -1}}, "replicas"),
        ({"router": {"image": {"pullPolicy": "Sometimes"}}}, "pullPolicy"),
        ({"router": {"settings": {"routng": {}}}}, "routng"),
        ({"router": {"settings": {"routing": {"polcy": "x"}}}}, "polcy"),
        ({"router": {"settings": {"routing": {"policy": "best"}}}}, "policy"),
        ({"router": {"settings": {"listener": {"port": 1}}}}, "port"),
        ({"router": {"settings": {"callers": {"api_key": "secret"}}}}, "api_key"),
        ({"engine": {"kind": "vllm"}}, "kind"),
        ({"engine": {"args": "--device"}}, "args"),
        ({"discovery": {"port": 0}}, "port"),
        ({"discovery": {"selector": {"app": 1}}}, "selector"),
        ({"router": {"drain": {"graceSeconds": "long"}}}, "graceSeconds"),
        ({"router": {"podDisruptionBudget": {"maxUnavailable": "some"}}}, "maxUnavailable"),
    ],
)
def test_values_that_mean_nothing_are_refused(values, fault):
    with pytest.raises(helm_python.HelmError, match=fault):
        render(values)


def test_the_chart_s_own_envoy_and_encryption_at_the_router_exclude_each_other():
    values = {"envoy": {"enabled": True}, "router": {"tlsSecretName": "tls"}}
    with pytest.raises(helm_python.HelmError, match=r"needs envoy\.configMapName"):
        render(values)
    values["envoy"]["configMapName"] = "mine"
    assert ("ConfigMap", "smg-envoy") not in objects(values)


def test_envoy_has_our_configuration_with_the_routers_behind_it():
    made = objects(values_of("everything"))
    data = made["ConfigMap", "llm-envoy"]
    found = yaml.safe_load(data["data"]["envoy.yaml"])
    (cluster,) = found["static_resources"]["clusters"]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    address = endpoint["endpoint"]["address"]["socket_address"]
    assert made["Service", address["address"]]["spec"]["clusterIP"] == "None"
    assert address["port_value"] in [
        each["port"] for each in made["Service", address["address"]]["spec"]["ports"]
    ]
    address["address"] = "127.0.0.1"
    ours = yaml.safe_load((ROOT / "deploy" / "envoy" / "edge.yaml").read_text())
    assert found == ours
    descriptor = (ROOT / "deploy" / "envoy" / "smg_edge.pb").read_bytes()
    assert base64.b64decode(data["binaryData"]["smg_edge.pb"]) == descriptor


@pytest.mark.parametrize(
    ("router", "is_warned"),
    [
        ({"replicas": 2}, True),
        ({"replicas": 1}, False),
        ({"replicas": 1, "autoscaling": {"enabled": True}}, True),
        ({"replicas": 2, "settings": {"history": {"history_backend": "redis"}}}, False),
    ],
)
def test_who_installs_several_routers_is_told_that_their_memories_are_their_own(router, is_warned):
    notes = render({"router": router})["NOTES.txt"]
    assert ("history_backend" in notes) == is_warned
    assert "whoever reaches the gateway may use it" in notes


def test_manifests_need_no_helm():
    for path in MANIFESTS.glob("*.yaml"):
        text = path.read_text()
        assert "helm" not in text.split("\n", 4)[4].lower()
        assert "{{ ." not in text


def test_the_schema_is_of_the_form_that_it_names():
    jsonschema_rs.meta.validate(json.loads((CHART / "values.schema.json").read_text()))


def test_the_drain_command_of_envoy_is_a_command_that_bash_reads():
    command = container(objects(values_of("everything"))["Deployment", "llm-envoy"])["lifecycle"]["preStop"]
    assert command["exec"]["command"][:2] == ["bash", "-c"]
    subprocess.run(["bash", "-n", "-c", command["exec"]["command"][2]], check=True)
