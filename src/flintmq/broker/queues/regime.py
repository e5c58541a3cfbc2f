"""What a queue does beyond first in, first out: limits, expiry, dead letters, retries, whose turn it is.

A plain queue has none of this and pays for a test of one pointer. A queue gets its regime with its rules
(queue_rules.py), with the first message that carries an expiration, or with a consumer that has a priority.

    enqueue   stamped -> append -> [taken at once if it lives for a moment] -> trimmed to its limits
    dispatch  expired heads die, then the consumer of the highest priority whose turn it is
    returned  over the delivery limit: dies     to be tried later: waits     else: back in its place

All that comes by the clock shares one alarm, set for whatever is due first: the head's expiry, the end of
a wait, a consumer that is overdue, the end of the queue itself. Messages behind the head cost no timers.
"""

from __future__ import annotations

import heapq
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from flintmq.broker.messages import entry_number
from flintmq.broker.messages.header_changes import with_delivery_count
from flintmq.broker.messages.message import Message
from flintmq.broker.queues import succession
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.consumer_timeout import ConsumerTimeout, consumer_timeout_of
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.queue_rules import PLAIN, REJECT_PUBLISH_DLX, QueueRules
from flintmq.broker.store.topology_records import forget_return, put_return
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.queues.pass_work import PassWork
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.queues.timetable import Alarm, Timetable
    from flintmq.broker.store.publisher import Publisher

log = logging.getLogger("flintmq.regime")

# What a bug has kept from being let go is tried again so much later.
AGAIN_MS = 1000
# A backlog that has expired goes in portions: a thousand dead letters are some milliseconds.
EXPIRED_MAX = 1024
EXPIRED_BYTES_MAX = 1_048_576
# Dead letters are dearer, each by what it has to tell of its deaths so far: some 20 microseconds, and as much
# again for each 128 octets of headers. A portion is some 5 ms: 200 letters of messages that died once,
# 7 of those that have died forty times.
LETTER_OCTETS = 128
LETTERS_OCTETS_MAX = 32_768
# While memory is short, a queue makes dead letters of what has expired in smaller portions, so far apart.
# Each letter is a copy, and copies must not be made faster than they go to disk: 64 KiB in 10 ms, 6.4 MB/s.
LETTERS_BYTES_SHORT = 65_536
LETTERS_SHORT_MS = 10
# What is handed out at the end of a pass has waited for less than this.
PASS_MS_MAX = 1000


class Host(Protocol):
    """The virtual host, as far as the rules of a queue need it."""

    def bury(self, queue: Queue, messages: list[Message], reason: str) -> None: ...

    def delete_queue(self, queue: Queue) -> int: ...


class Regime:
    """The rules of one queue at work."""

    __slots__ = (
        "alarm",
        "bytes_max",
        "consumer_timeout",
        "counts",
        "delivery_limit",
        "expires_ms",
        "host",
        "length_max",
        "momentary",
        "notes",
        "queue",
        "ranked",
        "refuses",
        "rules",
        "single",
        "single_active",
        "timed",
        "timetable",
        "ttl_ms",
        "ttl_since_ms",
        "unused_since_ms",
        "waiting",
        "waiting_bytes",
        "yields",
    )

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.timetable: Timetable = self.queue.pass_work.timetable
        self.host: Host | None = None
        self.rules: QueueRules = PLAIN
        self.alarm: Alarm | None = None
        self.ttl_ms = -1
        self.ttl_since_ms = 0  # for messages that were there before it
        self.timed = False  # whether any message may expire
        self.momentary: Message | None = None  # has come just now: it is handed out however short it lives
        self.length_max = -1
        self.bytes_max = -1
        self.waiting_bytes = 0  # of all bodies that are ready; kept only where they are limited
        self.refuses = False
        self.delivery_limit = -1
        self.counts = False  # whether deliveries are counted over restarts and told to consumers
        self.notes: dict[int, int] = {}  # by entry: how often it came back
        self.waiting: list[tuple[int, int, Delivery]] = []  # a heap: when it is due, its place
        self.consumer_timeout: ConsumerTimeout | None = None
        self.ranked = 0  # consumers with a priority
        self.single_active = False
        self.single: Consumer | None = None
        self.yields = False  # to a consumer of a higher priority
        self.expires_ms = -1
        self.unused_since_ms = 0

    # Rules

    def apply(self, rules: QueueRules, host: Host) -> None:
        """From now on these rules hold; of a queue in use too."""
        now_ms: int = self.timetable.now_ms()
        was_sized = self.bytes_max >= 0
        was_limited_ms = self.ttl_ms
        self.rules = rules
        self.host = host
        self.ttl_ms = -1 if rules.message_ttl_ms is None else rules.message_ttl_ms
        if self.ttl_ms >= 0:
            self.timed = True
            if was_limited_ms < 0:
                self.ttl_since_ms = now_ms
        self.length_max = -1 if rules.length_max is None else rules.length_max
        self.bytes_max = -1 if rules.length_bytes_max is None else rules.length_bytes_max
        if self.bytes_max >= 0 and not was_sized:
            self.waiting_bytes = self.queue.body_bytes()
        self.refuses = rules.refuses_publishes()
        self.delivery_limit = -1 if rules.delivery_limit is None else rules.delivery_limit
        self.counts = rules.delivery_limit is not None or rules.retry_type != "disabled"
        self.single_active = rules.single_active_consumer
        self.yields = self.single_active and succession.yields(self.queue)
        self.consumer_timeout = consumer_timeout_of(
            self.queue, rules.consumer_timeout_ms, self.consumer_timeout
        )
        if self.expires_ms < 0:
            self.unused_since_ms = now_ms
        self.expires_ms = -1 if rules.expires_ms is None else rules.expires_ms
        self.trim()
        self.watch()

    # Coming in

    @staticmethod
    def admit(message: Message, queues: list[Queue], pass_work: PassWork) -> list[Queue]:
        """Those of the queues that take the message, which is stamped if it may expire in any.

        The very same list when all of them do. Comes before the message goes to disk.
        """
        timed = message.lifetime_ms >= 0
        is_refused = False
        for queue in queues:
            regime = queue.regime
            if regime is not None:
                timed = timed or regime.ttl_ms >= 0
                is_refused = is_refused or (regime.refuses and regime.is_full(message))
        if timed and not message.traits & traits.TIMED:
            message.stamp(pass_work.timetable.now_ms())
        if not is_refused or pass_work.is_promised:
            return queues
        admitted = []
        for queue in queues:
            regime = queue.regime
            if regime is not None and regime.refuses and regime.is_full(message):
                if regime.rules.overflow == REJECT_PUBLISH_DLX:
                    # A message of its own: the other queues hold the original.
                    spooled = message.traits & traits.SPOOLED
                    regime.bury([message if spooled else message.twin()], "maxlen")
            else:
                admitted.append(queue)
        return admitted

    def enqueue(self, message: Message) -> int:
        queue = self.queue
        if self.timed or message.traits & traits.HAS_EXPIRATION:
            self.timed = True
            if not message.traits & traits.TIMED and (message.lifetime_ms >= 0 or self.ttl_ms >= 0):
                message.stamp(self.timetable.now_ms())
        # A consumer that waits for it gets it now. Of what was there before, the dead go first.
        is_urgent = self.timed and bool(queue.active) and self.is_urgent(message) and not self.expire()
        queue.append(message)
        self.waiting_bytes += message.body_size()
        if queue.congested:
            queue.congested = False
            queue.pass_work.pressed = True
        if is_urgent:
            self.dispatch_momentary(message)
        elif not queue.dirty and queue.active:
            queue.dirty = True
            queue.pass_work.queues.append(queue)
        if self.length_max >= 0 or self.bytes_max >= 0:
            self.tend()  # another one may be at the head now
        elif self.timed and (self.rules.priority_max or queue.message_count() == 1):
            self.tend()
        return 0

    def tend(self, trims: bool = True) -> None:
        """After something has come in: trims the queue, drops what has expired, and sets its alarm.

        The queue has taken the message by then: whoever sent it must not hear that it failed.
        """
        try:
            if trims:
                self.trim()
            if self.timed and not self.is_slow():
                self.expire()
            self.watch()
        except Exception:
            log.exception("a bug in trimming queue %r: once more in a while", self.queue.name)
            self.timetable.at(self.timetable.now_ms() + AGAIN_MS, self.tend)

    def is_urgent(self, message: Message) -> bool:
        """Whether the message may expire before the end of the pass, which is when consumers get theirs."""
        lifetime_ms = message.lifetime_ms
        if self.ttl_ms >= 0 and (lifetime_ms < 0 or self.ttl_ms < lifetime_ms):
            lifetime_ms = self.ttl_ms
        return 0 <= lifetime_ms <= PASS_MS_MAX

    def dispatch_momentary(self, message: Message) -> None:
        """Hands out what is ready; the message has come just now and has not expired, others may have."""
        self.momentary = message
        try:
            self.queue.dispatch()
        except Exception:  # the queue has taken the message
            log.exception("a bug in handing out what queue %r has just got", self.queue.name)
        finally:
            self.momentary = None

    def has_just_come(self, message: Message) -> bool:
        """Whether it is the one that is handed out however short it lives, from the paged tail perhaps."""
        newest = self.momentary
        return newest is not None and (message is newest or 0 < newest.entry == message.entry)

    def is_full(self, message: Message) -> bool:
        """Whether one more would be too many, with all handed out that can be."""
        if not self.would_exceed(message):
            return False
        if self.queue.active:
            self.queue.dispatch()
        return self.would_exceed(message)

    def lacks_room(self, messages: list[Message]) -> bool:
        """Whether the queue would refuse any of these."""
        if not self.refuses:
            return False
        if self.queue.active:
            self.queue.dispatch()
        if self.length_max >= 0 and self.queue.message_count() + len(messages) > self.length_max:
            return True
        size = self.waiting_bytes
        for message in messages:
            size += message.body_size()
        return self.bytes_max >= 0 and size > self.bytes_max

    def would_exceed(self, message: Message) -> bool:
        if self.length_max >= 0 and self.queue.message_count() >= self.length_max:
            return True
        return self.bytes_max >= 0 and self.waiting_bytes + message.body_size() > self.bytes_max

    def exceeds(self) -> bool:
        if self.length_max >= 0 and self.queue.message_count() > self.length_max:
            return True
        return self.bytes_max >= 0 and self.waiting_bytes > self.bytes_max

    def trim(self) -> None:
        """Drops the oldest until the queue is within its limits, unless it refuses the newest instead."""
        if self.refuses or not self.exceeds():
            return
        queue = self.queue
        if queue.active:
            queue.dispatch()
        dead: list[Message] = []
        letters = 0
        try:
            while self.exceeds():
                if len(dead) == EXPIRED_MAX or letters >= LETTERS_OCTETS_MAX:
                    self.set_alarm(0)  # the others go then
                    break
                delivery = queue.draw()
                if delivery is None:
                    break
                message = delivery.message
                if message is not None:
                    self.waiting_bytes -= message.body_size()
                    letters += self.letter_octets(message)
                    dead.append(message)
        finally:
            if dead:
                self.bury(dead, "maxlen")

    def letter_octets(self, message: Message) -> int:
        """What the dead letter of the message costs; 0 if there is none."""
        return 0 if self.rules.dead_letter_exchange is None else LETTER_OCTETS + message.header_size

    def bury(self, messages: list[Message], reason: str) -> None:
        """They have left the queue and are dead: letters for the dead letter exchange, if there is one."""
        if self.host is not None and self.rules.dead_letter_exchange is not None:
            self.host.bury(self.queue, messages, reason)
            return
        for index in range(len(messages)):
            try:
                self.queue.settle(messages[index])
            except Exception:
                log.exception("a bug in letting go of what queue %r has dropped", self.queue.name)
                again_ms = self.timetable.now_ms() + AGAIN_MS
                self.timetable.at(again_ms, partial(self.bury, messages[index:], reason))
                return

    # Going out

    def dispatch(self) -> int:
        """Queue.dispatch under these rules."""
        queue = self.queue
        if self.timed and self.expire():
            queue.mark()  # there is more to expire, in the next pass
            return 0
        if queue.selective:
            if queue.dispatch_selectively():
                queue.mark()
            # What nobody wanted may be at the head now, and have expired.
            self.tend(False)
            return 0
        while queue.active:
            message = queue.head()
            if message is None:
                break
            if self.timed and self.has_expired(message):
                if self.expire():
                    queue.mark()
                    break
                continue
            consumer = self.next_consumer()
            if not consumer.ready(message):
                queue.park(consumer)
                continue
            self.pass_turn(consumer)
            delivery = queue.draw()
            if delivery is None:
                break
            self.waiting_bytes -= message.body_size()
            try:
                consumer.deliver(message, delivery.position, delivery.redeliveries)
            except Exception:
                consumer.undelivered(message, delivery.position, delivery.redeliveries)
                raise
        self.watch()
        return 0

    def next_consumer(self) -> Consumer:
        """Whose turn it is among those of the highest priority."""
        queue = self.queue
        if queue.turn >= len(queue.active):
            queue.turn = 0
        chosen: Consumer = queue.active[queue.turn]
        return chosen

    def pass_turn(self, consumer: Consumer) -> None:
        """The consumer whose turn it was is the last of its priority now."""
        queue = self.queue
        if self.ranked:
            del queue.active[queue.turn]
            self.place(consumer)
        else:
            queue.turn += 1

    def take(self) -> Delivery | None:
        """Queue.take under these rules."""
        self.touch()
        if self.timed and self.expire():
            return None  # more than one pass may take has expired since Queue.sweep
        delivery = self.queue.draw()
        if delivery is not None and delivery.message is not None:
            message = delivery.message
            self.waiting_bytes -= message.body_size()
        if self.timed:
            # What has expired behind it is not counted as left. If that fails, the message is taken still.
            # A queue that a restart has left over its limit is not trimmed by those who read it.
            self.tend(False)
        else:
            self.watch()
        return delivery

    def handed_out(self, channel: Publisher, delivery: Delivery) -> None:
        """The client has it and is to settle it."""
        if self.consumer_timeout is not None:
            self.consumer_timeout.handed_out(channel, delivery.tag)
            self.watch()

    def counted(self, message: Message, redeliveries: int) -> Message:
        """The message as it goes out once more, with the number of its earlier deliveries."""
        content, header_size = with_delivery_count(message.content, message.header_size, redeliveries)
        return message.variant(message.route, content, header_size, message.traits | traits.HAS_HEADERS)

    # Consumers

    def subscribe(self, consumer: Consumer) -> None:
        if consumer.priority:
            if not self.ranked:
                self.queue.unroll()
            self.ranked += 1
        if self.single_active:
            self.succeed()
        else:
            self.join(consumer)

    def join(self, consumer: Consumer) -> None:
        """Into the round, behind those of its priority; where one alone is active, the others wait."""
        if self.single_active and (self.single is not consumer or (self.yields and self.succeed())):
            return
        if self.ranked:
            self.place(consumer)
        else:
            self.queue.join(consumer)

    def place(self, consumer: Consumer) -> None:
        """Into the round where some have priorities, behind those of its own."""
        active = self.queue.active
        index = len(active)
        while index > 0:
            other: Consumer = active[index - 1]
            if other.priority >= consumer.priority:
                break
            index -= 1
        active.insert(index, consumer)

    def unsubscribe(self, consumer: Consumer) -> None:
        if consumer.priority:
            self.ranked -= 1
        if self.single is consumer:
            self.single = None
            self.succeed()
        self.touch()
        self.watch()

    def succeed(self) -> bool:
        """Makes way for the consumer that should be the active one, if there is another."""
        queue = self.queue
        heir = succession.heir_of(queue.consumers, self.single)
        if heir is None or (self.single is not None and not self.yields):
            return False
        if self.single is not None and queue.withdraw(self.single):
            return True  # it gets no more, and is asked again with each message that it settles
        self.single = heir
        self.join(heir)
        queue.mark()
        return True

    # Coming back

    def returned(self, deliveries: list[Delivery], failed: bool) -> list[Delivery]:
        """Those that are ready again at once. Others have died of it, or wait for their next try."""
        ready: list[Delivery] = []
        dead: list[Message] = []
        for delivery in deliveries:
            message = delivery.message
            if message is None:
                continue
            if self.delivery_limit >= 0 and delivery.redeliveries > self.delivery_limit:
                dead.append(message)
                continue
            due_ms = self.retry_due_ms(delivery.redeliveries, failed)
            if self.counts:
                self.note(message, delivery.redeliveries, due_ms)
            if due_ms:
                heapq.heappush(self.waiting, (due_ms, delivery.position, delivery))
            else:
                ready.append(delivery)
                self.waiting_bytes += message.body_size()
        if dead:
            self.bury(dead, "delivery_limit")
        return ready

    def retry_due_ms(self, redeliveries: int, failed: bool) -> int:
        """When a message that came back is ready again; 0: at once."""
        rules = self.rules
        if rules.retry_type != "all" and rules.retry_type != ("failed" if failed else "returned"):
            return 0
        delay_ms = rules.retry_min_ms * redeliveries
        if rules.retry_max_ms is not None:
            delay_ms = min(delay_ms, rules.retry_max_ms)
        return self.timetable.now_ms() + delay_ms if delay_ms else 0

    def note(self, message: Message, redeliveries: int, due_ms: int) -> None:
        """How often it came back is on disk, for a message that is."""
        store = self.queue.store
        if self.queue.number and store is not None and entry_number.is_in_journal(message.entry):
            self.notes[message.entry] = redeliveries
            try:
                put_return(
                    store.journal,
                    self.queue.number,
                    entry_number.sequence_of(message.entry),
                    redeliveries,
                    due_ms,
                )
            except Exception:  # the message matters more
                log.exception("how often a message of queue %r came back is not on disk", self.queue.name)

    def forget(self, message: Message) -> None:
        """It has left the queue for good."""
        store = self.queue.store
        if self.notes and store is not None and self.notes.pop(message.entry, 0):
            forget_return(store.journal, self.queue.number, entry_number.sequence_of(message.entry))

    def loaded(self, message: Message) -> int:
        """A message is back from the disk; how often it was handed out, if it was."""
        if message.lifetime_ms >= 0 and not message.traits & traits.TIMED:
            message.stamp(self.timetable.started_ms)  # of an exchange that was lost: rescued, it came then
        if message.traits & traits.TIMED:
            self.timed = True
            # The machine's clock may have been set back while the broker was down: what came in an
            # earlier life came before this one began.
            store = self.queue.store
            if (
                store is not None
                and entry_number.is_in_journal(message.entry)
                and entry_number.sequence_of(message.entry) <= store.recovered
            ):
                message.arrived_ms = min(message.arrived_ms, self.timetable.started_ms)
        return self.notes.get(message.entry, 1)

    def restore_returns(self, returns: dict[int, tuple[int, int]], waiting: list[int]) -> None:
        """What recovery found: by entry the returns and when it is due; those that wait are not paged out."""
        store = self.queue.store
        self.notes = {entry: count for entry, (count, _) in returns.items()}
        if store is None:
            return
        place = -len(waiting)  # ahead of all that was not handed out yet
        for entry, message in zip(waiting, store.load(waiting), strict=True):
            if message is not None:
                count, due_ms = returns[entry]
                self.loaded(message)
                # The clock may have been set back since then: it waits for as long as it would from now.
                again_ms = max(self.retry_due_ms(count, True), self.retry_due_ms(count, False))
                due_ms = min(due_ms, again_ms or due_ms)
                delivery = Delivery.create(0, message, self.queue, None, place, count)
                heapq.heappush(self.waiting, (due_ms, place, delivery))
            place += 1

    def restored(self, is_timed: bool) -> None:
        """The queue has what recovery found of it; `is_timed`: some of that may expire."""
        self.timed = self.timed or is_timed
        if self.bytes_max >= 0:
            self.waiting_bytes = self.queue.body_bytes()
            for _, _, delivery in self.waiting:
                message = delivery.message
                if message is not None:
                    self.waiting_bytes -= message.body_size()
        if not self.refuses and self.exceeds():
            self.set_alarm(0)  # clients see it within its limits
        elif self.timed and self.queue.message_count():
            self.set_alarm(0)  # the head is read then, not for every queue at the start
        else:
            self.watch()

    # By the clock

    def due_ms(self, message: Message) -> int:
        """When the message expires; -1: never."""
        due_ms = -1
        if message.lifetime_ms >= 0:
            due_ms = message.arrived_ms + message.lifetime_ms
        if self.ttl_ms >= 0:
            since_ms = message.arrived_ms if message.traits & traits.TIMED else self.ttl_since_ms
            until_ms = since_ms + self.ttl_ms
            if due_ms < 0 or until_ms < due_ms:
                due_ms = until_ms
        return due_ms

    def has_expired(self, message: Message) -> bool:
        if not self.timed or self.has_just_come(message):
            return False
        due_ms = self.due_ms(message)
        if due_ms < 0:
            return False
        now_ms: int = self.timetable.now_ms()
        return due_ms <= now_ms

    def expire(self) -> bool:
        """Expired messages at the head die; whether there are more than are done at a time."""
        queue = self.queue
        dead: list[Message] = []
        size = 0
        letters = 0
        bytes_max = LETTERS_BYTES_SHORT if self.is_slow() else EXPIRED_BYTES_MAX
        has_more = False
        try:
            message = queue.head()
            while message is not None and self.has_expired(message):
                has_more = len(dead) == EXPIRED_MAX or size >= bytes_max or letters >= LETTERS_OCTETS_MAX
                if has_more or queue.draw() is None:
                    break
                self.waiting_bytes -= message.body_size()
                size += len(message.content)
                letters += self.letter_octets(message)
                dead.append(message)
                message = queue.head()
        finally:
            if dead:
                self.bury(dead, "expired")
        return has_more

    def touch(self) -> None:
        """The queue is used."""
        if self.expires_ms >= 0:
            self.unused_since_ms = self.timetable.now_ms()

    def watch(self) -> None:
        """Sets the alarm for whatever is due first; never fails, as whoever asks has done something else."""
        try:
            self.look_ahead()
        except Exception:
            log.exception("a bug in looking what is due in queue %r: once more in a while", self.queue.name)
            self.timetable.at(self.timetable.now_ms() + AGAIN_MS, self.watch)

    def look_ahead(self) -> None:
        due_ms = -1
        queue = self.queue
        if self.timed:
            message = queue.head()
            if message is not None:
                due_ms = self.due_ms(message)
                if due_ms >= 0 and self.is_slow():
                    due_ms = max(due_ms, self.timetable.now_ms())
                    due_ms += LETTERS_SHORT_MS - due_ms % LETTERS_SHORT_MS
        if self.waiting:
            first: int = self.waiting[0][0]
            due_ms = first if due_ms < 0 else min(due_ms, first)
        if self.consumer_timeout is not None:
            first = self.consumer_timeout.next_due_ms()
            if first >= 0:
                due_ms = first if due_ms < 0 else min(due_ms, first)
        if self.expires_ms >= 0 and not queue.consumers:
            first = self.unused_since_ms + self.expires_ms
            due_ms = first if due_ms < 0 else min(due_ms, first)
        if due_ms >= 0 and not queue.deleted:
            self.set_alarm(due_ms)

    def set_alarm(self, due_ms: int) -> None:
        """An alarm that comes too early does no harm: it is set anew then."""
        alarm = self.alarm
        if alarm is not None:
            if alarm.due_ms <= due_ms:
                return
            alarm.cancel()
        # What is late already waits for the next run, or a run could go on for ever.
        self.alarm = self.timetable.at(max(due_ms, self.timetable.now_ms() + 1), self.ring)

    def ring(self) -> None:
        """The alarm."""
        self.alarm = None
        queue = self.queue
        if queue.deleted:
            return
        self.trim()
        if self.timed and not (queue.pass_work.behind and self.is_slow()):
            self.expire()
        now_ms: int = self.timetable.now_ms()
        if self.waiting:
            self.end_waits(now_ms)
        if self.consumer_timeout is not None:
            self.consumer_timeout.run(now_ms)
        if self.has_ended(now_ms) and self.host is not None:
            self.host.delete_queue(queue)
            return
        self.watch()

    def is_slow(self) -> bool:
        """Whether what expires becomes copies while memory is short, or was not looked at for too long."""
        pass_work = self.queue.pass_work
        if self.rules.dead_letter_exchange is None:
            return False
        return pass_work.is_short or pass_work.unwatched_bytes < 0

    def has_ended(self, now_ms: int) -> bool:
        """Whether nobody has used the queue for as long as it may be unused."""
        if self.expires_ms < 0 or self.queue.consumers:
            return False
        return now_ms >= self.unused_since_ms + self.expires_ms

    def end_waits(self, now_ms: int) -> None:
        """Messages whose next try has come are ready again, in their old places."""
        ready: list[Delivery] = []
        while self.waiting and self.waiting[0][0] <= now_ms:
            delivery = heapq.heappop(self.waiting)[2]
            message = delivery.message
            if message is not None:
                self.waiting_bytes += message.body_size()
                ready.append(delivery)
        if ready:
            self.queue.put_back(ready)
            self.trim()
            self.queue.mark()

    def purge(self) -> list[Delivery]:
        """The queue drops all it has: that is what waits for its next try."""
        waiting, self.waiting = self.waiting, []
        self.waiting_bytes = 0
        return [delivery for _, _, delivery in waiting]

    def close(self) -> None:
        """The queue is gone."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
