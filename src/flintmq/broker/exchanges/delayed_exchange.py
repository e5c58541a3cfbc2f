"""x-delayed-message: holds a message until its time has come, then routes it.

    x-delay        header: how many ms from now
    x-deliver-at   header: when, in ms since 1970; it goes before x-delay
    neither, or a time that is past: routed at once

What waits is known here by one number each, due << 64 | entry, in a heap: some 50 octets, whatever the
size of the message. The message itself is an entry of the journal, owned by the exchange as a queue would,
if it is persistent and the exchange durable; else of the overflow; in memory only where there is no store.
In the journal its time stands behind the route, so that recovery finds it without reading the body:

    route    | exchange 1+n | routing key 1+n | due 8 |
"""

from __future__ import annotations

import heapq
import logging
import struct
from contextlib import nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.exchange import ROUTED, TAKEN
from flintmq.broker.exchanges.route import RoutingContext
from flintmq.broker.exchanges.wrapping_exchange import WrappingExchange
from flintmq.broker.messages import cc_bcc, entry_number
from flintmq.broker.messages.message import Message, new_message
from flintmq.broker.queues import put_flags
from flintmq.broker.scheduling.chores import MESSAGES
from flintmq.errors import ChannelFault, PeerFault, UnreadableFault
from flintmq.wire import amqp, traits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.timetable import Alarm
    from flintmq.broker.store.publisher import Publisher
    from flintmq.broker.store.store import Store

log = logging.getLogger("flintmq.delayed")

DELAY = "x-delay"
DELIVER_AT = "x-deliver-at"
# 34 years; the due time stays under 2**63 with it.
DELAY_MS_MAX = 1 << 40
# 52 octets each: 208 MB for one exchange.
WAITING_MAX = 4_000_000
# Released in one go, as one group of the journal; then others have their turn.
RELEASED_MESSAGES = 64
RELEASED_MESSAGES_MAX = 1024
# Of what goes to many queues each so many copies, and those of one message more.
RELEASED_COPIES = 8192
# One that a bug or a full queue has kept from leaving is tried again so much later. Those that full queues
# keep are tried a millisecond apart: however many they are, that is a thousand in a second.
AGAIN_MS = 1000

_DUE = struct.Struct(">Q")
_ENTRY_BITS = 64
_ENTRY_MASK = (1 << _ENTRY_BITS) - 1


class DelayedExchange(WrappingExchange):
    """Routes as the kind that `x-delayed-type` names, later."""

    __slots__ = (
        "again_ms",
        "alarm",
        "alarm_ms",
        "full",
        "given",
        "kept_here",
        "made",
        "owners",
        "portion",
        "waiting",
    )
    type = "x-delayed-message"
    type_argument = "x-delayed-type"
    type_default = None
    holds_messages = True

    def prepare(self) -> None:
        super().prepare()
        self.waiting: list[int] = []
        self.alarm: Alarm | None = None
        self.alarm_ms = 0
        self.kept_here: dict[int, Message] = {}  # without a store: by what stands for the entry
        self.made = 0
        self.portion = RELEASED_MESSAGES  # as many as may leave together, by what the last ones came to
        self.again_ms = 0  # when the last of those is tried again that full queues keep
        self.full: set[str] = set()  # names of queues that keep some, which the log was told of
        # By entry: names of the queues that have the message, while others are full. After a restart nobody
        # knows of these, and the message goes to all of its queues.
        self.given: dict[int, frozenset[str]] = {}
        self.owners: tuple[int, ...] = ()  # the same tuple for each message: the journal knows it again

    def enter(self, router: Router) -> None:
        super().enter(router)
        self.owners = (self.number,) if self.number else ()

    # Coming in

    def check(self, headers: dict[str, Any]) -> None:
        due_of(headers, self.router.pass_work.timetable.now_ms())

    def receive(self, context: RoutingContext) -> int:
        if context.past is self or not context.message.traits & traits.HAS_HEADERS:
            return ROUTED
        now_ms = self.router.pass_work.timetable.now_ms()
        channel = context.channel
        try:
            due_ms = due_of(context.headers(), now_ms)
        except ChannelFault as fault:
            if channel is not None and channel.transaction is None:
                raise
            log.warning("%s: not delayed: %s", self.name, fault.reply_text)
            return ROUTED
        if due_ms <= now_ms:
            return ROUTED
        if len(self.waiting) >= WAITING_MAX and channel is not None and channel.transaction is None:
            raise ChannelFault(
                amqp.RESOURCE_ERROR,
                f"exchange '{self.name}': {WAITING_MAX} messages wait already",
                60,
                40,
            )
        entry = self.keep(context.message, due_ms, channel)
        try:
            self.put(due_ms, entry)
        except Exception:
            self.let_go(entry)
            raise
        return TAKEN

    def keep(self, message: Message, due_ms: int, channel: Publisher | None) -> int:
        """Puts a copy of the message where it can wait; its entry."""
        router: Router = self.router
        store = router.store
        if store is None:
            self.made += 1
            self.kept_here[self.made] = message.twin()
            return self.made
        is_kept = bool(self.owners) and bool(message.traits & traits.PERSISTENT)
        route = message.route + _DUE.pack(due_ms) if is_kept else message.route
        copy = new_message(route, message.content, message.header_size, message.traits, message.origin)
        if message.traits & traits.SPOOLED:
            self.keep_spooled(store, message, copy, is_kept)
        elif is_kept:
            store.keep(copy, self.owners)
        else:
            return store.spill(copy)
        if is_kept and channel is not None:
            confirms, sequence = channel.confirms, entry_number.sequence_of(copy.entry)
            confirms.note_kept(sequence)
            if confirms.active and copy.traits & traits.SPOOLED:
                store.promised[sequence] = (confirms, confirms.published)
        return copy.entry

    def keep_spooled(self, store: Store, message: Message, copy: Message, is_kept: bool) -> None:
        spool = store.arrived[message]
        if not is_kept:
            store.hold(copy, spool, 1)
            return
        with store.sharing(spool, copy):
            store.keep_spooled(copy, self.owners)

    def restore(self, found: Iterable[tuple[int, int]]) -> None:
        """What recovery found waiting: due times and entries."""
        self.waiting = [due_ms << _ENTRY_BITS | entry for due_ms, entry in found]
        heapq.heapify(self.waiting)
        self.wake_for_first()

    def put(self, due_ms: int, entry: int) -> None:
        """The entry waits here, or an exception says that it does not."""
        self.wake_at(due_ms)
        heapq.heappush(self.waiting, due_ms << _ENTRY_BITS | entry)

    def wake_for_first(self, wait_ms: int = 1) -> None:
        """Others have their turn before what is due already."""
        if self.waiting:
            soon_ms = self.router.pass_work.timetable.now_ms() + wait_ms
            self.wake_at(max(self.waiting[0] >> _ENTRY_BITS, soon_ms))

    def wake_at(self, due_ms: int) -> None:
        """One alarm, for the first of those that wait."""
        alarm = self.alarm
        if alarm is not None and self.alarm_ms <= due_ms:
            return
        self.alarm = self.router.pass_work.timetable.at(due_ms, self.release_due)
        self.alarm_ms = due_ms
        if alarm is not None:
            alarm.cancel()

    # Going out

    def release_due(self) -> None:
        """Routes what is due; of very many only some, and the others a millisecond later.

        While memory is full, or the disk behind, all of it waits.
        """
        self.alarm = None
        pass_work = self.router.pass_work
        now_ms = pass_work.timetable.now_ms()
        pause_ms = pass_work.pause_ms()
        copies_max = pass_work.copies + RELEASED_COPIES
        released = 0
        try:
            while not pause_ms and released < RELEASED_MESSAGES_MAX and pass_work.copies <= copies_max:
                taken = self.take_due(now_ms)
                if not taken:
                    return
                released += len(taken)
                self.release_some(taken, copies_max)
        finally:
            self.wake_for_first(max(pause_ms, 1))

    def take_due(self, now_ms: int) -> list[int]:
        """One portion as it waits here, the first of them last."""
        taken: list[int] = []
        waiting = self.waiting
        while len(taken) < self.portion and waiting and waiting[0] >> _ENTRY_BITS <= now_ms:
            taken.append(heapq.heappop(waiting))
        taken.reverse()
        return taken

    def release_some(self, taken: list[int], copies_max: int) -> None:
        """As many of these as may leave; the others wait on in their places."""
        entries = [each & _ENTRY_MASK for each in taken]
        try:
            self.release(entries, copies_max)
            left = len(entries)
            for each in taken[:left]:
                heapq.heappush(self.waiting, each)
            entries.clear()
        finally:
            self.put_off_all(entries)  # what a bug has kept from leaving
        # All that is taken is read from disk.
        self.portion = len(taken) - left if left else min(2 * self.portion, RELEASED_MESSAGES)

    def release(self, entries: list[int], copies_max: int) -> None:
        """From the end of `entries` on, which loses each entry that has left or was put off.

        So many copies of messages, and those of one message more.
        """
        pass_work = self.router.pass_work
        store: Store | None = self.router.store
        if store is None:
            while entries and pass_work.copies <= copies_max:
                self.let_out(entries[-1], self.kept_here[entries[-1]])
                entries.pop()
            return
        try:
            messages = store.load(entries[::-1])
        except Exception as fault:
            if not isinstance(fault, UnreadableFault):  # which the reader of the file has told
                log.exception("exchange %r: a bug in reading what is due: once more in a while", self.name)
            self.put_off_all(entries)
            return
        # One group: after a crash each of them is either here still, or where it went. Of an exchange that is
        # not durable they are here no more, and damage to a group would cost them all.
        with store.journal.group() if self.number else nullcontext():
            for message in messages:
                if pass_work.copies > copies_max:
                    break
                self.let_out(entries[-1], message)
                entries.pop()
            self.router.secure_streams()

    def let_out(self, entry: int, message: Message | None) -> None:
        """Sends one message, unless the disk does not give it back, and lets go of it."""
        try:
            if message is None or self.send_out(entry, message):
                self.let_go(entry)
            else:
                now_ms = self.router.pass_work.timetable.now_ms()
                self.again_ms = max(now_ms + AGAIN_MS, self.again_ms + 1)
                self.put(self.again_ms, entry)
        except UnreadableFault:  # told where it was met
            self.put_off(entry)
        except Exception:
            log.exception("exchange %r: a bug keeps a message: once more in a while", self.name)
            self.put_off(entry)

    def send_out(self, entry: int, message: Message) -> bool:
        """Whether all queues have the message that can have it; else some of them are full."""
        try:
            return self.send(entry, message)
        except UnreadableFault:
            raise
        except PeerFault as fault:
            log.error("exchange %r: a message is dropped when it is due: %s", self.name, fault.reply_text)
            return True

    def let_go(self, entry: int) -> None:
        self.given.pop(entry, None)
        store: Store | None = self.router.store
        if store is None:
            del self.kept_here[entry]
        else:
            store.settle(self.number, entry)

    def put_off(self, entry: int) -> None:
        self.put(self.router.pass_work.timetable.now_ms() + AGAIN_MS, entry)

    def put_off_all(self, entries: list[int]) -> None:
        while entries:
            self.put_off(entries[-1])
            entries.pop()

    def send(self, entry: int, waited: Message) -> bool:
        """Routes a message that has waited; False if full queues have not taken it."""
        router: Router = self.router
        message = waited.twin()  # it gets an entry of its own
        message.arrived_ms = 0  # to its queues it comes now
        context = RoutingContext(message, None, message.routing_key())
        context.past = self
        keys = [context.key]
        if message.traits & traits.HAS_COPIES:
            keys += cc_bcc.keys_of(message)
        store = router.store
        if store is None or not message.traits & traits.SPOOLED:
            return self.hand_over(entry, context, keys)
        spool = store.spool_of(waited)
        if spool is None:
            log.error("exchange %r: a message of %d octets is lost", self.name, len(waited.content))
            return True
        with store.sharing(spool, message):
            return self.hand_over(entry, context, keys)

    def hand_over(self, entry: int, context: RoutingContext, keys: list[str]) -> bool:
        """Into those queues that have room and do not have the message yet; whether that is all of them."""
        try:
            return self.hand_over_passed(entry, context, keys)
        except Exception:
            context.take_back()
            raise

    def hand_over_passed(self, entry: int, context: RoutingContext, keys: list[str]) -> bool:
        router: Router = self.router
        queues, _ = router.resolve(self, keys, context)
        given = self.given.get(entry)
        if given:
            queues = [queue for queue in queues if queue.name not in given]
        full = router.refusing(context.message, queues)
        if full:
            queues = [queue for queue in queues if queue not in full]
        # What is not over would be a duplicate when it is tried again.
        happened = put_flags.REFUSED if full or context.refused else 0
        if queues and context.message.traits & traits.HAS_COPIES:
            happened |= router.forward_shown(context.message, queues)
        elif queues:
            happened |= router.forward(context.message, queues)
        elif not (full or given or context.taken):
            happened |= put_flags.UNROUTED
        context.end(happened)
        if self.full:
            self.full.difference_update([queue.name for queue in queues])
        if full:
            self.hold_back(entry, full, queues)
        return not full

    def hold_back(self, entry: int, full: list[Queue], queues: list[Queue]) -> None:
        """Some queues are full, and others have the message."""
        if queues:
            given = self.given.get(entry, frozenset())
            self.given[entry] = given.union([queue.name for queue in queues])
        for queue in full:
            if queue.name not in self.full:
                self.full.add(queue.name)
                log.warning(
                    "exchange %r: queue %r is full and refuses what is due: it is tried again each second",
                    self.name,
                    queue.name,
                )

    def leave(self) -> None:
        """Deleted: what waits here goes nowhere."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        store: Store | None = self.router.store
        if store is not None:
            self.router.pass_work.chores.begin(self.let_go_of_all(store, self.waiting))
        self.waiting = []
        self.kept_here = {}
        self.given = {}

    def let_go_of_all(self, store: Store, waiting: list[int]) -> Iterator[None]:
        """In portions; after a crash recovery lets go of what has lost its exchange."""
        while waiting:
            for _ in range(min(MESSAGES, len(waiting))):
                store.settle(self.number, waiting[-1] & _ENTRY_MASK)
                waiting.pop()
            yield


def due_of(headers: dict[str, Any], now_ms: int) -> int:
    """When a message is due, in ms since 1970; 0 if its headers do not say."""
    at = headers.get(DELIVER_AT)
    if isinstance(at, datetime):
        at = int(at.timestamp() * 1000)
    if at is not None:
        if isinstance(at, bool) or not isinstance(at, int) or at > now_ms + DELAY_MS_MAX:
            raise arguments.wrong(DELIVER_AT, "ms since 1970, at most 34 years ahead")
        return max(at, 0)
    delay_ms = headers.get(DELAY)
    if delay_ms is None:
        return 0
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int) or delay_ms > DELAY_MS_MAX:
        raise arguments.wrong(DELAY, f"a whole number of ms, at most {DELAY_MS_MAX}")
    return now_ms + delay_ms if delay_ms > 0 else 0


def due_in(header: bytes) -> int:
    """The due time in the header of an entry, as recovery reads it."""
    due_ms: int = _DUE.unpack(header[-_DUE.size :])[0]
    return due_ms
