"""Which calls of a server need somebody's yes, and what was answered to those that did.

Nothing is asked where a tool does not say `require_approval`: S1's own examples run such tools. With an object, a tool
that is on neither list needs a yes unless only `always` is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.responses.shapes import Json


class Approval(NamedTuple):
    """An answer to a request for approval.

    Attributes:
        request: the item that has asked.
        is_given: yes.
        reason: in the user's words; empty for none.
    """

    request: Json
    is_given: bool
    reason: str


def matches(rule: Any, name: str, *, is_read_only: bool) -> bool:
    """A filter names a tool: a list of names, or {"read_only": …, "tool_names": […]}."""
    if rule is None:
        return False
    if isinstance(rule, list):
        return name in rule
    names, read_only = rule.get("tool_names"), rule.get("read_only")
    if names is None and read_only is None:
        return True
    return (names is None or name in names) and (read_only is None or read_only == is_read_only)


def is_allowed(tool: Json, name: str, *, is_read_only: bool) -> bool:
    """The model may call this tool of a declared server."""
    rule: Any = tool.get("allowed_tools")
    return rule is None or matches(rule, name, is_read_only=is_read_only)


def needs_approval(tool: Json, name: str, *, is_read_only: bool) -> bool:
    """Somebody must say yes before this tool of a declared server is called."""
    rule: Any = tool.get("require_approval")
    if rule is None or rule == "never":
        return False
    if rule == "always":
        return True
    if matches(rule.get("always"), name, is_read_only=is_read_only):
        return True
    if matches(rule.get("never"), name, is_read_only=is_read_only):
        return False
    return "never" in rule


def answered(before: Iterable[Json], items: Iterable[Json]) -> list[Approval]:
    """The answers that a request brings, each with what it answers.

    Args:
        before: what was said before the request.
        items: the request's own.

    Raises:
        InvalidRequest: an answer to nothing, or to what was answered already.
    """
    before, items = list(before), list(items)
    requests = {item["id"]: item for item in (*before, *items) if item["type"] == "mcp_approval_request"}
    done = {
        item.get("approval_request_id")
        for item in before
        if item["type"] in ("mcp_approval_response", "mcp_call")
    }
    found: list[Approval] = []
    for item in items:
        if item["type"] != "mcp_approval_response":
            continue
        asked: str = item["approval_request_id"]
        if asked not in requests:
            raise InvalidRequest(
                f"input: there is no mcp_approval_request {asked[:80]!r} in the input or before it",
                param="input",
            )
        if asked in done:
            raise InvalidRequest(f"input: {asked[:80]!r} was answered already", param="input")
        done.add(asked)
        found.append(Approval(requests[asked], item["approve"], item.get("reason") or ""))
    return found
