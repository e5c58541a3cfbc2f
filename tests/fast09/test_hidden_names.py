"""Playbook: what a user of AMQP/Fast 0.9 hears of names that are not the user's to know."""

from __future__ import annotations

import pytest
from fast09.conversation import Peer, octets, short_text, table
from playbook.dialogue import Playbook

from flintmq.broker.scheduling import chores
from flintmq.config import Config, PermissionSettings, UserSettings
from flintmq.wire import methods


@pytest.fixture
def playbook() -> Playbook:
    permissions = {"/": PermissionSettings(read="^open", write="^mine")}
    users = {
        "guest": UserSettings(password="guest", permissions=permissions),
        "boss": UserSettings(password="boss", permissions={"/": PermissionSettings(".*", ".*", ".*")}),
    }
    playbook = Playbook(Config()._replace(users=users, virtual_hosts=("/", "shut")))
    boss = playbook.client(user="boss", password="boss")
    for name in ("open", "shut"):
        boss >> methods.ExchangeDeclare(exchange=name, type="direct")
        boss << methods.ExchangeDeclareOk()
    for name in ("mine", "shutq"):
        boss.declares(name)
    return playbook


def connected(playbook: Playbook) -> Peer:
    peer = Peer(playbook)
    peer.open()
    peer.opens_channel()
    return peer


@pytest.mark.parametrize("method", ["05 03", "05 09"], ids=["queue.register", "queue.cancel"])
@pytest.mark.parametrize(
    ("queue", "proxy"),
    [("shutq", "open"), ("mine", "shut"), ("shutq", "shut")],
    ids=["queue", "proxy", "both"],
)
def test_a_registration_that_is_refused_tells_nothing(
    playbook: Playbook, method: str, queue: str, proxy: str
) -> None:
    """Not even if there is something else wrong with it, which takes a look at queue and proxy to find."""
    wrong = table("0b 'destination' 'I' 00000001")
    heard = []
    for there in ("shut", "none"):
        peer = connected(playbook)
        names = f"{short_text(queue.replace('shut', there))} {short_text(proxy.replace('shut', there))}"
        peer >> f"01 01 | {method} 00 0011 | 0000 00 {names} {wrong}"
        heard.append(peer.hears().replace(b"none", b"shut"))
        assert heard[-1][4:11] == octets("02 04 00 0000 | 0193")
    assert heard[0] == heard[1]


def test_a_registration_does_not_tell_of_those_before_it(playbook: Playbook) -> None:
    boss = playbook.clients[0]
    boss.binds("mine", "shut", "k")
    peer = connected(playbook)
    peer >> f"01 01 | 05 03 00 0011 | 0000 00 {short_text('mine')} {short_text('open')} {table()}"
    heard = peer.hears()
    assert heard[4:11] == octets("02 04 00 0000 | 0193")
    assert b"shut" not in heard
    boss >> methods.QueueUnbind(queue="mine", exchange="shut", routing_key="k")
    boss << methods.QueueUnbindOk()
    peer >> "01 01 | 02 05 00 0000"
    peer.opens_channel()
    peer >> f"01 01 | 05 03 00 0011 | 0000 00 {short_text('mine')} {short_text('open')} {table()}"
    peer << "01 01 | 05 04 00 0011"


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "in a later pass"])
def test_a_virtual_host_that_is_not_permitted_sounds_as_one_that_is_not_there(
    playbook: Playbook, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    if is_late:
        monkeypatch.setattr(chores, "CREDIT", 0)
        playbook.broker.pass_work.chores.credit = 0
    heard = []
    for path in ("/shut", "/none", "shut", "none"):
        peer = Peer(playbook)
        peer.logs_in()
        peer >> "01 00 | 01 06 00 0003 | 00020000 0000 0000 0000 07 00000000"
        peer.hears()
        peer >> f"01 00 | 01 07 00 0004 | {short_text(path)} 00"
        heard.append(peer.hears().replace(b"none", b"shut"))
        assert octets("01 0a 00 0000 | 0212") in heard[-1]
        assert heard[-1].endswith(octets("01 07 0004")), "the close names the method that failed"
    assert heard[0] == heard[1]
    assert heard[2] == heard[3]
