"""smg doctor: what a gateway tells of its workers becomes findings with advice; how findings are told."""

import pytest

from smg.cli.doctor.findings import Report, note, ok, problem, warning
from smg.cli.doctor.fleet import ListedWorker, worker_findings

READY = ListedWorker("grpc://a:1", "ready", "", ("m",), "closed")


def worst(workers, model=""):
    found = list(worker_findings(workers, model))
    return next((each for level in ("problem", "warning") for each in found if each.level == level), None)


@pytest.mark.parametrize(
    ("worker", "word"),
    [
        (("connecting", "cannot connect: refused"), "smg doctor grpc://b:1"),
        (("unhealthy", "no step for 30 s while sequences ran"), "hangs"),
        (("unhealthy", "health check says NOT_SERVING"), "logs"),
        (("draining", "draining"), "being removed"),
        (("unhealthy", "its circuit breaker is open"), "again and again"),
        (("connecting", "something new"), "smg doctor grpc://b:1"),
    ],
    ids=str,
)
def test_each_reason_has_its_advice(worker, word):
    state, reason = worker
    found = list(worker_findings([READY, ListedWorker("grpc://b:1", state, reason, ())], ""))
    (told,) = (each for each in found if each.check == "worker")
    assert told.level == "warning"
    assert reason in told.text
    assert word in told.advice


def test_a_fleet_that_is_well_is_told_to_be():
    assert worst([READY], "m") is None


@pytest.mark.parametrize(
    ("workers", "model", "text"),
    [
        ([], "", "no workers"),
        ([READY._replace(state="connecting", reason="x")], "", "none of its 1 workers is ready"),
        ([READY], "other", "no worker serves 'other'; served: m"),
        ([READY, READY._replace(state="draining", models=("n",))], "n", "no worker that serves n is ready"),
    ],
    ids=str,
)
def test_what_keeps_requests_from_being_answered_is_a_problem(workers, model, text):
    found = worst(workers, model)
    assert found.level == "problem"
    assert text in found.text


def test_an_open_breaker_of_a_worker_that_is_up_is_a_warning():
    assert "breaker is open" in worst([READY._replace(breaker="open")]).text
    assert worst([READY._replace(breaker="half_open")]) is None


def test_a_report_for_people_and_for_programs():
    report = Report("grpc://a:1", (ok("x", "fine"), note("y", "so"), warning("z", "hm", "do\nthis")))
    assert report.is_well
    lines = report.text().splitlines()
    assert lines[-1].strip() == "no problem found, 1 warning"
    assert [line.strip() for line in lines[4:6]] == ["do", "this"]
    bad = Report("grpc://a:1", (problem("x", "broken", "mend it"),) * 2)
    assert bad.text().endswith("2 problems")
    assert bad.json()["findings"][0] == {
        "check": "x",
        "level": "problem",
        "text": "broken",
        "advice": "mend it",
    }
    assert not bad.json()["ok"]
