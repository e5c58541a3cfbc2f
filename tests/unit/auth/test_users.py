"""Users: logging in, what is remembered of it, and what a change undoes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flintmq import config
from flintmq.auth import Accepted, Operation, Refused, Tag, User, Users, Verification, may
from flintmq.auth import users as users_module
from flintmq.auth.passwords import PasswordPolicy, ScryptHash, hash_password_quickly, parse_hash
from flintmq.auth.user import is_loopback
from flintmq.config import ALL_PERMISSIONS, Config, PasswordHashing, PermissionSettings
from flintmq.errors import ConfigFault
from flintmq.patterns.name_pattern import PatternFault

HERE = "127.0.0.1"
AWAY = "192.0.2.1"


@pytest.fixture
def users() -> Users:
    users = Users()
    users.put(User("alice", hash_password_quickly(b"secret")))
    return users


def settle(step: Accepted | Verification) -> Accepted | Refused:
    return step.now() if isinstance(step, Verification) else step


def test_the_right_password_is_accepted_and_then_known(users: Users) -> None:
    first = users.login("alice", b"secret", AWAY)
    assert isinstance(first, Verification)
    assert first.now() == Accepted(users.get("alice"))  # type: ignore[arg-type]
    assert isinstance(users.login("alice", b"secret", AWAY), Accepted)


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("alice", b"wrong", "wrong password for user 'alice'"),
        ("alice", b"", "wrong password for user 'alice'"),
        ("alice", b"x" * 1025, "wrong password for user 'alice'"),
        ("bo\nb", b"secret", "no user 'bo\\nb'"),
        ("\ud800", b"secret", "no user '\\ud800'"),
        ("", b"", "no user ''"),
    ],
)
def test_a_wrong_login_is_refused(users: Users, name: str, password: bytes, reason: str) -> None:
    assert settle(users.login(name, password, HERE)) == Refused(reason)
    assert settle(users.login("alice", b"secret", HERE)) == Accepted(users.get("alice"))  # type: ignore[arg-type]
    assert settle(users.login(name, password, HERE)) == Refused(reason)


def test_a_user_without_password_cannot_log_in_by_one(users: Users) -> None:
    users.put(User("robot"))
    assert settle(users.login("robot", b"", HERE)) == Refused("wrong password for user 'robot'")


def test_an_overlong_password_is_wrong_even_if_its_head_is_right(users: Users) -> None:
    users.put(User("long", hash_password_quickly(b"x" * 1024)))
    assert isinstance(settle(users.login("long", b"x" * 1025, HERE)), Refused)
    assert isinstance(settle(users.login("long", b"x" * 1024, HERE)), Accepted)


def test_every_refusal_costs_one_scrypt(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[bytes] = []

    def count(self: object, password: bytes) -> bool:
        spent.append(password)
        return False

    monkeypatch.setattr(ScryptHash, "matches", count)
    users.put(User("robot"))
    users.put(User("slow", PasswordPolicy().nobody))
    for name in ("alice", "nobody", "robot", "slow"):
        assert isinstance(settle(users.login(name, b"guess", HERE)), Refused)
    assert spent == [b"guess"] * 4


CHANGES: dict[str, Callable[[Users], None]] = {
    "put": lambda users: users.put(User("alice", hash_password_quickly(b"other"))),
    "password": lambda users: users.change_password("alice", hash_password_quickly(b"other")),
    "tags": lambda users: users.change_tags("alice", [Tag.MONITORING]),
    "grant": lambda users: users.grant("alice", "/", ALL_PERMISSIONS),
    "delete": lambda users: users.delete("alice"),
}


@pytest.mark.parametrize("change", ["put", "password", "delete"])
def test_a_change_of_the_password_forgets_the_login_and_counts(users: Users, change: str) -> None:
    settle(users.login("alice", b"secret", HERE))
    alice = users.get("alice")
    assert alice is not None
    before = alice.password_changes
    CHANGES[change](users)
    assert alice.password_changes > before
    assert isinstance(users.login("alice", b"secret", HERE), Verification)


@pytest.mark.parametrize("change", ["tags", "grant"])
def test_whoever_is_given_something_logs_in_as_quickly_as_before(users: Users, change: str) -> None:
    settle(users.login("alice", b"secret", HERE))
    alice = users.get("alice")
    assert alice is not None
    before = alice.changes
    CHANGES[change](users)
    assert alice.changes > before
    assert users.login("alice", b"secret", HERE) == Accepted(alice)


@pytest.mark.parametrize("change", ["put", "password", "delete"])
def test_a_password_that_is_good_no_more_is_refused_though_its_check_had_begun(
    users: Users, change: str
) -> None:
    login = users.login("alice", b"secret", HERE)
    assert isinstance(login, Verification)
    matches = login.run()
    CHANGES[change](users)
    assert login.finish(matches) == Refused("user 'alice' was changed during the login")
    assert isinstance(settle(users.login("alice", b"secret", HERE)), Refused)


@pytest.mark.parametrize("change", ["tags", "grant"])
def test_a_login_goes_on_while_the_user_is_given_something(users: Users, change: str) -> None:
    """The password is as good as before, and what the user may do is looked up when it is done."""
    login = users.login("alice", b"secret", HERE)
    assert isinstance(login, Verification)
    matches = login.run()
    CHANGES[change](users)
    assert login.finish(matches) == Accepted(users.get("alice"))


def test_logins_remembered_are_bounded(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "REMEMBERED_MAX", 2)
    for name in ("a", "b", "c"):
        users.put(User(name, hash_password_quickly(b"secret")))
        settle(users.login(name, b"secret", HERE))
    assert isinstance(users.login("a", b"secret", HERE), Verification)
    assert isinstance(users.login("b", b"secret", HERE), Accepted)
    assert isinstance(users.login("c", b"secret", HERE), Accepted)


def test_one_name_and_password_cannot_pass_for_another(users: Users) -> None:
    users.put(User("ab", hash_password_quickly(b"c")))
    users.put(User("a", hash_password_quickly(b"x")))
    settle(users.login("ab", b"c", HERE))
    assert isinstance(settle(users.login("a", b"bc", HERE)), Refused)


def test_guest_comes_from_this_machine_only() -> None:
    users = Users.from_config(Config())
    assert isinstance(settle(users.login("guest", b"guest", HERE)), Accepted)
    reason = "user 'guest' may log in from this machine only, not 192.0.2.1"
    assert settle(users.login("guest", b"guest", AWAY)) == Refused(reason)
    guest = users.get("guest")
    assert guest is not None
    assert guest.has_tag(Tag.ADMINISTRATOR)
    assert may(guest, "/", Operation.CONFIGURE, "anything")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("128.0.0.1", False),
        ("fe80::1%eth0", False),
        ("::", False),
        ("0.0.0.0", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_what_this_machine_is(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_permissions_come_and_go(users: Users) -> None:
    users.grant("alice", "/", ALL_PERMISSIONS)
    users.grant("alice", "orders", PermissionSettings(read="^o"))
    alice = users.get("alice")
    assert alice is not None
    assert alice.may_enter("/")
    assert may(alice, "orders", Operation.READ, "o1")
    assert not may(alice, "orders", Operation.WRITE, "o1")
    users.revoke("alice", "orders")
    users.revoke("alice", "/")
    changes = alice.changes
    users.revoke("alice", "/")
    assert alice.changes == changes
    assert not alice.may_enter("/")
    assert not alice.may_enter("orders")


def test_who_was_deleted_may_do_nothing_however_the_name_lives_on(users: Users) -> None:
    users.grant("alice", "/", ALL_PERMISSIONS)
    users.change_tags("alice", [Tag.ADMINISTRATOR])
    alice = users.delete("alice")
    users.put(User("alice", hash_password_quickly(b"secret"), frozenset({Tag.ADMINISTRATOR})))
    users.grant("alice", "/", ALL_PERMISSIONS)
    assert not alice.may_enter("/")
    assert not may(alice, "/", Operation.READ, "q")
    assert not alice.has_tag(Tag.MANAGEMENT)


def test_a_user_that_is_put_again_is_the_same_for_whoever_is_logged_in(users: Users) -> None:
    alice = users.get("alice")
    assert alice is not None
    users.put(User("alice", hash_password_quickly(b"other"), frozenset({Tag.MONITORING})))
    assert users.get("alice") is alice
    assert alice.has_tag(Tag.MONITORING)
    assert isinstance(settle(users.login("alice", b"secret", HERE)), Refused)


def test_a_broken_pattern_is_not_granted(users: Users) -> None:
    with pytest.raises(PatternFault):
        users.grant("alice", "/", PermissionSettings(read="("))
    alice = users.get("alice")
    assert alice is not None
    assert not alice.may_enter("/")


def test_unknown_users_cannot_be_changed(users: Users) -> None:
    with pytest.raises(KeyError):
        users.delete("bob")
    with pytest.raises(KeyError):
        users.grant("bob", "/", ALL_PERMISSIONS)
    assert users.get("bob") is None
    assert [user.name for user in users] == ["alice"]
    assert len(users) == 1


def test_a_name_fits_in_a_short_string(users: Users) -> None:
    for name in ("", "ü" * 128):
        with pytest.raises(ValueError, match="a user's name has 1 to 255 octets"):
            users.put(User(name))


def test_a_tag_brings_those_below_it() -> None:
    brought = {
        tag: {other for other in Tag if User("a", tags=frozenset({tag})).has_tag(other)} for tag in Tag
    }
    assert brought == {
        Tag.ADMINISTRATOR: set(Tag) - {Tag.IMPERSONATOR},
        Tag.MONITORING: {Tag.MONITORING, Tag.MANAGEMENT},
        Tag.POLICYMAKER: {Tag.POLICYMAKER, Tag.MANAGEMENT},
        Tag.MANAGEMENT: {Tag.MANAGEMENT},
        Tag.IMPERSONATOR: {Tag.IMPERSONATOR},
    }


def test_the_tags_of_the_configuration_are_these() -> None:
    assert {str(tag) for tag in Tag} == set(config.USER_TAGS)


def test_users_come_from_the_configuration() -> None:
    settings = config.parse(
        """
        [users.rabbit]
        password_hash = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
        loopback_only = true
        [users.guest]
        password = "guest"
        loopback_only = false
        """
    )
    users = Users.from_config(settings)
    assert isinstance(settle(users.login("rabbit", b"test12", HERE)), Accepted)
    assert isinstance(settle(users.login("rabbit", b"test12", AWAY)), Refused)
    assert isinstance(settle(users.login("guest", b"guest", AWAY)), Accepted)


def test_a_wrong_hash_in_the_configuration_is_told_without_repeating_it() -> None:
    settings = config.parse('[users.a]\npassword_hash = "hunter2"')
    with pytest.raises(ConfigFault) as caught:
        Users.from_config(settings)
    assert str(caught.value) == (
        "users.a.password_hash: not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256, "
        "SHA-512 or MD5; make one with `flintmq hash-password`"
    )


def test_a_hash_is_renewed_at_a_good_login_when_the_policy_has_changed() -> None:
    policy = PasswordPolicy(PasswordHashing(scrypt_ln=10, rehash="all"))
    users = Users(policy)
    renewed: list[User] = []
    users.on_renewed = renewed.append
    old = PasswordPolicy(PasswordHashing(scrypt_ln=11)).hash(b"secret")
    imported = parse_hash("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    for name, kept, password in (("old", old, b"secret"), ("imported", imported, b"test12")):
        users.put(User(name, kept))
        assert isinstance(settle(users.login(name, b"wrong", HERE)), Refused)
        assert renewed == []
        assert settle(users.login(name, password, HERE)) == Accepted(users.get(name))  # type: ignore[arg-type]
        user = renewed.pop()
        assert user.name == name
        assert user.password_hash is not None
        assert user.password_hash.text().startswith("$scrypt$ln=10,")
        users.change_tags(name, [])  # what was remembered is forgotten
        assert isinstance(settle(users.login(name, password, HERE)), Accepted)
        assert renewed == []


@pytest.mark.parametrize("rehash", ["own", "never"])
def test_hashes_of_rabbitmq_stay_unless_all_are_to_be_renewed(rehash: Any) -> None:
    users = Users(PasswordPolicy(PasswordHashing(rehash=rehash)))
    users.on_renewed = lambda user: pytest.fail("renewed")
    users.put(User("imported", parse_hash("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")))
    assert isinstance(settle(users.login("imported", b"test12", HERE)), Accepted)


def test_a_password_changed_during_the_login_is_not_renewed() -> None:
    users = Users(PasswordPolicy(PasswordHashing(scrypt_ln=10)))
    users.put(User("old", PasswordPolicy(PasswordHashing(scrypt_ln=11)).hash(b"secret")))
    login = users.login("old", b"secret", HERE)
    assert isinstance(login, Verification)
    found = login.run()
    changed = hash_password_quickly(b"other")
    users.change_password("old", changed)
    assert isinstance(login.finish(found), Refused)
    user = users.get("old")
    assert user is not None
    assert user.password_hash is changed
