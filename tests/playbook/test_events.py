"""Events as messages: what the exchange amq.rabbitmq.event tells, to whom, and how much of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook

from flintmq.broker.administration import events, queue_growth
from flintmq.broker.scheduling.message_fates import MessageFates
from flintmq.errors import ChannelFault
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicPublish

EVENT = "amq.rabbitmq.event"


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def client(playbook: TimedPlaybook) -> Client:
    client = playbook.client()
    client.declares("events")
    client.binds("events", EVENT, "#")
    return client


def heard(client: Client, queue: str = "events") -> list[tuple[str, dict[str, Any]]]:
    """Keys and fields of the events in the queue, without those that all of them have."""
    found = []
    while True:
        client >> methods.BasicGet(queue=queue, no_ack=True)
        got = client.next(1)
        if not isinstance(got, Carried):
            return found
        assert isinstance(got.method, methods.BasicGetOk)
        assert got.method.exchange == EVENT
        assert got.body == b""
        assert got.properties.delivery_mode == 2
        fields = dict(got.properties.headers or {})
        assert fields.pop("node").startswith("flintmq@")
        assert fields.pop("timestamp_in_ms") // 1000 == got.properties.timestamp
        found.append((got.method.routing_key, fields))


def ask(client: Client, service: str, **arguments: Any) -> None:
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    client >> methods.QueueDeclare(queue="replies")
    client.hears(methods.QueueDeclareOk)
    client >> carrying(
        BasicPublish(exchange="amq.system", routing_key=service), headers=named, reply_to="replies"
    )
    client >> methods.BasicGet(queue="replies", no_ack=True)
    got = client.next(1)
    assert isinstance(got, Carried)
    assert "error-code" not in (got.properties.headers or {}), got.properties.headers


def test_topology(client: Client) -> None:
    assert [key for key, _ in heard(client)] == ["binding.created"], "of the binding that hears"
    client.declares("q", durable=True, arguments={"x-max-length": 5})
    client >> methods.ExchangeDeclare(exchange="x", type="fanout")
    client << methods.ExchangeDeclareOk()
    client.binds("q", "x", "k")
    client >> methods.QueueUnbind(queue="q", exchange="x", routing_key="k")
    client << methods.QueueUnbindOk()
    client >> methods.ExchangeDelete(exchange="x")
    client << methods.ExchangeDeleteOk()
    client >> methods.QueueDelete(queue="q")
    client.hears(methods.QueueDeleteOk)
    queue = {
        "name": "q",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-max-length": 5},
        "user_who_performed_action": "guest",
        "vhost": "/",
    }
    exchange = {
        "name": "x",
        "type": "fanout",
        "durable": False,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "vhost": "/",
    }
    binding = {
        "source_name": "x",
        "source_kind": "exchange",
        "destination_name": "q",
        "destination_kind": "queue",
        "routing_key": "k",
        "arguments": {},
        "vhost": "/",
    }
    assert heard(client) == [
        ("queue.created", queue),
        ("exchange.created", exchange),
        ("binding.created", binding),
        ("binding.deleted", binding),
        ("exchange.deleted", exchange),
        ("queue.deleted", queue),
    ]


def test_connections_and_logins(playbook: TimedPlaybook, client: Client) -> None:
    heard(client)
    other = playbook.client()
    other >> methods.ConnectionClose(reply_code=200, reply_text="bye")
    other.hears(methods.ConnectionCloseOk)
    stranger = playbook.stranger()
    stranger.greet()
    stranger.log_in("guest", "hunter2")
    found = heard(client)
    assert [key for key, _ in found] == [
        "user.authentication.success",
        "connection.created",
        "connection.closed",
        "user.authentication.failure",
    ]
    assert found[0][1] == {"name": "guest", "peer_host": "127.0.0.1", "connection_type": "network"}
    created, closed = found[1][1], found[2][1]
    assert created == closed
    assert (created["user"], created["vhost"], created["peer_host"]) == ("guest", "/", "127.0.0.1")
    assert created["client_properties"]["capabilities"]
    assert found[3][1]["name"] == "guest"
    assert "hunter2" not in str(found[3][1])


def test_administration(client: Client) -> None:
    ask(client, "user.add", user="ann", password="secret", tags=["monitoring"])
    heard(client)
    ask(client, "user.set-tags", user="ann", tags=[])
    ask(client, "user.set-password", user="ann", password="another secret")
    ask(client, "vhost.add", virtual_host="v")
    ask(client, "permission.set", user="ann", virtual_host="v", configure="", write="", read=".*")
    ask(client, "policy.set", name="p", pattern="^q", definition={"max-length": 3})
    ask(client, "limit.set", virtual_host="v", name="max-queues", value=3)
    ask(client, "limit.set", user="ann", name="max-channels", value=3)
    ask(client, "policy.clear", name="p")
    ask(client, "vhost.delete", virtual_host="v")
    ask(client, "user.delete", user="ann")
    found = [(key, fields) for key, fields in heard(client) if not key.startswith(("queue.", "exchange."))]
    assert "secret" not in str(found)
    by = {"user_who_performed_action": "guest"}
    assert found == [
        ("user.tags.set", {"name": "ann", "tags": [], **by}),
        ("user.password.changed", {"name": "ann", **by}),
        ("vhost.created", {"name": "v", **by}),
        (
            "permission.created",
            {"user": "ann", "vhost": "v", "configure": "", "write": "", "read": ".*", **by},
        ),
        ("policy.set", {"name": "p", "pattern": "^q", "definition": {"max-length": 3}, "vhost": "/", **by}),
        ("vhost.limits.set", {"vhost": "v", "name": "max-queues", "value": 3, **by}),
        ("user.limits.set", {"user": "ann", "name": "max-channels", "value": 3, **by}),
        ("policy.cleared", {"name": "p", "vhost": "/", **by}),
        ("vhost.deleted", {"name": "v", **by}),
        ("user.deleted", {"name": "ann", **by}),
    ]


def test_what_is_refused_is_no_event(client: Client) -> None:
    heard(client)
    with pytest.raises(AssertionError, match="error-code"):
        ask(client, "user.delete", user="nobody")
    assert [key for key, _ in heard(client) if key.startswith("user.")] == []


def test_a_virtual_host_hears_of_its_own(playbook: TimedPlaybook, client: Client) -> None:
    for name in ("v", "w"):
        playbook.broker.administration.virtual_hosts.add(name)
        ask(client, "permission.set", user="guest", virtual_host=name, configure=".*", write=".*", read=".*")
    tenant = playbook.client(virtual_host="v")
    tenant.declares("events")
    tenant.binds("events", EVENT, "queue.*")
    other = playbook.client(virtual_host="w")
    heard(client)
    tenant.declares("a")
    other.declares("b")
    assert [(key, fields["name"]) for key, fields in heard(tenant)] == [("queue.created", "a")]
    assert [(key, fields["name"]) for key, fields in heard(client)] == [
        ("queue.created", "a"),
        ("queue.created", "b"),
    ]


def test_nobody_hears(playbook: TimedPlaybook, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("an event is made though nobody hears of it")

    monkeypatch.setattr(events, "event_message", never)
    client = playbook.client()
    client.declares("q")
    assert not playbook.broker.events.waiting


def test_what_waits_is_bounded(
    playbook: TimedPlaybook, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard(client)
    monkeypatch.setattr(events, "WAITING_MAX", 3)
    with playbook.one_pass():
        for number in range(5):
            client >> methods.QueueDeclare(queue=f"q{number}")
        assert len(playbook.broker.events.waiting) == 3
    for _ in range(5):
        client.hears(methods.QueueDeclareOk)
    assert [fields["name"] for _, fields in heard(client)] == ["q0", "q1", "q2"]
    assert playbook.broker.pass_work.fates.untold_events == 2


def test_fields_that_are_too_large_are_left_out(client: Client) -> None:
    heard(client)
    client.declares("q", arguments={"x-large": "y" * events.FIELDS_BYTES_MAX})
    ((key, fields),) = heard(client)
    assert key == "queue.created"
    assert "arguments" not in fields
    assert fields["name"] == "q"


def test_clients_cannot_publish_events(client: Client) -> None:
    heard(client)
    client.publishes("queue.created", b"", exchange=EVENT)
    close = client.hears(methods.ChannelClose)
    assert close.reply_code == 403


def look(playbook: TimedPlaybook) -> None:
    playbook.passes(queue_growth.LOOK_MS)
    playbook.broker.events.growth.tick()
    playbook.finish_pass()


def test_a_queue_that_grows_without_a_consumer(playbook: TimedPlaybook, client: Client) -> None:
    other = playbook.client()
    for queue in ("grows", "consumed", "stays"):
        client.declares(queue)
        client.publishes(queue, b"0")
    other.consumes("consumed")
    client >> methods.QueueUnbind(queue="events", exchange=EVENT, routing_key="#")
    client << methods.QueueUnbindOk()
    client.binds("events", EVENT, "alert.#")
    heard(client)
    look(playbook)
    for number in range(1, 6):
        client.publishes("grows", b"1", b"2")
        client.publishes("consumed", b"1")
        look(playbook)
        found = heard(client)
        if number == queue_growth.GROWN_LOOKS:
            fields = {"name": "grows", "messages": 7, "grown_by": 6, "seconds": 30, "vhost": "/"}
            assert found == [("alert.queue.growing", fields)]
        else:
            assert found == [], f"look {number}"
    assert len(other.deliveries()) == 6
    playbook.passes(queue_growth.AGAIN_MS)
    client.publishes("grows", b"1")
    look(playbook)
    assert len(heard(client)) == 1, "it still grows"
    look(playbook)
    assert heard(client) == []


def test_an_event_that_is_refused_holds_up_no_other() -> None:
    posted: list[Any] = []

    def post(message: Any) -> None:
        posted.append(message)
        if len(posted) == 1:
            raise ChannelFault(amqp.PRECONDITION_FAILED, "no room")

    fates = MessageFates()
    router = SimpleNamespace(name="/", exchanges={EVENT}, pass_work=SimpleNamespace(fates=fates), post=post)
    told = events.Events.__new__(events.Events)
    told.waiting = deque((router, SimpleNamespace(content=b"12")) for _ in range(3))  # type: ignore[misc]
    told.waiting_bytes = 6
    assert list(told.post_all()) == [None]
    assert (len(posted), told.waiting_bytes, fates.untold_events) == (3, 0, 1)
