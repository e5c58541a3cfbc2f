"""Connections with much to give back end in portions, and nobody else can tell."""

from __future__ import annotations

from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.broker.channels.channel import Channel
from flintmq.broker.scheduling.chores import Chore
from flintmq.errors import ConnectionFault
from flintmq.wire import amqp, methods

# More channels than are given up where the end begins: 64 steps, each of which gives up no more than 16.
CHANNELS = 1500


def holders(playbook: Playbook, count: int) -> list[Client]:
    """Connections that hold the messages 0, 1, 2 and so on of q in turn, each on a channel of its own."""
    owner = playbook.client()
    owner.declares("q")
    clients = [playbook.client() for _ in range(count)]
    for number in range(CHANNELS):
        client = clients[number % count]
        channel = 2 + number // count
        client[channel] >> methods.ChannelOpen()
        client[channel] >> methods.BasicGet(queue="q")
        owner.publishes("q", str(number).encode())
        client[channel] >> methods.BasicGet(queue="q")
    for client in clients:
        client.listen()
        got = [each for _, each in client.inbox if isinstance(each, Carried)]
        assert len(got) == CHANNELS // count
        client.inbox.clear()
    return clients


def in_order() -> list[bytes]:
    return [str(number).encode() for number in range(CHANNELS)]


def test_what_many_channels_held_comes_back_in_order() -> None:
    playbook = Playbook()
    first, second = holders(playbook, 2)
    other = playbook.client()
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    with playbook.one_pass():
        other >> methods.BasicConsume(queue="q", consumer_tag="c", no_ack=True)
        first.session.release()
        second.session.release()
        assert 0 < queue.unacked <= CHANNELS
    other << methods.BasicConsumeOk(consumer_tag="c")
    assert other.bodies() == in_order()
    assert (queue.unacked, queue.returning) == (0, 0)


def test_close_ok_comes_when_everything_is_given_back() -> None:
    playbook = Playbook()
    (holder,) = holders(playbook, 1)
    other = playbook.client()
    holder >> methods.QueueDeclare(queue="mine", exclusive=True)
    holder.hears(methods.QueueDeclareOk)
    with playbook.one_pass():
        holder >> methods.ConnectionClose(reply_code=200)
        holder.hears_nothing()
        assert holder.link.notes[-1] != "finish"
        other.declares("mine", exclusive=True)  # the name is free at once
    holder << methods.ConnectionCloseOk()
    assert holder.link.notes[-1] == "finish"
    assert other.gets_all("q") == in_order()
    assert "mine" in playbook.broker.virtual_hosts["/"].queues


def test_consumers_of_a_lost_connection_get_nothing_more() -> None:
    """Also those whose channels have not had their turn yet: what they got would come back as redelivered."""
    playbook = Playbook()
    (holder,) = holders(playbook, 1)
    other = playbook.client()
    other.declares("r")
    holder[2000] >> methods.ChannelOpen()
    holder[2000] >> methods.BasicConsume(queue="r", consumer_tag="late", no_wait=True)
    holder[2000] << methods.ChannelOpenOk()
    queue = playbook.broker.virtual_hosts["/"].queues["r"]
    with playbook.one_pass():
        holder.session.release()
        other.publishes("r", b"for others")
        playbook.broker.finish_pass()
        assert (queue.message_count(), queue.unacked) == (1, 0)
    other >> methods.BasicGet(queue="r")
    found = other.next(1)
    assert isinstance(found, Carried)
    assert isinstance(found.method, methods.BasicGetOk)
    assert not found.method.redelivered


def test_all_is_confirmed_before_the_broker_closes() -> None:
    playbook = Playbook()
    (holder,) = holders(playbook, 1)
    for channel in (2, CHANNELS):
        holder[channel] >> methods.ConfirmSelect()
        holder[channel] << methods.ConfirmSelectOk()
    with playbook.one_pass():
        for channel in (2, CHANNELS):
            holder[channel] >> carrying(methods.BasicPublish(routing_key="q"), b"more")
        holder.session.close_connection(ConnectionFault(amqp.RESOURCE_ERROR, "RESOURCE_ERROR - enough"))
        holder.hears_nothing()
    holder[2] << methods.BasicAck(delivery_tag=1)
    holder[CHANNELS] << methods.BasicAck(delivery_tag=1)
    assert holder.hears(methods.ConnectionClose).reply_code == amqp.RESOURCE_ERROR
    holder.hears_nothing()
    assert holder.link.notes[-1] == "closing"


def test_a_connection_that_is_lost_while_it_closes() -> None:
    playbook = Playbook()
    (holder,) = holders(playbook, 1)
    other = playbook.client()
    with playbook.one_pass():
        holder.session.close_connection(ConnectionFault(amqp.RESOURCE_ERROR, "RESOURCE_ERROR - enough"))
        holder.session.release()
    holder.hears_nothing()
    assert other.gets_all("q") == in_order()


def test_a_client_closes_the_channel_that_is_ending() -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q")
    client >> methods.ConfirmSelect()
    client.hears(methods.ConfirmSelectOk)
    with playbook.one_pass():
        client.publishes("q", b"x")
        client >> methods.QueueDeclare(queue="nope", passive=True)
        client >> methods.ChannelClose(reply_code=200, reply_text="bye")
    client.hears(methods.BasicAck)
    client.hears(methods.ChannelCloseOk)
    client.hears_nothing()


class Unreadable:
    """A connection that cannot be looked at."""

    def __init__(self) -> None:
        self.is_left = False

    def held_channels(self) -> list[Channel]:
        raise RuntimeError("a bug")

    def leave(self) -> Chore:
        yield None

    def has_left(self) -> None:
        self.is_left = True


def test_a_bug_in_the_survey_strands_nobody() -> None:
    playbook = Playbook()
    ended = [Unreadable(), Unreadable()]
    with playbook.one_pass():
        for each in ended:
            playbook.broker.teardowns.begin(each)
    assert [each.is_left for each in ended] == [True, True]
