"""Alert rules, dashboard and documented queries: every metric, label and value in them is one that the router has."""

import json
import re

import pytest
import yaml

from scripts.write_deploy import DASHBOARD, DEPLOY, ROOT
from tests.unit.deploy.promql import SERIES, faults_of, labels_of, names_of

RULES = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())["groups"][0]["rules"]
ADAPTER = yaml.safe_load((DEPLOY / "monitoring" / "adapter.yaml").read_text())["rules"]
PANELS = [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]


def of_panel(query):
    """A query as Grafana sends it."""
    return (
        query.replace("$__rate_interval", "5m")
        .replace("$instance", ".*")
        .replace("$model", ".*")
        .replace("$worker", ".*")
    )


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(rate(smg_requests_total[5m])", "unclosed left parenthesis"),
        ("rate(smg_worker_ready[5m])", "smg_worker_ready is no counter"),
        ("sum(smg_requests_total)", "needs a rate"),
        ("smg_workers_ready", "no metric smg_workers_ready"),
        ('smg_worker_ready{model="m"}', "has no label model"),
        ("sum by (model) (smg_worker_ready)", "no label model to aggregate by"),
        ("smg_worker_ready and on (model) smg_build_info", "no label model to match on"),
        ('smg_worker_state{state=~"ready|gone"}', "state is never gone"),
        ("rate(smg_requests_total)", "expected type matrix"),
    ],
)
def test_the_check_of_queries_sees_faults(query, fault):
    assert any(fault in each for each in faults_of(query)), faults_of(query)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_ask_for_what_is_there(rule):
    assert faults_of(rule["expr"]) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_name_labels_that_their_results_have(rule):
    named = re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
    assert set(named) <= labels_of(rule["expr"])


def test_alerts_tell_how_bad_it_is_and_what_to_do():
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "action"}


def test_alerts_are_listed_in_the_documentation():
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    assert [rule["alert"] for rule in RULES if f"`{rule['alert']}`" not in text] == []


def test_panels_ask_for_what_is_there():
    faults = {
        (title, target["expr"]): found
        for title, target in TARGETS
        if (found := faults_of(of_panel(target["expr"])))
    }
    assert faults == {}


def test_legends_name_labels_that_their_results_have():
    for title, target in TARGETS:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named <= labels_of(of_panel(target["expr"])), title


def test_what_alerts_look_at_can_be_seen_on_the_dashboard():
    shown = {name for _, target in TARGETS for name in names_of(of_panel(target["expr"]))}
    watched = {name for rule in RULES for name in names_of(rule["expr"])}
    # A bound, and a count that is shown as a rate.
    assert watched - shown == {"smg_admission_queue_size", "smg_worker_steps_total"}


def test_panels_do_not_lie_upon_each_other():
    found = json.loads(DASHBOARD.read_text())["panels"]
    taken = set()
    for panel in found:
        place = panel["gridPos"]
        cells = {
            (across, down)
            for across in range(place["x"], place["x"] + place["w"])
            for down in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells
        taken |= cells
    assert len({panel["id"] for panel in found}) == len(found)


def test_variables_of_the_dashboard_list_labels_that_are_there():
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    asked = {each["name"]: each["definition"] for each in variables if each["type"] == "query"}
    for query in asked.values():
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
        assert label in SERIES[metric].labels | {"instance"}
    used = {name for _, target in TARGETS for name in re.findall(r"\$(\w+)", target["expr"])}
    assert used - {"__rate_interval"} == asked.keys()


def test_the_adapter_serves_the_metrics_that_the_autoscalers_ask_for():
    (custom,), (external,) = ADAPTER["custom"], ADAPTER["external"]
    for rule in (custom, external):
        series = re.match(r"\w+", rule["seriesQuery"])[0]
        assert faults_of(rule["seriesQuery"]) == []
        query = (
            rule["metricsQuery"]
            .replace("<<.GroupBy>>", "pod")
            .replace("<<.Series>>", series)
            .replace("<<.LabelMatchers>>", 'namespace="smg"')
        )
        assert faults_of(query) == []
    values = yaml.safe_load((DEPLOY / "kubernetes" / "smg" / "values.yaml").read_text())
    assert external["name"]["as"] == values["engine"]["autoscaling"]["metric"]
    router = (DEPLOY / "kubernetes" / "smg" / "templates" / "router.yaml").read_text()
    asked = re.search(r"metric: \{name: (\w+)\}", router)[1]
    assert custom["seriesQuery"].startswith(asked + "{")


def documented():
    """The queries in docs/metrics.md."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    table = text[text.index("## Questions and their queries") :]
    for line in table.splitlines():
        if line.startswith("| ") and "`" in line:
            answer = re.split(r"(?<!\\)\|", line)[2]
            yield from (each.replace("\\|", "|") for each in re.findall(r"`([^`]+)`", answer))


@pytest.mark.parametrize("query", list(documented()))
def test_documented_queries_ask_for_what_is_there(query):
    assert faults_of(query) == []
