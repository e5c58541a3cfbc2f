"""What a broker should be, in the simplest form: names, and lists of numbered messages.

A `Copy` is one message in one queue. It is ready, or out with a client, or settled; what lies on disk
of it has three sequences, each known as an upper bound once its pass is over:

    sequence     its entry          0: it never goes to disk
    settled      its letting go     0: still held    UNKNOWN: let go, in this pass
    handed_out   the queue's mark   0: never         UNKNOWN: in this pass

Up to `synced` the disk must agree with the model; of what came later any records may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flintmq.broker.transactions.xid import Xid
from flintmq.storage.streams.log import StreamLog

UNKNOWN = 1 << 62

DELAYED = "x-delayed-message:"  # the type of an exchange, and behind it what it routes as

READY, OUT, SETTLED = "ready", "out", "settled"


@dataclass(eq=False, slots=True)
class Commit:
    """A transaction that was committed."""

    sequence: int = 0
    published: list[Copy] = field(default_factory=list)
    settled: list[Copy] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Copy:
    number: int
    queue: ModelQueue
    place: int
    sequence: int = 0
    state: str = READY
    redelivered: bool = False
    settled: int = 0
    handed_out: int = 0
    due_ms: int = -1  # when it expires; -1: never
    rank: int = 0  # minus its priority in the queue
    returns: int = 0
    entry: int = 0  # where it waits for its time
    heard: bool = False  # a client has it


@dataclass(eq=False, slots=True)
class ModelConsumer:
    tag: str
    queue: ModelQueue
    no_ack: bool
    prefetch: int
    outstanding: int = 0


@dataclass(eq=False, slots=True)
class ModelQueue:
    name: str
    number: int  # what the journal calls it; 0: transient
    copies: dict[int, Copy] = field(default_factory=dict)
    left: dict[int, Copy] = field(default_factory=dict)  # settled, and perhaps still on disk
    consumers: list[ModelConsumer] = field(default_factory=list)
    deleted: bool = False

    def ready(self) -> list[Copy]:
        return sorted((each for each in self.copies.values() if each.state is READY), key=_place)

    def out(self) -> int:
        return sum(each.state is OUT for each in self.copies.values())


@dataclass(eq=False, slots=True)
class ModelStream(ModelQueue):
    """Which message has which offset, and up to where that was promised."""

    numbers: list[int] = field(default_factory=list)
    promised: int = 0
    log: StreamLog | None = None
    has_holes: bool = False  # the loss of power has cost some of it, which was allowed

    def hear(self, end: int) -> None:
        """A promise has reached a client."""
        if not self.deleted:
            assert self.log is not None
            assert self.log.end >= end, f"offset {end - 1} of {self.name} was told before it was safe"
            self.promised = max(self.promised, end)


@dataclass(eq=False, slots=True)
class Held:
    """A delivery that the client has not settled."""

    copy: Copy
    consumer: ModelConsumer | None


@dataclass(eq=False, slots=True)
class ModelChannel:
    number: int
    mode: str = "plain"
    prefetch: int = 0
    last_tag: int = 0
    unacked: dict[int, Held] = field(default_factory=dict)
    consumers: dict[str, ModelConsumer] = field(default_factory=dict)
    published: int = 0
    confirmed: int = 0
    sequences: dict[int, int] = field(default_factory=dict)  # by the number of the publish
    # The same for streams, and where each ends with it.
    offsets: dict[int, list[tuple[ModelStream, int]]] = field(default_factory=dict)
    # Of the open transaction: (exchange, key, number, persistent); tag -> "ack", "reject", "requeue".
    gathered: list[tuple[str, str, int, bool]] = field(default_factory=list)
    settling: dict[int, str] = field(default_factory=dict)
    # In dtx mode `settling` has what all its open branches settle; this is the one at hand.
    branch: ModelBranch | None = None

    def free_tags(self) -> list[int]:
        return [tag for tag in self.unacked if tag not in self.settling]


Key = tuple[str, ...]


@dataclass(eq=False, slots=True)
class ModelBranch:
    """A branch of a distributed transaction: open, prepared or decided."""

    xid: Xid
    channel: ModelChannel | None  # that has worked in it, while it is open
    state: str = "open"
    gathered: list[tuple[str, str, int, bool]] = field(default_factory=list)
    settling: dict[int, str] = field(default_factory=dict)
    locked: list[tuple[Copy, str]] = field(default_factory=list)
    commit: Commit | None = None
    applied: int = 0

    def key(self) -> Key:
        return ("branch", str(self.xid))

    def value(self) -> object:
        """What must be on disk of one that is prepared."""
        locks = {(copy.queue.number, copy.number, way) for copy, way in self.locked if copy.sequence}
        return tuple(number for _, _, number, _ in self.gathered), frozenset(locks)


class LeaseValue(NamedTuple):
    """What must be on disk of a lease: its numbers, and the messages they stand for."""

    epoch: int
    acked: int
    last: int
    ends: tuple[int, ...]
    rows: tuple[int, ...]

    def released(self) -> LeaseValue:
        """The same after recovery has not found all of its messages."""
        return LeaseValue(self.epoch + 1, self.last, self.last, (), ())


@dataclass(eq=False, slots=True)
class ModelLease:
    """What one reader holds of one queue: the messages numbered acked + 1 to last."""

    reader: str
    queue: ModelQueue
    epoch: int = 0
    acked: int = 0
    last: int = 0
    ends: list[int] = field(default_factory=list)
    rows: list[Copy] = field(default_factory=list)
    timeout_ms: int = 0
    due_ms: int = 0

    def key(self) -> Key:
        return ("lease", str(self.queue.number), self.reader)

    def value(self) -> LeaseValue:
        numbers = tuple(copy.number for copy in self.rows)
        return LeaseValue(self.epoch, self.acked, self.last, tuple(self.ends), numbers)


class Model:
    """Topology and messages of one life of the broker, and what its disk may hold."""

    def __init__(self) -> None:
        self.exchanges: dict[str, tuple[str, bool]] = {}
        self.queues: dict[str, ModelQueue] = {}
        self.bindings: dict[Key, bool] = {}
        # Durable topology: every value since the last recovery, with the record that set it.
        self.history: dict[Key, list[tuple[int, object]]] = {}
        # Queues that may be on disk, by number.
        self.on_disk: dict[int, ModelQueue] = {}
        self.commits: list[Commit] = []
        self.branches: dict[Xid, ModelBranch] = {}
        self.decided: list[ModelBranch] = []  # in the order in which they are handed over
        self.streams: dict[str, ModelStream] = {}
        self.holders: dict[str, ModelQueue] = {}  # of exchanges that delay
        # What went from the journal to a stream: the copy it let go, the stream, where that ends with it.
        self.moves: list[tuple[Copy, ModelStream, int]] = []
        self.leases: dict[tuple[str, str], ModelLease] = {}  # by queue and reader
        self.deaths: list[tuple[Copy, Copy]] = []  # a copy that died, and its letter
        # By queue and message: the queue where it was before it came there in one group, in earlier lives.
        self.before: dict[tuple[int, int], int] = {}
        self.pending: list[Copy] = []  # settled or handed out in this pass
        self.places = 0

    # Topology

    def note(self, key: Key, value: object, sequence: int) -> None:
        self.history.setdefault(key, [(0, None)]).append((sequence, value))

    def sequence_of(self, key: Key) -> int:
        return self.history[key][-1][0] if key in self.history else 0

    def allowed(self, key: Key, floor: int) -> list[object]:
        """What the key may mean on a disk that has synced up to `floor`."""
        states = self.history.get(key, [(0, None)])
        at = max(index for index, (sequence, _) in enumerate(states) if sequence <= floor)
        return [value for _, value in states[at:]]

    def add_exchange(self, name: str, kind: str, durable: bool, sequence: int) -> None:
        self.exchanges[name] = (kind, durable)
        if durable:
            self.note(("exchange", name), kind, sequence)

    def delete_exchange(self, name: str, sequence: int) -> None:
        _, durable = self.exchanges.pop(name)
        holder = self.holders.pop(name, None)
        if holder is not None:
            holder.deleted = True
            for copy in list(holder.copies.values()):
                self.settle(copy)
        for key in [key for key in self.bindings if key[1] == name]:
            self.unbind(key, sequence)
        if durable:
            self.note(("exchange", name), None, sequence)

    def add_holder(self, holder: ModelQueue) -> None:
        self.holders[holder.name] = holder
        if holder.number:
            self.on_disk[holder.number] = holder

    def add_stream(self, stream: ModelStream, sequence: int) -> None:
        self.streams[stream.name] = stream
        self.note(("queue", stream.name), stream.number, sequence)

    def delete_stream(self, name: str, sequence: int) -> None:
        self.streams.pop(name).deleted = True
        for key in [key for key in self.bindings if key[2] == name]:
            self.unbind(key, sequence)
        self.note(("queue", name), None, sequence)

    def find(self, name: str) -> ModelQueue | None:
        return self.queues.get(name) or self.streams.get(name)

    def add_queue(self, queue: ModelQueue, sequence: int) -> None:
        self.queues[queue.name] = queue
        if queue.number:
            self.on_disk[queue.number] = queue
            self.note(("queue", queue.name), queue.number, sequence)

    def delete_queue(self, name: str, sequence: int) -> None:
        queue = self.queues.pop(name)
        queue.deleted = True
        for copy in queue.ready():
            self.settle(copy)
        for lease in [each for each in self.leases.values() if each.queue is queue]:
            del self.leases[name, lease.reader]
            for copy in lease.rows:
                self.settle(copy)
            self.note_lease(lease, None, sequence)
        for key in [key for key in self.bindings if key[2] == name]:
            self.unbind(key, sequence)
        if queue.number:
            self.note(("queue", name), None, sequence)

    def note_lease(self, lease: ModelLease, value: LeaseValue | None, sequence: int) -> None:
        if lease.queue.number:
            self.note(lease.key(), value, sequence)

    def bind(self, key: Key, sequence: int) -> None:
        queue = self.find(key[2])
        durable = self.is_durable(key[1]) and queue is not None and queue.number != 0
        self.bindings[key] = durable
        if durable:
            self.note(key, True, sequence)

    def unbind(self, key: Key, sequence: int) -> None:
        if self.bindings.pop(key):
            self.note(key, None, sequence)

    def is_durable(self, exchange: str) -> bool:
        return exchange.startswith("amq.") or self.exchanges[exchange][1]

    def kind_of(self, exchange: str) -> str:
        if exchange.startswith("amq."):
            return exchange[4:]
        return self.exchanges[exchange][0].removeprefix(DELAYED)

    def route(self, exchange: str, key: str) -> list[ModelQueue]:
        if not exchange:
            queue = self.find(key)
            return [] if queue is None else [queue]
        kind = self.kind_of(exchange)
        names = [
            name
            for _, source, name, pattern in self.bindings
            if source == exchange and (kind == "fanout" or matches(kind, pattern, key))
        ]
        found = [self.find(name) for name in dict.fromkeys(names)]
        return [queue for queue in found if queue is not None]

    # Messages

    def enqueue(self, number: int, queues: list[ModelQueue], persistent: bool, sequence: int) -> list[Copy]:
        """Adds the message; those of its copies that go to disk."""
        self.places += 1
        copies = []
        for queue in queues:
            if isinstance(queue, ModelStream):
                queue.numbers.append(number)
                continue
            copy = Copy(number, queue, self.places)
            queue.copies[number] = copy
            if persistent and queue.number:
                copy.sequence = sequence
                copies.append(copy)
        return copies

    def settle(self, copy: Copy, sequence: int = UNKNOWN) -> None:
        assert copy.state is not SETTLED
        copy.state = SETTLED
        del copy.queue.copies[copy.number]
        if copy.sequence:
            copy.settled = sequence
            copy.queue.left[copy.number] = copy
            if sequence == UNKNOWN:
                self.pending.append(copy)

    def hand_out(self, copy: Copy, held: Held, channel: ModelChannel, tag: int) -> None:
        copy.state = OUT
        channel.unacked[tag] = held
        if held.consumer is not None:
            held.consumer.outstanding += 1
        if copy.sequence and not copy.handed_out:
            copy.handed_out = UNKNOWN
            self.pending.append(copy)

    def release(self, channel: ModelChannel, tag: int) -> Copy:
        held = channel.unacked.pop(tag)
        if held.consumer is not None:
            held.consumer.outstanding -= 1
        return held.copy

    def put_back(self, channel: ModelChannel, tag: int) -> Copy:
        return self.ready_again(self.release(channel, tag))

    def ready_again(self, copy: Copy) -> Copy:
        copy.redelivered = True
        if copy.queue.deleted:
            self.settle(copy)
        else:
            copy.state = READY
        return copy

    def close_channel(self, channel: ModelChannel) -> list[Copy]:
        """What comes back by it."""
        for consumer in channel.consumers.values():
            consumer.queue.consumers.remove(consumer)
        channel.consumers.clear()
        channel.settling.clear()
        channel.branch = None
        for branch in [each for each in self.branches.values() if each.channel is channel]:
            del self.branches[branch.xid]
        channel.gathered.clear()
        return [self.put_back(channel, tag) for tag in list(channel.unacked)]

    def end_pass(self, sequence: int) -> None:
        """What was let go or handed out is in the journal, up to `sequence`."""
        for copy in self.pending:
            if copy.settled == UNKNOWN:
                copy.settled = sequence
            if copy.handed_out == UNKNOWN:
                copy.handed_out = sequence
        self.pending.clear()


def matches(kind: str, pattern: str, key: str) -> bool:
    if kind == "direct":
        return pattern == key
    if pattern == "#":
        return True
    words, wanted = key.split("."), pattern.split(".")
    return len(words) == len(wanted) and all(w in ("*", k) for w, k in zip(wanted, words, strict=True))


def _place(copy: Copy) -> tuple[int, int]:
    return copy.rank, copy.place
