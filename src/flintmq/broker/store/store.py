"""Between messages and the disk: what is kept, what is let go, and who waits for a promise.

A persistent message that reaches a durable queue is an entry of the journal, once, owned by all its
durable queues. A transient one that must leave memory is an entry of the overflow, once, and `shared` counts
the queues that hold it. Where durable queues share a message with others, these share one of the overflow.
The entry of a message tells where it is: messages/entry_number.py.

A confirm waits until the journal has synced past it; so do the octets of a connection behind a reply
to tx.commit or to a change of the durable topology.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from flintmq.broker.messages import entry_number, published
from flintmq.broker.messages.message import Message
from flintmq.broker.store import entry_head
from flintmq.broker.store.spooling import HeldSpool, Sharing
from flintmq.broker.store.topology_records import put_handed_out
from flintmq.errors import StorageFault, UnreadableFault
from flintmq.storage.spool import Spool, SpoolReader
from flintmq.wire import amqp, traits

if TYPE_CHECKING:
    from flintmq.broker.store.publisher import PublisherConfirms
    from flintmq.protocol.outbox import Output
    from flintmq.storage.journal.delivered_marks import DeliveredMarks
    from flintmq.storage.journal.journal import Journal
    from flintmq.storage.journal.overflow import Overflow

log = logging.getLogger("flintmq.store")

# What an entry's header holds before the route, see entry_head.py: size of the content header, traits. Of a
# spooled message the content header comes next, as the payload is the body alone.
_HEAD = struct.Struct("<II")
# After it, if the traits say NOTED: when the message came, and by which connection.
_NOTES = struct.Struct("<qI")
# After it, if the traits say TIMED: when the message came, and its expiration (-1: none), in milliseconds.
_TIMES = struct.Struct("<qq")
# The overflow counts owners too; each of its entries has one.
OVERFLOW_OWNER = 1
# Owners of the journal are u32: the lower half are queues, the upper half branches.
OWNERS = 1 << 31

# So much of a queue stays in memory, with a store to take the rest: 131,072 small messages are 25 MB.
KEPT_MESSAGES = 131_072
KEPT_BYTES = 67_108_864
# The same when memory is short.
KEPT_MESSAGES_LEAN = 1024
KEPT_BYTES_LEAN = 1_048_576
# Loaded from the paged tail at a time, a third of a millisecond of work; large messages come in smaller
# portions of the same octets.
LOADED_MESSAGES = 128
# Entries that are known to be lost, of 100 octets each: what is lost beyond these may be counted twice.
LOST_MAX = 65_536


class MarkedQueue(Protocol):
    """A queue, as far as its mark in the journal needs it: up to which entry it has handed out."""

    handed_out_due: bool

    @property
    def name(self) -> str: ...

    @property
    def number(self) -> int: ...

    @property
    def deleted(self) -> bool: ...

    @property
    def handed_out(self) -> int: ...


class Store:
    """The journal and the overflow of one broker."""

    __slots__ = (
        "alarm",
        "arrived",
        "beside",
        "beside_of",
        "branch_owners",
        "branches_made",
        "delivered_marks",
        "due",
        "handed_out",
        "held",
        "journal",
        "kept_bytes",
        "kept_bytes_lean",
        "kept_messages",
        "kept_messages_lean",
        "loaded_messages",
        "lost",
        "lost_entries",
        "numbers",
        "outputs",
        "overflow",
        "paged_out",
        "promised",
        "recovered",
        "shared",
        "spools",
        "synced",
        "waiting",
    )

    def __init__(self, journal: Journal, overflow: Overflow, delivered_marks: DeliveredMarks) -> None:
        self.journal = journal
        self.overflow = overflow
        self.paged_out = overflow.journal  # what the overflow writes into
        self.delivered_marks = delivered_marks
        self.synced = journal.synced_sequence
        self.recovered = journal.synced_sequence  # the newest record of an earlier life
        self.waiting: deque[tuple[int, PublisherConfirms, int]] = deque()
        self.outputs: dict[Output, None] = {}
        self.handed_out: list[MarkedQueue] = []  # whose mark has to be written
        self.alarm = ""
        self.lost = 0  # messages that the disk did not give back, since the start
        self.lost_entries: set[int] = set()  # the first of them: each is asked for again and again
        self.numbers = 0  # given to durable queues so far
        # How much of each queue stays in memory; the simulation makes it little.
        self.kept_messages = KEPT_MESSAGES
        self.kept_bytes = KEPT_BYTES
        self.kept_messages_lean = KEPT_MESSAGES_LEAN
        self.kept_bytes_lean = KEPT_BYTES_LEAN
        self.loaded_messages = LOADED_MESSAGES
        self.arrived: dict[Message, Spool] = {}  # bodies of messages that no queue has yet
        self.held: dict[int, HeldSpool] = {}
        self.spools = 0  # held so far
        self.shared: dict[int, int] = {}  # entries of the overflow that several queues hold: how many
        # What the journal keeps for durable queues and the overflow for others, by the one and by the other.
        self.beside: dict[int, int] = {}
        self.beside_of: dict[int, int] = {}
        # Entries whose body may be lost by a failed sync, and which publish is to be refused then.
        self.promised: dict[int, tuple[PublisherConfirms, int]] = {}
        self.branch_owners: set[int] = set()  # what the journal calls branches of distributed transactions
        # From where no earlier life has counted: what damage brings back of a branch that is over must not
        # be taken for part of a new one.
        self.branches_made = self.recovered % OWNERS
        self.due: list[tuple[int, Callable[[], None]]] = []  # what is to be done when a record is safe
        journal.on_synced = self.on_synced
        for each in (journal, overflow.journal):
            each.on_alarm = self.on_alarm
            each.on_clear = self.on_clear
        journal.on_damage = self.on_damage

    def next_number(self) -> int:
        """What the journal will call a new durable queue."""
        self.numbers += 1
        return self.numbers

    def next_branch(self) -> int:
        """What the journal will call a new branch: a number that no other has now."""
        while True:
            self.branches_made = (self.branches_made + 1) % OWNERS
            owner = OWNERS + self.branches_made
            if owner not in self.branch_owners:
                self.branch_owners.add(owner)
                return owner

    # Messages

    def keep(self, message: Message, owners: tuple[int, ...]) -> int:
        """Puts the message into the journal, for these queues."""
        head = self.head_of(message, message.route)
        message.entry = entry_number.of_journal(self.journal.append_entry(owners, head, message.content))
        return 0

    def head_of(self, message: Message, rest: bytes) -> bytes:
        """The header of the message's entry: what is noted of it, and then the rest."""
        if message.traits & traits.TIMED:
            rest = _TIMES.pack(message.arrived_ms, message.lifetime_ms) + rest
        return entry_head.pack(
            message.header_size, message.traits | traits.NOTED, message.arrived_ms, message.origin, rest
        )

    def stage(self, message: Message, owners: tuple[int, ...]) -> int:
        """Puts a message into the journal that goes to no queue yet; its number there."""
        if message.traits & traits.SPOOLED:
            self.keep_spooled(message, owners)
        else:
            self.keep(message, owners)
        entry = entry_number.sequence_of(message.entry)
        message.entry = 0
        return entry

    def staged(self, entries: list[int]) -> list[Message | None]:
        """Messages that were staged, as if they had just come."""
        messages = self.load([entry_number.of_journal(entry) for entry in entries])
        for message in messages:
            if message is not None:
                message.entry = 0
        return messages

    def journal_entry(self, owner: int, message: Message | None) -> int:
        """The entry that keeps the message for this queue; 0 if it is not in the journal."""
        if message is None or not owner or entry_number.is_transient(message.entry):
            return 0
        return entry_number.sequence_of(message.entry)

    def settle(self, owner: int, entry: int) -> int:
        """A queue lets go of an entry."""
        if entry_number.is_held(entry):
            self.release(entry)
        elif entry_number.is_transient(entry):
            self.settle_spilled(entry)
        else:
            self.journal.append_settle(owner, entry_number.sequence_of(entry))
        return 0

    def settle_spilled(self, entry: int) -> None:
        """One of the queues lets go of an entry of the overflow; the last of them ends it."""
        if self.shared:
            holders = self.shared.get(entry, 1)
            if holders > 2:
                self.shared[entry] = holders - 1
                return
            if holders == 2:
                del self.shared[entry]
                return
        if self.beside_of:
            kept = self.beside_of.pop(entry, 0)
            if kept:
                del self.beside[kept]
        self.overflow.append_settle(OVERFLOW_OWNER, entry_number.sequence_of(entry))

    def spill(self, message: Message) -> int:
        """Puts a transient message on disk, for all the queues that hold it; the entry it has there."""
        head = self.head_of(message, message.route)
        entry = entry_number.of_overflow(self.overflow.append_entry((OVERFLOW_OWNER,), head, message.content))
        if message.holders > 1:
            self.shared[entry] = message.holders
        return entry

    def paged_entry(self, message: Message, is_durable: bool) -> int:
        """The entry by which a queue finds the message again; it goes to disk now unless it is there."""
        entry = message.entry
        if entry_number.is_transient(entry) or (entry and is_durable):
            return entry
        if not entry:
            entry = self.spill(message)
            message.entry = entry
            return entry
        # Durable queues let go of it in the journal, at other times than those whose share this is.
        beside = self.beside.get(entry, 0)
        if beside:
            self.shared[beside] = self.shared.get(beside, 1) + 1
            return beside
        head = self.head_of(message, message.route)
        beside = entry_number.of_overflow(
            self.overflow.append_entry((OVERFLOW_OWNER,), head, message.content)
        )
        self.beside[entry] = beside
        self.beside_of[beside] = entry
        return beside

    def load(self, entries: list[int]) -> list[Message | None]:
        """The messages of these entries; None for a hole (0) and for what the disk does not give back."""
        if not all(entries):
            return [self.load_one(entry) if entry else None for entry in entries]
        if self.held and entries and entry_number.is_held(max(entries)):
            return [self.load_one(entry) for entry in entries]
        try:
            read = self.read(entries)
        except StorageFault:
            return [self.load_one(entry) for entry in entries]
        return [
            restored(entry, head, content, self.recovered)
            for entry, (head, content) in zip(entries, read, strict=True)
        ]

    def read(self, entries: list[int]) -> list[tuple[bytes, bytes]]:
        sequences = [entry_number.sequence_of(entry) for entry in entries]
        transient = len([entry for entry in entries if entry_number.is_transient(entry)])
        if not transient:
            return self.journal.read_entries(sequences)
        if transient == len(entries):
            return self.overflow.read_entries(sequences)
        return [
            (self.overflow if entry_number.is_transient(entry) else self.journal).read_entry(sequence)
            for entry, sequence in zip(entries, sequences, strict=True)
        ]

    def fitting(self, entries: list[int], octets: int) -> int:
        """How many of the first entries can be read if they may have so many octets: at least one."""
        count = 0
        for entry in entries:
            octets -= self.octets_of(entry)
            if octets < 0 and count:
                break
            count += 1
        return count

    def octets_of(self, entry: int) -> int:
        """What is read from the disk to load an entry; 0 for a hole and for what the store holds."""
        if not entry or entry_number.is_held(entry):
            return 0
        sequence = entry_number.sequence_of(entry)
        if entry_number.is_transient(entry):
            return self.paged_out.entry_octets(sequence)
        return self.journal.entry_octets(sequence)

    def load_one(self, entry: int) -> Message | None:
        if entry_number.is_held(entry):
            return self.held[entry].message
        try:
            head, content = self.read([entry])[0]
        except StorageFault as fault:
            log.error("a message is lost: %s", fault)
            self.note_lost(entry)
            return None
        return restored(entry, head, content, self.recovered)

    def note_lost(self, entry: int) -> None:
        """For those who look on."""
        if entry in self.lost_entries:
            return
        self.lost += 1
        if len(self.lost_entries) < LOST_MAX:
            self.lost_entries.add(entry)

    # Spooled messages

    def keep_spooled(self, message: Message, owners: tuple[int, ...]) -> None:
        """Puts a message whose body has arrived into the journal, for these queues."""
        head = self.head_of(message, message.content + message.route)
        spool = self.arrived[message].share()
        try:
            message.entry = entry_number.of_journal(self.journal.append_spooled(owners, head, spool))
        except Exception:
            spool.discard()
            raise

    def hold(self, message: Message, spool: Spool, queues: int) -> None:
        """Keeps the body for so many queues, until the process ends."""
        self.spools += 1
        entry = entry_number.of_hold(self.spools)
        self.held[entry] = HeldSpool(message, spool.share(), queues)
        message.entry = entry

    def release(self, entry: int) -> None:
        """A queue lets go of a message that is held."""
        hold = self.held[entry]
        hold.queues -= 1
        if not hold.queues:
            del self.held[entry]
            hold.spool.discard()

    def sharing(self, spool: Spool | None, message: Message) -> Sharing:
        """With it: the message has a share of the body that has come for another one."""
        return Sharing(self, spool, message)

    def forget_arrived(self, message: Message) -> None:
        """All queues that get the message have their share of its body."""
        spool = self.arrived.pop(message, None)
        if spool is not None:
            spool.discard()

    def body_of(self, message: Message) -> SpoolReader | None:
        """The body of a spooled message; None if the disk has lost it, which is told once.

        A fault if the disk does not say so, or nothing of the directory is there now.
        """
        spool = self.spool_of(message)
        why = "its file is gone" if spool is None else self.look_at(spool)
        if spool is None or why:
            self.lose_body(message, why)
            return None
        return SpoolReader(spool)

    def look_at(self, spool: Spool) -> str:
        """Why its file is not the body any more; nothing if it is."""
        try:
            why = spool.look()
        except OSError as failure:
            raise unreadable(f"{spool.path}: {failure.strerror or failure}") from failure
        if why and self.journal.is_gone():
            raise unreadable(self.journal.missing)
        return why

    def lose_body(self, message: Message, why: str) -> None:
        if message.entry not in self.lost_entries:
            log.error("a message of %d octets is lost: %s", message.body_size(), why)
        self.note_lost(message.entry)

    def spool_of(self, message: Message) -> Spool | None:
        """The file that the body of a spooled message lies in."""
        entry = message.entry
        if entry_number.is_held(entry):
            return self.held[entry].spool
        if entry:
            return self.journal.spool_of(entry_number.sequence_of(entry))
        return self.arrived.get(message)

    # Promises

    def last(self) -> int:
        """The number of the newest record."""
        return self.journal.next_sequence - 1

    def wait(self, confirms: PublisherConfirms, published: int) -> None:
        """Has the channel confirm `published` once all that is in the journal now is safe."""
        self.waiting.append((self.last(), confirms, published))

    def hold_back(self, output: Output, sequence: int) -> None:
        """Nothing more leaves by this connection until this record is safe."""
        if sequence > self.synced:
            output.barrier = max(output.barrier, sequence)
            self.outputs[output] = None

    def when_synced(self, sequence: int, callback: Callable[[], None]) -> None:
        """Calls back once this record is safe; at once if it is."""
        if sequence <= self.synced:
            callback()
        else:
            self.due.append((sequence, callback))

    def on_synced(self, sequence: int) -> None:
        self.synced = sequence
        if self.due:
            due, self.due = self.due, []
            for wanted, callback in due:
                try:
                    self.when_synced(wanted, callback)
                except Exception:
                    log.exception("a bug ends what was to be done when record %d is safe", wanted)
        if self.promised:
            self.promised = {entry: whose for entry, whose in self.promised.items() if entry > sequence}
        while self.waiting and self.waiting[0][0] <= sequence:
            _, confirms, published = self.waiting.popleft()
            confirms.confirm_through(published)
        if self.outputs:
            for output in [each for each in self.outputs if each.barrier <= sequence]:
                del self.outputs[output]
                output.lift_barrier()

    def end_pass(self) -> None:
        """What was appended is on its way to the disk."""
        if self.journal.in_group():
            # Else all that is appended from here on would be dropped with it by the next start.
            log.error("a group of the journal was left open: it is closed now, as far as it has come")
            self.journal.commit_group()
        if self.handed_out:
            self.note_handed_out()
        if self.delivered_marks.pages:
            self.delivered_marks.write()
        self.journal.end_batch()
        self.paged_out.end_batch()

    def note_handed_out(self) -> None:
        """What has left queues in this pass is marked."""
        queues, self.handed_out = self.handed_out, []
        for queue in queues:
            queue.handed_out_due = False
            if not queue.deleted:
                self.delivered_marks.put(queue.number, queue.handed_out)
                try:
                    put_handed_out(self.journal, queue.number, queue.handed_out)
                except Exception:  # the pass goes on for all others
                    log.exception("what queue %r has handed out is marked with the next pass", queue.name)
                    queue.handed_out_due = True
                    self.handed_out.append(queue)

    def is_overflow_behind(self) -> bool:
        """Whether what is spilled should wait for the disk."""
        return self.paged_out.is_behind()

    def limit_batches(self, most: int) -> None:
        """No more than so many octets should wait for the disk in either journal."""
        for each in (self.journal, self.overflow.journal):
            each.limit_batch(most)

    def require_free(self, octets: int) -> None:
        """From now on publishers wait while the disk has less free space than this."""
        for each in (self.journal, self.overflow.journal):
            each.require_free(octets)

    def is_behind(self) -> bool:
        """Whether publishers should wait for the disk."""
        return self.journal.is_behind() or self.paged_out.is_behind()

    def collect(self) -> None:
        """Takes notice of what the threads of the journal have done."""
        self.journal.collect()
        self.overflow.collect()

    def tick(self) -> None:
        """Work that is due by the clock: syncs by interval, further attempts, reclaiming."""
        self.journal.tick()
        self.overflow.tick()

    def on_alarm(self, text: str) -> None:
        self.alarm = text

    def on_clear(self) -> None:
        """One of the two has no reason to worry any more; the other may."""
        self.alarm = self.journal.alarm or self.overflow.journal.alarm

    def on_damage(self, segment: int, entries: list[int]) -> None:
        log.error("segment %d of the journal is damaged: %d messages are lost", segment, len(entries))
        for entry in entries:
            self.note_lost(entry_number.of_journal(entry))
        for entry in entries:
            promised = self.promised.pop(entry, None)
            if promised is not None:
                confirms, number = promised
                confirms.lose(number)

    def close(self) -> bool:
        """Whether everything is on disk."""
        self.end_pass()
        for spool in [*self.arrived.values(), *[hold.spool for hold in self.held.values()]]:
            spool.discard()
        self.arrived.clear()
        self.held.clear()
        self.overflow.close()
        self.delivered_marks.close()
        try:
            self.journal.close()
        except StorageFault as fault:
            log.error("not everything is on disk: %s", fault)
            return False
        return True


def unreadable(why: str) -> UnreadableFault:
    text = f"messages cannot be read from the disk now, and wait until they can be: {why}"
    return UnreadableFault(amqp.RESOURCE_ERROR, text)


def restored(entry: int, head: bytes, content: bytes, recovered: int) -> Message:
    """The message of an entry; up to `recovered` they are of an earlier life of the broker."""
    header_size, found = _HEAD.unpack_from(head)
    at = _HEAD.size
    origin, arrived_ms, lifetime_ms = 0, 0, -1
    if found & traits.NOTED:
        arrived_ms, origin = _NOTES.unpack_from(head, at)
        at += _NOTES.size
        found &= ~traits.NOTED
        if entry_number.is_in_journal(entry) and entry_number.sequence_of(entry) <= recovered:
            origin = 0  # connections are counted anew since then
    if found & traits.TIMED:
        arrived_ms, lifetime_ms = _TIMES.unpack_from(head, at)
        at += _TIMES.size
    route = head[at:]
    if found & traits.SPOOLED:
        content, route = route[:header_size], route[header_size:]
    end = 2 + route[0] + route[1 + route[0]]
    if found & traits.BLIND:
        end += 4 + int.from_bytes(route[end : end + 4], "big")
    if len(route) > end:  # whoever kept it has noted something behind the route
        route = route[:end]
    if found & traits.HAS_EXPIRATION and not found & traits.TIMED:  # it has not reached a queue yet
        lifetime_ms = published.lifetime_ms_of(content)
    message = Message.create(route, content, header_size, found, origin)
    message.entry = entry
    message.arrived_ms = arrived_ms
    message.lifetime_ms = lifetime_ms
    message.holders = 1
    return message
