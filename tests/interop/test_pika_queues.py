"""Queues as pika's blocking client sees them: declare, look, purge, delete, and who may touch them."""

from typing import Any

import pytest
from interop_live import Broker
from interop_pika import (
    Name,
    await_depth,
    bodies,
    channel_error,
    connected,
    depth,
    publish,
    take,
)


def test_declare_answers_name_and_counts(channel: Any, name: Name) -> None:
    queue = name("queue")
    first = channel.queue_declare(queue).method
    assert (first.queue, first.message_count, first.consumer_count) == (queue, 0, 0)
    publish(channel, queue, b"1", b"2", b"3")
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue, lambda *_: None)
    again = channel.queue_declare(queue).method
    assert again.consumer_count == 1
    await_depth(channel, queue, 2)


def test_server_named_queues_differ_and_work(channel: Any) -> None:
    one = channel.queue_declare("", exclusive=True).method.queue
    two = channel.queue_declare("", exclusive=True).method.queue
    assert one
    assert two
    assert one != two
    publish(channel, one, b"here")
    assert bodies(channel, one) == [b"here"]
    assert bodies(channel, two) == []


def test_empty_name_means_the_last_queue_declared(channel: Any, name: Name) -> None:
    channel.queue_declare(name("older"))
    channel.queue_declare(name("newer"))
    channel.exchange_declare(name("exchange"), "fanout")
    channel.queue_bind("", name("exchange"), "")
    channel.basic_publish(name("exchange"), "", b"to the newer one")
    assert channel.basic_get("")[2] == b"to the newer one"
    assert depth(channel, name("older")) == 0


def test_passive_declare_of_nothing_is_not_found(channel: Any, name: Name) -> None:
    with channel_error(404):
        channel.queue_declare(name("nothing"), passive=True)


def test_reserved_prefix_is_refused(channel: Any, name: Name) -> None:
    with channel_error(403):
        channel.queue_declare("amq." + name("queue"))


def test_publish_to_missing_exchange_closes_the_channel(channel: Any, name: Name) -> None:
    channel.basic_publish(name("nothing"), "key", b"lost")
    with channel_error(404):
        channel.queue_declare("", exclusive=True)


@pytest.mark.parametrize("change", [{"durable": True}, {"auto_delete": True}])
def test_declare_again_otherwise_is_precondition_failed(
    channel: Any, name: Name, change: dict[str, bool]
) -> None:
    channel.queue_declare(name("queue"))
    with channel_error(406):
        channel.queue_declare(name("queue"), **change)


def test_declare_again_with_other_arguments_is_precondition_failed(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), arguments={"x-max-length": 10})
    assert channel.queue_declare(name("queue"), arguments={"x-max-length": 10}).method.queue
    with channel_error(406):
        channel.queue_declare(name("queue"), arguments={"x-max-length": 11})


def test_a_refusal_leaves_the_other_channels_alone(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        refused, other = connection.channel(), connection.channel()
        with channel_error(404):
            refused.queue_declare(name("nothing"), passive=True)
        assert refused.is_closed
        assert other.queue_declare(name("queue"), exclusive=True).method.queue == name("queue")
        assert connection.channel(refused.channel_number).is_open, "the number can be used again"


def test_exclusive_queue_is_locked_to_its_connection(broker: Broker, channel: Any, name: Name) -> None:
    queue = name("mine")
    channel.queue_declare(queue, exclusive=True)
    with connected(broker) as other:
        with channel_error(405):
            other.channel().queue_declare(queue, exclusive=True)
        with channel_error(405):
            other.channel().queue_declare(queue, passive=True)
        with channel_error(405):
            other.channel().basic_consume(queue, lambda *_: None)
        with channel_error(405):
            other.channel().queue_delete(queue)
        with channel_error(405):
            other.channel().queue_purge(queue)
    publish(channel, queue, b"still mine")
    assert bodies(channel, queue) == [b"still mine"]


def test_exclusive_queue_ends_with_its_connection(broker: Broker, channel: Any, name: Name) -> None:
    with connected(broker) as owner:
        owner.channel().queue_declare(name("mine"), exclusive=True)
    with channel_error(404):
        channel.queue_declare(name("mine"), passive=True)


def test_auto_delete_queue_ends_with_its_last_consumer(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, auto_delete=True)
    publish(channel, queue, b"a queue that never had a consumer stays")
    one = channel.basic_consume(queue, lambda *_: None)
    two = channel.basic_consume(queue, lambda *_: None)
    channel.basic_cancel(one)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    channel.basic_cancel(two)
    with channel_error(404):
        channel.queue_declare(queue, passive=True)


def test_purge_counts_what_is_ready_only(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    publish(channel, queue, b"held", b"2", b"3")
    held = channel.basic_get(queue)[0]
    assert channel.queue_purge(queue).method.message_count == 2
    assert depth(channel, queue) == 0
    channel.basic_nack(held.delivery_tag, requeue=True)
    await_depth(channel, queue, 1)
    assert bodies(channel, queue) == [b"held"]
    assert channel.queue_purge(queue).method.message_count == 0


def test_delete_counts_messages_and_forgets_bindings(channel: Any, name: Name) -> None:
    queue, exchange = name("queue"), name("exchange")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_declare(queue)
    channel.queue_bind(queue, exchange)
    publish(channel, queue, b"1", b"2")
    assert channel.queue_delete(queue).method.message_count == 2
    channel.queue_declare(queue)
    channel.basic_publish(exchange, "", b"no binding is left")
    assert depth(channel, queue) == 0


def test_delete_of_nothing_is_no_error(channel: Any, name: Name) -> None:
    assert channel.queue_delete(name("nothing")).method.message_count == 0
    channel.exchange_delete(name("nothing"))
    assert channel.is_open


def test_delete_if_unused_and_if_empty(broker: Broker, channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    publish(channel, queue, b"1")
    with connected(broker) as other:
        with channel_error(406):
            other.channel().queue_delete(queue, if_empty=True)
        tag = channel.basic_consume(queue, lambda *_: None)
        with channel_error(406):
            other.channel().queue_delete(queue, if_unused=True)
        assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
        channel.basic_cancel(tag)
        channel.queue_purge(queue)
        asker = other.channel()
        asker.queue_delete(queue, if_unused=True, if_empty=True)
        with channel_error(404):
            asker.queue_declare(queue, passive=True)


def test_exchange_delete_if_unused(broker: Broker, channel: Any, name: Name) -> None:
    exchange = name("exchange")
    channel.exchange_declare(exchange, "direct")
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, exchange, "key")
    with connected(broker) as other, channel_error(406):
        other.channel().exchange_delete(exchange, if_unused=True)
    channel.queue_unbind(queue, exchange, "key")
    channel.exchange_delete(exchange, if_unused=True)
    with channel_error(404):
        channel.exchange_declare(exchange, passive=True)


def test_auto_delete_exchange_ends_with_its_last_binding(channel: Any, name: Name) -> None:
    exchange = name("exchange")
    channel.exchange_declare(exchange, "direct", auto_delete=True)
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, exchange, "a")
    channel.queue_bind(queue, exchange, "b")
    channel.queue_unbind(queue, exchange, "a")
    assert channel.exchange_declare(exchange, passive=True)
    channel.queue_unbind(queue, exchange, "b")
    with channel_error(404):
        channel.exchange_declare(exchange, passive=True)


def test_a_queue_keeps_the_order_of_its_messages(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    sent = [b"%d" % number for number in range(500)]
    publish(channel, queue, *sent)
    assert [body for _, _, body in take(channel, queue, 500)] == sent


def test_no_wait_declare_and_delete(channel: Any, name: Name) -> None:
    queue, exchange = name("queue"), name("exchange")
    raw = channel._impl
    raw.exchange_declare(exchange, "fanout", callback=None)
    raw.queue_declare(queue, callback=None)
    raw.queue_bind(queue, exchange, "", callback=None)
    channel.basic_publish(exchange, "", b"declared without an answer")
    assert bodies(channel, queue) == [b"declared without an answer"]
    raw.queue_delete(queue, callback=None)
    with channel_error(404):
        channel.queue_declare(queue, passive=True)
