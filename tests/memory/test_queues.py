"""Messages that queues, exchanges and consumers hold: more of them than memory should."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from memory.watched import BAR_BYTES, LIMIT_BYTES, MIB, STALL_S, Watched, deafen, discard, pour, publication
from peer import Peer

from flintmq.client import connect
from flintmq.wire import methods

BODY_BYTES = 100_000
FLOOD_BYTES = 300 * MIB


def flood(
    exchange: str = "",
    key: str = "",
    mode: int = 1,
    size: int = BODY_BYTES,
    total: int = FLOOD_BYTES,
    **more: Any,
) -> Iterator[bytes]:
    """300 MiB of publishes, one after the other, in portions of at least 64 KiB."""
    one = publication(os.urandom(size), exchange, key, delivery_mode=mode, **more)
    count = 1 + 65_536 // len(one)
    return (one * count for _ in range(total // (count * len(one))))


def fan(broker: Watched, queues: int, durable: bool = False, arguments: Any = None) -> Peer:
    """A fanout exchange and its queues."""
    owner = broker.connect()
    owner.call(1, methods.ExchangeDeclare(exchange="all", type="fanout"))
    for number in range(queues):
        name = f"q{number}"
        owner.call(
            1,
            methods.QueueDeclare(
                queue=name, durable=durable, exclusive=not durable, arguments=arguments or {}
            ),
        )
        owner.call(1, methods.QueueBind(queue=name, exchange="all"))
    return owner


def end(broker: Watched) -> None:
    """The load goes, and nothing is left of it."""
    broker.drop_loads()
    broker.becomes_normal()
    broker.check()


def test_a_fanout_to_consumers_that_do_not_read(start: Any) -> None:
    with start() as broker:
        fan(broker, 0)
        for number in range(200):
            consumer = broker.connect()
            deafen(consumer)
            consumer.call(1, methods.QueueDeclare(queue=f"q{number}", exclusive=True))
            consumer.call(1, methods.QueueBind(queue=f"q{number}", exchange="all"))
            consumer.call(1, methods.BasicConsume(queue=f"q{number}", no_ack=number % 2 == 1))
        pour(broker.connect(), flood("all"))
        end(broker)


def test_large_messages_to_consumers_that_do_not_read(start: Any) -> None:
    """Each would have a message of 3 MB in the output of its connection."""
    with start() as broker:
        fan(broker, 0)
        for number in range(100):
            consumer = broker.connect()
            deafen(consumer)
            consumer.call(1, methods.QueueDeclare(queue=f"q{number}", exclusive=True))
            consumer.call(1, methods.QueueBind(queue=f"q{number}", exchange="all"))
            consumer.call(1, methods.BasicConsume(queue=f"q{number}"))
        pour(broker.connect(), flood("all", size=3_000_000))
        end(broker)


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
def test_a_fanout_to_queues_without_consumers(start: Any, mode: int) -> None:
    with start() as broker:
        fan(broker, 30, durable=mode == 2)
        pour(broker.connect(), flood("all", mode=mode))
        end(broker)


def test_durable_queues_beside_others(start: Any) -> None:
    """What the journal keeps for the former, the overflow keeps once for the latter."""
    with start() as broker:
        owner = fan(broker, 20)
        owner.call(1, methods.QueueDeclare(queue="kept", durable=True))
        owner.call(1, methods.QueueBind(queue="kept", exchange="all"))
        pour(broker.connect(), flood("all", mode=2))
        end(broker)


def test_without_a_store(start: Any) -> None:
    """Nothing can go to disk: publishers are blocked in time."""
    with start(has_store=False) as broker:
        fan(broker, 30)
        pour(broker.connect(), flood("all"))
        end(broker)


def test_small_messages_with_large_headers(start: Any) -> None:
    with start() as broker:
        fan(broker, 20)
        pour(broker.connect(), flood("all", size=1, headers={"large": "x" * 20_000}))
        end(broker)


def test_many_small_messages(start: Any) -> None:
    """The queues stay when the load goes: how long it takes to delete them is another matter."""
    with start() as broker:
        fan(broker, 20, durable=True)
        pour(broker.connect(), flood("all", size=20, total=20 * MIB))
        end(broker)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-priority": 5},
        {"x-message-ttl": 60_000},
        {"x-max-length": 500, "x-dead-letter-exchange": "graves"},
        {"x-message-ttl": 500, "x-dead-letter-exchange": "graves"},
    ],
    ids=["priorities", "time to live", "dead letters", "dead letters by time"],
)
def test_queues_with_rules(start: Any, arguments: Any) -> None:
    with start() as broker:
        owner = fan(broker, 10, arguments=arguments)
        owner.call(1, methods.ExchangeDeclare(exchange="graves", type="fanout"))
        owner.call(1, methods.QueueDeclare(queue="grave", exclusive=True))
        owner.call(1, methods.QueueBind(queue="grave", exchange="graves"))
        pour(broker.connect(), flood("all", priority=3))
        end(broker)


def test_dead_letters_of_a_fanout_into_full_queues(start: Any) -> None:
    """Each message has twenty others dropped, which go to one more queue."""
    with start() as broker:
        rules = {"x-max-length": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
        owner = fan(broker, 20, arguments=rules)
        owner.call(1, methods.QueueDeclare(queue="grave", exclusive=True, arguments={"x-max-length": 5}))
        source = {"x-max-length": 5, "x-dead-letter-exchange": "all"}
        owner.call(1, methods.QueueDeclare(queue="source", exclusive=True, arguments=source))
        for _ in range(4):
            pour(broker.connect(), flood(key="source", size=60_000, total=30 * MIB))
        for number in range(20):
            name = f"q{number}"
            assert owner.call(1, methods.QueueDeclare(queue=name, passive=True)).message_count < 200
        end(broker)


def test_a_delayed_exchange(start: Any) -> None:
    with start() as broker:
        owner = broker.connect()
        owner.call(
            1,
            methods.ExchangeDeclare(
                exchange="late", type="x-delayed-message", arguments={"x-delayed-type": "fanout"}
            ),
        )
        pour(broker.connect(), flood("late", headers={"x-delay": 3_600_000}))
        end(broker)


def test_a_commit_to_many_queues(start: Any) -> None:
    """It waits until there is memory for the rest of it."""
    with start() as broker:
        owner = fan(broker, 3000, durable=True)
        publisher = Peer.connect(broker.port, capabilities=())
        broker.loads.callback(publisher.abort)
        publisher.socket.settimeout(30.0)
        publisher.open(1)
        publisher.call(1, methods.TxSelect())
        for _ in range(20):
            publisher.raw(publication(b"x", "all", delivery_mode=2) * 100)
        publisher.send(1, methods.TxCommit())
        deadline_s = time.monotonic() + 20
        while broker.rss_bytes() < LIMIT_BYTES and time.monotonic() < deadline_s:
            time.sleep(0.05)  # the process is looked at from outside
        time.sleep(4)  # and what would be too much comes in that time
        assert broker.peak_bytes() < BAR_BYTES
        owner.send(1, *(methods.QueueDelete(queue=f"q{number}", no_wait=True) for number in range(3000)))
        publisher.expect(1, methods.TxCommitOk)
        end(broker)


def test_a_stream(start: Any) -> None:
    with start() as broker:
        owner = broker.connect()
        owner.call(1, methods.QueueDeclare(queue="log", durable=True, arguments={"x-queue-type": "stream"}))
        for _ in range(20):
            reader = broker.connect()
            deafen(reader)
            reader.call(1, methods.BasicQos(prefetch_count=10_000))
            reader.call(1, methods.BasicConsume(queue="log", arguments={"x-stream-offset": "first"}))
        pour(broker.connect(), flood(key="log", mode=2))
        end(broker)


def test_a_recent_history(start: Any) -> None:
    with start() as broker:
        owner = broker.connect()
        for number in range(6):
            owner.call(
                1,
                methods.ExchangeDeclare(
                    exchange=f"history{number}",
                    type="x-recent-history",
                    arguments={"x-recent-history-length": 10_000},
                ),
            )
            pour(broker.connect(), flood(f"history{number}", total=FLOOD_BYTES // 6))
        for number in range(6):
            owner.call(1, methods.ExchangeDelete(exchange=f"history{number}"))
        end(broker)


def test_consumers_that_read_and_do_not_ack(start: Any) -> None:
    """What lies on disk would all come to memory."""
    with start() as broker:
        owner = broker.connect()
        owner.call(1, methods.QueueDeclare(queue="q", durable=True))
        pour(broker.connect(), flood(key="q", mode=2))
        readers = []
        for number in range(4):
            hoarder = broker.connect()
            hoarder.call(1, methods.BasicConsume(queue="q", consumer_tag=f"c{number}"))
            readers.append(threading.Thread(target=discard, args=(hoarder, 1.5)))
            readers[-1].start()
        for reader in readers:
            reader.join()
        end(broker)


def test_a_storm_of_requeues(start: Any) -> None:
    """Handed out, sent back, handed out again: what comes back stays bounded too."""
    with start() as broker:
        owner = broker.connect()
        owner.call(1, methods.QueueDeclare(queue="q", durable=True))
        pour(broker.connect(), flood(key="q", mode=2))
        for _ in range(10):
            consumer = broker.connect()
            consumer.call(1, methods.BasicConsume(queue="q"))
            discard(consumer, 0.3)
            consumer.raw(b"")
            consumer.send(1, methods.BasicNack(delivery_tag=0, multiple=True, requeue=True))
            discard(consumer, 0.3)
            consumer.abort()
        end(broker)


@pytest.mark.parametrize("has_store", [True, False], ids=["with a store", "in memory"])
def test_the_alarm_ends_when_the_queues_are_drained(start: Any, has_store: bool) -> None:
    """No connection goes: what the messages took goes back to the system all the same."""
    with start(has_store=has_store) as broker:
        owner = broker.connect()
        for number in range(8):
            owner.call(1, methods.QueueDeclare(queue=f"q{number}"))
            pour(broker.connect(), flood(key=f"q{number}", size=3000, total=FLOOD_BYTES // 8), 0.3)
        for number in range(8):
            owner.call(1, methods.QueuePurge(queue=f"q{number}"))
        broker.becomes_normal()
        broker.check()


RETRY = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000, "x-delayed-retry-max": 3_600_000}


def refuse(broker: Watched, queue: str, octets: int) -> None:
    """A consumer sends everything back at once, for about so many octets; then it goes."""
    consumer = broker.connect()
    consumer.call(1, methods.BasicConsume(queue=queue))
    consumer.socket.settimeout(STALL_S)
    left = octets
    try:
        while left > 0 and (size := len(consumer.socket.recv(1 << 20))):
            left -= size
            consumer.send(1, methods.BasicNack(delivery_tag=0, multiple=True, requeue=True))
    except TimeoutError:
        pass  # all of it waits
    consumer.abort()


def ready(owner: Peer, queue: str) -> int:
    counted: int = owner.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count
    return counted


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
def test_messages_that_wait_for_a_retry(start: Any, mode: int) -> None:
    """A consumer that fails sends a whole backlog there."""
    with start() as broker:
        owner = broker.connect()
        owner.call(1, methods.QueueDeclare(queue="q", durable=True, arguments=RETRY))
        pour(broker.connect(), flood(key="q", mode=mode))
        refuse(broker, "q", FLOOD_BYTES)
        end(broker)


def test_small_messages_that_wait_for_a_retry(start: Any) -> None:
    """What is known of each takes more memory than the message."""
    with start() as broker:
        owner = broker.connect()
        owner.call(1, methods.QueueDeclare(queue="q", durable=True, arguments=RETRY))
        pour(broker.connect(), flood(key="q", mode=2, size=20, total=60 * MIB))
        refuse(broker, "q", FLOOD_BYTES)
        end(broker)


def test_messages_whose_retry_has_come(start: Any) -> None:
    """All of them at once, and nobody takes them."""
    with start() as broker:
        owner = broker.connect()
        soon = {**RETRY, "x-delayed-retry-min": 3000, "x-delayed-retry-max": 3000}
        owner.call(1, methods.QueueDeclare(queue="q", durable=True, arguments=soon))
        pour(broker.connect(), flood(key="q", mode=2))
        count = ready(owner, "q")
        refuse(broker, "q", count * BODY_BYTES)
        deadline_s = time.monotonic() + 60
        while ready(owner, "q") < count:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)  # nobody tells when a message has become ready
        end(broker)


def test_leases(start: Any) -> None:
    """Readers that take 50 MB each and read nothing."""
    with start() as broker:
        owner = broker.connect()
        owner.call(1, methods.QueueDeclare(queue="q", durable=True))
        pour(broker.connect(), flood(key="q", mode=2, size=2000))
        with connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as client:
            for number in range(6):
                leased = client.lease("q", f"reader{number}").take(rows_max=1_000_000, bytes_max=50_000_000)
                assert leased.end > leased.start
        end(broker)
