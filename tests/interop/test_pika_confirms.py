"""What a publisher can rely on: confirms, returns before confirms, and transactions."""

from typing import Any

import pika
import pytest
from interop_live import Broker, eventually
from interop_pika import Name, await_depth, bodies, channel_error, connected, depth, gather, publish
from pika.exceptions import ChannelClosedByBroker, UnroutableError
from pika.spec import Basic


def test_confirmed_publish_returns_when_the_message_is_there(channel: Any, name: Name) -> None:
    channel.confirm_delivery()
    channel.queue_declare(name("queue"))
    for number in range(20):
        channel.basic_publish("", name("queue"), b"%d" % number)
        assert depth(channel, name("queue")) == number + 1


def test_persistent_messages_to_durable_queues_are_confirmed(channel: Any, name: Name) -> None:
    channel.confirm_delivery()
    channel.exchange_declare(name("exchange"), "fanout", durable=True)
    for noun in ("one", "two"):
        channel.queue_declare(name(noun), durable=True)
        channel.queue_bind(name(noun), name("exchange"))
    channel.basic_publish(name("exchange"), "", b"kept", pika.BasicProperties(delivery_mode=2))
    assert [bodies(channel, name(noun)) for noun in ("one", "two")] == [[b"kept"], [b"kept"]]
    for noun in ("one", "two"):
        channel.queue_delete(name(noun))
    channel.exchange_delete(name("exchange"))


def test_unroutable_without_mandatory_is_confirmed(channel: Any, name: Name) -> None:
    channel.confirm_delivery()
    channel.exchange_declare(name("exchange"), "direct")
    channel.basic_publish(name("exchange"), "nowhere", b"dropped")
    assert channel.is_open


def test_unroutable_mandatory_is_returned_and_then_confirmed(channel: Any, name: Name) -> None:
    """pika raises UnroutableError only when the return came before the ack."""
    channel.confirm_delivery()
    channel.exchange_declare(name("exchange"), "direct")
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish(name("exchange"), "nowhere", b"back", mandatory=True)
    assert [message.body for message in caught.value.messages] == [b"back"]
    assert caught.value.messages[0].method.reply_code == 312


class Publisher:
    """Publishes without waiting, and keeps what comes back in the order it came."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.returned: list[int] = []
        self.confirmed: set[int] = set()
        self.nacked: set[int] = set()
        self.returned_at: dict[int, set[int]] = {}  # for each publish, the returns seen at its confirm
        opened: list[Any] = []
        channel._impl.add_on_return_callback(lambda _c, _m, _p, body: self.returned.append(int(body)))
        channel._impl.confirm_delivery(self._confirm, callback=opened.append)
        gather(channel.connection, opened, 1)

    def publish(self, key: str, number: int, **settings: Any) -> None:
        self.channel._impl.basic_publish("", key, b"%d" % number, **settings)

    def _confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        fresh = set(range(1, tag + 1)) - self.confirmed if frame.method.multiple else {tag}
        assert fresh, f"{tag} is confirmed twice"
        assert not fresh & self.confirmed, f"{tag} is confirmed twice"
        self.confirmed |= fresh
        if isinstance(frame.method, Basic.Nack):
            self.nacked |= fresh
        for number in fresh:
            self.returned_at[number] = set(self.returned)

    def await_confirms(self, count: int) -> None:
        def enough() -> bool:
            self.channel.connection.process_data_events(0.05)
            return len(self.confirmed) >= count

        eventually(enough, f"{count} confirms")
        assert self.confirmed == set(range(1, count + 1))
        assert not self.nacked


def test_many_publishes_are_each_confirmed_once(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    publisher = Publisher(channel)
    for number in range(1, 1001):
        publisher.publish(queue, number)
    publisher.await_confirms(1000)
    assert depth(channel, queue) == 1000


def test_return_comes_before_its_confirm_among_many(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    publisher = Publisher(channel)
    for number in range(1, 41):
        publisher.publish(queue if number % 2 else name("nowhere"), number, mandatory=True)
    publisher.await_confirms(40)
    unroutable = list(range(2, 41, 2))
    assert publisher.returned == unroutable
    for number in unroutable:
        assert number in publisher.returned_at[number], f"{number} was confirmed before it was returned"


def test_confirm_and_transaction_exclude_each_other(broker: Broker) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with channel_error(406):
            channel.tx_select()
        channel = connection.channel()
        channel.tx_select()
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.confirm_delivery()
        assert caught.value.reply_code == 406


def test_reject_publish_queue_nacks_when_full(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", queue, b"does not")
    assert bodies(channel, queue) == [b"fits"]


def test_transaction_publishes_appear_at_commit_together(broker: Broker, channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    channel.tx_select()
    publish(channel, queue, b"1", b"2", b"3")
    with connected(broker) as other:
        look = other.channel()
        assert depth(channel, queue) == depth(look, queue) == 0
        channel.tx_commit()
        assert depth(look, queue) == 3
        assert bodies(look, queue) == [b"1", b"2", b"3"]


def test_rolled_back_publishes_never_appear(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    channel.tx_select()
    publish(channel, queue, b"never")
    channel.tx_rollback()
    publish(channel, queue, b"after")
    channel.tx_commit()
    assert bodies(channel, queue) == [b"after"]


def test_acks_in_a_transaction_count_at_commit(broker: Broker, channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    publish(channel, queue, b"rolled back", b"committed")
    with connected(broker) as other:
        worker = other.channel()
        worker.tx_select()
        tags = [worker.basic_get(queue)[0].delivery_tag for _ in range(2)]
        worker.basic_ack(tags[0])
        worker.tx_rollback()
        worker.basic_ack(tags[1])
        worker.tx_commit()
    await_depth(channel, queue, 1)
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered) == (b"rolled back", True)


def test_transaction_dies_with_its_channel(broker: Broker, channel: Any, name: Name) -> None:
    """Neither the publish nor the ack of an uncommitted transaction happens."""
    queue = name("queue")
    channel.queue_declare(queue)
    publish(channel, queue, b"taken")
    with connected(broker) as other:
        worker = other.channel()
        worker.tx_select()
        worker.basic_ack(worker.basic_get(queue)[0].delivery_tag)
        publish(worker, queue, b"never")
        worker.queue_declare("", exclusive=True)
    await_depth(channel, queue, 1)
    assert bodies(channel, queue) == [b"taken"]


def test_mandatory_in_a_transaction_returns_at_commit(channel: Any, name: Name) -> None:
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda _c, _m, _p, body: returned.append(body))
    channel.exchange_declare(name("exchange"), "direct")
    channel.tx_select()
    channel.basic_publish(name("exchange"), "nowhere", b"back", mandatory=True)
    channel.queue_declare("", exclusive=True)
    channel.connection.process_data_events(0)
    assert returned == []
    channel.tx_commit()
    channel.connection.process_data_events(0)
    assert returned == [b"back"]


@pytest.mark.parametrize("operation", ["tx_commit", "tx_rollback"])
def test_commit_without_select_is_precondition_failed(channel: Any, operation: str) -> None:
    with channel_error(406):
        getattr(channel, operation)()
