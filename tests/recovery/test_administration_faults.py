"""Administration that fails halfway, for a bug or a journal that does not take a record.

Each change is tried with a record of it failing. Whatever became of it, memory and journal hold the same: the
next start finds what was in force before it, and the change can be made once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from recovery.test_administration import Opened, opened, settle_disk

from flintmq.auth.passwords import hash_password_quickly
from flintmq.auth.user import Tag
from flintmq.broker.administration.records import Records
from flintmq.broker.broker import Broker
from flintmq.broker.topology_journal import TopologyJournal
from flintmq.config import ALL_PERMISSIONS, PermissionSettings

__all__ = ["opened"]

HASH = hash_password_quickly(b"x")
OTHER = hash_password_quickly(b"y")
WRITERS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Records, ("put", "delete")),
    (TopologyJournal, ("put_policy", "delete_policy")),
)

# In this order, each on what those before it have left.
CHANGES: dict[str, Callable[[Any], object]] = {
    "vhost.add": lambda model: model.virtual_hosts.add("v"),
    "user.add": lambda model: model.accounts.add("ann", HASH, [Tag.MONITORING]),
    "user.set-password": lambda model: model.accounts.set_password("ann", OTHER),
    "user.set-tags": lambda model: model.accounts.set_tags("ann", [Tag.POLICYMAKER]),
    "permission.set": lambda model: model.permissions.set("ann", "v", ALL_PERMISSIONS),
    "permission.set again": lambda model: model.permissions.set("ann", "v", PermissionSettings(read="^a")),
    "permission.set, another": lambda model: model.permissions.set("ann", "/", ALL_PERMISSIONS),
    "permission.clear": lambda model: model.permissions.clear("ann", "/"),
    "topic-permission.set": lambda model: model.topic_permissions.set("ann", "v", "amq.topic", "a", "b"),
    "limit.set": lambda model: model.limits.set(("user", "ann"), "max-queues", 3),
    "limit.set, another": lambda model: model.limits.set(("user", "ann"), "max-publish-rate", 3),
    "limit.set of a virtual host": lambda model: model.limits.set(("virtual-host", "v"), "max-queues", 3),
    "limit.clear": lambda model: model.limits.clear(("user", "ann"), "max-queues"),
    "parameter.set": lambda model: model.parameters.set("v", "c", "n", "value"),
    "policy.set": lambda model: model.policies.put("v", "p", "^q", {"max-length": 1}),
    "policy.set again": lambda model: model.policies.put("v", "p", "^q", {"max-length": 2}),
    "operator-policy.set": lambda model: model.policies.put(
        "v", "o", "", {"max-length": 3}, is_operator=True
    ),
    "operator-policy.clear": lambda model: model.policies.delete("v", "o", is_operator=True),
    "user.delete": lambda model: model.delete_user("ann"),
    "vhost.delete": lambda model: model.virtual_hosts.delete("v"),
    "guest loses a permission": lambda model: model.permissions.clear("guest", "/"),
    "guest is deleted": lambda model: model.delete_user("guest"),
}


# A start after these shows all that was made before them.
LAST = ("user.set-tags", "limit.clear", "operator-policy.clear", "vhost.delete", "guest is deleted")


class Injected(Exception):
    """Out of nowhere."""


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[list[str]]:
    """The record of this number is not taken; 0: all are. The names of the records that were written."""
    written: list[str] = []

    def wrapped(name: str, write: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            written.append(name)
            if len(written) == number:
                raise Injected
            return write(*arguments)

        return call

    with monkeypatch.context() as patched:
        for owner, names in WRITERS:
            for name in names:
                patched.setattr(owner, name, wrapped(name, getattr(owner, name)))
        yield written


def picture(broker: Broker) -> dict[str, object]:
    """All that was administered, as it holds now."""
    model = broker.administration
    users = {
        user.name: (
            sorted(user.tags),
            user.life,
            "" if user.password_hash is None or user.name == "guest" else user.password_hash.text(),
            {host: each.settings for host, each in user.permissions.items()},
            {place: (each.write, each.read) for place, each in user.topic_permissions.items()},
        )
        for user in broker.users
    }
    hosts = sorted(broker.virtual_hosts)
    policies = [
        (policy.name, dict(policy.definition), is_operator)
        for host in hosts
        for is_operator in (False, True)
        for policy in model.policies.of(host, is_operator)
    ]
    rates = {owner: rate.rate for owner, rate in model.limits.rates.items()}
    return {
        "users": users,
        "hosts": hosts,
        "policies": policies,
        "limits": (model.limits.of, rates),
        "parameters": model.parameters.values,
    }


def settled(broker: Broker) -> None:
    for _ in range(3):  # a virtual host whose end has failed is taken down after a pause
        settle_disk(broker)


def test_a_change_that_fails_is_made_whole_or_not_at_all(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(CHANGES)
    for last in LAST:
        with opened() as broker:
            for name in names:
                fail_and_make(broker, name, monkeypatch)
                if name == last:
                    break
            assert not broker.administration.virtual_hosts.ending
            expected = picture(broker)
        with opened() as broker:
            assert picture(broker) == expected, f"up to {last}"


def fail_and_make(broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change, with its first record failing, and then without a fault."""
    before = picture(broker)
    with failing(monkeypatch, 1), pytest.raises(Injected):
        CHANGES[name](broker.administration)
    assert picture(broker) == before, f"{name} has failed, and is in force"
    CHANGES[name](broker.administration)
    broker.finish_pass()
    if broker.administration.virtual_hosts.ending:
        settled(broker)


class HalfOpening:
    """A broker in which a virtual host is there, and its opening fails even so."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def __getattr__(self, name: str) -> object:
        return getattr(self.broker, name)

    def open_virtual_host(self, name: str) -> None:
        self.broker.open_virtual_host(name)
        raise Injected


def test_a_virtual_host_that_cannot_be_opened_is_not_there_after_a_start(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as broker:
        model = broker.administration.virtual_hosts
        with monkeypatch.context() as patched:
            patched.setattr(model, "broker", HalfOpening(broker))
            with pytest.raises(Injected):
                model.add("v")
        assert list(broker.virtual_hosts) == list(model.names_after("")) == ["/"]
    with opened() as broker:
        assert list(broker.virtual_hosts) == ["/"]
        broker.administration.virtual_hosts.add("v")
    with opened() as broker:
        assert list(broker.virtual_hosts) == ["/", "v"]


@pytest.mark.parametrize("number", [2, 3, 4, 6])
@pytest.mark.parametrize("name", ["user.delete", "vhost.delete"])
def test_a_deletion_that_fails_later_comes_to_its_end(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """What is left of it in the journal belongs to nobody, whichever record was not taken."""
    with opened() as broker:
        for change in list(CHANGES)[: list(CHANGES).index("operator-policy.clear")]:
            CHANGES[change](broker.administration)
        with failing(monkeypatch, number) as written:
            CHANGES[name](broker.administration)
            settled(broker)
        assert len(written) >= (7 if name == "vhost.delete" else 3)
        assert not broker.administration.virtual_hosts.ending
        expected = picture(broker)
    with opened() as broker:
        assert picture(broker) == expected
        if name == "user.delete":
            broker.administration.accounts.add("ann", HASH, [])
        else:
            broker.administration.virtual_hosts.add("v")
        expected = picture(broker)
    with opened() as broker:
        assert picture(broker) == expected
        ann = broker.users.get("ann")
        assert not ann.permissions
        assert not ann.topic_permissions
