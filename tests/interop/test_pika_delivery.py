"""How messages reach pika's consumers: get, consume, ack, reject, prefetch, cancel and recover."""

import socket
from typing import Any

import pytest
from interop_live import Broker
from interop_pika import Name, await_depth, bodies, channel_error, connected, gather, publish, take
from pika.exceptions import StreamLostError
from pika.spec import Basic


class Inbox:
    """What the callbacks of one channel's consumers got, in order."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.got: list[Any] = []

    def consume(self, queue: str, **settings: Any) -> str:
        tag: str = self.channel.basic_consume(queue, self._deliver, **settings)
        return tag

    def _deliver(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.got.append((method, properties, body))

    def gather(self, count: int) -> None:
        gather(self.channel.connection, self.got, count)

    def settle(self) -> None:
        """A round trip: what the broker had to send on this channel before its answer is here now."""
        self.channel.queue_declare("", exclusive=True, auto_delete=True)
        self.channel.connection.process_data_events(0.1)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.got]

    @property
    def tags(self) -> list[int]:
        return [method.delivery_tag for method, _, _ in self.got]


def stocked(channel: Any, name: Name, count: int) -> str:
    """A queue with messages b"0", b"1", ..."""
    queue = name("queue")
    channel.queue_declare(queue)
    publish(channel, queue, *(b"%d" % number for number in range(count)))
    return queue


def test_get_tells_what_is_left(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 3)
    method, _, body = channel.basic_get(queue)
    assert (body, method.message_count, method.redelivered) == (b"0", 2, False)
    assert (method.exchange, method.routing_key) == ("", queue)
    assert channel.basic_get(queue, auto_ack=True)[0].message_count == 1
    assert channel.basic_get(queue, auto_ack=True)[0].message_count == 0
    assert channel.basic_get(queue) == (None, None, None)


def test_consumer_gets_old_and_new_messages(broker: Broker, channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 2)
    inbox = Inbox(channel)
    tag = inbox.consume(queue, auto_ack=True, consumer_tag="my-tag")
    assert tag == "my-tag"
    with connected(broker) as other:
        publish(other.channel(), queue, b"late")
    inbox.gather(3)
    assert inbox.bodies == [b"0", b"1", b"late"]
    assert {method.consumer_tag for method, _, _ in inbox.got} == {"my-tag"}
    assert inbox.tags == [1, 2, 3]


def test_consumers_share_a_queue_in_turns(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    channel.basic_qos(prefetch_count=100)
    inbox = Inbox(channel)
    tags = {inbox.consume(queue), inbox.consume(queue)}
    publish(channel, queue, *(b"%d" % number for number in range(10)))
    inbox.gather(10)
    for tag in tags:
        assert sum(method.consumer_tag == tag for method, _, _ in inbox.got) == 5


def test_after_cancel_nothing_comes_and_the_rest_stays(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    inbox = Inbox(channel)
    tag = inbox.consume(queue, auto_ack=True)
    channel.basic_cancel(tag)
    publish(channel, queue, b"kept")
    inbox.settle()
    assert inbox.got == []
    assert bodies(channel, queue) == [b"kept"]


def test_exclusive_consumer_keeps_others_out(broker: Broker, channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 0)
    tag = channel.basic_consume(queue, lambda *_: None, exclusive=True)
    with connected(broker) as other:
        with channel_error(403):
            other.channel().basic_consume(queue, lambda *_: None)
        channel.basic_cancel(tag)
        assert other.channel().basic_consume(queue, lambda *_: None, exclusive=True)


def test_consumer_tag_in_use_is_refused(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        queue = stocked(channel, name, 0)
        channel.basic_consume(queue, lambda *_: None, consumer_tag="twice")
        del channel._impl._consumers["twice"]  # so that pika lets the second one out
        del channel._consumer_infos["twice"]
        with pytest.raises(Exception) as caught:  # noqa: PT011 a channel or connection error: both are allowed
            channel.basic_consume(queue, lambda *_: None, consumer_tag="twice")
        assert getattr(caught.value, "reply_code", None) == 530


def test_consume_from_nothing_is_not_found(channel: Any, name: Name) -> None:
    with channel_error(404):
        channel.basic_consume(name("nothing"), lambda *_: None)


def test_unacked_messages_come_back_in_order_when_the_channel_ends(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        first = connection.channel()
        queue = stocked(first, name, 5)
        take(first, queue, 3, ack=False)
        first.close()
        second = connection.channel()
        got = take(second, queue, 5)
    assert [body for _, _, body in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert [method.redelivered for method, _, _ in got][:3] == [True, True, True]


def test_get_then_connection_lost_redelivers(broker: Broker, channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 2)
    with connected(broker) as loser:
        assert loser.channel().basic_get(queue)[2] == b"0"
        loser._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(StreamLostError):
            loser.process_data_events(5)
    await_depth(channel, queue, 2)
    first, second = channel.basic_get(queue), channel.basic_get(queue)
    assert (first[2], first[0].redelivered) == (b"0", True)
    assert (second[2], second[0].redelivered) == (b"1", False)


@pytest.mark.parametrize("way", ["nack", "reject"])
def test_requeue_puts_the_message_back_in_its_place(channel: Any, name: Name, way: str) -> None:
    queue = stocked(channel, name, 3)
    held = [channel.basic_get(queue)[0].delivery_tag for _ in range(2)]
    getattr(channel, f"basic_{way}")(held[1], requeue=True)
    getattr(channel, f"basic_{way}")(held[0], requeue=True)
    await_depth(channel, queue, 3)
    got = [channel.basic_get(queue, auto_ack=True) for _ in range(3)]
    assert [body for _, _, body in got] == [b"0", b"1", b"2"]
    assert [method.redelivered for method, _, _ in got] == [True, True, False]


def test_nack_multiple_requeues_all_up_to_the_tag(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 4)
    held = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(held[1], multiple=True, requeue=True)
    await_depth(channel, queue, 3)
    assert bodies(channel, queue) == [b"0", b"1", b"3"]
    channel.basic_ack(held[2])
    channel.queue_declare("", exclusive=True)
    assert channel.is_open


def test_nack_and_reject_without_requeue_drop(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 3)
    channel.basic_nack(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    assert bodies(channel, queue) == [b"2"]


def test_ack_multiple_and_ack_all(broker: Broker, channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 5)
    with connected(broker) as connection:
        worker = connection.channel()
        tags = [worker.basic_get(queue)[0].delivery_tag for _ in range(5)]
        worker.basic_ack(tags[2], multiple=True)
    await_depth(channel, queue, 2)
    with connected(broker) as connection:
        worker = connection.channel()
        for _ in range(2):
            worker.basic_get(queue)
        worker.basic_ack(0, multiple=True)
        worker.close()
    assert bodies(channel, queue) == []


@pytest.mark.parametrize("tag", [1, 99])
def test_ack_of_an_unknown_tag_is_precondition_failed(channel: Any, name: Name, tag: int) -> None:
    queue = stocked(channel, name, 1)
    channel.basic_get(queue, auto_ack=True)
    channel.basic_ack(tag)
    with channel_error(406):
        channel.queue_declare("", exclusive=True)


def test_ack_twice_is_precondition_failed(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 1)
    tag = channel.basic_get(queue)[0].delivery_tag
    channel.basic_ack(tag)
    channel.basic_ack(tag)
    with channel_error(406):
        channel.queue_declare("", exclusive=True)


def test_prefetch_count_is_for_each_consumer(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 10)
    channel.basic_qos(prefetch_count=2)
    inbox = Inbox(channel)
    inbox.consume(queue)
    inbox.consume(queue)
    inbox.gather(4)
    inbox.settle()
    assert len(inbox.got) == 4, "two for each consumer"
    channel.basic_ack(inbox.tags[0])
    inbox.gather(5)
    inbox.settle()
    assert len(inbox.got) == 5
    await_depth(channel, queue, 5)


def test_prefetch_change_is_for_new_consumers_only(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 10)
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel)
    inbox.consume(queue)
    channel.basic_qos(prefetch_count=3)
    inbox.gather(1)
    inbox.settle()
    assert len(inbox.got) == 1
    inbox.consume(queue)
    inbox.gather(4)
    inbox.settle()
    assert len(inbox.got) == 4


def test_global_prefetch_is_shared_by_the_channel(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 10)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    inbox = Inbox(channel)
    inbox.consume(queue)
    inbox.consume(queue)
    inbox.gather(3)
    inbox.settle()
    assert len(inbox.got) == 3, "three for the whole channel"
    channel.basic_ack(inbox.tags[1], multiple=True)
    inbox.gather(5)
    inbox.settle()
    assert len(inbox.got) == 5
    channel.basic_qos(prefetch_count=5, global_qos=True)
    inbox.gather(7)
    inbox.settle()
    assert len(inbox.got) == 7, "a greater window opens at once"


def test_both_prefetch_limits_hold(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 10)
    channel.basic_qos(prefetch_count=2)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    inbox = Inbox(channel)
    inbox.consume(queue)
    inbox.gather(2)
    inbox.settle()
    assert len(inbox.got) == 2, "the consumer's own limit"
    inbox.consume(queue)
    inbox.gather(3)
    inbox.settle()
    assert len(inbox.got) == 3, "the channel's limit"


def test_prefetch_does_not_limit_auto_ack(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 20)
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel)
    inbox.consume(queue, auto_ack=True)
    inbox.gather(20)
    assert inbox.bodies == [b"%d" % number for number in range(20)]


def test_prefetch_does_not_limit_get(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 3)
    channel.basic_qos(prefetch_count=1)
    assert [channel.basic_get(queue)[2] for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.standard
def test_prefetch_size_limits_octets(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    publish(channel, queue, *[b"x" * 400] * 5)
    channel.basic_qos(prefetch_size=1000)
    inbox = Inbox(channel)
    inbox.consume(queue)
    inbox.gather(2)
    inbox.settle()
    assert len(inbox.got) == 2, "a third one would make 1200 octets of 1000"
    channel.basic_ack(inbox.tags[0])
    inbox.gather(3)
    inbox.settle()
    assert len(inbox.got) == 3


@pytest.mark.standard
def test_no_local_consumer_misses_its_own_messages(broker: Broker, channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 0)
    raw = channel._impl  # pika's own consume does not offer no-local
    got: list[bytes] = []
    answered: list[Any] = []
    raw._consumers["other-only"] = lambda _c, _m, _p, body: got.append(body)
    raw._rpc(
        Basic.Consume(queue=queue, consumer_tag="other-only", no_local=True, no_ack=True),
        answered.append,
        [(Basic.ConsumeOk, {"consumer_tag": "other-only"})],
    )
    gather(channel.connection, answered, 1)
    publish(channel, queue, b"own")
    with connected(broker) as other:
        publish(other.channel(), queue, b"another's")
    gather(channel.connection, got, 1)
    channel.queue_declare("", exclusive=True)
    assert got == [b"another's"]


def test_queue_delete_cancels_its_consumers(broker: Broker, channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 0)
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    with connected(broker) as other:
        other.channel().queue_delete(queue)
    gather(channel.connection, cancelled, 1)
    assert cancelled == [tag]
    assert channel.queue_declare(queue).method.consumer_count == 0, "the channel goes on"


@pytest.mark.parametrize("count", [1, 3])
def test_recover_redelivers_what_is_unacked(channel: Any, name: Name, count: int) -> None:
    queue = stocked(channel, name, count)
    inbox = Inbox(channel)
    inbox.consume(queue)
    inbox.gather(count)
    channel.basic_recover(requeue=True)
    inbox.gather(2 * count)
    again = inbox.got[count:]
    assert [body for _, _, body in again] == [b"%d" % number for number in range(count)]
    assert all(method.redelivered for method, _, _ in again)
    for method, _, _ in again:
        channel.basic_ack(method.delivery_tag)
    channel.queue_declare("", exclusive=True)
    assert channel.is_open, "the new tags are known"


@pytest.mark.standard
def test_recover_without_requeue_goes_to_the_same_consumer(broker: Broker, channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 2)
    inbox = Inbox(channel)
    tag = inbox.consume(queue)
    inbox.gather(2)
    with connected(broker) as other:
        rival = Inbox(other.channel())
        rival.consume(queue)
        channel.basic_recover(requeue=False)
        inbox.gather(4)
        rival.settle()
        assert rival.got == []
    again = inbox.got[2:]
    assert [body for _, _, body in again] == [b"0", b"1"]
    assert all(method.redelivered and method.consumer_tag == tag for method, _, _ in again)


@pytest.mark.standard
def test_flow_stops_and_restarts_deliveries(channel: Any, name: Name) -> None:
    queue = stocked(channel, name, 0)
    inbox = Inbox(channel)
    inbox.consume(queue, auto_ack=True)
    assert channel.flow(False) is False
    publish(channel, queue, b"waits")
    inbox.settle()
    assert inbox.got == []
    assert channel.flow(True) is True
    inbox.gather(1)
    assert inbox.bodies == [b"waits"]
