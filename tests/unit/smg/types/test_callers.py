"""CallerDirectory: which key opens what."""

import pytest

from smg.errors import Unauthenticated
from smg.types.callers import CallerDirectory


def test_without_keys_everybody_may_do_everything():
    directory = CallerDirectory()
    assert directory.is_open
    assert directory.identify("").tenant == ""
    assert directory.identify_admin("").is_admin


def test_a_tenants_key_names_the_tenant_and_does_not_administer():
    directory = CallerDirectory("", [("red", "r"), ("blue", "b")])
    assert directory.identify("Bearer b").tenant == "blue"
    with pytest.raises(Unauthenticated):
        directory.identify_admin("Bearer b")


def test_with_tenant_keys_alone_nothing_administers():
    with pytest.raises(Unauthenticated):
        CallerDirectory("", [("red", "r")]).identify_admin("Bearer ")


def test_the_shared_key_serves_and_administers():
    directory = CallerDirectory("shared", [("red", "r")])
    assert directory.identify("Bearer shared").is_admin
    assert directory.identify_admin("bearer  shared ").is_admin


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "shared", "Basic shared", "Bearer Shared", "Bearer shared\udce9"]
)
def test_anything_else_opens_nothing(header):
    with pytest.raises(Unauthenticated):
        CallerDirectory("shared").identify(header)
