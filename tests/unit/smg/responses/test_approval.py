"""Which calls need a yes, which tools may be called, and what an answer answers."""

import pytest

from smg.errors import InvalidRequest
from smg.responses.approval import answered, is_allowed, needs_approval

REQUEST = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "add",
    "server_label": "s",
    "arguments": "{}",
}


def answer(approve=True, **fields):
    return {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve, **fields}


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        (None, []),
        ("never", []),
        ("always", ["add", "read"]),
        ({"never": {"tool_names": ["add"]}}, ["read"]),
        ({"always": {"tool_names": ["add"]}}, ["add"]),
        ({"always": {"tool_names": ["add"]}, "never": {"read_only": True}}, ["add"]),
        ({"never": {"read_only": True}}, ["add"]),
    ],
)
def test_who_has_to_be_asked(rule, asks):
    tool = {"require_approval": rule}
    found = [n for n in ("add", "read") if needs_approval(tool, n, is_read_only=n == "read")]
    assert found == asks


def test_a_filter_of_both_kinds_needs_both():
    tool = {"allowed_tools": {"tool_names": ["a", "b"], "read_only": True}}
    assert is_allowed(tool, "a", is_read_only=True)
    assert not is_allowed(tool, "a", is_read_only=False)
    assert not is_allowed(tool, "c", is_read_only=True)
    assert is_allowed({}, "c", is_read_only=False)


def test_answers_find_their_requests_before_or_beside_them():
    assert answered([REQUEST], [answer(reason="r")])[0] == (REQUEST, True, "r")
    assert answered([], [REQUEST, answer(False)])[0] == (REQUEST, False, "")


@pytest.mark.parametrize(
    ("before", "items"),
    [
        ([], [answer()]),
        ([REQUEST, answer()], [answer()]),
        ([REQUEST, {"type": "mcp_call", "approval_request_id": "mcpr_1"}], [answer()]),
        ([REQUEST], [answer(), answer()]),
    ],
)
def test_nothing_is_answered_twice_or_out_of_nowhere(before, items):
    with pytest.raises(InvalidRequest):
        answered(before, items)
