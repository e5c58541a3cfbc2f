"""Batch leases: consecutive messages of a queue, numbered, held by a reader until it acks them.

A reader has a name, and one lease for each queue. What it is given is numbered without gaps:

    numbers    1 ........ 40 | 41 ............ 90 | 91 ....... 120 |
               acked         | a grant            | the next one   | taken from the queue when asked for
                             ^ acked                               ^ last

A number stands for the same message until it is acked: whoever asks for what follows 40 is given 41 to 90
again, and may read any range of it again, in this process or the next. A lease that is not renewed in
time ends: its messages go back to their places in the queue, to be redelivered, and their numbers are
never used again. A new reader of the same name claims the lease with a higher epoch; the old one is
refused from then on. What is leased may lie on disk only, if it is much or memory is short, and is read again
when a reader asks for it.

In the journal a lease is a key; its messages stay entries of the queue and are only named by it.

    key      l | queue's number u64 | reader's name
    value    epoch u64 | acked u64 | last u64 | timeout ms u64 | grants u32 | ends u64 * grants
             | runs u32 | first entry u64, count u32, for each run of consecutive entries
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections import deque
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from flintmq.broker.messages import entry_number
from flintmq.broker.queues.paged_tail import READ_BYTES, READ_ENTRIES_MAX
from flintmq.broker.store.topology_records import put_handed_out
from flintmq.errors import ServiceFault, UnreadableFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.timetable import Alarm, Timetable
    from flintmq.storage.journal.journal import Journal

log = logging.getLogger("flintmq.leases")

T = TypeVar("T")

LEASE = b"l"

# What one reader may hold of a queue.
LEASED_ROWS_MAX = 4_000_000
LEASED_BYTES_MAX = 536_870_912
LEASES_MAX = 1000
# One that a bug has kept from ending is looked at again so much later.
AGAIN_MS = 1000
# Messages that one step lets go of.
ENDED = 512
# What a message that leaves memory takes there beside its content, and of the time of a step.
SHED_MESSAGE_BYTES = 160
# Messages that one step takes from the queue, or acks. Where they lie apart in the journal, each ack writes
# a long record, so that a step acks more of them.
TAKEN = 1024
TAKEN_BYTES = 4_194_304
ACKED = 1024
ACKED_MAX = 16_384

# What has ended an epoch, as readers are told.
CLAIMED = "another reader of that name has claimed it"
EXPIRED = "the lease has expired"

# Work in portions, with what comes of it.
Portions: TypeAlias = "Generator[None, None, T]"

_KEY = struct.Struct("<Q")
_HEAD = struct.Struct("<QQQQI")
_COUNT = struct.Struct("<I")
_RUN = struct.Struct("<QI")


class Lease:
    """What one reader holds of one queue."""

    __slots__ = (
        "acked",
        "alarm",
        "deliveries",
        "due_ms",
        "ended_by",
        "ends",
        "epoch",
        "held_bytes",
        "kept",
        "kept_bytes",
        "last",
        "name",
        "queue",
        "runs",
        "taking",
        "timeout_ms",
        "timetable",
    )

    def __init__(self, name: str, queue: Queue, timeout_ms: int) -> None:
        self.name = name
        self.queue = queue
        self.timetable: Timetable = queue.pass_work.timetable
        self.timeout_ms = timeout_ms
        self.epoch = 0
        # What has ended the epoch before this one. After a restart nobody knows.
        self.ended_by = f"{CLAIMED}, or {EXPIRED}"
        self.acked = 0
        self.last = 0
        self.ends: list[int] = []  # the last number of each grant that is not acked whole
        self.deliveries: deque[Delivery] = deque()  # numbers acked + 1 to last
        self.runs = bytearray()  # their entries as the journal has them, if the queue is in the journal
        self.held_bytes = 0
        # Of these the deliveries whose messages are in memory, and octets: to look for them among millions
        # would take seconds.
        self.kept: deque[Delivery] = deque()
        self.kept_bytes = 0
        self.taking = False  # a request takes messages for it, a portion in each pass
        self.alarm: Alarm | None = None
        self.due_ms = 0

    # Who may

    def claim(self) -> None:
        """A new reader takes over from the one before."""
        self.epoch += 1
        self.ended_by = CLAIMED

    def check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ServiceFault(
                amqp.ACCESS_REFUSED,
                f"'{self.name}' reads queue '{self.queue.name}' under epoch {self.epoch}, "
                f"not {epoch}: {self.ended_by}",
            )

    # What it holds

    def grant(self, start: int, rows_max: int, bytes_max: int) -> Portions[tuple[int, int]]:
        """The numbers (first, last) that follow `start`: those given before, or new ones."""
        while self.taking:
            yield  # for another request
        if not self.acked <= start <= self.last:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"queue.lease: argument 'start': {start} is not from {self.acked}, "
                f"what is acked, to {self.last}, the last number given",
            )
        if start < self.last:
            return start + 1, self.ends[bisect_right(self.ends, start)]
        yield from self._take(rows_max, bytes_max)
        return start + 1, self.last

    def _take(self, rows_max: int, bytes_max: int) -> Portions[None]:
        if rows_max == 0:
            return  # a reader that claims its lease, and asks for nothing yet
        rows_max = min(rows_max, LEASED_ROWS_MAX - len(self.deliveries))
        bytes_max = min(bytes_max, LEASED_BYTES_MAX - self.held_bytes)
        if rows_max <= 0 or bytes_max <= 0:
            raise ServiceFault(
                amqp.RESOURCE_ERROR,
                f"'{self.name}' holds {len(self.deliveries)} messages of queue "
                f"'{self.queue.name}', {self.held_bytes} octets: ack some of them first",
            )
        queue = self.queue
        epoch = self.epoch
        taken: list[Delivery] = []
        runs = bytearray()
        self.taking = True
        try:
            size = kept = 0
            while len(taken) < rows_max and size < bytes_max:
                while self._sweep(taken):
                    yield
                    self.check_there(epoch)
                start = len(taken)
                octets = min(bytes_max - size, TAKEN_BYTES)
                more = self._take_some(taken, min(rows_max, start + TAKEN), octets)
                size += more
                if len(taken) == start:
                    break
                if self.journal() is not None:
                    add_runs(runs, taken[start:])
                if self._has_room(kept + more):
                    kept += more
                else:
                    page_out(queue, taken[start:])
                if len(taken) == start + TAKEN or more >= octets:
                    yield
                    self.check_there(epoch)
            if taken:
                self._hold(taken, size, kept, runs)
        except BaseException:
            queue.give_back_taken(taken)  # the reader has seen none of them
            raise
        finally:
            self.taking = False

    def _sweep(self, taken: list[Delivery]) -> bool:
        """As Queue.sweep; what cannot be read now is for the next request, if something is before it."""
        try:
            return self.queue.sweep()
        except UnreadableFault:
            if not taken:
                raise
            return False

    def _take_some(self, taken: list[Delivery], rows_max: int, bytes_max: int) -> int:
        """Takes messages until there are `rows_max`, or so many octets more; the octets."""
        queue = self.queue
        size = 0
        while len(taken) < rows_max and size < bytes_max:
            try:
                delivery = queue.take()
            except UnreadableFault:
                if not taken:
                    raise
                break
            if delivery is None:
                break
            message = delivery.message
            if message is None:
                continue
            queue.take_out(1)
            taken.append(delivery)
            queue.hand_out(message, None)  # whoever asked hears when the lease is safe
            size += len(message.content)
        return size

    def _has_room(self, more: int) -> bool:
        """Whether so many octets more may stay in memory."""
        store = self.queue.store
        return store is None or self.kept_bytes + more <= store.kept_bytes

    def _hold(self, taken: list[Delivery], size: int, kept: int, runs: bytearray) -> None:
        """What was taken is held under the lease; so many octets of it, `kept` of them in memory."""
        before = self.held_bytes, self.kept_bytes, self.last, list(self.ends)
        try:
            self.held_bytes += size
            self.kept_bytes += kept
            self.kept.extend(each for each in taken if each.paged is None)
            self.last += len(taken)
            self.ends.append(self.last)
            self.deliveries.extend(taken)
            join_runs(self.runs, runs)
            journal = self.journal()
            if journal is not None:
                # Before the lease, not with the pass: should it end by a crash, they are redelivered.
                put_handed_out(journal, self.queue.number, self.queue.handed_out)
            self.keep()
        except Exception:
            self.held_bytes, self.kept_bytes, self.last, self.ends = before
            while len(self.deliveries) > self.last - self.acked:
                delivery = self.deliveries.pop()
                if self.kept and self.kept[-1] is delivery:
                    self.kept.pop()
            self.count_runs()
            raise

    def check_there(self, epoch: int) -> None:
        """Raises unless queue and lease are as they were when the request came."""
        if self.queue.deleted:
            raise ServiceFault(amqp.NOT_FOUND, f"queue '{self.queue.name}' is gone")
        self.check(epoch)

    def between(self, start: int, end: int) -> Iterator[Delivery]:
        """The deliveries numbered start + 1 to end."""
        if not self.acked <= start <= end <= self.last:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"lease.read: ({start}, {end}] is not within ({self.acked}, "
                f"{self.last}], what '{self.name}' holds of queue '{self.queue.name}'",
            )
        return islice(self.deliveries, start - self.acked, end - self.acked)

    def read(self, start: int, end: int, most: int) -> Iterator[tuple[Delivery, Message | None]]:
        """The deliveries numbered start + 1 to end, at most so many, with their messages.

        What lies on disk stays there; None for what the disk has lost.
        """
        deliveries = list(islice(self.between(start, end), most))
        return zip(deliveries, self._messages(deliveries), strict=True)

    def _messages(self, deliveries: list[Delivery]) -> Iterator[Message | None]:
        store = self.queue.store
        at = 0
        while at < len(deliveries):
            entries = []
            for delivery in islice(deliveries, at, at + READ_ENTRIES_MAX):
                if delivery.paged is None:
                    break
                entries.append(delivery.paged.entry)
            if entries and store is not None:
                messages = store.load(entries[: store.fitting(entries, READ_BYTES)])
                yield from messages
                at += len(messages)
            else:
                yield deliveries[at].message
                at += 1

    def shed(self, kept: int, most: int) -> int:
        """Memory is short: all but the first `kept` octets go to disk, until `most` have; about how many."""
        shed = 0
        while self.kept and self.kept_bytes > kept and shed < most:
            octets = page_out(self.queue, [self.kept[-1]])
            self.kept.pop()
            self.kept_bytes -= octets
            shed += octets + SHED_MESSAGE_BYTES
        return shed

    def ack(self, through: int) -> Portions[int]:
        """Settles everything up to a number; how many messages that were."""
        if through > self.last:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"lease.ack: argument 'through': {through} is above {self.last}, the last number given",
            )
        epoch = self.epoch
        settled = 0
        while self.acked < through:
            if settled:
                yield
                self.check_there(epoch)
            settled += self._ack_some(min(through, self.acked + self._portion()))
        return settled

    def _portion(self) -> int:
        """How many messages one step may ack."""
        if self.queue.duplicates is None:
            return max(ACKED, min(ACKED_MAX, len(self.runs) // _RUN.size))
        # The values of those on disk are to be forgotten, so that each is read.
        octets = count = 0
        for delivery in islice(self.deliveries, READ_ENTRIES_MAX):
            octets += 0 if delivery.paged is None else delivery.content_size()
            if octets > READ_BYTES and count:
                break
            count += 1
        return count

    def _ack_some(self, through: int) -> int:
        journal = self.journal()
        settled = 0
        with nullcontext() if journal is None else journal.group():
            try:
                while self.acked < through:
                    delivery = self.deliveries[0]
                    size = delivery.content_size()
                    self.queue.settle_returned(delivery)
                    self.held_bytes -= size
                    if self.kept and self.kept[0] is delivery:
                        self.kept.popleft()
                        self.kept_bytes -= size
                    self.deliveries.popleft()
                    self.acked += 1
                    settled += 1
            finally:  # should one of them fail, those before it are acked
                self.queue.settled(settled)
                del self.ends[: bisect_right(self.ends, self.acked)]
                if settled:
                    drop_runs(self.runs, settled)
                    self.keep()
        return settled

    def release(self) -> int:
        """Gives back what is not acked; its numbers mean nothing any more."""
        returned = list(self.deliveries)
        before = self.held_bytes, self.kept_bytes, self.ends, self.acked, self.epoch, self.ended_by
        kept, self.kept = self.kept, deque()
        self.deliveries.clear()
        self.runs.clear()
        self.held_bytes = self.kept_bytes = 0
        self.ends = []
        self.acked = self.last
        self.epoch += 1
        self.ended_by = EXPIRED
        try:
            self.keep()
            if returned:
                self.queue.requeue(returned)
        except Exception:
            self.held_bytes, self.kept_bytes, self.ends, self.acked, self.epoch, self.ended_by = before
            self.kept = kept
            self.deliveries.extend(returned)
            self.count_runs()
            self.keep()
            raise
        self.stop_clock()
        return len(returned)

    # Time

    def renew(self, timeout_ms: int) -> None:
        """The reader is alive. The alarm stays where it is and looks again when it comes."""
        self.timeout_ms = timeout_ms
        self.due_ms = self.timetable.now_ms() + timeout_ms
        if self.alarm is not None and self.alarm.due_ms > self.due_ms:
            self.stop_clock()
        if self.alarm is None and self.deliveries:
            self.alarm = self.timetable.at(self.due_ms, self.look_at_clock)

    def look_at_clock(self) -> None:
        self.alarm = None
        if self.queue.deleted or not self.deliveries:
            return
        if self.timetable.now_ms() < self.due_ms:
            self.alarm = self.timetable.at(self.due_ms, self.look_at_clock)
            return
        try:
            self.release()
        except Exception:
            log.exception("a bug keeps the lease of %r on queue %r", self.name, self.queue.name)
            self.alarm = self.timetable.at(self.timetable.now_ms() + AGAIN_MS, self.look_at_clock)

    def stop_clock(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    # The journal

    def journal(self) -> Journal | None:
        queue = self.queue
        return queue.store.journal if queue.number and queue.store is not None else None

    def key(self) -> bytes:
        return LEASE + _KEY.pack(self.queue.number) + self.name.encode("utf-8", "surrogateescape")

    def keep(self) -> None:
        journal = self.journal()
        if journal is not None:
            journal.put_value(self.key(), self.encoded())

    def encoded(self) -> bytes:
        head = _HEAD.pack(self.epoch, self.acked, self.last, self.timeout_ms, len(self.ends))
        ends = struct.pack(f"<{len(self.ends)}Q", *self.ends)
        return b"".join([head, ends, _COUNT.pack(len(self.runs) // _RUN.size), self.runs])

    def count_runs(self) -> None:
        """Notes the entries of all that it holds anew."""
        self.runs.clear()
        if self.journal() is not None:
            add_runs(self.runs, list(self.deliveries))

    def restore(self, octets: bytes) -> None:
        """As it was before a restart; its queue has been restored and nobody has taken anything of it."""
        self.epoch, self.acked, self.last, self.timeout_ms, grants = _HEAD.unpack_from(octets)
        self.ends = list(struct.unpack_from(f"<{grants}Q", octets, _HEAD.size))
        entries = entries_of(octets)
        if not all(self._is_kept(entry) for entry in entries):
            return  # a transient message, or one that was torn off: the numbers are not whole
        found = self.queue.pick(set(entries))
        for entry in entries:
            delivery = found.get(entry)
            if delivery is not None:
                self.deliveries.append(delivery)
                self.held_bytes += delivery.content_size()
        self.count_runs()

    def resume(self) -> None:
        """All leases of the queue have been restored: this one goes on, or ends if it is not whole."""
        if len(self.deliveries) != self.last - self.acked:
            self.release()
        else:
            self.renew(self.timeout_ms)

    def _is_kept(self, entry: int) -> bool:
        """Whether the journal has it for the queue; the search for one that it has not would never end."""
        journal = self.journal()
        return (
            journal is not None
            and entry_number.is_in_journal(entry)
            and self.queue.number in journal.owners_of(entry_number.sequence_of(entry))
        )


def page_out(queue: Queue, deliveries: list[Delivery]) -> int:
    """Messages that are leased leave memory; their octets."""
    store = queue.store
    return 0 if store is None else sum([each.page_out(store, queue.number != 0) for each in deliveries])


def entries_of(octets: bytes) -> list[int]:
    """What a lease in the journal holds, in the order of its numbers."""
    grants = _HEAD.unpack_from(octets)[4]
    at = _HEAD.size + 8 * grants
    (runs,) = _COUNT.unpack_from(octets, at)
    entries: list[int] = []
    for index in range(runs):
        first, count = _RUN.unpack_from(octets, at + _COUNT.size + index * _RUN.size)
        entries.extend(range(first, first + 2 * count, 2))
    return entries


def runs_of(entries: list[int]) -> list[tuple[int, int]]:
    """Journal entries as (first, how many in a row): entry numbers are even, so a row goes by twos."""
    runs: list[tuple[int, int]] = []
    first = count = 0
    for entry in entries:
        if count and entry == first + 2 * count:
            count += 1
            continue
        if count:
            runs.append((first, count))
        first, count = entry, 1
    if count:
        runs.append((first, count))
    return runs


def add_runs(runs: bytearray, deliveries: list[Delivery]) -> None:
    """Notes the entries of further deliveries behind those that `runs` has."""
    entries = [delivery.entry() for delivery in deliveries]
    join_runs(runs, b"".join([_RUN.pack(first, count) for first, count in runs_of(entries)]))


def join_runs(runs: bytearray, further: bytes | bytearray) -> None:
    """Appends further runs; two that follow on each other become one."""
    if runs and further:
        first, count = _RUN.unpack_from(runs, len(runs) - _RUN.size)
        next_first, next_count = _RUN.unpack_from(further)
        if next_first == first + 2 * count:
            _RUN.pack_into(runs, len(runs) - _RUN.size, first, count + next_count)
            further = further[_RUN.size :]
    runs += further


def drop_runs(runs: bytearray, messages: int) -> None:
    """Takes the first entries away; there are none in a queue that is not in the journal."""
    over = 0
    while messages and over < len(runs):
        first, count = _RUN.unpack_from(runs, over)
        if count > messages:
            _RUN.pack_into(runs, over, first + 2 * messages, count - messages)
            break
        messages -= count
        over += _RUN.size
    del runs[:over]


def find_lease(queue: Queue, name: str) -> Lease:
    lease = queue.leases.get(name) if queue.leases is not None else None
    if lease is None:
        raise ServiceFault(
            amqp.NOT_FOUND, f"'{name}' has no lease of queue '{queue.name}': ask for queue.lease"
        )
    return lease


def lease_of(queue: Queue, name: str, timeout_ms: int) -> Lease:
    """The reader's lease of the queue, a new one if it has none."""
    if queue.leases is None:
        queue.leases = {}
    lease = queue.leases.get(name)
    if lease is None:
        if len(queue.leases) >= LEASES_MAX:
            raise ServiceFault(
                amqp.RESOURCE_ERROR,
                f"queue '{queue.name}' has {LEASES_MAX} readers already: release some",
            )
        lease = queue.leases[name] = Lease(name, queue, timeout_ms)
    return lease


def end_leases(queue: Queue) -> Iterator[None]:
    """The queue is going, and everything in it; in portions."""
    while queue.leases:
        lease = queue.leases.popitem()[1]
        lease.stop_clock()
        while lease.deliveries:
            count = min(ENDED, len(lease.deliveries))
            queue.requeue([lease.deliveries.popleft() for _ in range(count)])
            yield
        journal = lease.journal()
        if journal is not None:
            journal.delete_value(lease.key())
        yield
    queue.leases = None


def restore_lease(queue: Queue, name: str, octets: bytes) -> Lease:
    lease = lease_of(queue, name, 0)
    lease.restore(octets)
    return lease


def split_key(rest: bytes) -> tuple[int, str]:
    """A queue's number and a reader's name, from a key of the journal without its first octet."""
    return _KEY.unpack_from(rest)[0], rest[_KEY.size :].decode("utf-8", "surrogateescape")
