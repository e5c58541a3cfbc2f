"""Playbook: what a user of AMQP/Fast hears of queues and virtual hosts that are not the user's to know."""

from __future__ import annotations

import pytest
from fast.conversation import FastClient, long_text, octets, table
from playbook.dialogue import Playbook

from flintmq.config import Config, PermissionSettings, UserSettings


@pytest.fixture
def playbook() -> Playbook:
    """A user who may read what is called `open`, and nothing of what is called `shut`."""
    permissions = {"/": PermissionSettings(read="^open", write="^amq.default$")}
    users = {
        "guest": UserSettings(password="guest", permissions=permissions),
        "boss": UserSettings(password="boss", permissions={"/": PermissionSettings(".*", ".*", ".*")}),
    }
    return Playbook(Config()._replace(users=users, virtual_hosts=("/", "shut")))


def declares(playbook: Playbook, *names: str) -> None:
    boss = playbook.client(user="boss", password="boss")
    for name in names:
        boss.declares(name)


def test_a_consumer_of_many_gets_those_that_it_may_read(playbook: Playbook) -> None:
    declares(playbook, "open.1", "other.shut", "shut.1", "open.2")
    fast = FastClient(playbook)
    fast.open()
    fast.opens_handle("")
    fast >> "20 0001 0007 0009 00 00 0000"
    fast << "30 0001 0007 00c8 02 'Ok'"
    consumed = {
        name: len(queue.consumers) for name, queue in playbook.broker.virtual_hosts["/"].queues.items()
    }
    assert consumed == {"open.1": 1, "other.shut": 0, "shut.1": 0, "open.2": 1}


@pytest.mark.parametrize("flags", ["00", "04"], ids=["", "dynamic"])
def test_what_is_not_permitted_sounds_as_what_is_not_there(playbook: Playbook, flags: str) -> None:
    """By its whole name, and by the beginning of it."""
    declares(playbook, "shut.1")
    heard = []
    for name in ("shut.", "none.", "shut.1", "none.1"):
        fast = FastClient(playbook)
        fast.open()
        fast.opens_handle(name)
        fast >> f"20 0001 0000 0009 {flags} 00 0000"
        heard.append(fast.hears().replace(b"none", b"shut"))
        assert heard[-1][2:7] == octets("31 0001 0193")
    assert heard[0] == heard[1]
    assert heard[2] == heard[3]


def test_a_virtual_host_that_is_not_permitted_sounds_as_one_that_is_not_there(playbook: Playbook) -> None:
    heard = []
    for path in ("/shut", "/none", "shut", "none"):
        fast = FastClient(playbook)
        fast >> b"\x80\x01"
        fast.hears()
        login = table("05 'LOGIN' 'S' " + long_text("guest"), "08 'PASSWORD' 'S' " + long_text("guest"))
        fast >> ("0b 05 'PLAIN' " + login)
        fast.hears()
        fast >> f"0d 0001 {len(path):02x} '{path}' 00 0000"
        heard.append(fast.hears().replace(b"none", b"shut"))
        assert heard[-1][2:5] == octets("13 0212")
    assert heard[0] == heard[1]
    assert heard[2] == heard[3]
