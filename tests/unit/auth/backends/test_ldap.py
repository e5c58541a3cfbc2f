"""A directory: binds, groups, and names that would like to be more than names."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
from directory_server import Directory, directory

from flintmq.auth import Authentication, Operation, Refused, Tag, User, Users, may
from flintmq.auth.backend import BackendFault, Identity, Login
from flintmq.auth.backends.ldap import LdapBackend
from flintmq.auth.users import Accepted
from flintmq.clock import Clock
from flintmq.config import Auth, parse
from flintmq.errors import ConfigFault

SETTINGS = """
[auth]
backends = ["ldap"]
[auth.ldap]
url = "{url}"
user_dn = "uid={{username}},ou=people,dc=example"
group_base = "ou=groups,dc=example"
timeout_s = 0.5
[[auth.ldap.groups]]
dn = "CN=Admins, ou=groups,dc=example"
tags = ["administrator"]
[[auth.ldap.groups]]
dn = "cn=orders,ou=groups,dc=example"
[auth.ldap.groups.permissions."/"]
write = "^orders"
read = "^orders"
[[auth.ldap.groups]]
dn = "cn=reports,ou=groups,dc=example"
[auth.ldap.groups.permissions."/"]
read = "^reports$"
[auth.ldap.groups.permissions."other"]
read = ".*"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Directory]:
    with directory() as found:
        ada = "uid=ada,ou=people,dc=example"
        found.passwords[ada] = "secret"
        found.passwords["uid=bob,ou=people,dc=example"] = "secret"
        for group in ("admins", "orders", "reports"):
            found.groups[f"cn={group},ou=groups,dc=example"] = [ada]
        found.groups["cn=others,ou=groups,dc=example"] = [ada, "uid=bob,ou=people,dc=example"]
        yield found


def settings(server: Directory) -> Auth:
    return parse(SETTINGS.format(url=server.url)).auth


@pytest.fixture
def ldap(server: Directory) -> LdapBackend:
    server.mode = ""
    server.binds.clear()
    found = settings(server).ldap
    assert found is not None
    return LdapBackend(found, Clock())


def known(ldap: LdapBackend, name: str, password: bytes | None) -> Identity | None:
    return ldap.authenticate(Login(name, password, "::1"))


def test_groups_are_tags_and_permissions(ldap: LdapBackend) -> None:
    identity = known(ldap, "ada", b"secret")
    assert identity is not None
    assert identity.tags == {Tag.ADMINISTRATOR}
    assert identity.permissions is not None
    ada = User("ada", permissions=identity.permissions)
    assert may(ada, "/", Operation.READ, "orders.new")
    assert may(ada, "/", Operation.READ, "reports")
    assert not may(ada, "/", Operation.READ, "reports.secret")
    assert not may(ada, "/", Operation.WRITE, "reports")
    assert not may(ada, "/", Operation.CONFIGURE, "orders")
    assert ada.may_enter("other")
    assert known(ldap, "bob", b"secret") == Identity("bob")


@pytest.mark.parametrize(
    ("name", "password"),
    [("ada", b"wrong"), ("nobody", b"secret"), ("ada", b""), ("ada", None), ("ada", b"\xff"), ("a\0", b"x")],
)
def test_a_wrong_password_or_none_is_refused(ldap: LdapBackend, name: str, password: bytes | None) -> None:
    assert known(ldap, name, password) is None


def test_a_name_is_a_name_and_no_more(ldap: LdapBackend, server: Directory) -> None:
    assert known(ldap, "x,ou=people,dc=example", b"secret") is None
    assert known(ldap, "ada,ou=people+uid=", b"secret") is None
    assert server.binds == [
        "uid=x\\,ou\\=people\\,dc\\=example,ou=people,dc=example",
        "uid=ada\\,ou\\=people\\+uid\\=,ou=people,dc=example",
    ]


@pytest.mark.parametrize("mode", ["hangs", "garbage", "busy"])
def test_a_directory_that_fails_is_a_fault_in_time(ldap: LdapBackend, server: Directory, mode: str) -> None:
    server.mode = mode
    began_s = time.monotonic()
    with pytest.raises(BackendFault):
        known(ldap, "ada", b"secret")
    assert time.monotonic() - began_s < 5


def test_a_directory_that_is_away_is_a_fault() -> None:
    with directory() as gone:
        found = settings(gone).ldap
    assert found is not None
    with pytest.raises(BackendFault, match="LDAPSocketOpenError"):
        known(LdapBackend(found, Clock()), "ada", b"secret")


def test_without_the_library_the_start_says_what_to_install(
    server: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ldap3", None)
    with pytest.raises(ConfigFault, match=r"pip install 'flintmq\[ldap\]'"):
        Authentication(settings(server), Users(), Clock())


def test_the_directory_may_check_passwords_for_users_of_the_broker(server: Directory) -> None:
    server.mode = ""
    text = SETTINGS.format(url=server.url).replace('["ldap"]', '["ldap/internal", "internal"]')
    users = Users()
    users.put(User("ada", tags=frozenset({Tag.MONITORING})))
    door = Authentication(parse(text).auth, users, Clock())

    def outcome(name: str, password: bytes) -> object:
        step = door.login(name, password, "::1")
        return step if isinstance(step, Accepted | Refused) else step.now()

    assert outcome("ada", b"secret") == Accepted(users.get("ada"))  # type: ignore[arg-type]
    assert outcome("bob", b"secret") == Refused("ldap/internal: no user 'bob'; internal: no user 'bob'")
    assert outcome("ada", b"wrong") == Refused(
        "ldap/internal: back end ldap refuses user 'ada'; internal: wrong password for user 'ada'"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("{{username}}", "x"), "auth.ldap.user_dn: expected {username} in it"),
        (('group_base = "ou=groups,dc=example"\n', ""), "auth.ldap.group_base is missing"),
        (("{url}", "http://x"), 'auth.ldap.url = "http://x": expected a URL that begins with ldap://'),
        (('tags = ["administrator"]', 'tags = ["root"]'), 'auth.ldap.groups[0].tags[0] = "root"'),
    ],
)
def test_wrong_settings(change: tuple[str, str], said: str) -> None:
    text = SETTINGS.replace(*change).format(url="ldap://127.0.0.1")
    with pytest.raises(ConfigFault) as caught:
        parse(text)
    assert said in str(caught.value)
