"""Random operations: first a topology, then what clients do with it, right and wrong.

A channel consumes from one queue alone: what two queues send to one channel may come in any order. All else
is up to chance, so that the same seed gives the same operations.
"""

from __future__ import annotations

from random import Random
from typing import Any

from differential.operation import Operation

QUEUES = ["q0", "q1", "q2"]
EXCHANGES = ["x0", "x1"]
# By connection and channel: the queue that it consumes from.
CHANNELS = {(0, 1): "q0", (0, 2): "q1", (1, 1): "q0", (1, 2): "q2"}
KEYS = ["a", "a.b", "b", "q0", "q1", "q2"]
PATTERNS = ["a", "a.*", "#", "*.b", "b", "q1"]
TYPES = ["direct", "fanout", "topic", "headers"]
EXPIRATIONS = ["0", "1", "10", "60000"]


class Generator:
    """Makes the operations of one run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.made = 0
        self.timed = self.random.random() < 0.25
        self.queue_arguments = {queue: self.arguments() for queue in QUEUES}
        # Letters and what is published meanwhile race in RabbitMQ: then one message at a time is published.
        self.racing = any("x-dead-letter-exchange" in each for each in self.queue_arguments.values())
        self.types = {exchange: self.random.choice(TYPES) for exchange in EXCHANGES}

    def operations(self, count: int) -> list[Operation]:
        made = self.topology()
        while len(made) < count:
            made.append(self.operation())
        return made

    # What there is

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def topology(self) -> list[Operation]:
        made = [self.declare_exchange(exchange) for exchange in EXCHANGES]
        made += [self.declare_queue(queue) for queue in QUEUES]
        made += [self.bind() for _ in range(self.random.randrange(5))]
        return made

    def arguments(self) -> dict[str, Any]:
        """What a queue is declared with: each rule now and then, alone or with others."""
        pick, arguments = self.random, {}
        if self.maybe(0.25):
            arguments["x-max-length"] = pick.randrange(4)
        if self.maybe(0.05):
            arguments["x-max-length-bytes"] = pick.choice([0, 5, 12])
        if self.maybe(0.2):
            arguments["x-overflow"] = pick.choice(["drop-head", "reject-publish", "reject-publish-dlx"])
        if self.maybe(0.4):
            arguments["x-dead-letter-exchange"] = pick.choice(["", *EXCHANGES])
            if self.maybe(0.6):
                arguments["x-dead-letter-routing-key"] = pick.choice(KEYS)
        if self.timed and self.maybe(0.3):
            arguments["x-message-ttl"] = pick.choice([0, 1, 10, 60000])
        if self.maybe(0.12):
            arguments["x-max-priority"] = pick.choice([1, 2, 5])
        if self.maybe(0.1):
            arguments["x-single-active-consumer"] = pick.choice([True, True, False])
        return arguments

    def declare_queue(self, queue: str) -> Operation:
        given: dict[str, Any] = {"queue": queue, "arguments": self.queue_arguments[queue]}
        given["durable"] = self.maybe(0.5)
        if self.maybe(0.1):
            given["auto_delete"] = True
        connection, channel = self.place()
        if self.maybe(0.07):
            given["exclusive"] = True
        return Operation("declare queue", connection, channel, given)

    def declare_exchange(self, exchange: str) -> Operation:
        given: dict[str, Any] = {"exchange": exchange, "type": self.types[exchange]}
        given["durable"] = self.maybe(0.5)
        if self.maybe(0.1):
            given["auto_delete"] = True
        if self.maybe(0.04):
            given["internal"] = True
        if self.maybe(0.15):
            given["arguments"] = {"alternate-exchange": self.random.choice([*EXCHANGES, "amq.fanout"])}
        connection, channel = self.place()
        return Operation("declare exchange", connection, channel, given)

    def place(self) -> tuple[int, int]:
        return self.random.choice(list(CHANNELS))

    def bind(self) -> Operation:
        exchange = self.random.choice(EXCHANGES)
        given: dict[str, Any] = {"queue": self.random.choice(QUEUES), "exchange": exchange}
        given["key"] = self.random.choice(PATTERNS)
        if self.types[exchange] == "headers":
            given["arguments"] = {
                "x-match": self.random.choice(["all", "any"]),
                "h": self.random.choice([1, 2]),
            }
        return Operation("bind", *self.place(), given)

    # What clients do

    def operation(self) -> Operation:
        made = self.random.choices([choice for choice, _ in CHOICES], [weight for _, weight in CHOICES])[0](
            self
        )
        # A life of a millisecond may or may not end between two operations of one piece.
        if self.maybe(0.12) and made.name in TOGETHER and not self.timed:
            return self.together(made)
        return made

    def together(self, first: Operation) -> Operation:
        """Some operations of one channel in one piece."""
        operations = [(first.name, first.arguments)]
        for _ in range(30):
            if len(operations) > 3:
                break
            other = self.random.choices([choice for choice, _ in CHOICES], [weight for _, weight in CHOICES])[
                0
            ](self)
            here = CHANNELS[first.connection, first.channel]
            names = [name for name, _ in operations]
            if self.racing and other.name in RACING and any(name in RACING for name in names):
                continue
            if other.name in TOGETHER and (other.name != "consume" or other.arguments["queue"] == here):
                operations.append((other.name, other.arguments))
        return Operation("together", first.connection, first.channel, {"operations": operations})

    def publish(self) -> Operation:
        self.made += 1
        given: dict[str, Any] = {"body": f"m{self.made}"}
        if self.maybe(0.55):
            given["key"] = self.random.choice(QUEUES)
        else:
            given["exchange"] = self.random.choice(EXCHANGES)
            given["key"] = self.random.choice(KEYS)
        if self.maybe(0.02):
            given["exchange"] = "no such exchange"
        if self.maybe(0.2):
            given["mandatory"] = True
        if self.maybe(0.2) and not self.racing:
            given["times"] = self.random.randrange(2, 5)
        properties = self.properties()
        if properties:
            given["properties"] = properties
        return Operation("publish", *self.place(), given)

    def properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        if self.maybe(0.3):
            properties["delivery_mode"] = self.random.choice([1, 2])
        if self.maybe(0.2):
            properties["priority"] = self.random.choice([0, 1, 2, 5, 9])
        if self.timed and self.maybe(0.3):
            properties["expiration"] = self.random.choice(EXPIRATIONS)
        if self.maybe(0.02):
            properties["expiration"] = self.random.choice(["soon", "-1", ""])
        if self.maybe(0.05):
            properties["user_id"] = self.random.choice(["guest", "guest", "other"])
        headers: dict[str, Any] = {}
        if self.maybe(0.2):
            headers["h"] = self.random.choice([1, 2])
        if self.maybe(0.08):
            headers[self.random.choice(["CC", "BCC"])] = [
                self.random.choice(KEYS) for _ in range(self.random.randrange(3))
            ]
        if headers:
            properties["headers"] = headers
        return properties

    def consume(self) -> Operation:
        (connection, channel), queue = self.random.choice(list(CHANNELS.items()))
        given: dict[str, Any] = {"queue": queue, "consumer_tag": self.random.choice(["c", "d", "e"])}
        if self.maybe(0.3):
            given["no_ack"] = True
        if self.maybe(0.07):
            given["exclusive"] = True
        if self.maybe(0.15):
            given["arguments"] = {"x-priority": self.random.choice([-1, 1, 2])}
        return Operation("consume", connection, channel, given)

    def cancel(self) -> Operation:
        return Operation("cancel", *self.place(), {"consumer_tag": self.random.choice(["c", "d", "e"])})

    def get(self) -> Operation:
        given: dict[str, Any] = {"queue": self.random.choice(QUEUES)}
        if self.maybe(0.3):
            given["no_ack"] = True
        return Operation("get", *self.place(), given)

    def settle(self) -> Operation:
        name = self.random.choice(["ack", "ack", "nack", "nack", "reject"])
        given: dict[str, Any] = {"place": self.random.randrange(6)}
        if name != "ack":
            given["requeue"] = self.maybe(0.6)
        if name != "reject" and self.maybe(0.35):
            given["multiple"] = True
        if self.maybe(0.06):
            given["keep"] = True  # so that it is settled twice
        if self.maybe(0.06):
            del given["place"]
            given["tag"] = self.random.randrange(6)
        return Operation(name, *self.place(), given)

    def redeclare(self) -> Operation:
        if self.maybe(0.3):
            exchange = self.random.choice(EXCHANGES)
            made = self.declare_exchange(exchange)
            if self.maybe(0.4):
                made.arguments["passive"] = True
            return made
        made = self.declare_queue(self.random.choice(QUEUES))
        if self.maybe(0.4):
            made.arguments["passive"] = True
        return made

    def delete(self) -> Operation:
        given: dict[str, Any] = {}
        if self.maybe(0.3):
            given["if_unused"] = True
        if self.maybe(0.25):
            given["exchange"] = self.random.choice(EXCHANGES)
            return Operation("delete exchange", *self.place(), given)
        if self.maybe(0.3):
            given["if_empty"] = True
        given["queue"] = self.random.choice(QUEUES)
        return Operation("delete queue", *self.place(), given)

    def rewire(self) -> Operation:
        chance = self.random.random()
        made = self.bind()
        if chance < 0.5:
            return made
        if chance < 0.75:
            return Operation("unbind", made.connection, made.channel, made.arguments)
        given = {"source": self.random.choice(EXCHANGES), "destination": self.random.choice(EXCHANGES)}
        given["key"] = self.random.choice(PATTERNS)
        name = "bind exchange" if chance < 0.9 else "unbind exchange"
        return Operation(name, *self.place(), given)

    def purge(self) -> Operation:
        return Operation("purge", *self.place(), {"queue": self.random.choice(QUEUES)})

    def qos(self) -> Operation:
        given: dict[str, Any] = {"count": self.random.choice([0, 1, 1, 2, 3])}
        if self.maybe(0.3):
            given["global"] = True
        return Operation("qos", *self.place(), given)

    def recover(self) -> Operation:
        return Operation("recover", *self.place(), {"requeue": True})

    def mode(self) -> Operation:
        name = self.random.choice(
            ["select confirms", "select confirms", "select transactions", "commit", "roll back"]
        )
        return Operation(name, *self.place())

    def end(self) -> Operation:
        if self.maybe(0.3):
            return Operation("abort", *self.place())
        return Operation("close channel", *self.place())


CHOICES = [
    (Generator.publish, 34),
    (Generator.consume, 10),
    (Generator.get, 12),
    (Generator.settle, 18),
    (Generator.cancel, 3),
    (Generator.redeclare, 3),
    (Generator.delete, 2),
    (Generator.rewire, 5),
    (Generator.purge, 1),
    (Generator.qos, 4),
    (Generator.recover, 2),
    (Generator.mode, 4),
    (Generator.end, 2),
]
# What may be sent in one piece with others.
TOGETHER = (
    "publish",
    "get",
    "ack",
    "nack",
    "reject",
    "cancel",
    "consume",
    "purge",
    "commit",
    "roll back",
)
# What makes letters, or brings messages beside them.
RACING = ("publish", "nack", "reject", "commit", "purge", "get", "consume", "cancel")
