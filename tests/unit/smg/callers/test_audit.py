"""AuditLog: a line for each call, and a bound on what strangers can make it write."""

import logging

import pytest

from smg.callers.audit import MAX_REFUSALS, AdminCall, AuditLog
from smg.types.context import Caller, RequestContext

ANN = RequestContext("req-1", caller=Caller(principal="ann", method="control_plane_key", role="admin"))


def call(outcome, *, is_read=False, status=200):
    return AdminCall("POST", "/workers", "10.0.0.1:5", status, outcome, is_read)


@pytest.mark.parametrize(
    ("outcome", "is_read", "level"),
    [
        ("success", False, "INFO"),
        ("success", True, "DEBUG"),
        ("failed", True, "INFO"),
        ("denied", True, "WARNING"),
    ],
)
def test_a_call_is_told_with_everything_that_matters(outcome, is_read, level, caplog):
    caplog.set_level(logging.DEBUG)
    AuditLog().record(call(outcome, is_read=is_read), ANN)
    [record] = caplog.records
    assert (record.levelname, record.message) == (level, "control_plane_audit")
    told = {
        name: getattr(record, name) for name in ("principal", "auth_method", "role", "outcome", "request_id")
    }
    assert told == {
        "principal": "ann",
        "auth_method": "control_plane_key",
        "role": "admin",
        "outcome": outcome,
        "request_id": "req-1",
    }
    assert (record.method, record.path, record.client, record.status) == (
        "POST", "/workers", "10.0.0.1:5", 200,
    )  # fmt: skip


def test_refusals_have_a_bound_and_what_is_beyond_is_counted(caplog):
    caplog.set_level(logging.DEBUG)
    now = [0.0]
    audit = AuditLog(lambda: now[0])
    for _ in range(MAX_REFUSALS + 7):
        audit.record(call("denied", status=401), RequestContext("r"))
    assert len(caplog.records) == MAX_REFUSALS
    # Others are told all the same.
    audit.record(call("success"), ANN)
    assert caplog.records[-1].refusals_not_told == 7
    now[0] = 1.0
    audit.record(call("denied", status=401), RequestContext("r"))
    assert len(caplog.records) == MAX_REFUSALS + 2
    assert not hasattr(caplog.records[-1], "refusals_not_told")
