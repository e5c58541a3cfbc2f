"""Rules of the channel and access classes."""

from __future__ import annotations

import socket
from pathlib import Path

from broker_process import BrokerProcess
from conformance.conftest import Connect
from conformance.rule import rule
from peer import Peer

from flintmq.wire import amqp, methods


@rule("0-9,0-9-1/channel.open/state")
def test_an_open_channel_cannot_be_opened(peer: Peer) -> None:
    peer.send(1, methods.ChannelOpen())
    peer.expect_connection_close(amqp.CHANNEL_ERROR)


@rule("0-9,0-9-1/channel.flow/initial-state")
def test_a_channel_flows_from_the_start_unless_it_is_stopped_first(peer: Peer, connect: Connect) -> None:
    queue = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    peer.publish(1, b"one", key=queue)
    peer.open(2)
    assert peer.call(2, methods.ChannelFlow(active=False)).active is False
    peer.call(2, methods.BasicConsume(queue=queue))
    assert peer.is_quiet(2)
    peer.open(3)
    peer.call(3, methods.BasicConsume(queue=queue))
    assert peer.delivery(3)[1].body == b"one"


@rule("0-9,0-9-1/channel.flow/bidirectional", "0-9,0-9-1/channel.flow/throttling")
def test_flow_stops_and_starts_deliveries_at_once(peer: Peer) -> None:
    queue = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    peer.call(1, methods.BasicConsume(queue=queue))
    peer.publish(1, b"flowing", key=queue)
    peer.delivery(1)
    assert peer.call(1, methods.ChannelFlow(active=False)).active is False
    for body in (b"one", b"two"):
        peer.publish(1, body, key=queue)
    assert peer.is_quiet(1)
    assert peer.call(1, methods.ChannelFlow(active=True)).active is True
    assert [peer.delivery(1)[1].body for _ in range(2)] == [b"one", b"two"]


@rule("0-9,0-9-1/channel.flow/bidirectional")
def test_flow_is_answered_in_the_middle_of_a_large_backlog(peer: Peer) -> None:
    # Far more than the sockets between the two hold: a system gives a sender 4 MiB at most.
    count, size = 16, 1_048_576
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    queue = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    for _ in range(count):
        peer.publish(1, bytes(size), key=queue)
    peer.call(1, methods.BasicConsume(queue=queue, no_ack=True))
    peer.delivery(1)
    received = 1
    peer.send(1, methods.ChannelFlow(active=False))
    while True:
        method = methods.decode_method(peer.version, peer.frame_of(1).payload)
        if isinstance(method, methods.ChannelFlowOk):
            break
        assert isinstance(method, methods.BasicDeliver)
        peer.content(1)
        received += 1
    assert peer.is_quiet(1)
    assert received < count
    assert peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count == count - received


@rule("0-9,0-9-1/channel.close/stability")
def test_after_its_close_the_broker_takes_no_notice_of_anything_else(peer: Peer, name: str) -> None:
    peer.send(1, methods.QueueDeclare(queue="not there", passive=True), methods.QueueDeclare(queue=name))
    peer.publish(1, b"too late", exchange="not there")
    peer.expect(1, methods.ChannelClose)
    peer.send(1, methods.QueueDeclare(queue=name), methods.BasicAck(delivery_tag=7))
    peer.publish(1, b"too late", exchange="not there")
    assert peer.is_quiet(1)
    peer.send(1, methods.ChannelCloseOk())
    peer.open(1)
    peer.send(1, methods.QueueDeclare(queue=name, passive=True))
    peer.expect_channel_close(1, amqp.NOT_FOUND)


@rule("0-9-1/channel.close/stability")
def test_a_close_that_crosses_the_brokers_own_is_answered(peer: Peer) -> None:
    peer.send(1, methods.QueueDeclare(queue="not there", passive=True))
    peer.expect(1, methods.ChannelClose)
    peer.send(1, methods.ChannelClose(reply_code=200))
    peer.expect(1, methods.ChannelCloseOk)
    peer.send(1, methods.ChannelCloseOk())
    peer.open(1)
    assert peer.call(1, methods.QueueDeclare(exclusive=True)).queue


@rule(
    "0-9/exchange.declare/ticket/validity",
    "0-9/exchange.delete/ticket/validity",
    "0-9/queue.declare/ticket/validity",
    "0-9/queue.purge/ticket/01",
    "0-9/basic.consume/ticket/01",
    "0-9/basic.get/ticket/01",
)
def test_without_permission_no_ticket_helps(peer: Peer, connect: Connect, name: str) -> None:
    peer.call(1, methods.QueueDeclare(queue=name))
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout"))
    watcher = connect(user="watcher", password="watcher")
    ticket = watcher.call(
        1, methods.AccessRequest(realm="/data", passive=True, active=True, read=True)
    ).ticket
    for refused in (
        methods.ExchangeDeclare(ticket=ticket, exchange=name + "-new", type="fanout"),
        methods.ExchangeDeclare(ticket=ticket, exchange=name, passive=True),
        methods.ExchangeDelete(ticket=ticket, exchange=name),
        methods.QueueDeclare(ticket=ticket, queue=name + "-new"),
        methods.QueueDeclare(ticket=ticket, queue=name, passive=True),
        methods.QueuePurge(ticket=ticket, queue=name),
        methods.BasicConsume(ticket=ticket, queue=name),
        methods.BasicGet(ticket=ticket, queue=name),
    ):
        watcher.send(1, refused)
        watcher.expect_channel_close(1, amqp.ACCESS_REFUSED)
        watcher.open(1)
    peer.call(1, methods.QueueDelete(queue=name))
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9/basic.publish/ticket/01")
def test_without_permission_nothing_is_published(connect: Connect) -> None:
    watcher = connect(user="watcher", password="watcher")
    watcher.publish(1, b"no", exchange="amq.fanout")
    watcher.expect_channel_close(1, amqp.ACCESS_REFUSED)


@rule("0-9/access.request/realm/validity")
def test_a_realm_that_is_unknown_is_refused(peer: Peer) -> None:
    peer.send(1, methods.AccessRequest(realm="/none", read=True))
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)
    peer.open(1)
    assert peer.call(1, methods.AccessRequest(realm="/data", read=True)).ticket


@rule("0-9/access.request/exclusive/validity")
def test_nobody_has_a_realm_alone_that_others_have_tickets_to(peer: Peer) -> None:
    peer.open(2)
    peer.call(1, methods.AccessRequest(realm="/admin", read=True))
    peer.call(1, methods.AccessRequest(realm="/admin", read=True, exclusive=True))
    peer.send(2, methods.AccessRequest(realm="/admin", read=True))
    peer.expect_channel_close(2, amqp.ACCESS_REFUSED)
    peer.open(2)
    peer.call(1, methods.ChannelClose(reply_code=200))
    peer.call(2, methods.AccessRequest(realm="/admin", read=True, exclusive=True))


@rule("0-9/access.request-ok/per-channel")
def test_a_ticket_is_good_on_its_own_channel_only(version: str, tmp_path: Path) -> None:
    settings = tmp_path / "enforced.toml"
    settings.write_text("[access]\nenforced = true\n")
    with (
        BrokerProcess("--config", str(settings)) as enforcing,
        Peer.connect(enforcing.port, version) as peer,
    ):
        peer.open(1)
        peer.open(2)
        ticket = peer.call(1, methods.AccessRequest(realm="/data", active=True)).ticket
        peer.call(1, methods.QueueDeclare(ticket=ticket, queue="q"))
        peer.send(2, methods.QueueDeclare(ticket=ticket, queue="q"))
        peer.expect_connection_close(amqp.NOT_ALLOWED)
