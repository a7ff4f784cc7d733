"""Dockerfiles and the compose file: what they name is there, and our programs take the command lines in them."""

import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import compose_spec
import pytest
import yaml

from scripts.write_deploy import DEPLOY, ROOT
from servicers.flags import parse_command
from smg.cli.flags import read_settings
from smg.settings import RouterSettings, options_of

DOCKER = DEPLOY / "docker"
FILES = ("router", "servicer")
HADOLINT = Path(sys.executable).with_name("hadolint")


def instructions(name):
    """(INSTRUCTION, rest) each, lines that go on joined."""
    text = (DOCKER / f"{name}.Dockerfile").read_text()
    text = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", text))
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line.strip()]


def given(name, instruction):
    return [rest for word, rest in instructions(name) if word == instruction]


def settings_of(words, variables=None):
    """What `smg launch` makes of a command line."""
    assert words[0] == "launch"
    loaded = read_settings("launch", RouterSettings, words[1:], "", variables or {})
    assert loaded.notes == []
    return loaded.settings


def variables_of(name):
    found = " ".join(given(name, "ENV"))
    return dict(each.split("=", 1) for each in found.split())


@pytest.mark.parametrize("name", FILES)
def test_hadolint_finds_nothing(name):
    run = subprocess.run(
        [HADOLINT, "--no-color", DOCKER / f"{name}.Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "")


@pytest.mark.parametrize("name", FILES)
def test_what_is_copied_is_there_and_sent_to_the_build(name):
    patterns = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    for rest in given(name, "COPY"):
        if rest.startswith("--from"):
            continue
        for source in rest.split()[:-1]:
            assert (ROOT / source).exists()
            # As Docker reads the file: the last pattern that fits the path or a folder above it decides.
            is_left_out = False
            for pattern in patterns:
                parents = [source, *(str(each) for each in Path(source).parents)]
                if any(fnmatch(each, pattern.lstrip("!")) for each in parents if each != "."):
                    is_left_out = not pattern.startswith("!")
            assert not is_left_out, source


@pytest.mark.parametrize("name", FILES)
def test_every_package_of_the_wheel_is_copied(name):
    packages = re.search(r"packages = \[(.*)\]", (ROOT / "pyproject.toml").read_text())[1]
    copied = {rest.split()[0] for rest in given(name, "COPY")}
    assert {json.loads(each).split("/")[0] for each in packages.split(", ")} <= copied


@pytest.mark.parametrize("name", FILES)
def test_images_do_not_run_as_root(name):
    (user,) = given(name, "USER")
    assert user == "65532:65532"
    # Nothing is run as another one after that.
    words = [word for word, _ in instructions(name)]
    assert "RUN" not in words[words.index("USER") :]


def test_the_router_s_image_has_no_engine():
    installs = [rest for rest in given("router", "RUN") if "pip install" in rest]
    assert len(installs) == 1
    extras = next(rest for rest in given("router", "ARG") if rest.startswith("EXTRAS=")).removeprefix(
        "EXTRAS="
    )
    known = re.search(
        r"(?s)\[project\.optional-dependencies\]\n(.*?)\n\[", (ROOT / "pyproject.toml").read_text()
    )[1]
    for extra in extras.split(","):
        needs = re.search(rf"(?ms)^{extra} = \[(.*?)\]$", known)[1]
        assert "torch" not in needs
        assert "transformers" not in needs


def test_the_router_s_image_listens_where_it_says():
    (command,), variables = given("router", "CMD"), variables_of("router")
    ours = {name: value for name, value in variables.items() if name.startswith("SMG_")}
    settings = settings_of(json.loads(command), ours)
    assert ours.keys() <= {option.environment_name for option in options_of(RouterSettings)}
    ports = (
        settings.listener.port,
        settings.listener.grpc_port,
        settings.fleet.health_check_port,
        settings.telemetry.prometheus_port,
    )
    assert given("router", "EXPOSE") == [" ".join(map(str, ports))]
    (probe,) = given("router", "HEALTHCHECK")
    assert f"http://127.0.0.1:{settings.fleet.health_check_port}/liveness" in probe
    compile(json.loads(probe.partition("CMD ")[2])[2], "HEALTHCHECK", "exec")


def test_the_servicer_s_image_listens_where_it_says():
    (command,) = given("servicer", "CMD")
    words = json.loads(command)
    assert words[0] == "worker"
    found = parse_command(words[1:])
    assert (found.engine, found.host, given("servicer", "EXPOSE")) == ("local", "0.0.0.0", [str(found.port)])
    (probe,) = given("servicer", "HEALTHCHECK")
    assert json.loads(probe.partition("CMD ")[2])[1:] == [
        "/opt/smg/engine_health.py",
        f"127.0.0.1:{found.port}",
    ]
    assert "deploy/docker/engine_health.py /opt/smg/engine_health.py" in given("servicer", "COPY")


def test_the_servicer_s_image_has_the_versions_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    for name in ("TORCH", "MODEL"):
        version = re.search(rf"(?m)^{name} \?= (.*)$", makefile)[1]
        assert f"{name}={version}" in given("servicer", "ARG")


@pytest.fixture(scope="module")
def services():
    found = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    # The judge knows no merge keys: it gets what they lead to.
    compose_spec.PyCompose.from_yaml(yaml.safe_dump(found))
    return found["services"]


def test_the_judge_of_compose_files_sees_faults():
    with pytest.raises(ValueError, match="readonly"):
        compose_spec.PyCompose.from_yaml("services: {a: {image: x, readonly: true}}")


def test_compose_starts_what_we_have(services):
    router = settings_of(services["router"]["command"])
    engine = parse_command(services["engine"]["command"][1:])
    assert router.workers.worker_urls == (f"grpc://engine:{engine.port}",)
    assert set(services["engine"]["networks"]) <= set(services["router"]["networks"])
    for name, grace in (("router", router.listener.shutdown_grace_period_secs), ("engine", engine.grace_s)):
        assert int(services[name]["stop_grace_period"].removesuffix("s")) >= grace + 5
        build = services[name]["build"]
        assert (DOCKER / build["context"] / build["dockerfile"]).is_file()
    assert {each for each in services["router"]["environment"]} <= {
        option.environment_name for option in options_of(RouterSettings)
    }


def test_compose_s_envoy_reads_our_configuration_and_finds_the_router(services):
    envoy = services["envoy"]
    source, target, _ = envoy["volumes"][0].split(":")
    config = DOCKER / source / envoy["command"][2]
    found = yaml.safe_load(config.read_text())
    assert envoy["working_dir"] == target
    assert envoy["network_mode"] == "service:router"
    published = {each.split(":")[-1] for each in services["router"]["ports"]}
    listener = found["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"]
    router = settings_of(services["router"]["command"]).listener
    assert published == {str(each) for each in (router.port, router.grpc_port, listener)}


def test_one_version_of_envoy_is_named_everywhere(services):
    values = yaml.safe_load((DEPLOY / "kubernetes" / "smg" / "values.yaml").read_text())["envoy"]["image"]
    assert services["envoy"]["image"] == f"{values['repository']}:{values['tag']}"


def test_compose_gives_no_container_more_than_it_needs(services):
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert all(each.startswith("127.0.0.1:") for each in service.get("ports", ()))
