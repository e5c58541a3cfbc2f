"""kombu over AMQP: producers and consumers, SimpleQueue, ConsumerMixin and the mailbox."""
# kombu says that it is typed, and is not
# mypy: disable-error-code="attr-defined,no-untyped-call"

import threading
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest
from interop_live import Broker
from kombu.exceptions import OperationalError
from kombu.mixins import ConsumerMixin
from kombu.pidbox import Mailbox

Name = Callable[[str], str]


@pytest.fixture
def connection(broker: Broker) -> Iterator[Any]:
    with kombu.Connection(broker.url, connect_timeout=10) as opened:
        yield opened


def drain(connection: Any, into: list[Any], count: int) -> None:
    while len(into) < count:
        connection.drain_events(timeout=10)


@pytest.mark.parametrize("serializer", ["json", "pickle"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_producer_and_consumer(connection: Any, name: Name, serializer: str, compression: str | None) -> None:
    exchange = kombu.Exchange(name("exchange"), "topic", durable=False)
    queue = kombu.Queue(name("queue"), exchange, routing_key="order.*", durable=False)
    got: list[Any] = []

    def receive(body: Any, message: Any) -> None:
        got.append((body, message.headers["n"], message.delivery_info["routing_key"]))
        message.ack()

    producer = connection.Producer(serializer=serializer)
    order = {"id": 1, "lines": ["a", "b"], "total": 9.5}
    for number in range(3):
        producer.publish(
            order,
            exchange=exchange,
            routing_key=f"order.{number}",
            declare=[queue],
            headers={"n": number},
            compression=compression,
            retry=True,
        )
    with connection.Consumer(queue, callbacks=[receive], accept=["json", "pickle"]):
        drain(connection, got, 3)
    assert got == [(order, number, f"order.{number}") for number in range(3)]


def test_reject_requeue_and_prefetch(connection: Any, name: Name) -> None:
    queue = kombu.Queue(name("queue"), durable=False)
    got: list[Any] = []
    producer = connection.Producer()
    for number in range(3):
        producer.publish(number, routing_key=queue.name, declare=[queue])

    def receive(body: Any, message: Any) -> None:
        got.append((body, message.delivery_info["redelivered"]))
        if len(got) == 1:
            message.requeue()
        else:
            message.ack()

    with connection.Consumer(queue, callbacks=[receive], prefetch_count=1):
        drain(connection, got, 4)
    assert got == [(0, False), (0, True), (1, False), (2, False)]


def test_simple_queue(connection: Any, name: Name) -> None:
    queue = connection.SimpleQueue(name("simple"))
    for number in range(5):
        queue.put({"n": number})
    got = [queue.get(timeout=10) for _ in range(5)]
    assert [message.payload for message in got] == [{"n": number} for number in range(5)]
    got[0].requeue()
    again = queue.get(timeout=10)
    assert again.payload == {"n": 0}
    for message in [*got[1:], again]:
        message.ack()
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.2)
    queue.close()


def test_simple_buffer_is_gone_with_its_connection(broker: Broker, name: Name) -> None:
    with kombu.Connection(broker.url) as one:
        buffer = one.SimpleBuffer(name("buffer"))
        buffer.put("transient")
        assert buffer.get(timeout=10).payload == "transient"
        buffer.close()
    with kombu.Connection(broker.url) as two, pytest.raises(two.channel_errors):
        two.channel().queue_declare(name("buffer"), passive=True)


def test_default_connection_retries_and_gives_up() -> None:
    with pytest.raises(OperationalError):
        kombu.Connection("amqp://guest:guest@127.0.0.1:1/").ensure_connection(max_retries=1, interval_start=0)


class Collector(ConsumerMixin):
    """Runs in a thread until it has enough."""

    def __init__(self, connection: Any, queue: Any, enough: int) -> None:
        self.connection = connection
        self.queue = queue
        self.enough = enough
        self.ready = threading.Event()
        self.got: list[Any] = []

    def get_consumers(self, Consumer: Any, channel: Any) -> list[Any]:
        return [Consumer(self.queue, callbacks=[self.receive], prefetch_count=10)]

    def on_consume_ready(self, *_: Any, **__: Any) -> None:
        self.ready.set()

    def receive(self, body: Any, message: Any) -> None:
        message.ack()
        self.got.append(body)
        self.should_stop = len(self.got) >= self.enough


def test_consumer_mixin(broker: Broker, name: Name) -> None:
    queue = kombu.Queue(name("queue"), durable=False)
    with kombu.Connection(broker.url) as receiving, kombu.Connection(broker.url) as sending:
        collector = Collector(receiving, queue, 50)
        thread = threading.Thread(target=collector.run, daemon=True)
        thread.start()
        assert collector.ready.wait(10)
        producer = sending.Producer()
        for number in range(50):
            producer.publish(number, routing_key=queue.name)
        thread.join(15)
        assert not thread.is_alive()
    assert collector.got == list(range(50))


def test_mailbox_broadcast_and_replies(broker: Broker, name: Name) -> None:
    """Every node answers a multi-call; a broadcast with a destination reaches that node alone."""
    mailbox = Mailbox(name("mailbox"), type="fanout")
    casts: list[str] = []
    connections, threads, stop = [], [], threading.Event()

    def serve(hostname: str, ready: threading.Event) -> None:
        with kombu.Connection(broker.url) as connection:
            connections.append(connection)
            node = mailbox(connection).Node(hostname, state=hostname, channel=connection.channel())

            @node.handler  # type: ignore[untyped-decorator]
            def whoami(state: str, **_: Any) -> str:
                return state

            @node.handler  # type: ignore[untyped-decorator]
            def note(state: str, text: str = "", **_: Any) -> None:
                casts.append(f"{state}:{text}")

            with node.listen():
                ready.set()
                while not stop.is_set():
                    try:
                        connection.drain_events(timeout=0.1)
                    except TimeoutError:
                        continue

    for hostname in ("one", "two"):
        ready = threading.Event()
        threads.append(threading.Thread(target=serve, args=(hostname, ready), daemon=True))
        threads[-1].start()
        assert ready.wait(10)
    with kombu.Connection(broker.url) as connection:
        box = mailbox(connection)
        replies = box.multi_call("whoami", timeout=5, limit=2)
        assert sorted(replies, key=str) == [{"one": "one"}, {"two": "two"}]
        box.cast(["two"], "note", {"text": "only you"})
        assert box.call(["two"], "whoami", timeout=2) == [{"two": "two"}]
    stop.set()
    for thread in threads:
        thread.join(10)
    assert casts == ["two:only you"]


def test_queue_delete_cancels_the_consumer(broker: Broker, connection: Any, name: Name) -> None:
    queue = kombu.Queue(name("queue"), durable=False)
    consumer = connection.Consumer(queue, callbacks=[lambda *_: None])
    with consumer, kombu.Connection(broker.url) as other:
        queue(other.channel()).delete()
        with pytest.raises(connection.recoverable_connection_errors + connection.recoverable_channel_errors):
            connection.drain_events(timeout=5)


def test_declared_otherwise_is_a_channel_error(connection: Any, name: Name) -> None:
    kombu.Queue(name("queue"), durable=False)(connection.channel()).declare()
    with pytest.raises(connection.channel_errors):
        kombu.Queue(name("queue"), durable=True)(connection.channel()).declare()
    assert connection.connected
