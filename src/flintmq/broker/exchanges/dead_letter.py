"""Dead letters: a message that a queue gives up goes on to the exchange that the queue names for it.

    queue gives up a message -> a copy, with the story of its death -> routed as if it were published
                             -> let go by the queue                    in one group of the journal

So a crash leaves either the message where it was, or its copy where it went. What dies on the way (a full
queue drops its oldest to take the copy) waits in a list until the one before it is done.

    x-death            one table for each queue and reason, the latest first: count, reason, queue, time,
                       exchange, routing-keys, original-expiration
    x-first-death-*, x-last-death-*    reason, queue, exchange

Without a routing key of the queue's own it keeps those of the message, with CC and BCC; with one, it has that
alone, and CC is taken out. The story has no keys of a BCC.

The story takes STORY_BYTES_MAX at most, and the header of a letter fits into a frame (`shortened`): CC of a
thousand keys would else be told once more with each death.

A message that would come to a queue where it died before, without a rejection since then, goes round by
itself and for ever: it is dropped. Where cycles branch, letters become more and more before they end so: see
`thinned`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flintmq.broker.messages.cc_bcc import blind_keys_of, blind_octets
from flintmq.broker.messages.header_changes import (
    expiration_of,
    fitted,
    header_entries,
    header_value,
    with_headers,
)
from flintmq.broker.messages.message import Message
from flintmq.broker.queues import put_flags
from flintmq.broker.queues.queue_rules import AT_LEAST_ONCE
from flintmq.errors import PeerFault, UnreadableFault
from flintmq.wire import traits
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.tables import FieldTable, FieldValue, LongLong, encode_value

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.queues.queue import Queue

log = logging.getLogger("flintmq.dead_letter")

# Letters in one group of the journal, which has to fit into a segment.
GROUP_LETTERS_MAX = 256
# A letter takes some 20 microseconds, and as much again for so many octets of its headers: each octet of
# these counts as one copy in a queue (PassWork.copies).
LETTER_OCTETS = 128
# So much is sent at once, counted in copies: some 5 ms. A letter may go to many queues, and one that comes
# into a full queue has the queue drop another message, whose letter does the same in the next queue. The
# others wait for their turn behind everything else.
FOLLOWING_COPIES = 32_768
# The same in each pause for memory or the disk (PassWork.pause_ms). Letters never stop: whoever rejects is
# not read from while too many wait, and may hold the messages that memory waits for.
PAUSED_COPIES = 4096
# While so many letters wait, or so many octets, a queue drops no more than ROOM_CROWDED messages at a time
# that would become letters, and whoever brings letters is not read from. Queues drop nothing while
# WAITING_FULL times as much waits: a fanout into full queues makes several letters of each.
WAITING_MAX = 1024
WAITING_BYTES_MAX = 4_194_304
WAITING_FULL = 16
ROOM_CROWDED = 2
ROOM = 1 << 30
# The log tells so often that letters in cycles are dropped.
WARNING_MS = 60_000
# A letter that a bug has kept from leaving is tried again so much later, and so often; then the message is
# where it was when the broker starts again.
AGAIN_MS = 1000
TRIES_MAX = 5
# A letter takes as long as one copy more in a queue for so many of its octets, as they are copied several
# times (PassWork.copies): others have their turn after one letter of a mebibyte.
OCTETS_PER_COPY = 128
# Of its story a message tells so much; one that has died in more places is dropped. 128 tables of some
# 200 octets are 25 KB, well below what a frame takes.
DEATHS_MAX = 128
# In longer stories deaths have one routing key each; then the oldest have count, reason and queue alone: of
# the longest names 128 of these take 41 KB.
STORY_BYTES_MAX = 49_152
BARE = ("count", "reason", "queue")
STORY_HEADERS = frozenset(
    ["x-death"]
    + [f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")]
)
# What a letter's header takes at most where nobody has said how large a frame is. Room is left for headers
# that a delivery adds (x-delivery-count, x-headers-left-out).
HEADER_MARGIN_BYTES = 128
HEADER_BYTES_MAX = 131_072 - HEADER_MARGIN_BYTES
# A letter with a smaller header has no story that could be too long, however small frames are.
CHECKED_BYTES_MIN = 4096 - HEADER_MARGIN_BYTES
# The most that one more can be added to.
COUNT_MAX = (1 << 63) - 2


class DeadLetters:
    """Buries the dead of one virtual host."""

    def __init__(self, router: Router) -> None:
        self.router = router
        # With how often each was tried before.
        self.dead: deque[tuple[Queue, Message, str, int]] = deque()
        self.failed: list[tuple[Queue, Message, str, int]] = []
        # Those that follow from letters.
        self.waiting: deque[tuple[Queue, Message, str, int]] = deque()
        self.waiting_bytes = 0
        self.is_due = False  # the timetable has those that wait sent
        self.is_again_due = False  # and those that have failed
        self.is_busy = False
        self.is_running = False
        self.is_thinning = False  # from when too many wait until none does, see `thinned`
        self.warned_ms = -WARNING_MS
        self.held: list[Callable[[], None]] = []  # whoever waits for room
        self.header_bytes_max = HEADER_BYTES_MAX

    def bury(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """The messages have left the queue but for the journal; they are dead, and their copies go on.

        Never fails: what cannot be sent now is sent later, and is the queue's in the journal until then. What
        has died before its queue is deleted is sent all the same; what dies afterwards is no letter.
        """
        if queue.deleted:
            queue.let_go_all(messages)
            return
        dead = [(queue, message, reason, 0) for message in messages]
        if self.is_running:
            self.wait(dead)
            return
        self.dead.extend(dead)
        self.run()

    def wait(self, following: Iterable[tuple[Queue, Message, str, int]]) -> None:
        """These are buried behind those that wait already."""
        for each in following:
            self.waiting.append(each)
            self.waiting_bytes += len(each[1].content)

    def is_crowded(self) -> bool:
        """Whether so many letters wait that no more are to be made."""
        return len(self.waiting) >= WAITING_MAX or self.waiting_bytes >= WAITING_BYTES_MAX

    def room(self) -> int:
        """How many messages that become letters a queue may drop now."""
        if not self.is_crowded():
            return ROOM
        is_full = (
            len(self.waiting) >= WAITING_FULL * WAITING_MAX
            or self.waiting_bytes >= WAITING_FULL * WAITING_BYTES_MAX
        )
        return 0 if is_full else ROOM_CROWDED

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls back once fewer letters wait."""
        if self.is_crowded():
            self.held.append(callback)
        else:
            callback()

    def tell_held(self) -> None:
        """There is room: all who wait go on, whatever becomes of one of them."""
        held, self.held = self.held, []
        for callback in held:
            try:
                callback()
            except Exception:
                log.exception(
                    "a bug in going on with what has waited for letters of vhost %r", self.router.name
                )

    def is_grouped(self) -> bool:
        """Whether letters are part of a group of the journal, such as a transaction's."""
        store = self.router.store
        return store is not None and store.journal.in_group()

    @contextmanager
    def after(self) -> Iterator[None]:
        """What dies meanwhile is buried at the end, so that no letter overtakes its original."""
        if self.is_busy:
            yield
            return
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False
            if self.dead:
                self.run()

    def run(self) -> None:
        self.work(0 if self.router.pass_work.is_critical else FOLLOWING_COPIES)

    def work(self, copies_max: int) -> None:
        """Sends letters until they have made so many copies; the others have their turn by the alarm."""
        if self.is_busy:
            return
        self.is_busy = self.is_running = True
        try:
            if self.is_grouped():
                while self.dead:
                    self.bury_some()
            else:
                is_first = not self.dead or not self.waiting
                self.wait(self.dead)
                self.dead.clear()
                if is_first:
                    self.follow(copies_max)
            self.is_thinning = self.is_thinning and bool(self.waiting)
        except Exception:
            log.exception("a bug in burying the dead of vhost %r: once more in a while", self.router.name)
            self.try_again([])
        finally:
            self.is_busy = self.is_running = False
        self.set_alarm()
        if self.held and not self.is_crowded():
            self.tell_held()

    def follow(self, copies_max: int) -> None:
        """What waits is sent, also what that causes in turn."""
        pass_work = self.router.pass_work
        until = pass_work.copies + copies_max
        while self.waiting and pass_work.copies < until:
            with self.grouped():
                for _ in range(GROUP_LETTERS_MAX):
                    if not self.waiting or pass_work.copies >= until:
                        break
                    following = self.waiting.popleft()
                    self.waiting_bytes -= len(following[1].content)
                    self.bury_next(*following)

    def set_alarm(self, wait_ms: int = 1) -> None:
        """Those that wait are sent in portions, in turn with whatever else is due."""
        if self.waiting and not self.is_due:
            self.is_due = True
            timetable = self.router.pass_work.timetable
            timetable.at(timetable.now_ms() + wait_ms, self.go_on)  # at 0 it would be ahead of all others

    def go_on(self) -> None:
        pause_ms = self.router.pass_work.pause_ms()
        try:
            self.work(PAUSED_COPIES if pause_ms else FOLLOWING_COPIES)
        finally:
            self.is_due = False
        self.set_alarm(max(pause_ms, 1))  # also where somebody else is at work

    @contextmanager
    def grouped(self) -> Iterator[None]:
        """A group of the journal for some letters; inside a transaction's group they are part of that."""
        store = self.router.store
        if store is None or store.journal.in_group():
            yield
            return
        with store.journal.group():
            yield
            self.router.secure_streams()

    def bury_some(self) -> None:
        with self.grouped():
            for _ in range(GROUP_LETTERS_MAX):
                if self.dead:
                    self.bury_next(*self.dead.popleft())

    def bury_next(self, queue: Queue, message: Message, reason: str, tries: int) -> None:
        try:
            self.bury_one(queue, message, reason)
        except UnreadableFault:  # told where it was met
            self.try_again([(queue, message, reason, tries)])
        except PeerFault as fault:
            log.error("a dead letter of queue %r is dropped: %s", queue.name, fault.reply_text)
            self.let_go(queue, message, reason, tries)
        except Exception:
            log.exception("a bug keeps a dead letter of queue %r from leaving", queue.name)
            self.try_again([(queue, message, reason, tries + 1)])

    def let_go(self, queue: Queue, message: Message, reason: str, tries: int) -> None:
        try:
            queue.settle(message)
        except Exception:
            log.exception("a bug in letting go of what queue %r has dropped", queue.name)
            self.try_again([(queue, message, reason, tries + 1)])

    def try_again(self, failed: list[tuple[Queue, Message, str, int]]) -> None:
        """Has these, and what is left of the others, buried after a pause."""
        for each in failed:
            if each[3] < TRIES_MAX:
                self.failed.append(each)
            else:
                log.error(
                    "a dead letter of queue %r cannot leave: the message is back there after a restart",
                    each[0].name,
                )
        if not self.is_again_due:
            self.is_again_due = True
            timetable = self.router.pass_work.timetable
            timetable.at(timetable.now_ms() + AGAIN_MS, self.run_again)

    def run_again(self) -> None:
        self.is_again_due = False
        failed, self.failed = self.failed, []
        self.dead.extend(failed)
        self.run()

    def bury_one(self, queue: Queue, message: Message, reason: str) -> None:
        # Whether or not it comes to a queue: who publishes to full queues alone has its turn end, too.
        self.router.pass_work.copies += LETTER_OCTETS + message.header_size
        if queue.rules is not None:
            rules = queue.rules.settings
            if rules.dead_letter_exchange is not None:
                pass_work = self.router.pass_work
                was_promised = pass_work.is_promised
                if rules.dead_letter_strategy == AT_LEAST_ONCE:
                    pass_work.is_promised = True
                try:
                    self.send(
                        queue, message, reason, rules.dead_letter_exchange, rules.dead_letter_routing_key
                    )
                finally:
                    pass_work.is_promised = was_promised
        queue.settle(message)

    def send(self, queue: Queue, message: Message, reason: str, exchange: str, key: str | None) -> None:
        if exchange and exchange not in self.router.exchanges:
            log.debug("a dead letter of queue %r is dropped: there is no exchange %r", queue.name, exchange)
            self.router.pass_work.fates.undelivered += 1
            return
        entries = header_entries(message.content, message.header_size)
        copies = header_value(entries, "CC")
        carbon = [each for each in copies if isinstance(each, str)] if isinstance(copies, list) else []
        blind = blind_keys_of(message) if key is None else []
        keys = [message.routing_key(), *carbon, *blind] if key is None else [key]
        death = self.death_of(queue, message, reason, [message.routing_key(), *carbon])
        before = header_value(entries, "x-death")
        deaths = told(before if isinstance(before, list) else [], death)
        if len(deaths) > DEATHS_MAX:
            log.warning("a dead letter of queue %r is dropped: it has died too often", queue.name)
            self.router.pass_work.fates.undelivered += 1
            return
        changed: FieldTable = {"x-death": deaths}
        for name in ("reason", "queue", "exchange"):
            if before is None:
                changed[f"x-first-death-{name}"] = death[name]
            changed[f"x-last-death-{name}"] = death[name]
        removed = () if key is None else ("CC",)
        content, header_size = with_headers(message.content, message.header_size, changed, removed, False)
        found = message.traits & ~(traits.HAS_EXPIRATION | traits.TIMED | traits.BLIND) | traits.HAS_HEADERS
        route = route_octets(exchange, keys[0])
        if blind:  # its own dead letter goes there as well
            route, found = route + blind_octets(blind), found | traits.BLIND
        letter = message.variant(route, content, header_size, found)
        if header_size > CHECKED_BYTES_MIN:
            letter = self.shortened(queue, letter, deaths)
            content = letter.content
        queues = self.destinations(exchange, keys, letter)
        passage = self.router.take_passage()
        if reason != "rejected":
            reached = len(queues)
            queues = [each for each in queues if not is_cycle(each.name, deaths)]
            if len(deaths) > 1 < len(queues) < reached and (self.is_thinning or self.is_crowded()):
                queues = self.thinned(queue, letter, queues)
        if not queues:
            self.router.pass_work.fates.undelivered += 1
            if passage is not None:
                passage.end(put_flags.UNROUTED)
            return
        self.router.pass_work.unwatched_bytes -= len(content)
        self.router.pass_work.copies += len(content) // OCTETS_PER_COPY
        if found & traits.SPOOLED:
            self.send_spooled(message, letter, queues, passage)
        else:
            self.router.forward_passed(letter, queues, passage)

    def thinned(self, queue: Queue, letter: Message, queues: list[Queue]) -> list[Queue]:
        """Without the queues that would make other letters of this one, or for it.

        Through a fanout into n full queues that all lead back to it, a message would die on each of n! ways
        before all of them were cycles. So while too many letters wait, a letter that has died in two queues
        and has met a cycle goes no further on ways that branch, or on one of them where its queue must lose
        nothing. A message makes n letters then. Where queues only lead on, or each to one other, no letter is
        left out.
        """
        full = [each for each in queues if each.gives_on(letter)]
        if len(full) < 2:
            return queues
        self.is_thinning = True
        pass_work = self.router.pass_work
        if pass_work.now_ms - self.warned_ms >= WARNING_MS:
            self.warned_ms = pass_work.now_ms
            log.warning(
                "dead letters of queue %r go in cycles through %d full queues, too many wait in vhost %r: "
                "letters that would make others are dropped for now",
                queue.name,
                len(full),
                self.router.name,
            )
        if pass_work.is_promised:
            full.remove(min(full, key=lambda each: each.message_count()))
        pass_work.fates.undelivered += len(full)
        left_out = set(full)
        return [each for each in queues if each not in left_out]

    def shortened(self, queue: Queue, letter: Message, deaths: list[FieldValue]) -> Message:
        """The letter with as much of its story, and then of its other headers, as a frame takes."""
        size = len(encode_value(deaths))
        room = min(STORY_BYTES_MAX, size + self.header_bytes_max - letter.header_size)
        if size > room:
            story: FieldTable = {"x-death": fitting(deaths, room)}
            content, header_size = with_headers(letter.content, letter.header_size, story)
            letter = letter.variant(letter.route, content, header_size, letter.traits)
        if letter.header_size > self.header_bytes_max:
            log.warning(
                "a dead letter of queue %r has larger headers than fit: some are left out", queue.name
            )
            letter = fitted(letter, self.header_bytes_max, STORY_HEADERS)
        return letter

    def send_spooled(
        self, message: Message, letter: Message, queues: list[Queue], passage: RoutingContext | None
    ) -> None:
        """The letter shares the file that the body lies in."""
        store = self.router.store
        spool = None if store is None else store.spool_of(message)
        if store is None or spool is None:
            log.error("a dead letter of %d octets is lost: its file is gone", len(message.content))
            self.router.pass_work.fates.lost += 1
            return
        with store.sharing(spool, letter):
            self.router.forward_passed(letter, queues, passage)

    def destinations(self, exchange: str, keys: list[str], letter: Message) -> list[Queue]:
        if len(keys) > 1:  # of those of CC and BCC some may be longer than a routing key can be
            source = self.router.exchanges[exchange] if exchange else None
            return self.router.match_keys(source, keys, letter, None) or []
        route = self.router.route_of(route_octets(exchange, keys[0]))
        found = self.router.match(route, letter, None) if route.by_headers else route.queues
        return list(found or ())

    def death_of(self, queue: Queue, message: Message, reason: str, keys: list[str]) -> FieldTable:
        now_ms = self.router.pass_work.timetable.now_ms()
        death: FieldTable = {
            "count": LongLong(1),
            "reason": reason,
            "queue": queue.name,
            "time": datetime.fromtimestamp(now_ms // 1000, UTC),
            "exchange": message.exchange_name(),
            "routing-keys": list(keys),
        }
        expiration = expiration_of(message.content)
        if expiration is not None:
            death["original-expiration"] = expiration
        return death


def told(before: list[FieldValue], death: FieldTable) -> list[FieldValue]:
    """The story with one more death: that of the same queue and reason is counted up and comes first.

    Where several tables are of one queue and reason, as old brokers and clients that copy headers write
    them, the first stands for all.
    """
    tables = [each for each in before if isinstance(each, dict)]
    deaths = Counter(place for place in map(place_of, tables) if place is not None)
    latest = death
    story: list[FieldValue] = []
    for each in tables:
        place = place_of(each)
        if place is None:  # nobody can say where this was
            story.append(each)
            continue
        count = deaths.pop(place, None)
        if count is None:
            continue
        if "count" in each:
            count = count_of(each)
        if place == place_of(death):
            latest = {**each, "count": LongLong(count + 1)}
        else:
            story.append({**each, "count": LongLong(count)})
    return [latest, *story]


def fitting(deaths: list[FieldValue], bytes_max: int) -> list[FieldValue]:
    """The story in so many octets if it can be. No death is left out: the message could go round then."""
    story = [one_key(each) for each in deaths]
    sizes = [len(encode_value(each)) for each in story]
    size = 5 + sum(sizes)  # the array has its own type and size
    for index in range(len(story) - 1, -1, -1):
        if size <= bytes_max:
            return story
        story[index] = bare(story[index])
        size -= sizes[index]
        sizes[index] = len(encode_value(story[index]))
        size += sizes[index]
    return story


def one_key(death: FieldValue) -> FieldValue:
    """A death with its first routing key alone."""
    keys = death.get("routing-keys") if isinstance(death, dict) else None
    return (
        {**death, "routing-keys": keys[:1]} if isinstance(death, dict) and isinstance(keys, list) else death
    )


def bare(death: FieldValue) -> FieldValue:
    """What is told of an old death where there is little room."""
    if not isinstance(death, dict):
        return death
    return {name: death[name] for name in BARE if name in death}


def place_of(death: FieldTable) -> tuple[str, str] | None:
    """The queue and the reason, if both are named."""
    queue, reason = death.get("queue"), death.get("reason")
    return (queue, reason) if isinstance(queue, str) and isinstance(reason, str) else None


def count_of(death: FieldTable) -> int:
    """How often; whoever published the message may have made it up."""
    count = death.get("count")
    return min(count, COUNT_MAX) if isinstance(count, int) else 0


def is_cycle(queue: str, deaths: list[FieldValue]) -> bool:
    """Whether the message died in the queue before, and was rejected nowhere since."""
    for each in deaths:
        if isinstance(each, dict):
            if each.get("reason") == "rejected":
                return False
            if each.get("queue") == queue:
                return True
    return False


def route_octets(exchange: str, key: str) -> bytes:
    return encode_shortstr(exchange) + encode_shortstr(key)
