"""How branches end: what was published goes to queues, what was settled leaves them or comes back.

A commit is one group of the journal: recovery finds all of it or none. In it lie the messages once more,
now owned by their queues, so it takes memory for a moment. What is too large for that is decided first:

    group: manifests say DECIDED, what was settled is let go      the commit, in a few octets
    group: some messages go to their queues, the branch lets go of them     again and again, when the
    ...                                                                     first one is synced
    group: the last messages, and the manifests

Where very much was settled, the manifests name it once more, and the first groups let go of it: a dead letter
comes to its queues in the group that lets go of its original. Until then the branch has the message locked.

A crash between them costs nothing: recovery goes on where it ended. What a queue has let go of is not locked
again. Routes are worked out when a message goes to its queues; one whose exchange is gone by then is dropped,
as in the tx class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.messages import entry_number
from flintmq.broker.messages.message import new_message
from flintmq.broker.queues import delivery
from flintmq.broker.transactions.dtx_branch import Branch, BranchState, Lock, Settlement
from flintmq.broker.transactions.dtx_journal import put_manifest
from flintmq.errors import PeerFault, UnreadableFault
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import Route
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.store.store import Store
    from flintmq.broker.transactions.dtx_work import DtxWork

log = logging.getLogger("flintmq.dtx")

# Positions of messages that were handed out before the broker started: the order of entries, below 0.
BEFORE_ALL = 1 << 62

# A group is held in memory until it is written: 32 MiB, and as much again while the journal makes room.
GROUP_BYTES_MAX = 33_554_432
GROUP_MESSAGES_MAX = 8192
GROUP_COPIES_MAX = 65_536
# Of a larger commit so much goes to queues in one pass: some milliseconds, in which nobody else is served.
PORTION_BYTES = 4_194_304
PORTION_MESSAGES = 1024
PORTION_COPIES = 8192
# What is settled in one group, and of more than that in one pass, in octets of dead letters as
# Queue.letter_octets counts them: 440 letters take some 15 ms, as do 16,384 acks.
GROUP_SETTLED_MAX = 65_536
PORTION_SETTLED = 32_768
ACK_OCTETS = 4
# A rejected message that recovery found: it is read when it is settled, and may have died often.
FOUND_OCTETS = 4096
# Read from the journal at a time.
LOADED_MESSAGES = 64
# The same where each of them stays in memory and is whole: 32 MiB at most, as larger bodies lie in files.
BACK_MESSAGES = 8

# What a bug holds up is tried again so much later.
AGAIN_MS = 1000

IMMEDIATE = 2


class BranchCompletion:
    """The ends of branches of one virtual host."""

    def __init__(self, router: Router, drop: Callable[[Branch], None]) -> None:
        self.router = router
        self.store = router.store
        self.drop = drop
        self.group_bytes_max = GROUP_BYTES_MAX
        self.portion_bytes = PORTION_BYTES
        self.group_settled_max = GROUP_SETTLED_MAX
        self.portion_settled = PORTION_SETTLED
        # Decided and not yet applied, in order; of the first one some messages may have gone to queues.
        self.decided: list[Branch] = []
        self.unnoted: set[Branch] = set()  # of these the disk does not know that they are decided
        self.handed_over = 0  # the record that ends the newest portion of it
        self.is_due = False
        self.unread: list[Lock] = []  # to be put back when the disk gives the messages
        # Who is to hear when these have all been applied.
        self.awaited: list[tuple[set[Branch], Callable[[], None]]] = []

    # Commit

    def is_large(self, branches: list[Branch]) -> bool:
        """Whether what they have published or settled is too much for one pass."""
        if self.is_much_settled(branches):
            return True
        if sum(each.octets for each in branches) > self.group_bytes_max:
            return True
        if sum(map(Branch.published, branches)) > GROUP_MESSAGES_MAX:
            return True
        # While memory is full what makes many copies waits, see `next_branch`.
        most = PORTION_COPIES if self.router.pass_work.is_memory_full() else GROUP_COPIES_MAX
        copies_max = self.router.pass_work.copies + most
        copies = 0
        for branch in branches:
            for more in self.copies_of(branch):
                copies += more
                if copies > most or self.router.pass_work.copies > copies_max:
                    return True
        return False

    def is_much_settled(self, branches: list[Branch]) -> bool:
        """Whether what they have settled is too much for one pass. What is requeued goes back in portions."""
        octets = 0
        for branch in branches:
            for lock in branch.locks:
                octets += settled_octets(lock)
                if octets > self.group_settled_max:
                    return True
        return False

    def copies_of(self, branch: Branch) -> Iterator[int]:
        """How many copies of its messages go to queues at most, bit by bit, as far as it can be told."""
        if branch.routes is None or branch.has_further_keys:
            yield len(self.router.queues) * branch.published()
            return
        for octets, (count, _) in branch.routes.items():
            if self.router.has_exchange_of(octets):
                yield count * self.router.copies_max(self.router.route_of(octets))

    def is_to_be_decided(self, branches: list[Branch]) -> bool:
        """Whether they are too large for one pass, and are on disk where there is one.

        A decision may name only what is there: the two could part in a torn write.
        """
        return self.is_large(branches) and self.are_on_disk(branches)

    def is_to_be_awaited(self, branches: list[Branch]) -> bool:
        """Whether their commit may be more than a pass may take, and is to wait until they are on disk.

        Then a decision can be made of what is left when it proves to be more.
        """
        return not self.are_on_disk(branches) and (
            self.is_large(branches) or any(map(self.is_vague, branches))
        )

    def is_vague(self, branch: Branch) -> bool:
        """Whether its routes do not tell all the work of finding queues: its messages have a say in it."""
        return (
            branch.routes is None
            or branch.has_further_keys
            or any(
                self.router.has_exchange_of(octets) and self.router.route_of(octets).by_headers
                for octets in branch.routes
            )
        )

    def awaited_on_disk(self, branches: list[Branch]) -> Chore:
        """Waits until a decision may name what is in them, if there may have to be one."""
        if self.store is not None and self.is_to_be_awaited(branches):
            yield partial(self.store.when_synced, self.store.last())

    def are_on_disk(self, branches: list[Branch]) -> bool:
        """Whether a decision may name what is in them; without a disk it may always."""
        if self.store is None:
            return True
        for branch in branches:
            if max([branch.manifest, *branch.entries[-1:]]) > self.store.synced:
                return False
            # A manifest is behind all that it names.
            is_named = bool(branch.manifest) or not branch.locks
            if not is_named and max([lock.entry for lock in branch.locks]) > self.store.synced:
                return False
        return True

    def commit(self, branches: list[Branch], write_more: Callable[[], None] | None, code: int = 0) -> int:
        """The record that has to be safe before anybody is told. `code`: how it is remembered, if at all."""
        store = self.store
        is_large = self.is_to_be_decided(branches)
        is_settled_later = is_large and self.is_much_settled(branches)
        if not is_settled_later:
            self.read_rejected(branches)
        failures: list[Exception] = []
        with nullcontext() if store is None else store.journal.group() as group:
            if write_more is not None:
                write_more()
            for branch in branches:
                branch.code = code
                failures += self.requeue(branch) if is_settled_later else self.settle(branch)
                failures += self.decide_only(branch) if is_large else self.carry_out(branch)
            self.router.secure_streams()
        sequence = 0 if group is None else group.sequence
        if is_large and store is not None:
            store.when_synced(sequence, self.go_on)
        elif is_large:
            self.go_on()
        if failures:
            raise failures[0]  # nobody is told that it is done, though what is left of it will be
        return sequence

    def read_rejected(self, branches: list[Branch]) -> None:
        """Dead letters to be are in memory from here on; a disk that does not give them ends it here."""
        if self.store is None:
            return
        for lock in [lock for branch in branches for lock in branch.locks]:
            if lock.settlement is Settlement.REJECT and lock.delivery is None:
                [message] = self.store.load([entry_number.of_journal(lock.entry)])
                if message is not None:
                    lock.delivery = come_back(lock.queue, message)

    def decide_only(self, branch: Branch) -> list[Exception]:
        try:
            self.decide(branch)
        except Exception as failure:
            log.exception("a bug keeps the decision on branch %s from the disk: once more", branch.xid)
            self.go_on(AGAIN_MS)
            return [failure]
        return []

    def carry_out(self, branch: Branch) -> list[Exception]:
        """Hands over the messages; what a bug keeps from its queues is decided, and handed over later.

        So is what makes more copies than the routes have told, as where the exchange decides by the message.
        """
        try:
            self.hand_over(branch, branch.octets, branch.published(), GROUP_COPIES_MAX)
            if branch.published() and not self.are_on_disk([branch]):
                self.hand_over(branch, branch.octets, branch.published())
            if branch.published():
                self.decide(branch)
                self.go_on()
            else:
                self.finish(branch)
        except UnreadableFault:  # told where it was met; whoever commits is told when it is done
            self.decide(branch)
            self.go_on(AGAIN_MS)
        except Exception as failure:
            log.exception("a bug holds up the commit of branch %s: the rest of it comes later", branch.xid)
            self.decide(branch)
            self.go_on(AGAIN_MS)
            return [failure]
        return []

    def decide(self, branch: Branch) -> None:
        branch.state = BranchState.DECIDED
        if branch not in self.decided:
            self.decided.append(branch)
        if self.store is not None:
            self.unnoted.add(branch)
            put_manifest(self.store, self.router.name, branch)
            self.unnoted.discard(branch)

    def resume(self, branch: Branch) -> None:
        """Goes on with a branch that was decided before the broker started."""
        self.decided.append(branch)
        self.go_on()

    def go_on(self, wait_ms: int = 0) -> None:
        if not self.is_due and self.decided:
            self.is_due = True
            timetable = self.router.pass_work.timetable
            timetable.at(timetable.now_ms() + wait_ms, self.apply_some)

    def apply_some(self) -> None:
        """One portion of what is decided; what a bug keeps from its queues is tried again after a pause."""
        self.is_due = False
        store = self.store
        if not self.decided:
            return
        pause_ms = self.router.pass_work.pause_ms()
        branch = self.next_branch(pause_ms > 0)
        if branch is None:
            self.go_on(pause_ms)
            return
        if store is not None and branch.manifest > store.synced:
            store.when_synced(branch.manifest, self.go_on)
            return
        if branch in self.unnoted:
            self.go_on(AGAIN_MS if self.decide_only(branch) else 0)
            return
        synced = 0 if store is None else store.synced
        is_all = is_over = False
        group = None
        try:
            with nullcontext() if store is None else store.journal.group() as group:
                if branch.locks:
                    self.settle_some(branch)
                elif branch.published():
                    self.hand_over(branch, self.portion_bytes, PORTION_MESSAGES, PORTION_COPIES)
                is_all = branch is self.decided[0] and not branch.locks and not branch.published()
                # Else a torn write could leave the end of the branch, and not what was handed over before.
                is_over = is_all and self.handed_over <= synced
                if is_over:
                    self.finish(branch)
                    self.decided.remove(branch)
                self.router.secure_streams()
        except UnreadableFault:
            self.go_on(AGAIN_MS)
            return
        except Exception:
            log.exception("a bug holds up the commit of branch %s: once more in a while", branch.xid)
            self.go_on(AGAIN_MS)
            return
        finally:
            self.handed_over = 0 if group is None or is_over else group.sequence
        if is_over:
            self.tell_applied(branch)
        if store is not None and is_all and not is_over:
            store.when_synced(self.handed_over, self.go_on)
        else:
            self.go_on()

    def next_branch(self, is_paused: bool) -> Branch | None:
        """Whose turn it is: the first one's. In a pause nothing is handed over, but what was settled frees
        memory, and does not wait for those before it."""
        first = self.decided[0]
        if not is_paused or first.locks or not first.published():
            return first
        return next((branch for branch in self.decided if branch.locks), None)

    def when_applied(self, branches: list[Branch], callback: Callable[[], None]) -> None:
        """Calls back when all that these have published is in its queues, and all that they have settled has
        left its queues; at once if it has."""
        pending = set(branches) & set(self.decided)
        if pending:
            self.awaited.append((pending, callback))
        else:
            callback()

    def when_done(self, branches: list[Branch], callback: Callable[[], None]) -> None:
        """Calls back when it may be told that they are committed: where one group has room for all of it,
        nobody is to hear that before it is in its queues."""
        if sum(each.octets for each in branches) <= self.group_bytes_max:
            self.when_applied(branches, callback)
        else:
            callback()

    def tell_applied(self, branch: Branch) -> None:
        for pending, _ in self.awaited:
            pending.discard(branch)
        told = [callback for pending, callback in self.awaited if not pending]
        self.awaited = [each for each in self.awaited if each[0]]
        for callback in told:
            try:
                callback()
            except Exception:  # others wait, and further branches are to be applied
                log.exception("a bug ends what was to be done when branch %s is committed", branch.xid)

    def finish(self, branch: Branch) -> None:
        """All that was published has gone to its queues, and what was settled has left them."""
        if branch.code:
            self.record(branch, branch.code)
            branch.forget_work()
            return
        if self.store is not None and branch.manifest:
            self.store.journal.append_settle(branch.owner(), branch.manifest)
            branch.manifest = 0
        self.drop(branch)

    def record(self, branch: Branch, code: int) -> None:
        """The branch is over. It stays to tell how it ended."""
        before = branch.state, branch.code
        branch.state = BranchState.HEURISTIC
        branch.code = code
        try:
            if self.store is not None:
                put_manifest(self.store, self.router.name, branch)
        except Exception:
            branch.state, branch.code = before
            raise

    def hand_over(self, branch: Branch, octets: int, messages: int, copies: int | None = None) -> None:
        """Sends its first messages, of so many octets and one more; the branch has only the others then.

        At most so many `messages`, and of those that go to many queues each so many `copies` and one more.
        """
        pass_work = self.router.pass_work
        copies_max = None if copies is None else pass_work.copies + copies
        sent = 0
        pass_work.is_promised = branch.is_own  # it was looked for room when the commit began
        try:
            for index, message in self.load(branch):
                if message is not None:
                    self.send(branch, index, message)
                    octets -= len(message.content)
                if self.store is not None:
                    settle_sent(self.store, branch, branch.entries[index])
                sent = index + 1
                if octets < 0 or sent == messages:
                    break
                if copies_max is not None and pass_work.copies > copies_max:
                    break
        finally:
            pass_work.is_promised = False
            branch.shorten(sent)

    def load(self, branch: Branch) -> Iterator[tuple[int, Message | None]]:
        """What was published, from the journal; None for what the disk does not give back."""
        if self.store is None:
            yield from enumerate(branch.messages)
            return
        for start in range(0, len(branch.entries), LOADED_MESSAGES):
            entries = list(branch.entries[start : start + LOADED_MESSAGES])
            yield from enumerate(self.store.staged(entries), start)

    def send(self, branch: Branch, index: int, message: Message) -> None:
        """As if it were published now, by whoever did; who is gone gets nothing back."""
        flags = branch.flags[index]
        work = branch.source_of(index)
        if work is not None:
            lifetime_ms = message.lifetime_ms
            message = new_message(
                message.route, message.content, message.header_size, message.traits, work.origin
            )
            message.lifetime_ms = lifetime_ms
        message.arrived_ms = self.router.pass_work.now_ms
        message.traits |= traits.MOVED
        if not self.router.has_exchange_of(message.route):
            branch.unrouted += 1
            return
        spool = None
        if self.store is not None and message.traits & traits.SPOOLED:
            spool = self.store.journal.spool_of(branch.entries[index])
            if spool is None:
                log.error("a message of branch %s is lost: its file is gone", branch.xid)
                return
        try:
            with nullcontext() if self.store is None else self.store.sharing(spool, message):
                route = self.router.route_of(message.route)
                self.note_fate(branch, message, route)
                if work is not None and not work.is_closed:
                    work.channel.forward(message, route, flags)
                else:
                    self.router.post(message, bool(flags & IMMEDIATE))
                self.note_streams(work)
        except UnreadableFault:  # tried again by whoever hands over
            raise
        except PeerFault as fault:
            branch.refused += 1
            log.warning("a message of branch %s is dropped: %s", branch.xid, fault.reply_text)

    def note_streams(self, work: DtxWork | None) -> None:
        """What went to a stream is there before the journal lets go of it."""
        streams = self.router.streams
        if streams is not None and work is not None and not work.is_closed:
            streams.moved = streams.moved or not streams.is_safe(work.channel.confirms)

    def note_fate(self, branch: Branch, message: Message, route: Route) -> None:
        """Counts what goes nowhere, as far as the route tells: some exchanges decide by the message."""
        if route.by_headers:
            return
        is_large = self.router.is_too_large(message)
        if not route.queues:
            branch.unrouted += 1
        elif (is_large and any(queue.is_stream for queue in route.queues)) or (
            route.ruled and any(queue.lacks_room([message]) for queue in route.queues)
        ):
            branch.refused += 1

    # What was settled

    def settle(self, branch: Branch) -> list[Exception]:
        """At commit: acked and rejected messages leave their queues, requeued ones are back.

        What a bug keeps from leaving is back as well; the failures.
        """
        locks, branch.locks = branch.locks, []
        failures: list[Exception] = []
        back: list[Lock] = []
        for lock in locks:
            if lock.settlement is Settlement.REQUEUE:
                back.append(lock)
                continue
            try:
                self.settle_one(lock)
                lock.queue.settled(1)
            except Exception as failure:
                log.exception("a message settled in branch %s is back in its queue", branch.xid)
                failures.append(failure)
                back.append(lock)
        return failures + self.put_back(back)

    def requeue(self, branch: Branch) -> list[Exception]:
        """At a commit that settles very much: what is requeued is back, all else is settled later."""
        back = [lock for lock in branch.locks if lock.settlement is Settlement.REQUEUE]
        if back:
            branch.locks = [lock for lock in branch.locks if lock.settlement is not Settlement.REQUEUE]
        return self.put_back(back)

    def settle_some(self, branch: Branch) -> None:
        """Lets go of the first messages that were settled; the branch has only the others locked then.

        A message that a bug keeps stays locked, with all behind it.
        """
        pass_work = self.router.pass_work
        copies_max = pass_work.copies + PORTION_COPIES
        octets = self.portion_settled
        settled = 0
        try:
            for lock in branch.locks:
                octets -= settled_octets(lock)
                self.settle_one(lock)
                lock.queue.settled(1)
                settled += 1
                if octets < 0 or pass_work.copies > copies_max:
                    break
        finally:
            del branch.locks[:settled]

    def settle_one(self, lock: Lock) -> None:
        message = self.message_of(lock)
        if message is not None and lock.settlement is Settlement.REJECT:
            lock.queue.bury(message, "rejected")
        elif message is not None:
            lock.queue.settle(message)
        elif self.store is not None:
            self.store.journal.append_settle(lock.queue.number, lock.entry)

    def message_of(self, lock: Lock) -> Message | None:
        """The message that is locked, if it is in memory, or is to be a dead letter."""
        if lock.delivery is not None:
            return lock.delivery.message
        if lock.settlement is Settlement.REJECT and self.store is not None:
            return self.store.load([entry_number.of_journal(lock.entry)])[0]
        return None

    def unlock(self, branch: Branch) -> None:
        """At rollback: all are back, as messages that were handed out before."""
        locks, branch.locks = branch.locks, []
        self.put_back(locks)

    def put_back(self, locks: list[Lock]) -> list[Exception]:
        """What is locked goes back to its queues, or does when it can be read; what failed."""
        held: dict[Queue, list[Delivery]] = {}
        found: dict[Queue, list[Lock]] = {}
        for lock in locks:
            if lock.delivery is not None:
                held.setdefault(lock.queue, []).append(lock.delivery)
            else:
                found.setdefault(lock.queue, []).append(lock)
        failures: list[Exception] = []
        for queue, unread in found.items():
            if len(unread) > LOADED_MESSAGES:
                queue.returning += 1  # here and not by the chore, which may begin in a later pass
                self.router.pass_work.chores.begin(self.read_back(queue, unread))
                continue
            try:
                held.setdefault(queue, []).extend(self.read(queue, unread, failures))
            except UnreadableFault:
                self.put_back_later(unread)
        for queue, deliveries in held.items():
            failure = delivery.Delivery.give_each_back(queue.requeue, deliveries)
            if failure is not None:
                failures.append(failure)
        return failures

    def read_back(self, queue: Queue, locks: list[Lock]) -> Iterator[None]:
        """Messages that recovery found go back in portions; until they have the queue hands out nothing.

        The caller has noted that in `returning`.
        """
        try:
            for at in range(0, len(locks), BACK_MESSAGES):
                failures: list[Exception] = []  # which are told by the log alone
                try:
                    found = self.read(queue, locks[at : at + BACK_MESSAGES], failures)
                except UnreadableFault:
                    self.put_back_later(locks[at:])
                    return
                delivery.Delivery.give_each_back(queue.requeue, found)
                yield
        finally:
            queue.all_returned()

    def read(self, queue: Queue, locks: list[Lock], failures: list[Exception]) -> list[Delivery]:
        """Messages that recovery found, from the journal, as if they were handed out."""
        entries = [entry_number.of_journal(lock.entry) for lock in locks]
        messages = [each for each in self.loaded(entries, failures) if each is not None]
        queue.settled(len(entries) - len(messages))
        return [come_back(queue, message) for message in messages]

    def put_back_later(self, locks: list[Lock]) -> None:
        """The disk does not give these messages now; they are unacked meanwhile."""
        if not self.unread:
            timetable = self.router.pass_work.timetable
            timetable.at(timetable.now_ms() + AGAIN_MS, self.put_back_unread)
        self.unread += locks

    def put_back_unread(self) -> None:
        unread, self.unread = self.unread, []
        for lock in unread:
            if lock.queue.deleted and self.store is not None:
                self.store.journal.append_settle(lock.queue.number, lock.entry)
                lock.queue.settled(1)
        self.put_back([lock for lock in unread if not lock.queue.deleted])

    def loaded(self, entries: list[int], failures: list[Exception]) -> list[Message | None]:
        """What was locked, from the journal; a bug that keeps many from being read is met one by one."""
        if self.store is None:
            return []
        try:
            return self.store.load(entries)
        except UnreadableFault:
            raise
        except Exception as failure:
            log.exception("a bug in reading what a branch had locked: each message once more")
            failures.append(failure)
            return [self.store.load_one(entry) for entry in entries]


def settled_octets(lock: Lock) -> int:
    """What it costs to settle a message, in octets of dead letters."""
    if lock.settlement is Settlement.REQUEUE:
        return 0
    if lock.settlement is Settlement.ACK:
        return ACK_OCTETS
    if lock.delivery is None or lock.delivery.message is None:
        return FOUND_OCTETS
    return ACK_OCTETS + lock.queue.letter_octets(lock.delivery.message)


def settle_sent(store: Store, branch: Branch, entry: int) -> None:
    """A message that is in its queues leaves the branch; one that stayed would be sent again."""
    try:
        store.journal.append_settle(branch.owner(), entry)
    except Exception:
        log.exception("a bug keeps a message of branch %s that has been sent: once more", branch.xid)
        store.journal.append_settle(branch.owner(), entry)


def come_back(queue: Queue, message: Message) -> Delivery:
    """A message that was handed out before the broker started goes back to its queue, ahead of all others."""
    redeliveries = 0
    if message.traits & traits.TIMED or queue.rules is not None:
        redeliveries = queue.need_rules().loaded(message, queue.store)
    return delivery.new_delivery(
        message, queue, entry_number.sequence_of(message.entry) - BEFORE_ALL, redeliveries
    )
