"""The clients of `kill_rounds.py`: they load a broker until it dies, and remember what it promised.

    publisher   confirms, several messages under way     Sent: which queues it must reach, promised or not
    transactor  tx: some messages, some acks, commit     Transaction: promised, or unknown
    consumer    takes, acks about half of it             Taken: ack sent or not, settled for certain or not

An ack has no answer. But the journal keeps the order of things: when a message that was published after
the ack is confirmed, the ack is on the disk, too. So a consumer publishes a mark now and then.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from peer import Gone, Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method

TOPIC = "rounds.topic"
FANOUT = "rounds.fanout"
MARKS = "rounds.marks"
# Which durable queues a message reaches, by exchange and routing key.
ROUTES: dict[tuple[str, str], tuple[str, ...]] = {
    (TOPIC, "a.x"): ("rounds.t0", "rounds.t1"),
    (TOPIC, "a.z"): ("rounds.t0",),
    (TOPIC, "b.x"): ("rounds.t1",),
    (FANOUT, ""): ("rounds.f0", "rounds.f1"),
}
QUEUES = ("rounds.t0", "rounds.t1", "rounds.f0", "rounds.f1")
BINDINGS = (
    (TOPIC, "a.#", "rounds.t0"),
    (TOPIC, "*.x", "rounds.t1"),
    (FANOUT, "", "rounds.f0"),
    (FANOUT, "", "rounds.f1"),
)
SIZES = (0, 1, 100, 100, 100, 1000, 1000, 5000, 20_000, 102_400)
POOL_OCTETS = 262_144
UNDER_WAY_MAX = 60

PERSISTENT = 2
TRANSIENT = 1


@dataclass(slots=True)
class Sent:
    """A persistent message that was handed to the socket."""

    name: str
    size: int
    queues: tuple[str, ...]
    promised: bool = False
    group: str = ""  # a publisher's messages have an order within each
    is_whole: bool = True  # in all of its queues or in none, even if it was not promised


@dataclass(slots=True)
class Transaction:
    """Messages and acks that come together or not at all."""

    sent: list[Sent] = field(default_factory=list)
    acked: list[Taken] = field(default_factory=list)
    promised: bool = False


@dataclass(slots=True)
class Taken:
    """A delivery that reached its consumer."""

    queue: str
    name: str
    acked: bool = False  # the ack was handed to the socket
    settled: bool = False  # the ack is on the disk for certain


class Bodies:
    """Contents that can be told from each other without being kept."""

    def __init__(self, seed: int) -> None:
        self.pool = random.Random(seed).randbytes(POOL_OCTETS)

    def of(self, name: str, size: int) -> bytes:
        start = sum(name.encode()) * 7919 % (POOL_OCTETS - max(SIZES))
        return self.pool[start : start + size]


class Client:
    """A thread with a connection, until the broker is gone."""

    def __init__(self, name: str, port: int, bodies: Bodies, seed: str) -> None:
        self.name = name
        self.bodies = bodies
        self.chance = random.Random(seed)
        self.error: BaseException | None = None
        self.peer = Peer.connect(port)
        self.peer.open(1)
        self.prepare()
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def prepare(self) -> None:
        """Whatever has to be declared first."""

    def turn(self) -> None:
        """One piece of work."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            while True:
                self.turn()
        except (Gone, ConnectionError):
            pass  # the broker was killed: that is how it ends
        except BaseException as error:
            self.error = error
        finally:
            self.peer.abort()

    def method(self) -> Method:
        frame = self.peer.frame_of(1)
        assert frame.kind == amqp.FRAME_METHOD, frame
        return decode_method(self.peer.version, frame.payload)

    def publish(self, name: str, size: int, exchange: str, key: str, mode: int = PERSISTENT) -> None:
        self.peer.publish(
            1,
            self.bodies.of(name, size),
            exchange=exchange,
            key=key,
            delivery_mode=mode,
            message_id=name,
        )


class Publisher(Client):
    """Publishes with confirms; some of it transient, for which nothing is promised."""

    def prepare(self) -> None:
        self.peer.call(1, methods.ConfirmSelect())
        self.sent: list[Sent] = []
        self.transient: set[str] = set()
        self.under_way: deque[tuple[int, Sent]] = deque()
        self.tag = 0

    def turn(self) -> None:
        for _ in range(self.chance.randint(1, 20)):
            self.publish_one()
        while len(self.under_way) > self.chance.randint(0, UNDER_WAY_MAX):
            self.take_confirm(self.method())

    def publish_one(self) -> None:
        (exchange, key), queues = self.chance.choice(list(ROUTES.items()))
        self.tag += 1
        name = f"{self.name}-{self.tag:06}"
        if self.chance.random() < 0.1:
            self.transient.add(name)
            self.publish(name, 10, exchange, key, TRANSIENT)
            return
        sent = Sent(name, self.chance.choice(SIZES), queues)
        self.sent.append(sent)
        self.under_way.append((self.tag, sent))
        self.publish(name, sent.size, exchange, key)

    def take_confirm(self, method: Method) -> None:
        assert isinstance(method, methods.BasicAck), method
        while self.under_way and self.under_way[0][0] <= method.delivery_tag:
            tag, sent = self.under_way[0]
            if not method.multiple and tag != method.delivery_tag:
                break
            sent.promised = True
            self.under_way.popleft()


class Transactor(Client):
    """Transactions: messages through several exchanges, and acks of what it got from one queue."""

    def prepare(self) -> None:
        self.peer.call(1, methods.TxSelect())
        self.transactions: list[Transaction] = []
        self.count = 0

    def turn(self) -> None:
        work = Transaction()
        for _ in range(self.chance.randint(0, 2)):
            got = self.peer.get(1, "rounds.t1")
            if got is not None:
                answer, content = got
                taken = Taken("rounds.t1", content.properties.message_id, acked=True)
                work.acked.append(taken)
                self.peer.send(1, methods.BasicAck(delivery_tag=answer.delivery_tag))
        for _ in range(self.chance.randint(1, 8)):
            (exchange, key), queues = self.chance.choice(list(ROUTES.items()))
            self.count += 1
            sent = Sent(f"{self.name}-{self.count:06}", self.chance.choice(SIZES), queues)
            work.sent.append(sent)
            self.publish(sent.name, sent.size, exchange, key)
        if self.chance.random() < 0.1:
            # Rolled back: the acks stand open again and are given in a transaction of their own.
            self.peer.call(1, methods.TxRollback())
            work.sent = []
            self.peer.send(1, methods.BasicRecover(requeue=True))
            self.peer.expect(1, methods.BasicRecoverOk)
            return
        self.transactions.append(work)
        self.peer.call(1, methods.TxCommit())
        work.promised = True
        for taken in work.acked:
            taken.settled = True


class Consumer(Client):
    """Takes from two queues, acks about half, and publishes a mark behind its acks now and then."""

    def __init__(self, name: str, port: int, bodies: Bodies, seed: str, queues: tuple[str, ...]) -> None:
        self.queues = queues
        super().__init__(name, port, bodies, seed)

    def prepare(self) -> None:
        self.taken: list[Taken] = []
        self.marks: deque[tuple[int, list[Taken]]] = deque()
        self.acked: list[Taken] = []
        self.unmarked = 0
        self.tag = 0
        self.peer.call(1, methods.ConfirmSelect())
        self.peer.call(1, methods.BasicQos(prefetch_count=40))
        self.early: deque[Method] = deque()
        for queue in self.queues:
            self.peer.send(1, methods.BasicConsume(queue=queue, consumer_tag=queue))

    def turn(self) -> None:
        method = self.method()
        if isinstance(method, methods.BasicConsumeOk):
            return
        if isinstance(method, methods.BasicAck):
            self.take_confirm(method)
            return
        assert isinstance(method, methods.BasicDeliver), method
        content = self.peer.content(1)
        taken = Taken(method.consumer_tag, content.properties.message_id)
        self.taken.append(taken)
        self.unmarked += 1
        self.settle(taken, method.delivery_tag)
        if self.unmarked >= 20:
            self.publish_mark()

    def settle(self, taken: Taken, tag: int) -> None:
        choice = self.chance.random()
        if choice < 0.5:
            taken.acked = True
            self.acked.append(taken)
            self.peer.send(1, methods.BasicAck(delivery_tag=tag))
        elif choice < 0.6:
            self.peer.send(1, methods.BasicReject(delivery_tag=tag, requeue=True))

    def publish_mark(self) -> None:
        self.tag += 1
        self.marks.append((self.tag, self.acked))
        self.acked, self.unmarked = [], 0
        self.publish("mark", 0, "", MARKS)

    def take_confirm(self, method: methods.BasicAck) -> None:
        while self.marks and self.marks[0][0] <= method.delivery_tag:
            _, acked = self.marks.popleft()
            for taken in acked:
                taken.settled = True


class Decorator(Client):
    """Declares and deletes durable queues with bindings, one at a time."""

    def prepare(self) -> None:
        self.count = 0
        self.certain: set[str] = set()  # are there
        self.gone: set[str] = set()  # are not
        self.pause = threading.Event()

    def turn(self) -> None:
        self.pause.wait(0.01)
        self.count += 1
        name = f"{self.name}-{self.count}"
        arguments: dict[str, Any] = {"x-text": name, "x-number": self.count}
        self.peer.call(1, methods.QueueDeclare(queue=name, durable=True, arguments=arguments))
        self.peer.call(1, methods.QueueBind(queue=name, exchange="amq.direct", routing_key=name))
        self.certain.add(name)
        if self.count > 3:
            old = f"{self.name}-{self.count - 3}"
            self.certain.discard(old)
            self.peer.call(1, methods.QueueDelete(queue=old))
            self.gone.add(old)


def starts(clients: list[Client]) -> Callable[[], None]:
    """Lets all of them loose; the answer waits for their ends."""
    for client in clients:
        client.thread.start()

    def join() -> None:
        for client in clients:
            client.thread.join(20)
            assert not client.thread.is_alive(), f"{client.name} does not end"
            if client.error is not None:
                raise client.error

    return join
