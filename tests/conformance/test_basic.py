"""Rules of the basic class: publishing, consuming, prefetch."""

from __future__ import annotations

import pytest
from conformance.conftest import Connect
from conformance.rule import rule
from peer import Peer

from flintmq.wire import amqp, methods


def declare(peer: Peer) -> str:
    queue: str = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    return queue


def consume(peer: Peer, queue: str, channel: int = 1, no_ack: bool = False, exclusive: bool = False) -> str:
    """Starts a consumer; its tag."""
    method = methods.BasicConsume(queue=queue, no_ack=no_ack, exclusive=exclusive)
    tag: str = peer.call(channel, method).consumer_tag
    return tag


def depth(peer: Peer, queue: str) -> int:
    count: int = peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count
    return count


@rule("0-9,0-9-1/basic/02")
def test_a_long_queue_drops_no_persistent_message(peer: Peer) -> None:
    count = 5_000
    queue = declare(peer)
    for number in range(count):
        peer.publish(1, b"%d" % number, key=queue, delivery_mode=2)
    assert depth(peer, queue) == count
    consume(peer, queue, no_ack=True)
    assert [peer.delivery(1)[1].body for _ in range(count)] == [b"%d" % number for number in range(count)]


@rule("0-9,0-9-1/basic/08")
def test_messages_leave_in_the_order_they_came_persistent_or_not(peer: Peer) -> None:
    queue = declare(peer)
    for number in range(100):
        peer.publish(1, b"%d" % number, key=queue, delivery_mode=1 + number % 3 // 2, priority=3)
    consume(peer, queue)
    assert [peer.delivery(1)[1].body for _ in range(100)] == [b"%d" % number for number in range(100)]


@rule("0-9,0-9-1/basic/08")
def test_messages_that_come_back_regain_their_places(peer: Peer) -> None:
    queue = declare(peer)
    for number in range(6):
        peer.publish(1, b"%d" % number, key=queue)
    tags = [got[0].delivery_tag for got in (peer.get(1, queue) for _ in range(4)) if got is not None]
    for tag in (tags[2], tags[0], tags[3], tags[1]):
        peer.send(1, methods.BasicReject(delivery_tag=tag, requeue=True))
    peer.open(2)
    consume(peer, queue, 2)
    assert [peer.delivery(2)[1].body for _ in range(6)] == [b"%d" % number for number in range(6)]


@rule("0-9,0-9-1/basic/06", "0-9,0-9-1/basic/07")
def test_a_queue_that_asks_for_priorities_has_them(peer: Peer) -> None:
    ranked = methods.QueueDeclare(queue="ranked", exclusive=True, arguments={"x-max-priority": 9})
    plain = methods.QueueDeclare(queue="plain", exclusive=True)
    for declaration in (ranked, plain):
        peer.call(1, declaration)
        for priority in (0, 4, 9, 5, 1):
            peer.publish(1, b"%d" % priority, key=declaration.queue, priority=priority)
    for queue, order in (("ranked", b"95410"), ("plain", b"04951")):
        got = [peer.get(1, queue) for _ in range(5)]
        assert b"".join([each[1].body for each in got if each is not None]) == order


@rule("0-9,0-9-1/basic.deliver/01")
def test_a_message_is_put_aside_when_it_came_back_too_often(peer: Peer) -> None:
    limited = methods.QueueDeclare(queue="limited", exclusive=True, arguments={"x-delivery-limit": 4})
    peer.call(1, limited)
    peer.publish(1, b"poison", key="limited")
    for _ in range(5):
        got = peer.get(1, "limited")
        assert got is not None
        peer.send(1, methods.BasicReject(delivery_tag=got[0].delivery_tag, requeue=True))
    assert peer.get(1, "limited") is None


@rule("0-9,0-9-1/basic/09")
def test_with_no_ack_a_message_is_done_with_when_it_is_sent(peer: Peer) -> None:
    queue = declare(peer)
    peer.open(2)
    consume(peer, queue, 2, no_ack=True)
    for number in range(50):
        peer.publish(1, b"%d" % number, key=queue)
    assert [peer.delivery(2)[1].body for _ in range(50)] == [b"%d" % number for number in range(50)]
    peer.call(2, methods.ChannelClose(reply_code=200))
    assert depth(peer, queue) == 0


@rule("0-9,0-9-1/basic/10", "0-9,0-9-1/redelivered/implementation")
def test_what_was_not_acknowledged_comes_again_and_says_so(connect: Connect, name: str) -> None:
    first, second = connect(), connect()
    first.call(1, methods.QueueDeclare(queue=name))
    for number in range(10):
        first.publish(1, b"%d" % number, key=name)
    consume(first, name)
    delivered = [first.delivery(1)[0] for _ in range(10)]
    assert not any(deliver.redelivered for deliver in delivered)
    first.send(1, *(methods.BasicAck(delivery_tag=deliver.delivery_tag) for deliver in delivered[::2]))
    assert first.is_quiet(1)
    first.abort()
    second.publish(1, b"new", key=name)
    consume(second, name)
    again = [second.delivery(1) for _ in range(6)]
    assert sorted(content.body for _, content in again) == [b"1", b"3", b"5", b"7", b"9", b"new"]
    assert all(deliver.redelivered == (content.body != b"new") for deliver, content in again)
    second.open(2)
    second.call(2, methods.QueueDelete(queue=name))


@rule("0-9,0-9-1/basic.qos/prefetch-size/01")
def test_a_message_larger_than_the_window_is_sent_when_no_other_is_held(peer: Peer) -> None:
    queue = declare(peer)
    for body in (bytes(5_000), b"small"):
        peer.publish(1, body, key=queue)
    peer.call(1, methods.BasicQos(prefetch_size=1_000))
    consume(peer, queue)
    deliver, content = peer.delivery(1)
    assert len(content.body) == 5_000
    assert peer.is_quiet(1)
    peer.send(1, methods.BasicAck(delivery_tag=deliver.delivery_tag))
    assert peer.delivery(1)[1].body == b"small"


@pytest.mark.parametrize("shared", [False, True])
@rule("0-9,0-9-1/basic.qos/prefetch-count/01")
def test_a_client_never_holds_more_than_the_window_allows(peer: Peer, shared: bool) -> None:
    queue = declare(peer)
    peer.call(1, methods.BasicQos(prefetch_count=3, global_=shared))
    consume(peer, queue)
    for number in range(10):
        peer.publish(1, b"%d" % number, key=queue)
    tags = [peer.delivery(1)[0].delivery_tag for _ in range(3)]
    assert peer.is_quiet(1)
    for tag in tags:
        peer.send(1, methods.BasicAck(delivery_tag=tag))
        peer.delivery(1)
        assert peer.is_quiet(1)


@rule("0-9,0-9-1/basic.consume/01")
def test_a_queue_has_room_for_more_than_16_consumers(peer: Peer) -> None:
    queue = declare(peer)
    tags = {consume(peer, queue) for _ in range(32)}
    assert len(tags) == 32
    for number in range(64):
        peer.publish(1, b"%d" % number, key=queue)
    assert {peer.delivery(1)[0].consumer_tag for _ in range(64)} == tags


@rule("0-9,0-9-1/basic.consume/consumer-tag/01")
def test_a_consumer_tag_cannot_be_used_twice(peer: Peer) -> None:
    queue = declare(peer)
    peer.call(1, methods.BasicConsume(queue=queue, consumer_tag="t"))
    peer.send(1, methods.BasicConsume(queue=queue, consumer_tag="t"))
    peer.expect_connection_close(amqp.NOT_ALLOWED)


@rule("0-9,0-9-1/basic.consume/consumer-tag/02")
def test_a_consumer_tag_is_its_channels_own(peer: Peer) -> None:
    one, two = declare(peer), declare(peer)
    peer.open(2)
    peer.call(1, methods.BasicConsume(queue=one, consumer_tag="t"))
    peer.call(2, methods.BasicCancel(consumer_tag="t"))
    peer.call(2, methods.BasicConsume(queue=two, consumer_tag="t"))
    peer.publish(1, b"for one", key=one)
    peer.publish(1, b"for two", key=two)
    assert [peer.delivery(channel)[1].body for channel in (1, 2)] == [b"for one", b"for two"]


@rule("0-9,0-9-1/basic.consume/exclusive/01")
def test_nobody_has_a_queue_to_himself_that_others_consume_from(connect: Connect, name: str) -> None:
    first, second = connect(), connect()
    first.call(1, methods.QueueDeclare(queue=name))
    tag = consume(first, name)
    second.send(1, methods.BasicConsume(queue=name, exclusive=True))
    second.expect_channel_close(1, amqp.ACCESS_REFUSED)
    second.open(1)
    first.call(1, methods.BasicCancel(consumer_tag=tag))
    consume(second, name, exclusive=True)
    first.send(1, methods.BasicConsume(queue=name))
    first.expect_channel_close(1, amqp.ACCESS_REFUSED)
    second.open(2)
    second.call(2, methods.QueueDelete(queue=name))


@rule("0-9,0-9-1/basic.cancel/01")
def test_cancelling_a_consumer_whose_queue_is_gone_is_no_error(connect: Connect) -> None:
    peer = connect(capabilities=())
    queue = declare(peer)
    tag = consume(peer, queue)
    peer.call(1, methods.QueueDelete(queue=queue))
    assert peer.call(1, methods.BasicCancel(consumer_tag=tag)).consumer_tag == tag
    assert declare(peer)


@rule("0-9-1/basic.publish/exchange/must-exist")
def test_nothing_is_published_to_an_exchange_that_is_not_there(peer: Peer, name: str) -> None:
    peer.publish(1, b"lost", exchange=name, key="key")
    closed = peer.expect_channel_close(1, amqp.NOT_FOUND)
    assert (closed.class_id, closed.method_id) == (60, 40)


@rule("0-9,0-9-1/basic.publish/exchange/02")
def test_nothing_is_published_to_an_internal_exchange(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout", internal=True))
    peer.publish(1, b"no", exchange=name)
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)
    peer.open(1)
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9,0-9-1/basic.publish/mandatory/01")
def test_a_mandatory_message_without_a_queue_comes_back(peer: Peer, name: str) -> None:
    peer.publish(1, b"lost", exchange="amq.direct", key=name)
    peer.publish(1, b"back", exchange="amq.direct", key=name, mandatory=True, message_id="m")
    returned, content = peer.expect(1, methods.BasicReturn), peer.content(1)
    assert (returned.reply_code, returned.exchange, returned.routing_key) == (
        amqp.NO_ROUTE,
        "amq.direct",
        name,
    )
    assert (content.body, content.properties.message_id) == (b"back", "m")
    queue = declare(peer)
    peer.publish(1, b"taken", key=queue, mandatory=True)
    assert peer.is_quiet(1)
    assert depth(peer, queue) == 1


@rule("0-9,0-9-1/basic.publish/immediate/01")
def test_an_immediate_message_without_a_consumer_comes_back(peer: Peer) -> None:
    queue = declare(peer)
    peer.publish(1, b"back", key=queue, immediate=True)
    returned, content = peer.expect(1, methods.BasicReturn), peer.content(1)
    assert (returned.reply_code, returned.routing_key) == (amqp.NO_CONSUMERS, queue)
    assert content.body == b"back"
    assert depth(peer, queue) == 0
    consume(peer, queue)
    peer.publish(1, b"taken", key=queue, immediate=True)
    assert peer.delivery(1)[1].body == b"taken"
