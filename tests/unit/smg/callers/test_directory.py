"""CallerDirectory: which key opens what, and whom a request belongs to."""

import pytest

from smg.callers.directory import CallerDirectory, caller_directory, check_role
from smg.errors import ControlPlaneDenied, ControlPlaneUnauthenticated, Unauthenticated
from smg.settings import CallerSettings
from smg.types.context import ANONYMOUS, Caller

SHARED = {"api_key": "shared"}
TENANTS = {"tenant_api_key": ("red:r-key", "blue:b-key")}
ROLES = {"control_plane_api_keys": ("a:Ann:admin:a-key", "u:Uwe:user:u-key")}
TRUSTING = {"trust_tenant_header": True}


def directory(*settings):
    return caller_directory(
        CallerSettings(**{name: value for each in settings for name, value in each.items()})
    )


def bearer(key):
    return b"Bearer " + key.encode()


def administers(callers, key):
    try:
        return callers.identify_admin(bearer(key)).is_admin
    except Unauthenticated:
        return None


def test_without_keys_everybody_may_do_everything_and_nobody_is_looked_at():
    callers = directory()
    assert not callers.looks_at_serving
    assert callers.identify(b"") is ANONYMOUS
    assert callers.identify_admin(b"").is_admin


# Key, what is configured, the tenant whom the request then belongs to (None: refused), and whether it administers.
ACCESS = [
    ("shared", (SHARED,), "", True),
    ("r-key", (SHARED,), None, None),
    ("b-key", (TENANTS,), "blue", None),  # with tenant keys alone nothing administers
    ("r-key", (SHARED, TENANTS), "red", None),
    ("shared", (SHARED, TENANTS), "", True),
    ("", (SHARED, TENANTS), None, None),
    ("a-key", (ROLES,), "", True),  # serving is open without a key of its own
    ("u-key", (ROLES,), "", False),
    ("wrong", (ROLES,), "", None),
    ("shared", (SHARED, ROLES), "", None),  # the shared key administers no more
    ("a-key", (SHARED, ROLES), None, True),  # and a control-plane key does not serve
]


@pytest.mark.parametrize(("key", "settings", "tenant", "is_admin"), ACCESS)
def test_a_key_opens_what_the_rules_say(key, settings, tenant, is_admin):
    callers = directory(*settings)
    if tenant is None:
        with pytest.raises(Unauthenticated):
            callers.identify(bearer(key))
    else:
        assert callers.identify(bearer(key)).tenant == tenant
    assert administers(callers, key) is is_admin


def test_the_control_plane_refuses_in_words_of_its_own():
    with pytest.raises(ControlPlaneUnauthenticated):
        directory(ROLES).identify_admin(bearer("wrong"))


def test_a_user_may_look_and_not_change():
    user = directory(ROLES).identify_admin(bearer("u-key"))
    assert (user.principal, user.role, user.method) == ("u", "user", "control_plane_key")
    check_role(user, is_read=True)
    with pytest.raises(ControlPlaneDenied, match="admin"):
        check_role(user, is_read=False)


def test_an_admin_may_change():
    check_role(directory(ROLES).identify_admin(bearer("a-key")), is_read=False)


@pytest.mark.parametrize("header", [b"bearer shared", b"BEARER shared", b"Bearer  shared", b"Bearer shared "])
def test_neither_the_case_of_the_scheme_nor_spaces_matter(header):
    assert directory(SHARED).identify(header).is_admin


@pytest.mark.parametrize(
    "header",
    [
        b"", b"Bearer", b"Bearer ", b"shared", b"Basic shared", b"Bearershared", b"Bearer Shared", b"Bearer share",
        b"Bearer shared1", b"Bearer shared\xe9", b"Bearer \xff\xfe", b"Bearer \x00", b"Bearer " + b"x" * 100_000,
    ],
)  # fmt: skip
def test_anything_else_opens_nothing(header):
    with pytest.raises(Unauthenticated):
        directory(SHARED).identify(header)


def test_a_key_may_have_any_letters():
    callers = directory({"api_key": "kéy", "tenant_api_key": ("red:ключ",)})
    assert callers.identify(bearer("kéy")).is_admin
    assert callers.identify(bearer("ключ")).tenant == "red"
    with pytest.raises(Unauthenticated):
        callers.identify("Bearer kéy".encode("latin-1"))


def test_a_trusted_header_names_the_tenant_of_who_shows_no_key():
    callers = directory(TRUSTING)
    assert callers.looks_at_serving
    assert callers.tenant_header == "x-smg-tenant-id"
    assert callers.identify(b"", b" team-red ") == Caller(tenant="header:team-red", method="tenant_header")
    assert callers.identify(b"") is ANONYMOUS


@pytest.mark.parametrize("value", [b" ", b"a b", b"a\tb", b"x" * 257, "é".encode(), b"a\x00"])
def test_a_name_that_is_none_counts_as_absent(value):
    assert directory(TRUSTING).identify(b"", value) is ANONYMOUS


def test_a_key_tells_more_than_a_header():
    callers = directory(TRUSTING, SHARED, TENANTS)
    assert callers.identify(bearer("r-key"), b"blue").tenant == "red"
    assert callers.identify(bearer("shared"), b"blue").tenant == ""
    with pytest.raises(Unauthenticated):
        callers.identify(b"", b"blue")


def test_a_header_never_administers():
    assert administers(directory(TRUSTING, TENANTS), "") is None


def test_another_way_to_tell_callers_is_asked_after_the_first():
    class Tokens:
        def caller(self, token):
            return Caller(principal="jane", role="user") if token == b"jwt" else None

    class Nobody:
        def caller(self, token):
            return None

    callers = CallerDirectory(control_plane=[Nobody(), Tokens()])
    assert callers.identify_admin(b"Bearer jwt").principal == "jane"
    with pytest.raises(ControlPlaneUnauthenticated):
        callers.identify_admin(b"Bearer other")
