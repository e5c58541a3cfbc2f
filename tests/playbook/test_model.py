"""The AMQP model as the main text of 0-9 tells it, where no other test has the whole of a sentence."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying, frame

from flintmq.broker.exchanges.chains import MissingExchange
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.broker.services.request import SERVICES, load_services
from flintmq.config import Access, Config, RealmSettings, guest_alone
from flintmq.wire import amqp, methods
from flintmq.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    StreamConsume,
    StreamConsumeOk,
    StreamPublish,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from flintmq.wire.properties import StreamProperties

STANDARD_TYPES = {"direct", "fanout", "topic", "headers", "system"}
OF_THE_SERVER = ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match", "amq.system")


def refused(client: Client, method: Method | Carried, code: int) -> None:
    """The channel is closed with the code, and opened again."""
    client >> method
    assert client.hears(ChannelClose).reply_code == code
    client >> ChannelCloseOk() >> ChannelOpen()
    client.hears(ChannelOpenOk)


# Names and versions


def test_names_differ_by_case(client: Client) -> None:
    client.declares("orders")
    client.declares("Orders")
    client.publishes("Orders", b"capital")
    assert client.gets("orders") is None
    assert client.gets("Orders") == b"capital"
    refused(client, ExchangeDeclare(exchange="amq.Direct", passive=True), amqp.NOT_FOUND)


def test_versions_for_tests_are_not_served(playbook: Playbook) -> None:
    for major in (99, 100, 255):
        client = playbook.stranger()
        client >> b"AMQP\x01\x01" + bytes((major, 0))
        client[0] << b"AMQP\x00\x00\x09\x01"


def test_the_port_is_that_of_the_standard() -> None:
    assert Config().listen.port == 5672


# Queues, exchanges, bindings


def test_queues_know_nothing_of_each_other(client: Client) -> None:
    client.declares("one")
    client.declares("two")
    client.publishes("one", b"1")
    client.publishes("two", b"2")
    client >> QueueDelete(queue="one")
    client << QueueDeleteOk(message_count=1)
    assert client.gets_all("two") == [b"2"]


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_an_exchange_keeps_nothing_for_bindings_to_come(client: Client, kind: str) -> None:
    client >> ExchangeDeclare(exchange="x", type=kind)
    client << ExchangeDeclareOk()
    client.declares("late")
    client.publishes("key", b"too early", exchange="x")
    client.binds("late", "x", "key")
    client.publishes("key", b"in time", exchange="x")
    assert client.gets_all("late") == [b"in time"]


def test_a_message_is_the_same_in_each_of_its_queues(client: Client) -> None:
    names = ("one", "two", "three")
    for name in names:
        client.declares(name)
        client.binds(name, "amq.fanout")
    client.publishes("k", b"body", exchange="amq.fanout", message_id="7", headers={"a": 1}, delivery_mode=2)
    found = []
    for name in names:
        client >> BasicGet(queue=name, no_ack=True)
        each = client.next(1)
        assert isinstance(each, Carried)
        found.append((each.body, each.properties))
    assert found[0][1].message_id == "7"
    assert found == [found[0]] * 3


def test_the_default_binding_is_beside_others(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.topic", "stock.#")
    client.publishes("q", b"by name")
    client.publishes("stock.usd", b"by topic", exchange="amq.topic")
    assert client.gets_all("q") == [b"by name", b"by topic"]


@pytest.mark.parametrize("name", OF_THE_SERVER)
def test_the_exchanges_of_the_server_cannot_be_deleted(client: Client, name: str) -> None:
    refused(client, ExchangeDelete(exchange=name), amqp.ACCESS_REFUSED)
    client.declares("q")
    if name:
        client >> ExchangeDeclare(exchange=name, passive=True)
        client << ExchangeDeclareOk()
    else:
        client.publishes("q", b"the nameless one is there")
        assert client.gets("q") == b"the nameless one is there"


def test_bindings_go_with_their_queue(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.direct", "k")
    client >> QueueDelete(queue="q")
    client << QueueDeleteOk()
    client.declares("q")
    client.publishes("k", b"for the binding of before", exchange="amq.direct")
    assert client.gets("q") is None


def test_the_pattern_of_the_text(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.topic", "*.stock.#")
    for key in ("usd.stock", "eur.stock.db", "stock.nasdaq"):
        client.publishes(key, key.encode(), exchange="amq.topic")
    assert client.gets_all("q") == [b"usd.stock", b"eur.stock.db"]


def test_words_of_a_topic_are_of_any_characters(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.topic", "grün-1.*.#")
    for key in ("grün-1.a b.@", "grün-1./", "grün-2./"):
        client.publishes(key, key.encode(), exchange="amq.topic")
    assert client.gets_all("q") == ["grün-1.a b.@".encode(), "grün-1./".encode()]


def test_a_headers_exchange_does_not_look_at_keys(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.match", "key of the binding", kind="pdf")
    client.publishes("another key", b"fits", exchange="amq.match", headers={"kind": "pdf"})
    client.publishes("key of the binding", b"does not", exchange="amq.match", headers={"kind": "text"})
    assert client.gets_all("q") == [b"fits"]


def test_types_beyond_the_standard_begin_with_x() -> None:
    shown = [*EXCHANGE_TYPES, MissingExchange.type]
    assert [name for name in shown if name not in STANDARD_TYPES and not name.startswith("x-")] == []


def test_no_service_has_a_name_of_the_standard() -> None:
    load_services()
    assert [name for name in SERVICES if name.startswith("amq.")] == []


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-regexp"])
def test_contents_of_any_class_go_through_exchanges_of_any_type(playbook: Playbook, kind: str) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client >> ExchangeDeclare(exchange="x", type=kind)
    client << ExchangeDeclareOk()
    for queue in ("one", "two"):
        client.declares(queue)
        client.binds(queue, "x", "key")
        client >> StreamConsume(queue=queue, consumer_tag=queue)
        client << StreamConsumeOk(consumer_tag=queue)
    client.publishes("key", b"basic", exchange="x")
    client >> Carried(StreamPublish(exchange="x", routing_key="key"), b"stream", StreamProperties())
    found = [client.next(1), client.next(1)]
    assert all(isinstance(each, Carried) and each.body == b"stream" for each in found)
    assert [client.gets_all(queue) for queue in ("one", "two")] == [[b"basic"], [b"basic"]]


# The three uses of queues


def test_a_shared_queue(playbook: Playbook) -> None:
    first, second, producer = playbook.client(), playbook.client(), playbook.client()
    for client in (first, second):
        client.declares("app.svc01")
        client.consumes("app.svc01", no_ack=True)
    producer.publishes("app.svc01", b"1", b"2", b"3", b"4")
    assert sorted(first.bodies() + second.bodies()) == [b"1", b"2", b"3", b"4"]


def test_a_reply_queue(playbook: Playbook) -> None:
    asker, answerer = playbook.client(), playbook.client()
    answerer.declares("service")
    asker >> QueueDeclare(exclusive=True, auto_delete=True)
    name = asker.hears(QueueDeclareOk).queue
    asker.consumes(name, no_ack=True)
    asker.publishes("service", b"question", reply_to=name)
    answerer >> BasicGet(queue="service", no_ack=True)
    request = answerer.next(1)
    assert isinstance(request, Carried)
    answerer.publishes(request.properties.reply_to, b"answer")
    assert asker.bodies() == [b"answer"]
    refused(answerer, BasicGet(queue=name), amqp.RESOURCE_LOCKED)


def test_a_subscription(playbook: Playbook) -> None:
    subscriber, helper, producer = playbook.client(), playbook.client(), playbook.client()
    subscriber >> QueueDeclare(auto_delete=True)
    name = subscriber.hears(QueueDeclareOk).queue
    subscriber.binds(name, "amq.topic", "STOCK.USD.*")
    subscriber.consumes(name, no_ack=True)
    helper.consumes(name, no_ack=True)
    for key in ("STOCK.USD.IBM", "STOCK.EUR.SAP", "STOCK.USD.NYSE"):
        producer.publishes(key, key.encode(), exchange="amq.topic")
    heard = subscriber.bodies(), helper.bodies()
    assert sorted(heard[0] + heard[1]) == [b"STOCK.USD.IBM", b"STOCK.USD.NYSE"]
    assert all(heard), "the two share the subscription"


# Methods, transactions, frames


def test_success_is_silent(client: Client) -> None:
    client.declares("q")
    client.publishes("q", b"1", b"2")
    client.hears_nothing()
    client >> BasicGet(queue="q")
    client.next(1)
    client >> BasicAck(delivery_tag=1)
    client.hears_nothing()


def test_no_reply_belongs_to_two_requests() -> None:
    answered: Counter[str] = Counter()
    for kind in vars(methods).values():
        if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method:
            answered.update(kind.REPLIES)
    # What is in work in 0-9: channel.ok answers resume, ping and pong, and message.ok most of its class.
    assert {name for name, count in answered.items() if count > 1} <= {"channel.ok", "message.ok"}


def test_deliveries_do_not_wait_for_a_transaction(client: Client) -> None:
    client.declares("q")
    client.publishes("q", b"m")
    client >> TxSelect()
    client << TxSelectOk()
    client >> BasicConsume(queue="q", consumer_tag="c")
    client << BasicConsumeOk(consumer_tag="c")
    assert client.bodies() == [b"m"]
    client >> TxRollback()
    client << TxRollbackOk()
    client.hears_nothing()


def test_one_transaction_follows_the_other(client: Client) -> None:
    client.declares("q")
    client >> TxSelect()
    client << TxSelectOk()
    for number, method in enumerate((TxCommit(), TxRollback(), TxCommit())):
        client.publishes("q", b"%d" % number)
        client >> method
        client.hears(TxCommitOk if isinstance(method, TxCommit) else TxRollbackOk)
    other = client.playbook.client()
    assert other.gets_all("q") == [b"0", b"2"]


@pytest.mark.parametrize("version", [amqp.VERSION_0_8, amqp.VERSION_0_9, amqp.VERSION_0_9_1])
@pytest.mark.parametrize("kind", [4, 5, 6])
def test_frames_by_another_transport_are_no_frames(playbook: Playbook, version: int, kind: int) -> None:
    client = playbook.client(version)
    client >> frame(kind, 1, b"")
    assert client.hears(ConnectionClose).reply_code == amqp.FRAME_ERROR


# Virtual hosts and access


def test_a_connection_stays_in_its_virtual_host() -> None:
    playbook = Playbook(Config()._replace(virtual_hosts=("/", "other")))
    client = playbook.client()
    client[2] >> ChannelOpen()
    client[2] << ChannelOpenOk()
    client.declares("q")
    client[2] >> QueueDeclare(queue="q", passive=True)
    client[2] << QueueDeclareOk(queue="q")
    client >> ConnectionOpen(virtual_host="other")
    assert client.hears(ConnectionClose).reply_code == amqp.COMMAND_INVALID


def test_each_virtual_host_has_the_exchanges_of_the_server() -> None:
    hosts = ("/", "other")
    playbook = Playbook(Config()._replace(virtual_hosts=hosts, users=guest_alone(hosts)))
    for host in hosts:
        client = playbook.client(virtual_host=host)
        for name in OF_THE_SERVER[1:]:
            client >> ExchangeDeclare(exchange=name, passive=True)
            client << ExchangeDeclareOk()
        client.declares("q")
        client.publishes("q", host.encode())
        assert client.gets_all("q") == [host.encode()]


@pytest.mark.parametrize("enforced", [True, False])
def test_a_ticket_gives_nothing_when_permissions_change(enforced: bool) -> None:
    realms = MappingProxyType({"/data": RealmSettings(".*", ".*", ".*")})
    playbook = Playbook(Config()._replace(access=Access(enforced=enforced, realms=realms)))
    client = playbook.client(amqp.VERSION_0_9)
    client >> AccessRequest(realm="/data", active=True, read=True, write=True)
    ticket = client.hears(AccessRequestOk).ticket
    client >> QueueDeclare(ticket=ticket, queue="q")
    client << QueueDeclareOk(queue="q")
    client >> carrying(BasicPublish(ticket=ticket, routing_key="q"), b"m")
    playbook.broker.administration.permissions.clear("guest", "/")
    client >> carrying(BasicPublish(ticket=ticket, routing_key="q"), b"m")
    assert client.hears(ChannelClose).reply_code == amqp.ACCESS_REFUSED
