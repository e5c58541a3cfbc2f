"""What the settings say of topology: templates of queues, and exchanges, queues and bindings always there."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook

from flintmq.broker import static_topology
from flintmq.config import Config, parse
from flintmq.errors import ConfigFault
from flintmq.wire import methods
from flintmq.wire.methods import ChannelClose, ExchangeDelete, QueueDeclare, QueueDeclareOk, QueueDelete

SETTINGS = """
virtual_hosts = ["/", "other"]

[queue_templates.kept]
durable = true
arguments = {x-note = "from the template", x-list = [1, "two"]}

[queue_templates.fleeting]
auto_delete = true

[[exchanges]]
name = "orders"
type = "topic"
arguments = {x-own = 1}

[[exchanges]]
name = "orders"
type = "fanout"
virtual_host = "other"

[[queues]]
name = "billing"
template = "kept"
arguments = {x-note = "its own"}

[[bindings]]
source = "orders"
queue = "billing"
routing_key = "*.paid"

[[bindings]]
source = "orders"
exchange = "amq.fanout"
routing_key = "#"
"""


def playbook_of(settings: str) -> Playbook:
    playbook = Playbook(parse(settings))
    static_topology.declare_all(playbook.broker)
    return playbook


@pytest.fixture
def client() -> Client:
    return playbook_of(SETTINGS).client()


def refused(client: Client, method: Any, code: int) -> str:
    client >> method
    close = client.hears(ChannelClose)
    assert close.reply_code == code, close
    client >> methods.ChannelCloseOk()
    client >> methods.ChannelOpen()
    client << methods.ChannelOpenOk()
    return close.reply_text


def test_configured_topology_is_there(client: Client) -> None:
    client.publishes("book.paid", b"m", exchange="orders")
    client.publishes("book.sold", b"m", exchange="orders")
    assert client.gets_all("billing") == [b"m"]
    client >> methods.ExchangeDeclare(exchange="orders", type="topic", durable=True, arguments={"x-own": 1})
    client << methods.ExchangeDeclareOk()
    queue = client.playbook.broker.virtual_hosts["/"].queues["billing"]
    assert queue.durable
    assert queue.arguments == {"x-note": "its own", "x-list": [1, "two"], "x-template": "kept"}
    assert client.playbook.broker.virtual_hosts["other"].exchanges["orders"].type == "fanout"


def test_clients_cannot_delete_it(client: Client) -> None:
    assert "settings" in refused(client, ExchangeDelete(exchange="orders"), 403)
    assert "settings" in refused(client, QueueDelete(queue="billing"), 403)
    unbind = methods.QueueUnbind(queue="billing", exchange="orders", routing_key="*.paid")
    assert "settings" in refused(client, unbind, 403)
    unbind_exchange = methods.ExchangeUnbind(source="orders", destination="amq.fanout", routing_key="#")
    assert "settings" in refused(client, unbind_exchange, 403)


def test_bindings_of_their_own_they_can(client: Client) -> None:
    client.binds("billing", "orders", "mine")
    client >> methods.QueueUnbind(queue="billing", exchange="orders", routing_key="mine")
    client << methods.QueueUnbindOk()


def test_a_template_gives_what_the_client_leaves_open(client: Client) -> None:
    client.declares("q", arguments={"x-template": "kept", "x-own": 5})
    queue = client.playbook.broker.virtual_hosts["/"].queues["q"]
    assert queue.durable
    assert queue.arguments["x-note"] == "from the template"
    assert queue.arguments["x-own"] == 5
    client.declares("q", arguments={"x-template": "kept", "x-own": 5})
    client.declares("q", arguments={"x-template": "kept"})
    client.declares("q", arguments={"x-template": "kept", "x-own": 6})  # means nothing
    refused(client, QueueDeclare(queue="q", arguments={"x-template": "kept", "x-max-length": 6}), 406)
    refused(client, QueueDeclare(queue="q", arguments={"x-template": "fleeting"}), 406)


def test_a_template_may_say_when_a_queue_goes(client: Client) -> None:
    client.declares("q", arguments={"x-template": "fleeting"})
    client.consumes("q")
    client >> methods.BasicCancel(consumer_tag="c")
    client << methods.BasicCancelOk(consumer_tag="c")
    refused(client, QueueDeclare(queue="q", passive=True), 404)


@pytest.mark.parametrize("template", ["none", 5, None, ["kept"]])
def test_an_unknown_template_is_refused(client: Client, template: Any) -> None:
    text = refused(client, QueueDeclare(queue="q", arguments={"x-template": template}), 406)
    assert "x-template" in text
    assert "fleeting, kept" in text


def test_a_namespace_keeps_names_apart(client: Client) -> None:
    arguments = {"x-namespace": "replies"}
    client >> QueueDeclare(queue="7", arguments=arguments)
    client << QueueDeclareOk(queue="7")
    client >> QueueDeclare(queue="replies:7", passive=True)
    client << QueueDeclareOk(queue="replies:7")
    client.declares("7")
    client >> methods.QueueBind(queue="7", exchange="amq.fanout", arguments=arguments)
    client << methods.QueueBindOk()
    client.publishes("", b"m", exchange="amq.fanout")
    assert client.gets_all("7") == []
    client >> methods.BasicConsume(queue="7", consumer_tag="c", no_ack=True, arguments=arguments)
    client << methods.BasicConsumeOk(consumer_tag="c")
    assert client.bodies() == [b"m"]
    client >> QueueDeclare(queue="7", passive=True, arguments=arguments)
    client << QueueDeclareOk(queue="7", consumer_count=1)
    client >> methods.QueueUnbind(queue="7", exchange="amq.fanout", arguments=arguments)
    client << methods.QueueUnbindOk()
    client.publishes("", b"m", exchange="amq.fanout")
    client.hears_nothing()


def test_a_namespace_for_a_name_of_the_brokers(client: Client) -> None:
    client >> QueueDeclare(arguments={"x-namespace": "replies"})
    assert client.hears(QueueDeclareOk).queue.startswith("replies:amq.gen-")


@pytest.mark.parametrize("namespace", ["", "a:b", 5, "n" * 255])
def test_a_wrong_namespace_is_refused(client: Client, namespace: Any) -> None:
    assert "x-namespace" in refused(
        client, QueueDeclare(queue="q", arguments={"x-namespace": namespace}), 406
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[[exchanges]]\nname = "x"', "exchanges[0].type is missing"),
        ('[[exchanges]]\ntype = "topic"', "exchanges[0].name is missing"),
        ('[[exchanges]]\nname = "x"\ntype = "topic"\nvirtual_host = "/other"', "no such virtual host"),
        ('[[exchanges]]\nname = "x"\ntipe = "topic"', "did you mean 'type'?"),
        ('[exchanges]\nname = "x"', "exchanges = a table"),
        ("[[queues]]\nname = 5", "queues[0].name = 5"),
        ('[[queues]]\nname = "q"\narguments = {x-when = 10:00:00}', "queues[0].arguments.x-when"),
        ('[[queues]]\nname = "q"\narguments = {x-n = 99999999999999999999}', "a number of 64 bits"),
        ("[queue_templates.t]\ndurable = 1", "queue_templates.t.durable = 1"),
        ('[[bindings]]\nqueue = "q"', "bindings[0].source is missing"),
        ("plugins = 5", "plugins = 5"),
    ],
)
def test_wrong_settings_are_named(settings: str, said: str) -> None:
    with pytest.raises(ConfigFault) as caught:
        parse(settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            '[[exchanges]]\nname = "x"\ntype = "odd"',
            "exchanges[0]: PRECONDITION_FAILED - unknown exchange type",
        ),
        ('[[exchanges]]\nname = "amq.x"\ntype = "topic"', "exchanges[0]: ACCESS_REFUSED"),
        (
            '[[queues]]\nname = "q"\ntemplate = "none"',
            "queues[0]: PRECONDITION_FAILED - invalid arg 'x-template': expected the name of a template, "
            "and the settings have no [queue_templates]",
        ),
        ('[[bindings]]\nsource = "none"\nqueue = "q"', "bindings[0]: NOT_FOUND"),
        ('[[bindings]]\nsource = "amq.topic"', "bindings[0]: give either queue or exchange"),
    ],
)
def test_topology_that_cannot_be_made_is_named(settings: str, said: str) -> None:
    with pytest.raises(ConfigFault) as caught:
        playbook_of(settings)
    assert said in str(caught.value)


def test_what_is_there_otherwise_stays(caplog: pytest.LogCaptureFixture) -> None:
    playbook = Playbook(parse('[[queues]]\nname = "q"\n[[exchanges]]\nname = "x"\ntype = "topic"\n'))
    host = playbook.broker.virtual_hosts["/"]
    host.declare_queue("q", True, False, False, {"x-max-length": 1}, 0)
    host.declare_exchange("x", "direct", True, False, False, {})
    static_topology.declare_all(playbook.broker)
    assert host.queues["q"].arguments == {"x-max-length": 1}
    assert host.exchanges["x"].type == "direct"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_nothing_is_configured_by_default() -> None:
    playbook = Playbook(Config())
    static_topology.declare_all(playbook.broker)
    assert playbook.broker.virtual_hosts["/"].static_topology == set()
