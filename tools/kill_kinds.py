"""The clients of `kill_rounds.py` for all that is more than a plain queue, and what must hold of it.

    rounds.ttl      expires -> rounds.dead        confirmed: there, once; nowhere else
    rounds.later    delays  -> rounds.delayed     confirmed: comes when it is due, once
    rounds.ranked   priorities                    higher ones first, each in the order of its publisher
    rounds.stream   offsets                       without gaps; what was read at an offset stays there
    rounds.leased   leases, acked by number       a number stands for the same message after the kill
    rounds.both     a stream and a queue          confirmed: in both

A reader of a lease acks some of what it holds; another one never does, and its leases expire.
"""

from __future__ import annotations

import threading
from typing import Any

from kill_load import PERSISTENT, Bodies, Client, Publisher, Sent, Taken
from peer import Peer

from flintmq.wire import methods
from flintmq.wire.columns import Columns
from flintmq.wire.methods import Method

TTL = "rounds.ttl"
DEAD = "rounds.dead"
LATER = "rounds.later"
DELAYED = "rounds.delayed"
RANKED = "rounds.ranked"
STREAM = "rounds.stream"
LEASED = "rounds.leased"
BOTH = "rounds.both"
HOMES = (DEAD, DELAYED, RANKED, STREAM, LEASED)

TTL_MS = 20
DELAYS_MS = (1, 5, 20, 60)
PRIORITY_MAX = 3
SIZES = (0, 10, 100, 1000)
REPLY_TO = "amq.rabbitmq.reply-to"
SERVICES = 2  # the channel that asks them
READER, BRIEF = "reader", "brief"
BRIEF_MS = 40


def declare_kinds(peer: Peer) -> None:
    dead: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    arguments: dict[str, dict[str, Any]] = {
        TTL: {"x-message-ttl": TTL_MS, **dead},
        DEAD: {},
        DELAYED: {},
        RANKED: {"x-max-priority": PRIORITY_MAX},
        STREAM: {"x-queue-type": "stream"},
        LEASED: {},
    }
    for name, given in arguments.items():
        peer.call(1, methods.QueueDeclare(queue=name, durable=True, arguments=given))
    delayed = {"x-delayed-type": "direct"}
    later = methods.ExchangeDeclare(
        exchange=LATER, type="x-delayed-message", durable=True, arguments=dict(delayed)
    )
    peer.call(1, later)
    peer.call(1, methods.QueueBind(queue=DELAYED, exchange=LATER, routing_key="k"))
    peer.call(1, methods.ExchangeDeclare(exchange=BOTH, type="fanout", durable=True))
    for queue in (STREAM, LEASED):
        peer.call(1, methods.QueueBind(queue=queue, exchange=BOTH))


def open_services(peer: Peer) -> None:
    peer.open(SERVICES)
    peer.call(SERVICES, methods.BasicConsume(queue=REPLY_TO, no_ack=True))


def ask(peer: Peer, service: str, **arguments: Any) -> tuple[dict[str, Any], bytes]:
    headers = {name.replace("_", "-"): value for name, value in arguments.items()}
    peer.publish(SERVICES, b"", exchange="amq.system", key=service, reply_to=REPLY_TO, headers=headers)
    _, content = peer.delivery(SERVICES)
    return dict(content.properties.headers), content.body


def tagged(bodies: Bodies, name: str, size: int) -> bytes:
    """A body that says its own name, as those who read columns see no properties."""
    return name.encode() + b"|" + bodies.of(name, size)


def name_of(bodies: Bodies, body: bytes) -> str:
    name, _, rest = body.partition(b"|")
    assert bodies.of(name.decode(), len(rest)) == rest, f"{name.decode()} has another body than was published"
    return name.decode()


class KindPublisher(Publisher):
    """Publishes with confirms, to a kind of queue by chance."""

    def prepare(self) -> None:
        self.begun = threading.Event()  # something was promised: from here on a kill shows something
        super().prepare()

    def take_confirm(self, method: Method) -> None:
        super().take_confirm(method)
        self.begun.set()

    def publish_one(self) -> None:
        self.tag += 1
        name = f"{self.name}-{self.tag:06}"
        size = self.chance.choice(SIZES)
        exchange, key, homes, group = self.chance.choice(
            (
                ("", TTL, (DEAD,), ""),
                (LATER, "k", (DELAYED,), str(self.chance.choice(DELAYS_MS))),
                ("", RANKED, (RANKED,), str(self.chance.randint(0, PRIORITY_MAX))),
                ("", STREAM, (STREAM,), ""),
                ("", LEASED, (LEASED,), ""),
                (BOTH, "", (STREAM, LEASED), ""),
            )
        )
        more: dict[str, Any] = {}
        if exchange == LATER:
            more["headers"] = {"x-delay": int(group)}
        elif key == RANKED:
            # Those above the highest count as the highest.
            more["priority"] = int(group) + (2 if int(group) == PRIORITY_MAX and size else 0)
        sent = Sent(name, size, homes, group=group, is_whole=False)
        self.sent.append(sent)
        self.under_way.append((self.tag, sent))
        self.peer.publish(
            1,
            tagged(self.bodies, name, size),
            exchange=exchange,
            key=key,
            delivery_mode=PERSISTENT,
            message_id=name,
            **more,
        )


class LeaseReader(Client):
    """Leases, reads, reads again, and acks about half; or, if it is brief, lets all of it expire."""

    reader = READER

    def prepare(self) -> None:
        self.taken: list[Taken] = []
        self.rows: dict[int, Taken] = {}  # by number
        self.acked_asked = self.acked = self.last = self.epoch = 0
        self.pause = threading.Event()
        open_services(self.peer)
        self.claim()

    def claim(self) -> None:
        results, _ = ask(self.peer, "queue.lease", queue=LEASED, consumer=self.reader, claim=True, max_rows=0)
        self.epoch = results["epoch"]
        self.acked = self.acked_asked = self.last = results["acked"]

    def held(self) -> dict[str, Any]:
        return {"queue": LEASED, "consumer": self.reader, "epoch": self.epoch}

    def turn(self) -> None:
        results, _ = ask(
            self.peer,
            "queue.lease",
            **self.held(),
            start=self.last,
            max_rows=self.chance.randint(1, 20),
            wait_ms=20,
        )
        assert "error-code" not in results, results
        if results["last"] > self.last:
            self.read(self.last, results["last"])
            self.last = results["last"]
        if self.acked < self.last and self.chance.random() < 0.5:
            again = self.chance.randint(self.acked, self.last)
            self.read(again, self.last)
        if self.chance.random() < 0.7:
            self.ack(self.chance.randint(self.acked, self.last))

    def read(self, start: int, end: int) -> None:
        results, body = ask(self.peer, "lease.read", **self.held(), **{"from": start, "to": end})
        assert results.get("count") == end - start, results
        for row in Columns(body).rows():
            name = name_of(self.bodies, row["value"])
            known = self.rows.get(row["offset"])
            if known is None:
                known = self.rows[row["offset"]] = Taken(LEASED, name)
                self.taken.append(known)
                self.seen(name, bool(row["redelivered"]))
            assert known.name == name, f"number {row['offset']} was {known.name} and is {name}"

    def seen(self, name: str, redelivered: bool) -> None:
        """A message was handed to this reader."""

    def ack(self, through: int) -> None:
        self.acked_asked = through
        for number in range(self.acked + 1, through + 1):
            self.rows[number].acked = True
        results, _ = ask(self.peer, "lease.ack", **self.held(), through=through)
        assert results.get("acked") == through, results
        for number in range(self.acked + 1, through + 1):
            self.rows[number].settled = True
        self.acked = through


class SteadyReader(LeaseReader):
    """Gets what the brief one has let go, and sees that it was handed out before."""

    def __init__(self, name: str, port: int, bodies: Bodies, seed: str, brief: BriefReader) -> None:
        self.brief = brief
        super().__init__(name, port, bodies, seed)

    def seen(self, name: str, redelivered: bool) -> None:
        assert redelivered or name not in self.brief.names, (
            f"{name} has expired, and comes as if for the first time"
        )


class BriefReader(LeaseReader):
    """Never acks: its messages are back in the queue before long."""

    reader = BRIEF

    def prepare(self) -> None:
        self.names: set[str] = set()
        super().prepare()

    def turn(self) -> None:
        results, _ = ask(
            self.peer, "queue.lease", **self.held(), start=self.last, max_rows=2, timeout_ms=BRIEF_MS
        )
        if "error-code" not in results and results["last"] > self.last:
            rows, body = ask(
                self.peer, "lease.read", **self.held(), **{"from": self.last, "to": results["last"]}
            )
            if "error-code" not in rows:  # else it has expired already
                for row in Columns(body).rows():
                    name = name_of(self.bodies, row["value"])
                    self.taken.append(Taken(LEASED, name))
                    self.names.add(name)
        self.pause.wait(2 * BRIEF_MS / 1000)
        self.claim()


class StreamFollower(Client):
    """Reads the stream to its end, again and again, and remembers what is where."""

    def __init__(self, name: str, port: int, bodies: Bodies, seed: str, start: int) -> None:
        self.at = start
        super().__init__(name, port, bodies, seed)

    def prepare(self) -> None:
        self.names: dict[int, str] = {}
        open_services(self.peer)

    def turn(self) -> None:
        ask(self.peer, "stream.offsets", stream=STREAM, beyond=self.at, wait_ms=50)
        for offset, name in fetched(self.peer, self.bodies, self.at):
            assert offset == self.at, f"offset {offset} comes where {self.at} was due"
            self.names[offset] = name
            self.at += 1


def fetched(peer: Peer, bodies: Bodies, start: int) -> list[tuple[int, str]]:
    """Offsets and names from here to the end."""
    found: list[tuple[int, str]] = []
    while True:
        results, body = ask(peer, "stream.fetch", stream=STREAM, **{"from": start})
        assert "error-code" not in results, results
        found += [(row["offset"], name_of(bodies, row["value"])) for row in Columns(body).rows()]
        if results["next"] >= results["end"]:
            return found
        start = results["next"]


def check_lease(peer: Peer, reader: LeaseReader) -> int:
    """The lease is as it was promised; it is released then. How many rows were found again."""
    results, _ = ask(peer, "lease.list", queue=LEASED)
    rows = [row for row in results["rows"] if row["consumer"] == reader.reader]
    assert rows, f"the lease of {reader.reader!r} is gone"
    row = rows[0]
    assert row["epoch"] >= reader.epoch, f"{reader.reader} had epoch {reader.epoch}, and has {row['epoch']}"
    held = {"queue": LEASED, "consumer": reader.reader, "epoch": row["epoch"]}
    if reader.reader == READER:
        assert row["epoch"] == reader.epoch
        assert reader.acked <= row["acked"] <= reader.acked_asked, f"{row} of {reader.acked_asked} acked"
        assert row["last"] >= reader.last, f"{row}: {reader.last} were given"
    same = 0
    if row["last"] > row["acked"]:
        results, body = ask(peer, "lease.read", **held)
        assert results["count"] == row["last"] - row["acked"], results
        for found in Columns(body).rows():
            name = name_of(reader.bodies, found["value"])
            known = reader.rows.get(found["offset"])
            if known is None:
                reader.taken.append(Taken(LEASED, name))  # the answer was lost by the kill
            else:
                assert known.name == name, f"number {found['offset']} was {known.name} and is {name}"
                same += 1
    results, _ = ask(peer, "lease.release", **held)
    assert results["returned"] == row["last"] - row["acked"], results
    return same
