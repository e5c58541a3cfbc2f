"""Large messages to several queues at once, while any function on their way raises: each queue has its share.

One file is for all queues of a message, and the store counts those that have it. Histories have no messages
that lie in files; here each call of each function of the injector raises in its turn, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flintmq.broker.exchanges.dead_letter import DeadLetters
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.router import Router
from flintmq.broker.queues.queue import Queue
from flintmq.broker.store.store import Store
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.errors import ConnectionFault
from flintmq.protocol import connection
from flintmq.wire import amqp, methods, traits
from flintmq.wire.properties import BasicProperties, encode_properties

from .agreement import check_agreement
from .broker_client import Client, frame
from .fault_injector import INJECTOR, Injected
from .test_broker_recovery import Bench

# Beside those that histories have, whose seeds would be other histories with more.
POINTS = (
    (Store, ("keep_spooled", "hold", "release", "body_of", "spool_of")),
    (StreamQueue, ("write_spooled",)),
    (Router, ("fitting", "admit", "own_twin", "enqueue_stored")),
    (DeadLetters, ("send_spooled",)),
    (DelayedExchange, ("keep_spooled", "let_go")),
)
SPOOLED_BYTES = 10_000
BODY = bytes(range(256)) * 40
QUEUES = ("before", "s", "durable", "behind")
FULL = {
    "x-max-length": 0,
    "x-overflow": "reject-publish-dlx",
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "behind",
}


def wired() -> tuple[Bench, Client]:
    """A fanout `f` to queues that last and others, to a stream and to a full queue; what comes later."""
    bench = Bench()
    client = bench.client()
    client.say(1, methods.ExchangeDeclare(exchange="f", type="fanout", durable=True))
    for name in QUEUES:
        arguments = {"x-queue-type": "stream"} if name == "s" else {}
        is_durable = name in ("s", "durable")
        client.say(1, methods.QueueDeclare(queue=name, durable=is_durable, arguments=arguments))
        client.say(1, methods.QueueBind(queue=name, exchange="f"))
    client.say(1, methods.QueueDeclare(queue="full", arguments=FULL))
    client.say(1, methods.QueueBind(queue="full", exchange="f"))
    dying = {"x-dead-letter-exchange": "f"}
    client.say(1, methods.QueueDeclare(queue="dying", durable=True, arguments=dying))
    kind = {"x-delayed-type": "fanout"}
    client.say(1, methods.ExchangeDeclare(exchange="x", type="x-delayed-message", arguments=kind))
    client.say(1, methods.ExchangeBind(destination="f", source="x"))
    rest(bench)
    return bench, client


def send(client: Client, exchange: str, key: str, is_persistent: bool, **properties: Any) -> None:
    """Frame by frame: what comes in one piece is not spooled."""
    method = methods.BasicPublish(exchange=exchange, routing_key=key)
    encoded = encode_properties(BasicProperties(delivery_mode=2 if is_persistent else 1, **properties))
    header = b"\x00\x3c\x00\x00" + len(BODY).to_bytes(8, "big") + encoded
    client.say(1, method)
    client.receive(frame(amqp.FRAME_HEADER, 1, header))
    client.receive(frame(amqp.FRAME_BODY, 1, BODY))


def publish(bench: Bench, client: Client, is_persistent: bool) -> None:
    send(client, "f", "", is_persistent)


def die(bench: Bench, client: Client, is_persistent: bool) -> None:
    send(client, "", "dying", is_persistent, expiration="10")
    send(client, "", "dying", is_persistent)
    bench.clock.now_s += 0.1
    bench.broker.timetable.run()
    client.say(1, methods.BasicGet(queue="dying"))
    client.say(1, methods.BasicReject(delivery_tag=1, requeue=False))


def wait(bench: Bench, client: Client, is_persistent: bool) -> None:
    send(client, "x", "", is_persistent, headers={"x-delay": 10})
    bench.clock.now_s += 0.1
    bench.broker.timetable.run()


def rest(bench: Bench) -> None:
    """What a bug has held up is tried again."""
    for _ in range(8):
        bench.clock.now_s += 2.0
        bench.broker.timetable.run()
        bench.broker.finish_pass()
        assert bench.broker.store is not None
        bench.broker.store.collect()
    bench.broker.pass_work.chores.finish()


def bodies_of(bench: Bench, queue: Queue) -> list[bytes]:
    """Takes all that the queue has."""
    store = bench.broker.store
    assert store is not None
    found = []
    while (delivery := queue.take()) is not None:
        message = delivery.message
        assert message is not None
        assert message.traits & traits.SPOOLED
        reader = store.body_of(message)
        assert reader is not None, f"a body of {queue.name} is lost"
        found.append(reader.read(0, reader.octets))
        reader.close()
        queue.settle_returned(delivery)
        queue.settled(1)
    return found


def run(way: Callable[[Bench, Client, bool], None], is_persistent: bool, label: str, calls: int) -> bool:
    """Whether the function has raised; an AssertionError says what is wrong then."""
    INJECTOR.disarm()
    bench, client = wired()
    INJECTOR.point, INJECTOR.left = label, calls
    try:
        with INJECTOR.watching():
            way(bench, client, is_persistent)
    except Injected:
        client.session.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, "INTERNAL_ERROR"))
    is_fired = bool(INJECTOR.fired)
    INJECTOR.disarm()
    client.drop()
    rest(bench)
    check_agreement(bench.broker, [])
    queues = bench.broker.virtual_hosts["/"].queues
    for name, queue in queues.items():
        if not queue.is_stream:
            count = queue.message_count()
            assert bodies_of(bench, queue) == [BODY] * count, f"{name} does not give its bodies"
    rest(bench)
    store = bench.broker.store
    assert store is not None
    assert not store.held, "a body is held for nobody"
    assert not store.arrived, "a body has come for nobody"
    check_agreement(bench.broker, [])
    return is_fired


def run_all() -> int:
    """How many calls have raised. For a process of its own, with the pure build."""
    logging.disable(logging.CRITICAL)
    INJECTOR.install()
    for owner, names in POINTS:
        for name in names:
            label = f"{owner.__name__}.{name}"
            INJECTOR.counts.setdefault(label, 0)
            setattr(owner, name, INJECTOR.before(owner.__dict__[name], label))
    least, connection.SPOOLED_BYTES_MIN = connection.SPOOLED_BYTES_MIN, SPOOLED_BYTES
    raised = 0
    try:
        for way in (publish, die, wait):
            for is_persistent in (False, True):
                for label in INJECTOR.counts:
                    calls = 1
                    try:
                        while run(way, is_persistent, label, calls):
                            raised += 1
                            calls += 1
                    except Exception as failure:
                        what = f"{way.__name__}, persistent={is_persistent}: call {calls} of {label}"
                        raise AssertionError(f"{what}: {failure!r}") from failure
    finally:
        connection.SPOOLED_BYTES_MIN = least
        INJECTOR.disarm()
        logging.disable(logging.NOTSET)
    return raised
