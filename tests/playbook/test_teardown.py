"""What is deleted is gone at once, however much of it is left to take apart."""

from __future__ import annotations

import pytest
from playbook.dialogue import Carried, Client, Playbook
from playbook.hourglass import TimedPlaybook, with_morgue

from flintmq.broker.messages.message import Message
from flintmq.broker.queues.deduplication import Duplicates
from flintmq.broker.virtual_host import VirtualHost
from flintmq.wire import amqp, methods

# More than is done where it begins: 64 steps of 32.
BINDINGS = 5000
SETTLED_MAX = 8192  # by one ack at once, which is a constant of C in the compiled build


def host_of(playbook: Playbook) -> VirtualHost:
    return playbook.broker.virtual_hosts["/"]


def bound(playbook: Playbook, client: Client, kind: str = "direct") -> None:
    """The exchange x, the queue q, and many bindings between them."""
    client >> methods.ExchangeDeclare(exchange="x", type=kind)
    client << methods.ExchangeDeclareOk()
    client >> methods.QueueDeclare(queue="q")
    client.hears(methods.QueueDeclareOk)
    for number in range(BINDINGS):
        client >> methods.QueueBind(queue="q", exchange="x", routing_key=f"k{number}", no_wait=True)


def publish(exchange: str, key: str, mandatory: bool = True) -> Carried:
    return Carried(methods.BasicPublish(exchange=exchange, routing_key=key, mandatory=mandatory), b"x")


def hears_return(client: Client) -> None:
    found = client.next(1)
    assert isinstance(found, Carried)
    assert isinstance(found.method, methods.BasicReturn)
    assert found.method.reply_code == amqp.NO_ROUTE


def test_an_exchange_is_gone_at_once_and_its_bindings_soon() -> None:
    playbook = Playbook()
    client = playbook.client()
    bound(playbook, client)
    host = host_of(playbook)
    with playbook.one_pass():
        client >> methods.ExchangeDelete(exchange="x")
        assert 0 < host.binding_count < BINDINGS
        client >> methods.ExchangeDeclare(exchange="x", type="direct")
        client >> methods.QueueBind(queue="q", exchange="x", routing_key="k7")
        client >> publish("x", "k1")
        client >> publish("x", "k7")
        client << methods.ExchangeDeleteOk()
        client << methods.ExchangeDeclareOk()
        client << methods.QueueBindOk()
        hears_return(client)
    assert host.binding_count == 1
    assert host.queues["q"].message_count() == 1
    assert [source.name for source in host.queues["q"].sources] == ["x"]
    assert not host.falling.count
    assert not host.falling.lives


def test_nothing_goes_to_a_queue_that_is_gone() -> None:
    for kind, header_kind in (("direct", False), ("headers", True)):
        playbook = Playbook()
        client = playbook.client()
        bound(playbook, client, kind)
        host = host_of(playbook)
        exchange = host.exchanges["x"]
        with playbook.one_pass():
            client >> methods.QueueDelete(queue="q")
            client.hears(methods.QueueDeleteOk)
            assert header_kind or 0 < len(exchange.bindings) < BINDINGS
            client >> publish("x", f"k{BINDINGS - 1}")
            client >> publish("x", "k0")
            hears_return(client)
            hears_return(client)
        assert not exchange.bindings
        assert not host.binding_count


def test_auto_delete_goes_on_from_exchange_to_exchange() -> None:
    playbook = Playbook()
    client = playbook.client()
    count = 300
    for number in range(count):
        last = number == count - 1
        name = f"x{number}"
        client >> methods.ExchangeDeclare(exchange=name, type="fanout", auto_delete=not last, no_wait=True)
        if number:
            client >> methods.ExchangeBind(source=f"x{number - 1}", destination=name, no_wait=True)
    before = len(host_of(playbook).exchanges)
    client >> methods.ExchangeDelete(exchange=f"x{count - 1}")
    client << methods.ExchangeDeleteOk()
    assert len(host_of(playbook).exchanges) == before - count
    assert list(host_of(playbook).exchange_names) == sorted(host_of(playbook).exchanges)


def test_names_of_a_lost_connection_are_free_at_once() -> None:
    playbook = Playbook()
    client, other = playbook.client(), playbook.client()
    count = 2000
    for number in range(count):
        other >> methods.QueueDeclare(queue=f"q{number}", exclusive=True, no_wait=True)
    other >> methods.QueueBind(queue="q5", exchange="amq.fanout", no_wait=True)
    host = host_of(playbook)
    with playbook.one_pass():
        other.session.release()
        assert len(host.queues) > count // 2
        client >> publish("", "q3")
        client >> publish("amq.fanout", "")
        hears_return(client)
        hears_return(client)
        client >> methods.QueueDeclare(queue="q5", exclusive=True)
        client.hears(methods.QueueDeclareOk)
        client >> methods.QueueDelete(queue="q6")
        assert client.hears(methods.QueueDeleteOk).message_count == 0
    assert list(host.queues) == ["q5"]
    assert not host.falling.departed
    client >> methods.QueueDelete(queue="q5")
    client.hears(methods.QueueDeleteOk)


def hold(playbook: Playbook, count: int) -> tuple[Client, Client]:
    """A client that holds so many messages of q unacked, and one that does not."""
    client, holder = playbook.client(), playbook.client()
    client >> methods.QueueDeclare(queue="q")
    client.hears(methods.QueueDeclareOk)
    holder >> methods.BasicConsume(queue="q", consumer_tag="c")
    holder << methods.BasicConsumeOk(consumer_tag="c")
    for number in range(count):
        client >> Carried(methods.BasicPublish(routing_key="q"), str(number).encode())
        holder.listen()
    assert len(holder.inbox) == 2 * count or len(holder.inbox) == count
    holder.inbox.clear()
    return client, holder


def test_what_a_lost_connection_held_comes_back_in_order() -> None:
    playbook = Playbook()
    count = 3000
    client, holder = hold(playbook, count)
    queue = host_of(playbook).queues["q"]
    with playbook.one_pass():
        holder.session.release()
        client >> Carried(methods.BasicPublish(routing_key="q"), b"last")
        client >> methods.BasicConsume(queue="q", consumer_tag="d", no_ack=True)
    client << methods.BasicConsumeOk(consumer_tag="d")
    client.listen()
    bodies = [each.body for _, each in client.inbox if isinstance(each, Carried)]
    assert bodies == [*(str(number).encode() for number in range(count)), b"last"]
    assert (queue.unacked, queue.returning) == (0, 0)
    client.inbox.clear()


def test_recover_and_ack_of_many() -> None:
    playbook = Playbook()
    count = 3000
    _, holder = hold(playbook, count)
    queue = host_of(playbook).queues["q"]
    holder >> methods.BasicCancel(consumer_tag="c")
    holder << methods.BasicCancelOk(consumer_tag="c")
    holder >> methods.BasicRecover(requeue=True)
    holder << methods.BasicRecoverOk()
    assert (queue.message_count(), queue.unacked) == (count, 0)
    holder >> methods.BasicConsume(queue="q", consumer_tag="e")
    holder.listen()
    holder.inbox.clear()
    assert queue.unacked == count
    holder >> methods.BasicNack(delivery_tag=0, multiple=True, requeue=False)
    assert (queue.message_count(), queue.unacked) == (0, 0)


@pytest.mark.parametrize("end", ["channel", "connection", "loss"])
def test_what_was_rejected_in_portions_does_not_go_back_when_its_channel_ends(end: str) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    client.publishes("q", *[b"x"] * 1000)
    client.consumes("q", "c")
    client.inbox.clear()
    playbook.broker.pass_work.chores.keep_waiting(True)
    with playbook.one_pass():
        client >> methods.BasicNack(delivery_tag=0, multiple=True, requeue=False)
        if end == "channel":
            client >> methods.ChannelClose(reply_code=200)
        elif end == "connection":
            client >> methods.ConnectionClose(reply_code=200)
        else:
            client.session.release()
    for _ in range(100):
        playbook.passes(10)
    assert (playbook.depth("q"), playbook.depth("morgue")) == (0, 1000)
    assert playbook.queue("q").unacked == 0


@pytest.mark.parametrize("acked", [False, True])
def test_a_bug_in_settling_one_of_many_keeps_no_other(acked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that were left then stayed unacked until a restart, and counted for the prefetch."""
    playbook = Playbook()
    client = playbook.client()
    client.declares("q", arguments={"x-message-deduplication": True})
    count = 3 * SETTLED_MAX
    client.publishes("q", *[b"x"] * count)
    client.consumes("q", "c")
    client.inbox.clear()
    forgotten = 0

    def forget(duplicates: Duplicates, message: Message) -> None:
        nonlocal forgotten
        forgotten += 1
        if forgotten in (2 * SETTLED_MAX, 3 * SETTLED_MAX):
            raise RuntimeError("a bug")

    monkeypatch.setattr(Duplicates, "forget", forget)
    if acked:
        client >> methods.BasicAck(delivery_tag=0, multiple=True)
    else:
        client >> methods.BasicNack(delivery_tag=0, multiple=True, requeue=False)
    while playbook.broker.pass_work.has_chores:
        playbook.finish_pass()
    assert host_of(playbook).queues["q"].unacked < 3


def test_a_purge_takes_what_was_there() -> None:
    playbook = Playbook()
    client = playbook.client()
    client >> methods.QueueDeclare(queue="q")
    client.hears(methods.QueueDeclareOk)
    with playbook.one_pass():
        for _ in range(50_000):
            client >> publish("", "q", mandatory=False)
    queue = host_of(playbook).queues["q"]
    with playbook.one_pass():
        client >> methods.QueuePurge(queue="q")
        client >> publish("", "q", mandatory=False)
        assert client.hears(methods.QueuePurgeOk).message_count == 50_000
        assert queue.message_count() == 1
    assert queue.message_count() == 1
