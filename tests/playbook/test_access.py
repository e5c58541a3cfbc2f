"""Tickets of 0-8 and 0-9: realms, exclusive ones, and what they are good for where they are enforced."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying, frame

from flintmq.broker.channels.tickets import TICKETS_MAX
from flintmq.config import Access, Config, PermissionSettings, RealmSettings, UserSettings, guest_alone
from flintmq.wire import amqp
from flintmq.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
    StreamConsume,
    StreamConsumeOk,
    StreamDeliver,
    StreamPublish,
)
from flintmq.wire.properties import StreamProperties

EARLY = [amqp.VERSION_0_8, amqp.VERSION_0_9]
REALMS = MappingProxyType(
    {
        "/data": RealmSettings(configure="^data", write="^data", read="^data"),
        "/looks": RealmSettings(read=".*"),
        "/closed": RealmSettings(".*", ".*", ".*", users=("somebody else",)),
    }
)
ALL: dict[str, Any] = {"active": True, "passive": True, "read": True, "write": True}


def with_access(enforced: bool) -> Playbook:
    return Playbook(Config()._replace(access=Access(enforced=enforced, realms=REALMS)))


@pytest.fixture
def enforcing() -> Iterator[Playbook]:
    playbook = with_access(True)
    yield playbook
    playbook.end()


@pytest.fixture
def granting() -> Iterator[Playbook]:
    playbook = with_access(False)
    yield playbook
    playbook.end()


def ticket(client: Client, realm: str = "/data", number: int = 1, **rights: bool) -> int:
    client[number] >> AccessRequest(realm=realm, **rights or ALL)
    return client.hears(AccessRequestOk, number).ticket


def refused(client: Client, method: Method | Carried, code: int = 403) -> str:
    client >> method
    close = client.hears(ChannelClose)
    assert close.reply_code == code, close
    client >> ChannelCloseOk() >> ChannelOpen()
    client.hears(ChannelOpenOk)
    return close.reply_text


@pytest.mark.parametrize("version", EARLY)
def test_octets_of_a_request_and_its_answer(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    # access.request: realm "/data"; exclusive 1, passive 2, active 4, write 8, read 16
    client >> frame(amqp.FRAME_METHOD, 1, b"\x00\x1e\x00\x0a\x05/data\x1c")
    output = client.output
    sent = bytes(output.buffer[output.start : output.fill])
    assert sent == frame(amqp.FRAME_METHOD, 1, b"\x00\x1e\x00\x0b\x00\x01")
    client << AccessRequestOk(ticket=1)


@pytest.mark.parametrize("version", EARLY)
def test_an_unknown_realm_is_refused_like_a_closed_one(granting: Playbook, version: int) -> None:
    client = granting.client(version)
    texts = [refused(client, AccessRequest(realm=realm, read=True)) for realm in ("/none", "/closed")]
    assert texts[0].replace("/none", "/closed") == texts[1]
    assert ticket(client, "/looks", read=True)


def test_0_9_1_gets_any_ticket(granting: Playbook) -> None:
    client = granting.client()
    client >> AccessRequest(realm="/none", exclusive=True)
    client << AccessRequestOk(ticket=1)


def test_the_same_request_gets_the_same_ticket_and_another_one_another(granting: Playbook) -> None:
    client = granting.client(amqp.VERSION_0_8)
    first = ticket(client, read=True)
    assert ticket(client, read=True) == first
    assert ticket(client, write=True) != first
    assert ticket(client, "/looks", read=True) != first


def test_a_channel_holds_so_many_tickets_and_no_more() -> None:
    names = [f"/{number}" for number in range(TICKETS_MAX + 1)]
    realms = MappingProxyType({name: RealmSettings() for name in names})
    playbook = Playbook(Config()._replace(access=Access(realms=realms)))
    client = playbook.client(amqp.VERSION_0_9)
    assert len({ticket(client, name, read=True) for name in names[:-1]}) == TICKETS_MAX
    assert "ask for fewer" in refused(client, AccessRequest(realm=names[-1], read=True), 506)
    assert playbook.broker.tickets.holders == {}
    assert ticket(client, names[-1], read=True)


@pytest.mark.parametrize("version", EARLY)
def test_nobody_has_a_realm_alone_that_others_have_tickets_to(granting: Playbook, version: int) -> None:
    first, second = granting.client(version), granting.client(version)
    ticket(first, read=True)
    assert ticket(first, read=True, exclusive=True)  # its own is the only one
    assert "holds it exclusively" in refused(second, AccessRequest(realm="/data", read=True))
    assert ticket(second, "/looks", read=True)
    assert "holds a ticket to it" in refused(first, AccessRequest(realm="/looks", exclusive=True))
    # The channel of the first is closed, and its tickets are gone with it.
    assert ticket(second, read=True, exclusive=True)


@pytest.mark.parametrize("version", EARLY)
def test_tickets_end_with_their_connection(granting: Playbook, version: int) -> None:
    first, second = granting.client(version), granting.client(version)
    ticket(first, read=True, exclusive=True)
    first.session.release()
    granting.finish_pass()
    assert ticket(second, read=True, exclusive=True)
    assert len(granting.broker.tickets.holders) == 1


def test_tickets_of_another_virtual_host_are_in_nobodys_way() -> None:
    hosts = ("/", "other")
    config = Config()._replace(virtual_hosts=hosts, users=guest_alone(hosts), access=Access(realms=REALMS))
    playbook = Playbook(config)
    first = playbook.client(amqp.VERSION_0_9)
    ticket(first, read=True, exclusive=True)
    second = playbook.client(amqp.VERSION_0_9, virtual_host="other")
    ticket(second, read=True, exclusive=True)
    assert set(playbook.broker.tickets.holders) == {("/", "/data"), ("other", "/data")}


# Where they are enforced


@pytest.mark.parametrize("version", EARLY)
def test_with_its_ticket_everything_goes(enforcing: Playbook, version: int) -> None:
    client = enforcing.client(version)
    number = ticket(client)
    client >> QueueDeclare(ticket=number, queue="data.q")
    client << QueueDeclareOk(queue="data.q")
    client >> ExchangeDeclare(ticket=number, exchange="data.x", type="fanout")
    client << ExchangeDeclareOk()
    client >> carrying(BasicPublish(ticket=number, routing_key="data.q"), b"one", delivery_mode=2)
    client >> BasicConsume(ticket=number, queue="data.q", consumer_tag="c", no_ack=True)
    client << BasicConsumeOk(consumer_tag="c")
    assert client.bodies() == [b"one"]
    client >> QueueDeclare(ticket=number, passive=True, queue="data.q")
    client.hears(QueueDeclareOk)
    client >> QueueDeclare(ticket=number, queue="")  # the broker finds the name
    client.hears(QueueDeclareOk)


@pytest.mark.parametrize("version", EARLY)
@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="data.q"),
        QueueDeclare(queue="data.q", passive=True),
        QueueDelete(queue="data.q"),
        QueuePurge(queue="data.q"),
        ExchangeDeclare(exchange="data.x", type="fanout"),
        BasicConsume(queue="data.q"),
        BasicGet(queue="data.q"),
        carrying(BasicPublish(routing_key="data.q"), b"no"),
    ],
    ids=lambda said: getattr(said, "method", said).NAME,
)
def test_without_a_ticket_nothing_goes(enforcing: Playbook, version: int, method: Method | Carried) -> None:
    client = enforcing.client(version)
    ticket(client)
    assert "takes a ticket: ask by access.request" in refused(client, method)


@pytest.mark.parametrize(
    ("rights", "method"),
    [
        ({"read": True}, QueueDeclare(queue="data.q")),
        ({"passive": True}, QueueDeclare(queue="data.q")),
        ({"read": True, "write": True}, QueueDeclare(queue="data.q", passive=True)),
        ({"active": True}, QueuePurge(queue="data.q")),
        ({"write": True}, BasicGet(queue="data.q")),
        ({"read": True}, carrying(BasicPublish(exchange="data.x"), b"no")),
    ],
    ids=lambda said: "" if isinstance(said, dict) else getattr(said, "method", said).NAME,
)
def test_a_ticket_gives_the_rights_that_were_asked_for(
    enforcing: Playbook, rights: dict[str, bool], method: Method | Carried
) -> None:
    client = enforcing.client(amqp.VERSION_0_9)
    said = method.method if isinstance(method, Carried) else method
    said.ticket = ticket(client, **rights)  # type: ignore[attr-defined]
    assert "does not give" in refused(client, method)


def test_a_ticket_is_good_for_names_of_its_realm(enforcing: Playbook) -> None:
    client = enforcing.client(amqp.VERSION_0_9)
    assert "access to 'other.q'" in refused(client, QueueDeclare(ticket=ticket(client), queue="other.q"))
    wrong = BasicPublish(ticket=ticket(client), exchange="amq.fanout")
    assert "access to 'amq.fanout'" in refused(client, carrying(wrong, b"no"))


@pytest.mark.parametrize("version", EARLY)
@pytest.mark.parametrize("publishes", [True, False])
def test_a_ticket_of_another_channel_ends_the_connection(
    enforcing: Playbook, version: int, publishes: bool
) -> None:
    client = enforcing.client(version)
    client[2] >> ChannelOpen()
    client.hears(ChannelOpenOk, 2)
    number = ticket(client, number=2)
    client >> (
        carrying(BasicPublish(ticket=number), b"no")
        if publishes
        else QueueDeclare(ticket=number, queue="data")
    )
    close = client.hears(ConnectionClose)
    assert close.reply_code == 530
    assert f"ticket {number} was not granted on channel 1" in close.reply_text


def test_a_ticket_gives_no_right_that_the_user_has_not() -> None:
    users = {"guest": UserSettings(password="guest", permissions={"/": PermissionSettings()})}
    playbook = Playbook(Config()._replace(users=users, access=Access(enforced=True, realms=REALMS)))
    client = playbook.client(amqp.VERSION_0_9)
    number = ticket(client)
    assert "may not configure queue 'data.q'" in refused(client, QueueDeclare(ticket=number, queue="data.q"))
    number = ticket(client)
    publish = carrying(BasicPublish(ticket=number, routing_key="data.q"), b"no")
    assert "may not write" in refused(client, publish)


def test_0_9_1_needs_none(enforcing: Playbook) -> None:
    client = enforcing.client()
    client.declares("any")
    client.publishes("any", b"one")
    assert client.gets("any") == b"one"


@pytest.mark.parametrize("size", [4, 5, 9, 10])
def test_a_request_that_is_cut_short_ends_the_connection(playbook: Playbook, size: int) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> frame(amqp.FRAME_METHOD, 1, b"\x00\x1e\x00\x0a\x05/data\x1c"[:size])
    assert client.hears(ConnectionClose).reply_code == 502


def test_a_request_before_the_channel_is_open_ends_the_connection(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client[3] >> AccessRequest(realm="/data")
    assert client.hears(ConnectionClose, 3).reply_code == 504


def test_the_stream_class_takes_tickets_too(enforcing: Playbook) -> None:
    client = enforcing.client(amqp.VERSION_0_9)
    number = ticket(client)
    client >> QueueDeclare(queue="data", ticket=number)
    client.hears(QueueDeclareOk)
    assert "takes a ticket" in refused(client, StreamConsume(queue="data"))
    content = Carried(StreamPublish(routing_key="data"), b"m", StreamProperties(priority=3))
    assert "takes a ticket" in refused(client, content)
    number = ticket(client)
    client >> StreamConsume(queue="data", consumer_tag="s", ticket=number)
    client << StreamConsumeOk(consumer_tag="s")
    client >> Carried(StreamPublish(routing_key="data", ticket=number), b"m", StreamProperties(priority=3))
    client << Carried(
        StreamDeliver(consumer_tag="s", delivery_tag=1, queue="data"), b"m", StreamProperties(priority=3)
    )
