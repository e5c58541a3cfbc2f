"""Permissions: the meaning of a pattern, and the one function that decides."""

from __future__ import annotations

import pytest

from flintmq.auth import Operation, Permissions, User, may, require, require_virtual_host
from flintmq.auth.permissions import DECISIONS_MAX
from flintmq.config import PermissionSettings
from flintmq.errors import ChannelFault, ConnectionFault


def reading(pattern: str) -> Permissions:
    return Permissions(PermissionSettings(read=pattern))


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*", "orders", True),
        (".*", "", True),
        ("orders", "my-orders-old", True),
        ("^orders$", "my-orders-old", False),
        ("^orders$", "orders", True),
        ("^orders", "orders.eu", True),
        ("", "orders", False),
        ("", "", False),
        ("^$", "orders", False),
        ("^$", "", False),
        ("^amq\\.default$", "", True),
        ("^(?!amq\\.)", "amq.gen-1", False),
    ],
)
def test_a_pattern_means_what_it_means_to_rabbitmq(pattern: str, name: str, allowed: bool) -> None:
    permissions = reading(pattern)
    assert permissions.may_read(name) is allowed
    assert permissions.may_read(name) is allowed  # from the decisions made


def test_each_operation_has_its_own_pattern() -> None:
    permissions = Permissions(PermissionSettings(configure="^c$", write="^w$", read="^r$"))
    allowed = {
        name: (permissions.may_configure(name), permissions.may_write(name), permissions.may_read(name))
        for name in "cwr"
    }
    assert allowed == {"c": (True, False, False), "w": (False, True, False), "r": (False, False, True)}


def test_the_decisions_kept_are_bounded() -> None:
    permissions = reading("7$")
    for number in range(DECISIONS_MAX * 2 + 1):
        assert permissions.may_read(str(number)) is (number % 10 == 7)
    assert len(permissions.may_read._made) <= DECISIONS_MAX  # type: ignore[attr-defined]


ALICE = User(
    "alice",
    permissions={"/": Permissions(PermissionSettings(configure="^c", write="^w", read="^r"))},
)


@pytest.mark.parametrize(
    ("operation", "kind", "name", "said"),
    [
        (
            Operation.CONFIGURE,
            "queue",
            "rw",
            "ACCESS_REFUSED - user 'alice' may not configure queue 'rw' in virtual host '/'",
        ),
        (
            Operation.WRITE,
            "exchange",
            "",
            "ACCESS_REFUSED - user 'alice' may not write to exchange 'amq.default' in virtual host '/'",
        ),
        (
            Operation.READ,
            "queue",
            "c",
            "ACCESS_REFUSED - user 'alice' may not read from queue 'c' in virtual host '/'",
        ),
    ],
)
def test_a_refusal_names_who_and_what(operation: Operation, kind: str, name: str, said: str) -> None:
    with pytest.raises(ChannelFault) as caught:
        require(ALICE, "/", operation, kind, name)
    assert (caught.value.code, caught.value.reply_text) == (403, said)


def test_what_is_allowed_passes_without_a_word() -> None:
    require(ALICE, "/", Operation.CONFIGURE, "queue", "c1")
    require(ALICE, "/", Operation.WRITE, "exchange", "w1")
    require(ALICE, "/", Operation.READ, "queue", "r1")
    require_virtual_host(ALICE, "/")


def test_another_virtual_host_is_closed() -> None:
    assert not may(ALICE, "other", Operation.READ, "r1")
    with pytest.raises(ConnectionFault) as caught:
        require_virtual_host(ALICE, "other")
    assert caught.value.code == 403
    assert caught.value.reply_text == "ACCESS_REFUSED - user 'alice' may not use virtual host 'other'"
