"""A message queue: what is ready, what came back, and whose turn it is.

    positions   ... 17  18  19 | 20  21  22  23 ... | ...
                    returned   |  ready (a ring)    |  paged tail (on disk only)
                    (sorted)     ^ position of its head

Messages are numbered by their place. A channel holds the messages that it has handed out until they are
acked. A message that comes back goes to `returned`, which is always ahead of the ring, so the message regains
its place for free; when memory is short it lies on disk there too (delivery.py). A consumer that may refuse
messages (no-local, a selector) takes some from the middle and leaves a hole, in the paged tail too; one that
comes back to the paged tail fills its hole there. Past a certain length, and sooner when memory is short,
messages that arrive go into the paged tail and are loaded again when ready runs out: a long queue costs
little memory. Deliveries go to the consumers' outputs.

What a queue does beyond first in, first out is decided by the parts of its rules (active_rules.py) and done
here, under the methods of the same names: a plain queue has no rules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from flintmq.broker.messages import entry_number
from flintmq.broker.messages.message import Message
from flintmq.broker.queues import put_flags
from flintmq.broker.queues.active_rules import ActiveRules
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.consumer_timeout import consumer_timeout_of
from flintmq.broker.queues.deduplication import DEDUPLICATED, Duplicates
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.limits import Limits
from flintmq.broker.queues.paged_tail import READ_BYTES, READ_ENTRIES_MAX, PagedTail
from flintmq.broker.queues.queue_rules import REJECT_PUBLISH_DLX, QueueRules
from flintmq.broker.queues.queue_tally import QueueTally
from flintmq.broker.queues.ring import Ring
from flintmq.broker.scheduling.chores import Wait, repeated
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.errors import ProtocolMisuse, UnreadableFault
from flintmq.wire import traits
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.active_rules import Host
    from flintmq.broker.queues.leases import Lease
    from flintmq.broker.queues.stream_backlog import StreamBacklog
    from flintmq.broker.store.publisher import Publisher
    from flintmq.broker.store.store import Store
    from flintmq.protocol.outbox import Output

log = logging.getLogger("flintmq.queue")

# When letting go of messages has failed by a bug, the queue tries again so much later.
AGAIN_MS = 1000

# A queue this long that is being drained asks its publishers to pause for a moment, once for each time that
# the queue has handed something out. The pause is for speed, not for safety: this much stays in the caches.
# A queue that is drained from its paged tail asks for a longer one: else it would stay long for as long as
# its publishers are fast, with each message on its way to disk and back.
CONGESTED_MESSAGES = 16_384
CONGESTED_BYTES = 4_194_304

# To put one message into the paged tail takes as much time as to keep so many in memory.
PAGED_COPIES = 16
# To hand out one message from the paged tail takes as much time as to hand out so many from memory.
LOADED_DELIVERIES = 8
# As many are loaded as the pass has time for, at least so many: each time takes a read of the disk.
LOADED_MIN = 16

# What a message takes in memory beside its content: the object, its place in a ring, allocation.
SHED_MESSAGE_BYTES = 160

# Holes behind a head that nobody takes, of 8 octets each, before they are done away with.
HOLES_MIN = 4096

# Messages put back into the queue at a time, which is about a millisecond; more go back in portions.
RETURNED_MAX = 2048
# So few are put into their places one by one. Each moves the pointers behind it, which takes a twentieth of
# what it takes to make the list anew, once for all of them.
INSERTED_MAX = 16
# Of messages that have come back too often so many, by what their dead letters cost (LETTERS_OCTETS_MAX).
RETURNED_LETTERS_OCTETS = 4096
# Of those that wait for a retry so many octets, as they are written to the disk then: some milliseconds.
RETURNED_BYTES = 1_048_576
# So many may wait for a retry while memory is short: each is some 450 octets, though it lies on disk.
WAITING_MAX_SHORT = 16_384
# Expired messages dropped at a time; more go in portions: a thousand dead letters take some milliseconds.
EXPIRED_MAX = 1024
EXPIRED_BYTES_MAX = 1_048_576
# Dead letters are dearer, each by what it has to tell of its deaths so far: some 20 microseconds, and as much
# again for each 128 octets of headers. A portion is some 5 ms: 200 letters of messages that died once,
# 7 of those that have died forty times. The whole content is copied several times: a mebibyte is a portion.
LETTER_OCTETS = 128
LETTER_CONTENT_SHARE = 32
LETTERS_OCTETS_MAX = 32_768
# While memory is short, a queue makes dead letters of what has expired in smaller portions, so far apart.
# Each letter is a copy, and copies must not be made faster than they go to disk: 64 KiB in 10 ms, 6.4 MB/s.
LETTERS_BYTES_SHORT = 65_536
LETTERS_SHORT_MS = 10
# While too many letters wait, an alarm drops nothing and comes again so much later.
LETTERS_CROWDED_MS = 100
# To take a consumer out of a round of so many, as a power of two, takes as long as handing out a message.
ROUND_SHIFT = 13
# Messages of the paged tail looked at in a pass: some milliseconds.
PASS_ENTRIES = 1024
PASS_BYTES = 4_194_304
# Deduplication values of purged messages that a queue forgets one by one; more are forgotten all at once.
FORGOTTEN_MAX = 512

_by_position = attrgetter("position")


class Queue:
    """One queue of a virtual host."""

    __slots__ = (
        "active",
        "arguments",
        "auto_delete",
        "claimed",
        "congested",
        "consumers",
        "creation_id",
        "deleted",
        "dirty",
        "duplicates",
        "durable",
        "exclusive",
        "handed_out",
        "handed_out_due",
        "holes",
        "is_stream",
        "leases",
        "life",
        "marked",
        "name",
        "number",
        "owner",
        "pass_work",
        "position",
        "ready",
        "ready_bytes",
        "returned",
        "returning",
        "rules",
        "selective",
        "settled_count",
        "sources",
        "store",
        "tail",
        "tail_redeliveries",
        "tally",
        "turn",
        "unacked",
        "unasked",
        "user",
    )

    def __init__(
        self,
        name: str,
        pass_work: PassWork,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: FieldTable,
        owner: int,
        store: Store | None = None,
        number: int = 0,
    ) -> None:
        self.name = name
        self.pass_work = pass_work
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.owner = owner  # number of the connection that an exclusive queue belongs to
        self.store = store
        self.number = number  # of the queue in the journal; 0 for a queue that is not durable
        self.tail = PagedTail()
        # The newest entry that was handed out and asks for an ack; after a crash its message is redelivered.
        self.handed_out = 0
        self.handed_out_due = False
        self.marked = 0  # the newest entry that was handed out before the broker was restarted
        self.tail_redeliveries: dict[int, int] = {}  # of messages in the paged tail, by position
        self.sources: dict[Exchange, None] = {}  # exchanges with bindings to this queue
        self.ready = Ring()
        self.ready_bytes = 0
        self.position = 0
        self.holes = 0
        self.returned: list[Delivery] = []  # by position, the first one last
        self.consumers: list[Consumer] = []
        # Consumers that are not parked, as a round: the consumer at `turn` is next, and the one before it is
        # last. Where consumers may refuse or have priorities the round begins at 0 (see unroll).
        self.active: list[Consumer] = []
        self.turn = 0
        self.selective = 0  # how many of the consumers may refuse
        self.claimed = 0  # content classes that have a consumer of their own, as bits of wire/traits.py
        self.unacked = 0
        self.settled_count = 0  # messages that a client has settled: acked or rejected
        self.unasked = 0  # messages delivered to consumers that ack nothing
        self.tally: QueueTally | None = None  # what happens seldom, see queue_tally.py
        self.leases: dict[str, Lease] | None = None  # by reader, see leases.py
        self.dirty = False
        self.congested = False
        self.deleted = False
        # What the queue does beyond first in, first out; None for a plain queue, which pays no more.
        self.rules: ActiveRules | None = None
        # Values of messages that the queue has: it refuses others of the same value, see deduplication.py.
        self.duplicates = Duplicates() if arguments.get(DEDUPLICATED) is True else None
        self.is_stream = False  # a log of its own holds its messages, not the journal
        self.creation_id: bytes | None = None  # made when somebody asks, see services/queue_identity.py
        self.user = ""  # the user who has declared the queue, where that was a client
        self.life = 0  # in the journal: not the queue of the same name that is being taken apart
        # How many chores put messages back, or pause the queue for a bug. Meanwhile it hands out nothing.
        self.returning = 0

    def message_count(self) -> int:
        """How many messages are ready, without those that are handed out."""
        return self.ready.count - self.holes + len(self.returned) + self.tail.count

    def waiting_count(self) -> int:
        """How many messages wait for their retry; they are neither ready nor handed out."""
        return 0 if self.rules is None or self.rules.retries is None else len(self.rules.retries.waiting)

    def waiting_returns(self) -> int:
        """How often the messages that wait for their retry have come back, together."""
        return 0 if self.rules is None or self.rules.retries is None else self.rules.retries.waiting_returns

    def parts(self) -> list[Queue]:
        """The queues that hold the messages: this one, or one for each priority, the highest first."""
        return [self]

    # Rules

    def need_rules(self) -> ActiveRules:
        """The queue's rules, from now on if it had none."""
        if self.rules is None:
            self.rules = ActiveRules(self.pass_work.timetable)
        return self.rules

    def apply(self, settings: QueueRules, host: Host) -> None:
        """From now on these rules hold, also for messages and consumers that the queue has."""
        rules = self.need_rules()
        rules.settings = settings
        rules.host = host
        rules.persists = settings.force_persistent and self.number != 0
        if settings.message_ttl_ms is not None:
            rules.need_expiry().limit(settings.message_ttl_ms)
        elif rules.expiry is not None:
            rules.expiry.limit(-1)
        self.limit(settings)
        if settings.counts_returns() or rules.retries is not None:
            rules.need_retries(self).set(settings)
        if settings.single_active_consumer:
            rules.need_choice(self).set_single_active()
        rules.timeout = consumer_timeout_of(self, settings.consumer_timeout_ms, rules.timeout)
        rules.end_after(-1 if settings.expires_ms is None else settings.expires_ms)
        if rules.set_goals(settings):
            self.pass_work.has_goals = True
        self.trim()
        self.watch()

    def limit(self, settings: QueueRules) -> None:
        rules = self.need_rules()
        has_backlog = rules.limits is not None and rules.limits.backlog is not None
        is_limited = (
            settings.length_max is not None
            or settings.length_bytes_max is not None
            or settings.memory_length_max is not None
        )
        if not is_limited and not has_backlog:
            rules.limits = None
            return
        limits = Limits() if rules.limits is None else rules.limits
        was_sized = limits.bytes_max >= 0
        limits.set(settings)
        if limits.bytes_max >= 0 and not was_sized:
            limits.body_bytes = self.body_bytes()
        rules.limits = limits

    # Coming in

    def enqueue(self, message: Message) -> int:
        """Puts the message at the end; returns what has become of it, as flags of put_flags.py."""
        if self.duplicates is not None:
            return self.enqueue_unlike(message)
        if self.rules is not None or message.traits & (traits.HAS_EXPIRATION | traits.STREAM_CONTENT):
            return self.enqueue_ruled(message)
        return self.take_in(message, True)

    def enqueue_unlike(self, message: Message) -> int:
        """As `enqueue`, unless the queue has the like of the message."""
        duplicates = self.duplicates
        if duplicates is None or duplicates.refuses(message):
            self.let_go(message)
            return 0
        try:
            if self.rules is not None or message.traits & (traits.HAS_EXPIRATION | traits.STREAM_CONTENT):
                return self.enqueue_ruled(message)
            return self.take_in(message, True)
        except Exception:
            duplicates.disown(message)  # else nobody could send it again
            raise

    def take_in(self, message: Message, wakes: bool) -> int:
        """The message is the last of the queue. `wakes`: consumers get it at the end of the pass."""
        self.append(message)
        if wakes and not self.dirty and self.active:
            self.dirty = True
            self.pass_work.queues.append(self)
        if self.congested:
            self.congested = False
            return put_flags.DRAINED if self.has_tail() else put_flags.CONGESTED
        return 0

    def has_tail(self) -> bool:
        """Whether some of its messages lie on disk only."""
        return self.tail.count > 0

    def note_handed_out(self, count: int, is_cut: bool) -> int:
        """So many messages were handed out in the turn of the queue; `is_cut`: its consumers take more."""
        if self.has_tail():
            self.congested = is_cut
        elif self.ready.count > CONGESTED_MESSAGES or self.ready_bytes > CONGESTED_BYTES:
            self.congested = count > 0
        return 0

    def enqueue_ruled(self, message: Message) -> int:
        """Stamped, taken in, handed out at once if it lives for a moment; then the queue is trimmed."""
        rules = self.need_rules()
        expiry = rules.need_expiry() if message.traits & traits.HAS_EXPIRATION else rules.expiry
        is_urgent = False
        backlog = None
        if message.traits & traits.STREAM_CONTENT:
            backlog = rules.need_limits().need_backlog()
            if self.is_paged(message) and backlog.is_exceeded(message.body_size()):
                self.bury_all([message], "maxlen")  # earlier ones lie on disk, where a drop does not look
                return 0
        if expiry is not None:
            expiry.stamp(message)
            # A consumer that waits gets the message now. Messages that have expired before it go first.
            is_urgent = bool(self.active) and expiry.is_urgent(message) and not self.expire_early()
        happened = self.take_in(message, not is_urgent)
        if rules.limits is not None:
            rules.limits.came(message)
            if rules.limits.memory_max >= 0 and self.kept_count() > rules.limits.memory_max:
                self.relieve(message)
        if backlog is not None:
            self.note_stream(backlog, message)
        if is_urgent:
            self.dispatch_momentary(message)
        if backlog is not None and backlog.is_exceeded(-1):
            self.trim_stream(backlog)
        # Another message may be at the head now.
        if rules.limits is not None or (
            expiry is not None and (rules.settings.priority_max or self.message_count() == 1)
        ):
            happened |= self.tend()
        return happened

    # Messages of the stream class

    def is_paged(self, message: Message) -> bool:
        """Whether the message would go to the paged tail."""
        return self.tail.count > 0

    def note_stream(self, backlog: StreamBacklog, message: Message) -> None:
        """The message is the last of the queue."""
        last = self.position + self.ready.count + self.tail.count + self.tail.holes - 1
        first = self.position
        if self.returned:
            delivery = self.returned[-1]
            first = delivery.position
        priority = message.traits >> 8 & 0xFF
        if backlog.is_crowded(priority):
            self.forget_gone(backlog, priority)
        backlog.note(priority, last, first)

    def forget_gone(self, backlog: StreamBacklog, priority: int) -> None:
        """Forgets positions that are empty by now. A message that stays at the head keeps them from going."""
        there: list[int] = []
        for position in backlog.noted(priority):
            if self.is_at(position):
                there.append(position)
        backlog.keep(priority, there)

    def is_at(self, position: int) -> bool:
        """Whether there is a message at this position."""
        index = position - self.position
        if index >= self.ready.count:
            index -= self.ready.count
            return index < self.tail.count + self.tail.holes and not self.tail.is_hole(index)
        if index >= 0:
            return self.ready.at(index) is not None
        place = self.returned_after(position)
        delivery = self.returned[place] if place < len(self.returned) else None
        return delivery is not None and delivery.position == position

    def trim_stream(self, backlog: StreamBacklog) -> None:
        """Drops stream messages over their limit, the oldest of the lowest priority first."""
        if self.active:
            self.dispatch_early()
        limits = self.need_rules().need_limits()
        dead: list[Message] = []
        try:
            while backlog.is_exceeded(-1) and len(dead) < EXPIRED_MAX:
                priority = backlog.lowest()
                if priority < 0:
                    break
                position = backlog.oldest(priority)
                try:
                    message = self.draw_at(priority, position)
                except UnreadableFault:  # whoever publishes must not hear of it: it goes another time
                    backlog.put_first(priority, position)
                    break
                if message is not None:
                    limits.left(message)
                    dead.append(message)
        finally:
            if dead:
                self.bury_all(dead, "maxlen")

    def draw_at(self, priority: int, position: int) -> Message | None:
        """The message at this position, out of the queue, if it is there and in memory."""
        index = position - self.position
        if index >= self.ready.count:
            return None
        if index < 0:
            place = self.returned_after(position)
            delivery = self.returned[place] if place < len(self.returned) else None
            if delivery is None or delivery.position != position:
                return None
            if delivery.paged is not None:
                self.page_in([delivery], True)
            del self.returned[place]
            return delivery.message
        message: Message | None = self.ready.at(index)
        if message is not None:
            self.ready.replace(index, None)
            self.ready_bytes -= len(message.content)
            self.holes += 1
            self.close_holes()
        return message

    def close_holes(self) -> None:
        """Drops holes at the head, and holes behind it where there is hardly anything else."""
        while self.ready.count and self.ready.at(0) is None:
            self.ready.pop()
            self.position += 1
            self.holes -= 1
        if self.holes > HOLES_MIN and self.holes > 8 * (self.ready.count - self.holes):
            self.draw_out(self.position + self.ready.count)

    def dispatch_momentary(self, message: Message) -> None:
        """Hands out what is ready. This message has come just now and has not expired; others may have."""
        expiry = self.need_rules().need_expiry()
        expiry.momentary = message
        try:
            self.dispatch()
        except Exception:  # a failed delivery is no failed publish: the queue has taken the message
            log.exception("a bug in handing out what queue %r has just got", self.name)
        finally:
            expiry.momentary = None

    def tend(self, trims: bool = True) -> int:
        """After something has come in: trims the queue, drops what has expired, and sets its alarm.

        The queue has taken the message by then: whoever sent it must not hear that it failed. Returns what
        `trim` does.
        """
        rules = self.need_rules()
        happened = 0
        try:
            if trims:
                happened = self.trim()
            if rules.expiry is not None and not self.is_slow() and not self.is_crowded():
                self.expire()
            self.watch()
        except UnreadableFault:
            rules.set_alarm(rules.timetable.now_ms() + AGAIN_MS, self.alarm_due)
        except Exception:
            log.exception("a bug in trimming queue %r: once more in a while", self.name)
            rules.timetable.at(rules.timetable.now_ms() + AGAIN_MS, self.tend)
        return happened

    def is_full(self, message: Message) -> bool:
        """Whether the queue refuses the message, with all handed out that can be."""
        limits = None if self.rules is None else self.rules.limits
        if limits is None or not limits.refuses:
            return False
        size = message.body_size()
        if not limits.would_exceed(self.message_count(), 1, size):
            return False
        if self.active:
            self.dispatch_early()
        return limits.would_exceed(self.message_count(), 1, size)

    def lacks_room(self, messages: list[Message]) -> bool:
        """Whether the queue would refuse any of these."""
        limits = None if self.rules is None else self.rules.limits
        if limits is None or not limits.refuses:
            return False
        if self.active:
            self.dispatch_early()
        size = 0
        for message in messages:
            size += message.body_size()
        return limits.would_exceed(self.message_count(), len(messages), size)

    def trim(self) -> int:
        """Drops messages until the queue is within its limits, unless it refuses the newest instead.

        Returns put_flags.CROWDED if too many dead letters wait.
        """
        limits = None if self.rules is None else self.rules.limits
        if limits is None or limits.refuses or not limits.is_exceeded(self.message_count()):
            return 0
        room = self.letters_room()
        if self.active:
            self.dispatch_early()
        dead: list[Message] = []
        letters = 0
        size = 0
        is_slow = self.is_slow()
        bytes_max = LETTERS_BYTES_SHORT if is_slow else EXPIRED_BYTES_MAX
        try:
            while limits.is_exceeded(self.message_count()):
                if len(dead) == room or letters >= LETTERS_OCTETS_MAX or size >= bytes_max:
                    self.need_rules().set_alarm(self.letters_due_ms(), self.alarm_due)  # the others go then
                    break
                delivery = self.draw_lowest() if limits.drops_lowest else self.draw()
                if delivery is None:
                    break
                message = delivery.message
                if message is not None:
                    limits.left(message)
                    cost = self.letter_octets(message)
                    if cost:
                        letters += cost
                        size += len(message.content)
                    dead.append(message)
        finally:
            if dead:
                self.bury_all(dead, "maxlen")
        return put_flags.CROWDED if self.is_crowded() else 0

    def letter_octets(self, message: Message) -> int:
        """What the dead letter of the message costs; 0 if there is none."""
        if self.rules is None or self.rules.settings.dead_letter_exchange is None:
            return 0
        return LETTER_OCTETS + message.header_size + len(message.content) // LETTER_CONTENT_SHARE

    def append(self, message: Message) -> int:
        """Puts the message behind all others: in memory, or on disk where the queue is long."""
        if self.store is not None and (
            self.ready.count >= self.store.kept_messages
            or self.ready_bytes >= self.store.kept_bytes
            or self.tail.count
        ):
            self.page_out(message)
        else:
            self.ready.push(message)
            self.ready_bytes += len(message.content)
        return 0

    def page_out(self, message: Message) -> int:
        """Keeps only the message's number; the message itself is on disk, or goes there now."""
        if self.store is None:
            raise ProtocolMisuse("a queue without a store has no paged tail")
        self.tail.push(self.store.paged_entry(message, self.number != 0))
        self.pass_work.copies += PAGED_COPIES
        self.tail.octets += message.body_size()
        return 0

    def kept_count(self) -> int:
        """How many messages that were not handed out yet are in memory, with the holes between them."""
        return self.ready.count

    def relieve(self, message: Message) -> None:
        """The message has come just now, and is one too many in memory: it goes to a consumer, or to disk.

        The queue has taken the message: whoever sent it must not hear that it failed.
        """
        limits = self.need_rules().need_limits()
        try:
            if self.active:
                self.dispatch_early()
            if self.kept_count() > limits.memory_max:
                self.page_last(message)
        except Exception:
            log.exception("a bug keeps a message of queue %r in memory", self.name)

    def page_last(self, message: Message) -> None:
        """The message goes to the paged tail, if it is the last one in memory."""
        last = self.ready.count - 1
        if self.store is not None and last >= 0 and self.ready.at(last) is message:
            self.page_out(message)  # first what may fail: until then the message is where it was
            self.ready.pop_last()
            self.ready_bytes -= len(message.content)

    def shed(self, most: int) -> int:
        """Memory is short: all but the first messages go to disk, until `most` octets have.

        How many have. The caller sees that the disk keeps up.
        """
        if self.store is None:
            return 0
        shed = self.shed_returned(most)
        shed += self.shed_leases(most - shed)
        entries: list[int] = []
        try:
            while shed < most and (
                self.ready.count > self.store.kept_messages_lean
                or (self.ready_bytes > self.store.kept_bytes_lean and self.ready.count)
            ):
                message = self.ready.at(self.ready.count - 1)
                # First what may fail: until then the message is where it was.
                entry = 0 if message is None else self.store.paged_entry(message, self.number != 0)
                self.ready.pop_last()
                entries.append(entry)
                if message is None:
                    self.holes -= 1
                    shed += 1
                else:
                    self.ready_bytes -= len(message.content)
                    self.tail.octets += message.body_size()
                    shed += len(message.content) + SHED_MESSAGE_BYTES
        finally:
            if entries:
                entries.reverse()
                self.tail.put_back(entries)
                self.tidy_tail()  # if all of them were holes
        return shed

    def shed_leases(self, most: int) -> int:
        """Of what readers have leased, little stays in memory."""
        shed = 0
        if self.leases is not None and self.store is not None:
            for lease in self.leases.values():
                shed += lease.shed(self.store.kept_bytes_lean, most - shed)
        return shed

    def shed_returned(self, most: int) -> int:
        """All but the first of what came back leaves memory, and keeps its place."""
        if self.store is None:
            return 0
        messages = self.store.kept_messages_lean
        octets = self.store.kept_bytes_lean
        shed = 0
        for index in range(len(self.returned) - 1, -1, -1):
            delivery = self.returned[index]
            if delivery.message is None:
                continue
            if messages > 0 and octets > 0:
                messages -= 1
                octets -= len(delivery.message.content)
                continue
            if shed >= most:
                break
            shed += delivery.page_out(self.store, self.number != 0) + SHED_MESSAGE_BYTES
        return shed

    def load_portion(self) -> int:
        """How many messages may come from disk at once."""
        if self.store is None:
            raise ProtocolMisuse("a queue without a store has nothing on disk")
        wanted = max(LOADED_MIN, self.pass_work.portion // LOADED_DELIVERIES)
        wanted = min(wanted, self.store.loaded_messages)
        if self.rules is not None and self.rules.limits is not None and self.rules.limits.memory_max >= 0:
            wanted = max(1, min(wanted, self.rules.limits.memory_max))
        return wanted

    def load_returned(self) -> None:
        """Brings the first of what came back into memory again. What the disk has lost is gone."""
        if self.store is None:
            raise ProtocolMisuse("a queue without a store has nothing on disk")
        end = start = len(self.returned)
        most = self.load_portion()
        size = 0
        while start and end - start < most:
            delivery = self.returned[start - 1]
            if delivery.message is not None:
                break
            size += delivery.content_size()
            if size > self.store.kept_bytes_lean and start < end:
                break
            start -= 1
        first = self.returned[start:]
        self.page_in(first, True)
        there = [delivery for delivery in first if delivery.message is not None]
        self.returned[start:] = there
        self.pass_work.unwatched_bytes -= size
        self.pass_work.portion -= LOADED_DELIVERIES * len(there)

    def page_in(self, deliveries: list[Delivery], counted: bool) -> None:
        """Reads the messages of deliveries that lie on disk. Those that the disk has lost are settled then.

        `counted`: they are ready, and so count towards the limits of the queue. Fails, with nothing changed,
        if the disk does not give them now.
        """
        if self.store is None:
            raise ProtocolMisuse("a queue without a store has nothing on disk")
        paged: list[Delivery] = []
        entries: list[int] = []
        for delivery in deliveries:
            if delivery.paged is not None:
                paged.append(delivery)
                entries.append(delivery.paged.entry)
        messages = self.store.load(entries)
        for index in range(len(paged)):
            delivery = paged[index]
            message = messages[index]
            if message is None:
                self.need_tally().lost += 1
                if counted and self.rules is not None and self.rules.limits is not None:
                    self.rules.limits.note(delivery, -1)
            else:
                self.note_loaded(message)
            delivery.page_in(message)

    def note_loaded(self, message: Message) -> int:
        """A message is back from the disk; how often it came back, as far as was counted."""
        if message.traits & traits.TIMED or self.rules is not None:
            return self.need_rules().loaded(message, self.store)
        return 0

    def load(self) -> int:
        """Brings the first of the paged tail back into memory; the number of messages."""
        if self.store is None:
            raise ProtocolMisuse("a queue without a store has no paged tail")
        wanted = self.load_portion()
        loaded = 0
        size = 0
        is_full = False
        while self.tail.count and loaded < wanted and not (is_full and loaded):
            entries = self.tail.take(wanted - loaded)
            try:
                fitting = self.store.fitting(entries, self.store.kept_bytes_lean - size)
                messages = self.store.load(entries[:fitting])
            except Exception:
                self.tail.put_back(entries)
                raise
            is_full = fitting < len(entries)
            if is_full:
                self.tail.put_back(entries[fitting:])
            placed = 0
            try:
                for message in messages:
                    self.put_loaded(message, entries[placed])
                    placed += 1
                    if message is not None:
                        loaded += 1
                        size += len(message.content)
            finally:
                if placed < len(messages):
                    self.tail.put_back(entries[placed:fitting])
        self.tidy_tail()
        self.pass_work.unwatched_bytes -= size
        self.pass_work.portion -= LOADED_DELIVERIES * loaded
        return loaded

    def put_loaded(self, message: Message | None, entry: int) -> None:
        """Puts what was loaded from the paged tail behind what is in memory; None if it is lost or a hole."""
        if message is None:
            self.ready.push(None)
            self.holes += 1
            if entry:
                self.need_tally().lost += 1
            return
        redeliveries = self.redeliveries_of(message, self.position + self.ready.count)
        if redeliveries:
            self.draw_out(self.position + self.ready.count)
            back = Delivery.create(0, message, self, None, self.position, redeliveries)
            self.tail_redeliveries.pop(self.position, None)
            self.position += 1
            self.returned.insert(0, back)
        else:
            self.ready.push(message)
            self.ready_bytes += len(message.content)
        self.tail.octets -= message.body_size()

    def redeliveries_of(self, message: Message, position: int) -> int:
        """How often a message that was read from the paged tail has been handed out, as far as is known."""
        redeliveries = self.note_loaded(message) or 1
        if self.tail_redeliveries and position in self.tail_redeliveries:
            return self.tail_redeliveries[position]
        is_marked = (
            entry_number.is_in_journal(message.entry)
            and entry_number.sequence_of(message.entry) <= self.marked
        )
        return redeliveries if is_marked else 0

    def tidy_tail(self) -> None:
        """Where nothing but holes is left of the paged tail, what comes next takes the places behind them."""
        if self.tail.count:
            return
        if self.tail.holes:
            self.draw_out(self.position + self.ready.count)
            self.position += self.tail.holes
        self.tail.clear()

    def restore(self, tail: PagedTail, handed_out: int) -> None:
        """Takes what recovery has found: the entries, and the newest one that was handed out."""
        self.tail = tail
        self.handed_out = handed_out
        self.marked = handed_out

    def hand_out(self, message: Message, output: Output | None) -> int:
        """Notes that the message is handed out. The note is written to disk before the message is sent."""
        if self.number and self.store is not None and entry_number.is_in_journal(message.entry):
            entry = entry_number.sequence_of(message.entry)
            if message.traits & traits.MOVED and output is not None:
                self.store.hold_back(output, entry)
            if entry > self.handed_out:
                self.handed_out = entry
                if not self.handed_out_due:
                    self.handed_out_due = True
                    self.store.handed_out.append(self)
        return 0

    def mark(self) -> None:
        """Puts the queue into the pass work if it may have something to hand out."""
        if not self.dirty and self.active and self.message_count():
            self.dirty = True
            self.pass_work.queues.append(self)

    def pause(self) -> None:
        """Takes the queue out of the pass work. Nothing is handed out, whoever asks for it, until `go_on`."""
        if self.dirty and self in self.pass_work.queues:
            self.pass_work.queues.remove(self)
        self.dirty = True
        self.returning += 1

    def go_on(self) -> None:
        """The queue is served again."""
        self.all_returned()

    def head(self) -> Message | None:
        """The next message to hand out."""
        while self.returned:
            delivery = self.returned[-1]
            if delivery.message is not None:
                return delivery.message
            self.load_returned()
        while self.ready.count:
            message = self.ready.at(0)
            if message is not None:
                return message  # type: ignore[no-any-return]
            self.ready.pop()
            self.position += 1
            self.holes -= 1
        if self.tail.count and self.load():
            return self.head()
        return None

    def dispatch(self) -> int:
        """Hands messages to consumers in turn until either runs out, or the portion of the pass does."""
        if self.returning:
            return 0
        pass_work = self.pass_work
        self.dirty = False
        if self.rules is not None:
            return self.dispatch_ruled()
        if self.selective:
            if self.dispatch_selectively():
                self.mark()
            return 0
        start = self.position
        is_cut = False
        redeliveries = -1  # of the message that is between the queue and its consumer
        try:
            while self.active:
                if pass_work.portion <= 0:
                    self.mark()  # other queues have their turn first
                    is_cut = True
                    break
                # As head() does, without a call for each message.
                message = None
                if self.ready.count and not self.returned:
                    message = self.ready.at(0)
                if message is None:
                    message = self.head()
                    if message is None:
                        break
                if self.turn >= len(self.active):
                    self.turn = 0
                consumer = self.active[self.turn]
                if not consumer.ready(message):
                    self.park(consumer)
                    continue
                pass_work.portion -= 1
                self.turn += 1
                if self.returned:
                    delivery = self.returned.pop()
                    place = delivery.position
                    redeliveries = delivery.redeliveries
                else:
                    self.ready.pop()
                    place = self.position
                    self.position += 1
                    self.ready_bytes -= len(message.content)
                    redeliveries = 0
                consumer.deliver(message, place, redeliveries)
                redeliveries = -1
        except Exception:
            if redeliveries >= 0 and message is not None:
                consumer.undelivered(message, place, redeliveries)
            raise
        self.note_handed_out(self.position - start, is_cut)
        return 0

    def dispatch_early(self) -> int:
        """As dispatch, for whoever is about to count messages. The pass comes to what cannot be read now."""
        try:
            self.dispatch()
        except UnreadableFault:
            self.mark()
        return 0

    def dispatch_sampled(self) -> int:
        """As dispatch, and notes how long the first message has waited if a consumer has got it."""
        message = self.head() if self.active and not self.returning else None
        rules = self.rules
        if message is None or (
            rules is not None and rules.expiry is not None and rules.expiry.has_expired(message)
        ):
            return self.dispatch()
        handed_out = self.unacked + self.unasked
        arrived_ms = message.arrived_ms
        self.dispatch()
        if self.unacked + self.unasked > handed_out:
            self.pass_work.note_wait(arrived_ms)
        return 0

    def dispatch_ruled(self) -> int:
        """As dispatch, under rules: expired messages die, and priorities decide which consumer is next."""
        rules = self.need_rules()
        goals = rules.goals
        pass_work = self.pass_work
        if rules.expiry is not None and self.expire():
            self.go_on_expiring()
            return 0
        if self.holds_back():
            self.watch()
            return 0
        if self.selective:
            if self.dispatch_selectively():
                self.mark()
            # A message that no consumer accepted may be at the head now, and have expired.
            self.tend(False)
            return 0
        handed_out = 0
        is_cut = False
        while self.active:
            if pass_work.portion <= 0:
                self.mark()
                is_cut = True
                break
            message = self.head()
            if message is None:
                break
            if rules.expiry is not None and rules.expiry.has_expired(message):
                if self.expire():
                    self.go_on_expiring()
                    break
                continue
            if self.turn >= len(self.active):
                self.turn = 0
            consumer = self.active[self.turn]
            if not consumer.ready(message):
                self.park(consumer)
                continue
            pass_work.portion -= 1
            if rules.choice is not None and rules.choice.ranked:
                del self.active[self.turn]
                rules.choice.place(consumer)
            else:
                self.turn += 1
            delivery = self.draw()
            if delivery is None:
                break
            if rules.limits is not None:
                rules.limits.left(message)
            try:
                consumer.deliver(message, delivery.position, delivery.redeliveries)
            except Exception:
                consumer.undelivered(message, delivery.position, delivery.redeliveries)
                raise
            handed_out += 1
            if goals is not None:
                goals.handed_out(message, pass_work.now_ms)
        self.note_handed_out(handed_out, is_cut)
        self.watch()
        return 0

    def holds_back(self) -> bool:
        """Whether consumers get nothing now: memory is short, and they have sent too much to wait."""
        retries = self.need_rules().retries
        return retries is not None and self.pass_work.is_short and len(retries.waiting) >= WAITING_MAX_SHORT

    def dispatch_selectively(self) -> bool:
        """As dispatch, where consumers may refuse; whether there is more to offer, in the next pass.

        Each message is offered to all before the next one. A consumer remembers how far it has looked, so
        that what it refused is not offered again. Of what nobody takes, little is kept in memory.
        """
        if self.offer_in_turn():
            return True
        while self.store is not None and self.active and self.tail.count:
            if self.ready.count + len(self.returned) >= self.store.loaded_messages:
                return self.offer_from_tail()
            if not self.load():
                break
            if self.offer_in_turn():
                return True
        return False

    def offer_in_turn(self) -> bool:
        """Offers the messages in memory to consumers, in the order of their positions.

        True if the portion of the pass has ended before the last of them: the consumers remember the place.
        """
        pass_work = self.pass_work
        seen = self.position + self.ready.count
        for consumer in self.active:
            seen = min(seen, consumer.seen)
        back = self.returned_after(seen - 1)
        index = max(0, seen - self.position)
        while self.active and pass_work.portion > 0:
            if back > 0 and (
                index >= self.ready.count or self.returned[back - 1].position < self.position + index
            ):
                back -= 1
                delivery = self.returned[back]
                seen = delivery.position + 1
                message = delivery.message
                if message is None:
                    message = self.look_at(delivery)
                if message is None or self.offer(message, delivery.position, delivery.redeliveries):
                    del self.returned[back]
            elif index < self.ready.count:
                message = self.ready.at(index)
                seen = self.position + index + 1
                if message is not None and self.offer(message, self.position + index, 0):
                    self.ready.replace(index, None)
                    self.ready_bytes -= len(message.content)
                    self.holes += 1
                index += 1
            else:
                break
            pass_work.charge_offers()
        is_cut = bool(self.active) and (back > 0 or index < self.ready.count)
        self.look_on_from(seen if is_cut else self.position + self.ready.count)
        self.close_holes()
        return is_cut

    def look_at(self, delivery: Delivery) -> Message | None:
        """The message of a delivery that lies on disk and stays there, as consumers may refuse it."""
        if self.store is None or delivery.paged is None:
            return None
        self.pass_work.portion -= LOADED_DELIVERIES
        message: Message | None = self.store.load([delivery.paged.entry])[0]
        if message is None:
            self.page_in([delivery], True)
        else:
            self.note_loaded(message)
        return message

    def look_on_from(self, position: int) -> None:
        """Consumers that are still in the round have been offered all before this."""
        for consumer in self.active:
            consumer.seen = max(consumer.seen, position)

    def offer_from_tail(self) -> bool:
        """Offers some of the paged tail to consumers that have not seen it; whether more is left to offer.

        What a consumer refuses stays on disk. A pass looks at a portion, so that a consumer with a rare taste
        holds up nobody.
        """
        first = self.position + self.ready.count
        position = min([max(first, consumer.seen) for consumer in self.active])
        looked_at = 0
        octets = 0
        for messages in self.tail.read(self.store, position - first):
            for message in messages:
                if not self.active:
                    break
                if message is not None:
                    octets += len(message.content)
                    redeliveries = self.redeliveries_of(message, position)
                    if self.offer(message, position, redeliveries):
                        self.tail.punch(position - first)
                        self.tail.octets -= message.body_size()
                        self.tail_redeliveries.pop(position, None)
                position += 1
                self.pass_work.charge_offers()
                if self.pass_work.portion <= 0:
                    break
            looked_at += len(messages)
            if not self.active or looked_at >= PASS_ENTRIES or octets >= PASS_BYTES:
                break
            if self.pass_work.portion <= 0:
                break
        self.look_on_from(position)
        more = position < first + self.tail.count + self.tail.holes
        self.tidy_tail()
        return more and bool(self.active) and self.tail.count > 0

    def offer(self, message: Message, position: int, redeliveries: int) -> bool:
        """Hands the message to the consumer that accepts it and has waited longest, if any can now."""
        rules = self.rules
        if rules is not None and rules.expiry is not None and rules.expiry.has_expired(message):
            return False  # an expired message dies when it has come to the head
        self.turn = 0
        while self.turn < len(self.active):
            consumer = self.active[self.turn]
            if position < consumer.seen:
                self.turn += 1
                continue
            is_wanted = consumer.accepts(message)
            self.pass_work.offered += 1 if consumer.selection is None else consumer.selection.cost
            if not is_wanted:
                self.turn += 1
            elif consumer.ready(message):
                # To the end of the round: another consumer that accepts such messages is next.
                del self.active[self.turn]
                self.turn = 0
                if rules is None or rules.choice is None:
                    self.active.append(consumer)
                else:
                    rules.choice.join(consumer)
                consumer.deliver(message, position, redeliveries)  # if it fails, the message is where it was
                if rules is not None:
                    if rules.limits is not None:
                        rules.limits.left(message)
                    if rules.goals is not None:
                        rules.goals.handed_out(message, self.pass_work.now_ms)
                return True
            else:
                consumer.seen = position
                self.park(consumer)
        self.turn = 0
        return False

    def unroll(self) -> None:
        """Turns the round into a list that begins with the consumer whose turn it is."""
        if self.turn:
            # The very same list: the lanes of a priority queue share it.
            self.active[:] = self.active[self.turn :] + self.active[: self.turn]
            self.turn = 0

    def join(self, consumer: Consumer) -> None:
        """Puts the consumer into the round, as the last."""
        if self.selective:
            self.active.append(consumer)
        else:
            self.active.insert(self.turn, consumer)
            self.turn += 1

    def leave(self, consumer: Consumer) -> None:
        """Takes the consumer out of the round. The one whose turn it was stays the next."""
        if self.active and self.active[-1] is consumer:
            self.active.pop()  # many end in this order, and a search for each would take long
            self.turn = min(self.turn, len(self.active))
            return
        index = index_of(self.active, consumer)
        if index >= 0:
            del self.active[index]
            if index < self.turn:
                self.turn -= 1

    def leave_many(self, count: int) -> None:
        """Takes the cancelled consumers out of the round, of which there are at most so many."""
        elsewhere = take_last(self.active, count)
        self.turn = min(self.turn, len(self.active))
        if elsewhere:
            if self.turn:
                self.turn = len([each for each in self.active[: self.turn] if not each.cancelled])
            self.active[:] = [each for each in self.active if not each.cancelled]

    def park(self, consumer: Consumer) -> None:
        """Takes the consumer whose turn it is out of the round."""
        consumer.park()
        del self.active[self.turn]
        self.pass_work.portion -= len(self.active) >> ROUND_SHIFT

    def withdraw(self, consumer: Consumer) -> bool:
        """Takes any consumer out of the round; True, and it is parked, if it holds unsettled messages."""
        self.leave(consumer)
        consumer.forget()
        consumer.parked = False
        if consumer.outstanding:
            consumer.park()
        return consumer.parked

    def rejoin(self, consumer: Consumer) -> None:
        if self.deleted:
            return  # the consumer is about to hear of that
        if self.rules is None or self.rules.choice is None:
            self.join(consumer)
        else:
            self.rules.choice.join(consumer)
        self.mark()

    def sweep(self) -> bool:
        """Expired messages at the head die; whether there are more of them than one pass may take."""
        return self.rules is not None and self.rules.expiry is not None and self.expire()

    def take(self) -> Delivery | None:
        """The next message for basic.get, as a delivery without tag or consumer. First comes `sweep`."""
        return self.draw() if self.rules is None else self.take_ruled()

    def take_ruled(self) -> Delivery | None:
        rules = self.need_rules()
        rules.touch()
        if rules.expiry is not None and self.expire():
            return None  # more than one pass may take has expired since `sweep`
        delivery = self.draw()
        if delivery is not None and delivery.message is not None:
            if rules.limits is not None:
                rules.limits.left(delivery.message)
            if rules.goals is not None:
                rules.goals.handed_out(delivery.message, self.pass_work.now_ms)
        if rules.expiry is not None:
            # Expired messages behind it do not count as left. If dropping them fails, the message is taken
            # all the same. A queue that a restart has left over its limit is not trimmed by a reader.
            self.tend(False)
        else:
            self.watch()
        return delivery

    def take_at(self, position: int, message: Message) -> Delivery | None:
        """A message that somebody has found at this position, for basic.get; None if it may not be had now.

        First comes `sweep`. A message behind the head that has expired goes when it has come to the head.
        """
        if message.traits & traits.TIMED:
            self.need_rules().loaded(message, self.store)  # the message may have been read from the disk
        rules = self.rules
        if rules is not None and rules.expiry is not None and rules.expiry.has_expired(message):
            return None
        delivery = self.draw_found(position, message)
        if delivery is not None and rules is not None:
            rules.touch()
            if rules.limits is not None:
                rules.limits.left(message)
            if rules.goals is not None:
                rules.goals.handed_out(message, self.pass_work.now_ms)
            self.watch()
        return delivery

    def draw_found(self, position: int, message: Message) -> Delivery | None:
        """The message at this position, which is this one, out of the queue; None if it is not there."""
        first = self.position + self.ready.count
        if position >= first:
            if self.tail.is_hole(position - first) or position >= first + self.tail.count + self.tail.holes:
                return None
            redeliveries = self.redeliveries_of(message, position)
            self.tail.punch(position - first)
            self.tail.octets -= message.body_size()
            self.tail_redeliveries.pop(position, None)
            self.tidy_tail()
            return Delivery.create(0, message, self, None, position, redeliveries)
        if position < self.position:
            place = self.returned_after(position)
            delivery = self.returned[place] if place < len(self.returned) else None
            if delivery is None or delivery.position != position:
                return None
            del self.returned[place]
            if delivery.message is None:
                delivery.page_in(message)
            return delivery
        found = self.draw_at(0, position)
        return None if found is None else Delivery.create(0, found, self, None, position, 0)

    def draw(self) -> Delivery | None:
        """Whatever is at the head, out of the queue."""
        message = self.head()
        if message is None:
            return None
        if self.returned:
            return self.returned.pop()
        self.ready.pop()
        self.position += 1
        self.ready_bytes -= len(message.content)
        return Delivery.create(0, message, self, None, self.position - 1, 0)

    def draw_lowest(self) -> Delivery | None:
        """The first message of the lowest priority there is, out of the queue."""
        return self.draw()

    def settle(self, message: Message) -> int:
        """A message has left the queue for good."""
        if self.duplicates is not None:
            self.duplicates.forget(message)
        return self.let_go(message)

    def let_go(self, message: Message) -> int:
        """The store need not keep the message for this queue any longer."""
        message.holders -= 1
        if (
            self.store is not None
            and message.entry
            and (self.number or entry_number.is_transient(message.entry))
        ):
            if self.rules is not None and self.rules.retries is not None:
                self.rules.retries.forget(message.entry)
            self.store.settle(self.number, message.entry)  # last: a failure before it has let go of nothing
        return 0

    def settle_returned(self, delivery: Delivery) -> int:
        """As settle, for a message that may lie on disk."""
        paged = delivery.paged
        if paged is not None and self.duplicates is not None and not self.deleted:
            self.page_in([delivery], False)  # its value is to be forgotten
        if delivery.message is not None:
            self.settle(delivery.message)
        elif paged is not None and self.store is not None:
            if self.rules is not None and self.rules.retries is not None:
                self.rules.retries.forget(paged.entry)
            self.store.settle(self.number, paged.entry)
        return 0

    def bury(self, message: Message, reason: str) -> None:
        """The message dies: it goes to the dead letter exchange if there is one, and leaves the queue."""
        if self.rules is None:
            self.settle(message)
            self.count_dead(1, reason, False)
        else:
            self.bury_all([message], reason)

    def count_dead(self, count: int, reason: str, has_exchange: bool) -> None:
        """Counts for the HTTP API and metrics how messages have died."""
        self.pass_work.fates.died(count, reason, has_exchange)
        self.need_tally().died(count, reason, has_exchange)

    def bury_all(self, messages: list[Message], reason: str) -> None:
        """These messages have left the queue dead. The dead letter exchange gets them, if there is one."""
        rules = self.need_rules()
        has_exchange = rules.host is not None and rules.settings.dead_letter_exchange is not None
        self.count_dead(len(messages), reason, has_exchange)
        if rules.host is not None and (has_exchange or rules.settings.return_undelivered):
            rules.host.bury(self, messages, reason)
            return
        self.let_go_all(messages)

    def let_go_all(self, messages: list[Message]) -> None:
        """Dead messages that go nowhere: the store lets go of them, after a pause where a bug keeps it."""
        for index in range(len(messages)):
            try:
                self.settle(messages[index])
            except Exception:
                log.exception("a bug in letting go of what queue %r has dropped", self.name)
                timetable = self.pass_work.timetable
                timetable.at(timetable.now_ms() + AGAIN_MS, partial(self.let_go_all, messages[index:]))
                return

    def delivered(self, channel: Publisher, delivery: Delivery) -> int:
        """A client has the message and is to settle it."""
        self.unacked += 1
        if self.rules is not None and self.rules.timeout is not None:
            self.rules.timeout.handed_out(channel, delivery.tag)
            self.watch()
        return 0

    def take_out(self, count: int) -> None:
        """So many messages that were taken are with a reader or a branch, which is to settle them."""
        self.unacked += count

    def settled(self, count: int) -> int:
        """So many messages that were out are settled, or were lost."""
        self.unacked -= count
        self.settled_count += count
        return 0

    def need_tally(self) -> QueueTally:
        """The counts of what happens seldom."""
        if self.tally is None:
            self.tally = QueueTally()
        return self.tally

    def give_back(self, delivery: Delivery) -> None:
        """Puts a message that was taken and not handed out into its place again. That counts as no return.

        Nothing is trimmed here: a dispatch that trims, and whose delivery fails, would never come to an end.
        """
        message = delivery.message
        if message is None:
            return
        if self.deleted:
            self.settle(message)
            return
        delivery.consumer = None
        if self.rules is not None and self.rules.limits is not None:
            self.rules.limits.came(message)
        self.put_back([delivery])
        if self.rules is not None:
            self.watch()
        self.mark()

    def give_back_taken(self, deliveries: list[Delivery]) -> None:
        """As give_back, for messages that a reader was to have: they are out, and in portions back."""
        if len(deliveries) <= RETURNED_MAX:
            self.give_back_some(deliveries)
        else:
            self.returning += 1
            self.pass_work.chores.begin(given_back(self, deliveries))

    def give_back_some(self, deliveries: list[Delivery]) -> None:
        if not deliveries:
            return
        count = len(deliveries)
        if self.deleted:
            for delivery in deliveries:
                self.settle_returned(delivery)
            self.unacked -= count
            return
        if self.rules is not None and self.rules.limits is not None:
            for delivery in deliveries:
                self.rules.limits.note(delivery, 1)
        self.put_back(deliveries)
        self.unacked -= count
        if self.rules is not None:
            self.tend()
        self.mark()

    def requeue(self, deliveries: list[Delivery], failed: bool = False) -> None:
        """Puts handed-out messages back. `failed`: a client has refused them, or their client was lost."""
        if len(deliveries) > 1 and self.returned_together(deliveries, 0) < len(deliveries):
            self.returning += 1
            self.pass_work.chores.begin(requeued(self, deliveries, failed))
            return
        for delivery in deliveries:
            delivery.redeliveries += 1
            delivery.consumer = None
        count = len(deliveries)
        self.need_tally().requeued += count
        if self.deleted:
            for delivery in deliveries:
                self.settle_returned(delivery)
            self.unacked -= count
            return
        if self.rules is not None:
            deliveries = self.ready_again(deliveries, failed)
        if deliveries:
            self.put_back(deliveries)
        self.unacked -= count
        if self.rules is not None:
            self.tend()
        self.mark()

    def returned_together(self, deliveries: list[Delivery], start: int) -> int:
        """How far from `start` they may go back at a time: to the end, unless much is written or dies."""
        end = min(len(deliveries), start + RETURNED_MAX)
        retries = None if self.rules is None else self.rules.retries
        if retries is None or (retries.delivery_limit < 0 and not retries.delays):
            return end
        letters = 0
        octets = 0
        for index in range(start, end):
            delivery = deliveries[index]
            if retries.delays and self.store is not None and not self.is_on_disk(delivery):
                octets += delivery.content_size()
                if octets >= RETURNED_BYTES:
                    return index + 1
            if retries.delivery_limit < 0 or delivery.redeliveries < retries.delivery_limit:
                continue
            if delivery.message is not None:
                letters += self.letter_octets(delivery.message)
            else:  # it is to be read from the disk
                letters += LETTER_OCTETS + delivery.content_size() // LETTER_CONTENT_SHARE
            if letters >= RETURNED_LETTERS_OCTETS:
                return index + 1
        return end

    def is_on_disk(self, delivery: Delivery) -> bool:
        """Whether nothing is to be written for the message to leave memory."""
        entry = delivery.entry()
        return entry_number.is_transient(entry) or (entry != 0 and self.number != 0)

    def ready_again(self, deliveries: list[Delivery], failed: bool) -> list[Delivery]:
        """The deliveries that are ready at once. Others have come back too often, or wait for their retry."""
        rules = self.need_rules()
        if rules.retries is not None:
            dead: list[Message] = []
            try:
                self.page_in_dead(deliveries)
                deliveries = rules.retries.returned(deliveries, failed, dead)
            except Exception:
                for delivery in deliveries:
                    delivery.redeliveries -= 1  # they come back another time, and count then
                raise
            if dead:
                self.bury_all(dead, "delivery_limit")
        if rules.limits is not None:
            for delivery in deliveries:
                rules.limits.note(delivery, 1)
        return deliveries

    def page_in_dead(self, deliveries: list[Delivery]) -> None:
        """Reads those that have come back too often. What cannot be read now dies another time."""
        retries = self.need_rules().need_retries(self)
        dead: list[Delivery] = []
        for delivery in deliveries:
            if delivery.paged is not None and retries.is_dead(delivery):
                dead.append(delivery)
        if dead:
            try:
                self.page_in(dead, False)
            except UnreadableFault:
                log.warning(
                    "%d messages of queue %r that came back too often stay for now", len(dead), self.name
                )

    def all_returned(self) -> None:
        """A chore has put back all it had, or a pause is over."""
        self.returning -= 1
        if not self.returning:
            self.dirty = False
            self.mark()

    def put_back(self, deliveries: list[Delivery]) -> None:
        """Puts each delivery into its place in `returned`."""
        if self.selective:
            self.look_again(min([delivery.position for delivery in deliveries]))
        if self.tail.holes:
            deliveries = self.return_to_tail(deliveries)
            if not deliveries:
                return
        self.draw_out(max([delivery.position for delivery in deliveries]))
        # To sort all of `returned` for a few deliveries, with each nack, would stop the broker for seconds.
        deliveries.sort(key=_by_position, reverse=True)
        first = self.returned_after(deliveries[0].position)
        if first == self.returned_after(deliveries[-1].position):
            self.returned[first:first] = deliveries  # nearly always: no other delivery lies between these
        elif len(deliveries) <= INSERTED_MAX:
            for delivery in deliveries:
                self.returned.insert(self.returned_after(delivery.position), delivery)
        elif len(deliveries) * 16 < len(self.returned):
            self.merge_back(deliveries)
        else:
            self.returned.extend(deliveries)
            self.returned.sort(key=_by_position, reverse=True)

    def merge_back(self, deliveries: list[Delivery]) -> None:
        """Puts sorted deliveries between those of `returned`, which moves once for all of them."""
        first = start = self.returned_after(deliveries[0].position)
        merged: list[Delivery] = []
        for delivery in deliveries:
            place = self.returned_after(delivery.position)
            merged += self.returned[start:place]
            merged.append(delivery)
            start = place
        self.returned[first:start] = merged

    def return_to_tail(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Puts deliveries that came from the paged tail into their holes there; returns the others."""
        first = self.position + self.ready.count
        others: list[Delivery] = []
        for delivery in deliveries:
            index = delivery.position - first
            if self.store is None or not self.tail.is_hole(index):
                others.append(delivery)
                continue
            # The message may have been handed out from memory, and its hole paged out since.
            delivery.page_out(self.store, self.number != 0)
            if delivery.paged is not None:
                self.tail.fill(index, delivery.paged.entry)
                self.tail.octets += delivery.paged.body_size
                self.tail_redeliveries[delivery.position] = delivery.redeliveries
        return others

    def look_again(self, position: int) -> None:
        """Consumers that may refuse are offered the message at this position again."""
        for consumer in self.consumers:
            consumer.seen = min(consumer.seen, position)

    def returned_after(self, position: int) -> int:
        """How many of `returned` come after `position`, and so before it in the list."""
        low = 0
        high = len(self.returned)
        while low < high:
            middle = (low + high) // 2
            other = self.returned[middle]
            if other.position > position:
                low = middle + 1
            else:
                high = middle
        return low

    def draw_out(self, position: int) -> None:
        """Moves what the ring has up to `position` to `returned`, which has to stay ahead of the ring.

        Only where a hole is filled again, or holes are nearly all there is.
        """
        drawn: list[Delivery] = []
        while self.position <= position and self.ready.count:
            message = self.ready.pop()
            if message is None:
                self.holes -= 1
            else:
                self.ready_bytes -= len(message.content)
                drawn.append(Delivery.create(0, message, self, None, self.position, 0))
            self.position += 1
        if drawn:
            drawn.reverse()
            self.returned = drawn + self.returned

    def body_bytes(self) -> int:
        """The octets of the bodies of all ready messages."""
        size = self.tail.octets
        for index in range(self.ready.count):
            message = self.ready.at(index)
            if message is not None:
                size += message.body_size()
        for delivery in self.returned:
            if delivery.message is not None:
                size += delivery.message.body_size()
            elif delivery.paged is not None:
                size += delivery.paged.body_size
        return size

    def purge(self) -> int:
        """Drops what is ready; the number of messages. The store lets go of them in portions."""
        if self.rules is not None:
            self.returned = self.rules.purge() + self.returned
        count = self.message_count()
        rest = Queue(
            self.name,
            self.pass_work,
            self.durable,
            self.exclusive,
            False,
            {},
            self.owner,
            self.store,
            self.number,
        )
        rest.tail, rest.ready, rest.returned = self.tail, self.ready, self.returned
        rest.rules = self.rules
        if self.duplicates is not None:
            if count > FORGOTTEN_MAX or self.is_partly_paged():
                self.duplicates.clear()  # messages on disk go unread, with their values
            else:
                rest.duplicates = self.duplicates
        self.position += self.ready.count + self.tail.count + self.tail.holes
        self.tail, self.ready, self.returned = PagedTail(), Ring(), []
        self.ready_bytes = 0
        self.holes = 0
        self.tail_redeliveries = {}
        if rest.duplicates is not None:
            rest.drop(FORGOTTEN_MAX)
        if count:
            self.pass_work.chores.begin(repeated(rest.drop))
        return count

    def is_partly_paged(self) -> bool:
        """Whether some of what is ready lies on disk only."""
        if self.tail.count:
            return True
        for delivery in self.returned:  # noqa: SIM110 - a generator expression is a closure: not in compiled methods
            if delivery.paged is not None:
                return True
        return False

    def settle_paged(self, entries: list[int]) -> None:
        """Lets go of entries of the paged tail. When one fails, it and the rest are in the tail again."""
        settled = 0
        try:
            for entry in entries:
                if entry and self.store is not None:
                    self.store.settle(self.number, entry)
                settled += 1
        except Exception:
            self.tail.put_back(entries[settled:])
            raise

    def drop(self, most: int) -> bool:
        """Lets go of some of what is ready, not in order; whether there is more.

        Never fails: the messages have left their queue. What a bug keeps is let go of after a pause.
        """
        message = None
        try:
            if self.store is not None and self.tail.count:
                self.settle_paged(self.tail.take(most))
                return True
            while most > 0 and (self.returned or self.ready.count):
                most -= 1
                if self.returned:
                    self.settle_returned(self.returned[-1])
                    self.returned.pop()
                else:
                    message = self.ready.pop()
                    if message is not None:
                        self.settle(message)
        except Exception:
            log.exception("a bug in letting go of what queue %r has dropped: once more in a while", self.name)
            if message is not None:
                self.returned.append(Delivery.create(0, message, self, None, 0, 0))
            timetable = self.pass_work.timetable
            timetable.at(timetable.now_ms() + AGAIN_MS, self.go_on_dropping)
            return False
        return bool(self.returned or self.ready.count)

    def go_on_dropping(self) -> None:
        self.pass_work.chores.begin(repeated(self.drop))

    def subscribe(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        if self.rules is not None:
            self.rules.leaves_ms = -1
        if consumer.is_selective():
            if not self.selective:
                self.unroll()
                for other in self.consumers:
                    other.seen = -(1 << 62)  # `seen` was not kept up while no consumer could refuse
            self.selective += 1
            self.claimed |= consumer.content_class
        if consumer.priority or (self.rules is not None and self.rules.choice is not None):
            self.need_rules().need_choice(self).subscribe(consumer)
        else:
            self.join(consumer)
        self.mark()

    def unsubscribe(self, consumer: Consumer) -> None:
        consumer.cancelled = True
        if self.consumers[-1] is consumer:
            self.consumers.pop()  # many end in this order, and a search for each would take long
        else:
            index = index_of(self.consumers, consumer)
            if index < 0:
                raise ProtocolMisuse(f"consumer {consumer.tag!r} is not of queue {self.name!r}")
            del self.consumers[index]
        if not consumer.parked:
            self.leave(consumer)
        consumer.forget()
        if consumer.is_selective():
            self.selective -= 1
            self.release_claims()
        if self.rules is not None and not self.deleted:
            if self.rules.choice is not None:
                self.rules.choice.unsubscribe(consumer)
            self.rules.touch()
            self.watch()

    def unsubscribe_many(self, consumers: list[Consumer]) -> None:
        """As unsubscribe for each, in one look at all: a search for each would take long."""
        in_round = 0
        for consumer in consumers:
            consumer.cancelled = True
            if not consumer.parked:
                in_round += 1
            consumer.forget()
            if consumer.is_selective():
                self.selective -= 1
        # In place: the lanes of a queue with priorities have the same lists.
        if take_last(self.consumers, len(consumers)):
            self.consumers[:] = [each for each in self.consumers if not each.cancelled]
        self.leave_many(in_round)
        self.release_claims()
        if self.rules is not None and not self.deleted:
            if self.rules.choice is not None:
                self.rules.choice.unsubscribe_many(consumers)
            self.rules.touch()
            self.watch()

    def release_claims(self) -> None:
        """A consumer is gone. Messages of a class that it alone could take are for all consumers now."""
        claimed = 0
        if self.claimed:
            for consumer in self.consumers:
                claimed |= consumer.content_class
        if claimed != self.claimed:
            self.claimed = claimed
            self.look_again(-(1 << 62))
            if not self.deleted:
                self.mark()

    def can_take_now(self, message: Message) -> bool:
        """Whether a consumer would get the message at once (basic.publish with immediate)."""
        if self.message_count():
            self.dispatch_early()  # messages that came earlier in this pass are first
            if self.message_count():
                return False
        for consumer in self.active:  # noqa: SIM110 - a generator expression is a closure: not in compiled methods
            if consumer.accepts(message) and consumer.ready(message):
                return True
        return False

    # By the clock

    def expire(self) -> bool:
        """Expired messages at the head die; whether there are more than are done at a time."""
        rules = self.need_rules()
        expiry = rules.need_expiry()
        dead: list[Message] = []
        size = 0
        letters = 0
        room = self.letters_room()
        bytes_max = LETTERS_BYTES_SHORT if self.is_slow() else EXPIRED_BYTES_MAX
        has_more = False
        try:
            message = self.head()
            while message is not None and expiry.has_expired(message):
                has_more = len(dead) == room or size >= bytes_max or letters >= LETTERS_OCTETS_MAX
                if has_more or self.draw() is None:
                    break
                if rules.limits is not None:
                    rules.limits.left(message)
                size += len(message.content)
                letters += self.letter_octets(message)
                dead.append(message)
                message = self.head()
        finally:
            if dead:
                self.bury_all(dead, "expired")
        return has_more

    def go_on_expiring(self) -> None:
        """There is more to expire: in the next pass, or by the alarm while too many dead letters wait."""
        if self.is_crowded():
            self.watch()
        else:
            self.mark()

    def expire_early(self) -> bool:
        """As expire, for a message that comes in; True also if what is before it cannot be read now."""
        try:
            return self.expire()
        except UnreadableFault:
            return True

    def is_slow(self) -> bool:
        """Whether dead letters are to wait: memory is short, or has not been looked at for too long."""
        if self.need_rules().settings.dead_letter_exchange is None:
            return False
        return self.pass_work.is_short or self.pass_work.unwatched_bytes < 0

    def letters_room(self) -> int:
        """How many messages may be dropped at a time: few become dead letters while too many wait."""
        rules = self.need_rules()
        if rules.host is None or rules.settings.dead_letter_exchange is None:
            return EXPIRED_MAX
        return min(EXPIRED_MAX, rules.host.letters_room())

    def is_crowded(self) -> bool:
        """Whether so many dead letters wait that few are to be made."""
        return self.letters_room() < EXPIRED_MAX

    def room_for_letters(self) -> Wait | None:
        """What a chore yields that waits for expired messages to go; None where the next pass will do."""
        rules = self.need_rules()
        if rules.host is None or not self.is_crowded():
            return None
        return rules.host.when_letters_room

    def letters_due_ms(self) -> int:
        """When the next messages are dropped that become dead letters."""
        now_ms: int = self.pass_work.timetable.now_ms()
        if self.is_crowded():
            return now_ms + LETTERS_CROWDED_MS
        return now_ms + LETTERS_SHORT_MS if self.is_slow() else now_ms

    def gives_on(self, letter: Message) -> bool:
        """Whether a dead letter that comes now would make another: the queue is full, or late to expire."""
        rules = self.rules
        if rules is None or rules.settings.dead_letter_exchange is None:
            return False
        limits = rules.limits
        if limits is not None and limits.would_exceed(self.message_count(), 1, letter.body_size()):
            return not limits.refuses or rules.settings.overflow == REJECT_PUBLISH_DLX
        if rules.expiry is None:
            return False
        try:
            message = self.head()
        except UnreadableFault:
            return False
        return message is not None and rules.expiry.has_expired(message)

    def watch(self) -> None:
        """Sets the alarm for whatever is due first. Never fails: the work of the caller is done already."""
        try:
            self.look_ahead()
        except UnreadableFault:
            rules = self.need_rules()
            rules.set_alarm(rules.timetable.now_ms() + AGAIN_MS, self.alarm_due)
        except Exception:
            log.exception("a bug in looking what is due in queue %r: once more in a while", self.name)
            timetable = self.pass_work.timetable
            timetable.at(timetable.now_ms() + AGAIN_MS, self.watch)

    def look_ahead(self) -> None:
        rules = self.need_rules()
        due_ms = -1
        if rules.expiry is not None:
            message = self.head()
            if message is not None:
                due_ms = rules.expiry.due_ms(message)
                if due_ms >= 0 and (self.is_slow() or self.is_crowded()):
                    pause_ms = LETTERS_CROWDED_MS if self.is_crowded() else LETTERS_SHORT_MS
                    due_ms = max(due_ms, rules.timetable.now_ms())
                    due_ms += pause_ms - due_ms % pause_ms
        if rules.retries is not None:
            due_ms = sooner(due_ms, rules.retries.next_due_ms())
            if self.holds_back():
                due_ms = sooner(due_ms, rules.timetable.now_ms() + AGAIN_MS)
        if rules.timeout is not None:
            due_ms = sooner(due_ms, rules.timeout.next_due_ms())
        if rules.expires_ms >= 0 and not self.consumers:
            due_ms = sooner(due_ms, rules.unused_since_ms + rules.expires_ms)
        due_ms = sooner(due_ms, rules.leaves_ms)
        if due_ms >= 0 and not self.deleted:
            rules.set_alarm(due_ms, self.alarm_due)

    def alarm_due(self) -> None:
        """The alarm of the rules; after a bug once more, as nobody else may look at the queue."""
        rules = self.need_rules()
        rules.alarm = None
        if self.deleted:
            return
        try:
            self.do_what_is_due(rules)
        except Exception:
            log.exception("a bug in what is due in queue %r: once more in a while", self.name)
            if not self.deleted:
                rules.set_alarm(rules.timetable.now_ms() + AGAIN_MS, self.alarm_due)

    def do_what_is_due(self, rules: ActiveRules) -> None:
        try:
            if self.is_crowded():
                rules.set_alarm(self.letters_due_ms(), self.alarm_due)
            else:
                self.trim()
                if rules.expiry is not None and not (self.pass_work.behind and self.is_slow()):
                    self.expire()
                self.mark()  # where consumers wait for what has expired, see go_on_expiring
        except UnreadableFault:
            rules.set_alarm(rules.timetable.now_ms() + AGAIN_MS, self.alarm_due)
        now_ms: int = rules.timetable.now_ms()
        if rules.retries is not None:
            self.end_waits(rules.retries.take_due(now_ms, RETURNED_MAX))
            self.mark()  # if the queue has held back
        if rules.timeout is not None:
            rules.timeout.run(now_ms)
        has_ended = 0 <= rules.expires_ms <= now_ms - rules.unused_since_ms and not self.consumers
        if 0 <= rules.leaves_ms <= now_ms and not self.consumers:
            has_ended = True
        if has_ended and rules.host is not None:
            rules.host.delete_queue(self)
            return
        self.watch()

    def end_waits(self, ready: list[Delivery]) -> None:
        """Messages whose next try has come are ready again, in their old places."""
        if not ready:
            return
        limits = self.need_rules().limits
        if limits is not None:
            for delivery in ready:
                limits.note(delivery, 1)
        self.put_back(ready)
        self.tend()
        self.mark()

    # After a restart

    def restore_returns(self, returns: dict[int, tuple[int, int]], waiting: list[int]) -> None:
        """What recovery found: returns and due time by entry, and the messages that wait for a retry."""
        rules = self.need_rules()
        retries = rules.need_retries(self)
        retries.restore(returns)
        if self.store is None:
            return
        start = 0
        while start < len(waiting):
            entries = waiting[start : start + READ_ENTRIES_MAX]
            entries = entries[: self.store.fitting(entries, READ_BYTES)]
            place = start - len(waiting)  # ahead of all that was not handed out yet
            for entry, message in zip(entries, self.store.load(entries), strict=True):
                if message is not None:
                    count, due_ms = returns[entry]
                    rules.loaded(message, self.store)
                    self.discount(message)
                    retries.wait_again(Delivery.create(0, message, self, None, place, count), due_ms)
                place += 1
            start += len(entries)

    def pick(self, entries: set[int]) -> dict[int, Delivery]:
        """Takes these entries out of what recovery found, wherever they are; all others keep their places."""
        found: dict[int, Delivery] = {}
        for part in self.parts():
            part.pick_from_tail(entries, found)
        self.take_out(len(found))
        return found

    def pick_from_tail(self, entries: set[int], found: dict[int, Delivery]) -> None:
        if self.store is None:
            return
        first = self.position + self.ready.count
        picked = self.tail.pick(entries)
        start = 0
        while start < len(picked):
            numbers = [entry for _, entry in picked[start : start + READ_ENTRIES_MAX]]
            messages = self.store.load(numbers[: self.store.fitting(numbers, READ_BYTES)])
            for message in messages:
                index, entry = picked[start]
                start += 1
                if message is None:
                    self.need_tally().lost += 1
                    continue
                place = first + index
                redeliveries = self.redeliveries_of(message, place)
                self.tail.octets -= message.body_size()
                if self.rules is not None and self.rules.limits is not None:
                    self.rules.limits.left(message)
                delivery = Delivery.create(0, message, self, None, place, redeliveries)
                delivery.page_out(self.store, self.number != 0)
                found[entry] = delivery
        if not self.ready.count:
            self.position += self.tail.skip_holes()

    def discount(self, message: Message) -> None:
        """The paged tail has counted the message, and does not hold it any more."""
        self.tail.octets -= message.body_size()

    def restored(self, is_timed: bool) -> None:
        """The queue has what recovery found of it; `is_timed`: some of that may expire."""
        rules = self.need_rules()
        if is_timed:
            rules.need_expiry()
        limits = rules.limits
        if limits is not None and limits.bytes_max >= 0:
            limits.body_bytes = self.body_bytes()
        if limits is not None and not limits.refuses and limits.is_exceeded(self.message_count()):
            rules.set_alarm(0, self.alarm_due)  # clients see the queue within its limits
        elif rules.expiry is not None and self.message_count():
            rules.set_alarm(0, self.alarm_due)  # the head is read then, not for every queue at the start
        else:
            self.watch()


def index_of(consumers: list[Consumer], consumer: Consumer) -> int:
    """Where the consumer is; -1: nowhere. Compiled, this compares pointers, as list.index does not."""
    for index in range(len(consumers)):
        if consumers[index] is consumer:
            return index
    return -1


def take_last(consumers: list[Consumer], count: int) -> int:
    """Takes up to `count` cancelled ones off the end, where most are; returns how many were not there."""
    while count and consumers:
        last = consumers[-1]
        if not last.cancelled:
            break
        consumers.pop()
        count -= 1
    return count


def sooner(due_ms: int, other_ms: int) -> int:
    """The earlier of two times, where -1 is never."""
    if due_ms < 0:
        return other_ms
    return due_ms if other_ms < 0 else min(due_ms, other_ms)


def requeued(queue: Queue, deliveries: list[Delivery], failed: bool) -> Iterator[None]:
    """Queue.requeue in portions. Until all are back the queue hands out nothing: the order would be lost.

    The caller has noted that in `returning`.
    """
    start = 0
    try:
        while start < len(deliveries):
            end = queue.returned_together(deliveries, start)
            Delivery.give_each_back(partial(queue.requeue, failed=failed), deliveries[start:end])
            start = end
            yield
    finally:
        queue.all_returned()


def given_back(queue: Queue, deliveries: list[Delivery]) -> Iterator[None]:
    """Queue.give_back_taken in portions, as `requeued`."""
    try:
        for start in range(0, len(deliveries), RETURNED_MAX):
            Delivery.give_each_back(queue.give_back_some, deliveries[start : start + RETURNED_MAX])
            yield
    finally:
        queue.all_returned()
