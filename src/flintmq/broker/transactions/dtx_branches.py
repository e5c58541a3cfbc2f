"""The branches of distributed transactions of one virtual host: who works in them, and how they end.

Demarcation (start, end) is a matter of channels; coordination (prepare, commit, rollback, recover, forget)
is not: any channel of the branch's user may ask for it, and those of an administrator.

What a commit does to queues is in dtx_completion.py, what lies on disk of a branch in dtx_journal.py.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING

from flintmq.auth import Tag
from flintmq.broker.messages import cc_bcc
from flintmq.broker.messages.published import headers_of
from flintmq.broker.streams.stream_arguments import refuse_too_large
from flintmq.broker.transactions.dtx_branch import ANY_LIFE, Branch, BranchState, Lock, Settlement
from flintmq.broker.transactions.dtx_completion import BranchCompletion
from flintmq.broker.transactions.dtx_journal import Marker, marker_key, put_manifest, put_marker
from flintmq.broker.transactions.xid import Xid
from flintmq.errors import ChannelFault, PeerFault, UnreadableFault
from flintmq.wire import amqp, traits

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from flintmq.auth import User
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.scheduling.chores import Wait
    from flintmq.broker.store.store import Store
    from flintmq.broker.transactions.dtx_work import DtxWork
    from flintmq.config import Config
    from flintmq.storage.journal.appender import Group

log = logging.getLogger("flintmq.dtx")

# A branch is prepared or ends in portions: the XA code, and the record that has to be safe before it is told.
Ending = Generator["Wait | None", None, tuple[int, int]]

# An end that a bug has kept from coming is tried again so much later.
AGAIN_MS = 1000
# Branches that recover goes through in portions, one for each channel that asks: the oldest is forgotten.
SCANS_MAX = 1024
# The format of their xids in transactions of the tx class: "tx".
OWN_FORMAT = 0x7478
# Deliveries that a branch locks in one pass, some microseconds each, and of more than that in one step.
LOCKED_AT_ONCE = 4096
LOCKED_IN_STEP = 512
# Messages of a branch that is over which one step lets go of.
LET_GO_AT_ONCE = 4096
# Of the oldest markers so many are looked at with each commit, whether their time is over.
MARKERS_LOOKED_AT = 8


class Branches:
    """All branches that are not finished, and how far those who commit with a marker have come."""

    def __init__(self, router: Router, config: Config) -> None:
        self.router = router
        self.configure(config)
        self.store = router.store
        self.branches: dict[Xid, Branch] = {}
        self.outcomes = BranchCompletion(router, self.drop)
        # Those that last, and those of writes that end by themselves, which must not use up the room of the
        # others. In both the one that was not used for the longest time is first.
        self.markers: dict[str, Marker] = {}
        self.brief_markers: dict[str, Marker] = {}
        self.started = 0
        self.emptying: set[int] = set()  # numbers of branches that are over, whose messages go in portions
        self.scans: dict[tuple[int, int], int] = {}  # by connection and channel: where its scan has come

    def configure(self, config: Config) -> None:
        """From now on the limits of these settings hold."""
        self.limits = config.dtx
        self.settlements_max = config.limits.settlements_per_transaction_max

    def now_ms(self) -> int:
        return self.router.pass_work.timetable.now_ms()

    # Finding

    def find(self, xid: Xid, user: User) -> Branch:
        branch = self.branches.get(xid)
        if branch is None or branch.state is BranchState.DECIDED:
            raise self.unknown(xid)
        if not may_touch(user, branch.user, branch.life):
            raise ChannelFault(
                amqp.ACCESS_REFUSED,
                f"branch {xid} belongs to another user than '{user.name}'",
            )
        if branch.is_own:
            raise wrong_state(f"branch {xid} is a commit of the tx class, which its channel ends")
        return branch

    def unknown(self, xid: Xid) -> ChannelFault:
        return ChannelFault(amqp.NOT_FOUND, f"no branch with xid {xid} in vhost '{self.router.name}'")

    def visible(self, user: User) -> Iterator[Branch]:
        return (branch for branch in self.branches.values() if may_touch(user, branch.user, branch.life))

    # Demarcation

    def start(self, work: DtxWork, xid: Xid, join: bool, resume: bool, endless: bool = False) -> int:
        """From here on what the channel does belongs to the branch, unless the XA code is another than OK.

        `endless`: by dtx.start, for which there is no end.
        """
        if work.branch is not None:
            raise wrong_state(f"the channel works in branch {work.branch.xid} already")
        if resume:
            return self.resume(work, xid)
        user = work.channel.user
        if not join:
            branch = self.open(xid, user)
        else:
            branch = self.find(xid, user)
            if branch.state is BranchState.ROLLBACK_ONLY:
                return branch.code
            if branch.state is not BranchState.OPEN:
                raise wrong_state(f"branch {xid} is {branch.state_text()}: nothing can join it")
            if work in branch.suspended:
                raise wrong_state(f"the channel has suspended branch {xid}: resume it")
        branch.associated[work] = endless
        branch.involve(work)
        work.branch = branch
        return amqp.XA_OK

    def resume(self, work: DtxWork, xid: Xid) -> int:
        branch = self.find(xid, work.channel.user)
        if work not in branch.suspended:
            raise wrong_state(f"the channel has not suspended branch {xid}")
        if branch.state is BranchState.ROLLBACK_ONLY:
            return branch.code
        del branch.suspended[work]
        branch.associated[work] = False
        work.branch = branch
        return amqp.XA_OK

    def open(self, xid: Xid, user: User) -> Branch:
        if xid in self.branches:
            raise wrong_state(f"branch {xid} is there already: join it, or resume it")
        if len(self.branches) >= self.limits.branches_max:
            raise too_much(
                f"vhost '{self.router.name}' has {len(self.branches)} branches that are not finished"
            )
        branch = self.new_branch(xid, user)
        self.set_timeout(branch, self.limits.timeout_s)
        return branch

    def new_branch(self, xid: Xid, user: User) -> Branch:
        self.started += 1
        owner = 0 if self.store is None else self.store.next_branch()
        branch = self.branches[xid] = Branch(xid, user.name, self.started, owner, self.now_ms(), user.life)
        return branch

    def open_own(self, user: User) -> Branch:
        """A branch of the broker's own, for the commit of a transaction that is no distributed one.

        The limits of distributed ones are not its limits.
        """
        name = self.router.chance().getrandbits(128).to_bytes(16, "big")
        branch = self.new_branch(Xid(OWN_FORMAT, name, b""), user)
        branch.is_own = True
        return branch

    def end(self, work: DtxWork, xid: Xid, fail: bool, suspend: bool) -> int:
        """The channel's work in the branch is over, has failed, or is to be resumed."""
        branch = self.find(xid, work.channel.user)
        if work.branch is branch:
            self.leave(work)
        elif work in branch.suspended and not suspend:
            del branch.suspended[work]
        else:
            raise wrong_state(f"the channel does not work in branch {xid}")
        if suspend:
            branch.suspended[work] = None
        elif fail and branch.state is BranchState.OPEN:
            self.spoil(branch, amqp.XA_RBROLLBACK)
        return branch.code

    def leave(self, work: DtxWork) -> None:
        if work.branch is not None:
            work.branch.associated.pop(work, None)
            work.branch = None

    def lose(self, work: DtxWork) -> None:
        """The channel has closed: branches that it worked in and that are not prepared die with it."""
        for branch in list(work.involved):
            branch.associated.pop(work, None)
            branch.suspended.pop(work, None)
            del branch.involved[work]
            del work.involved[branch]
            if branch.state in (BranchState.OPEN, BranchState.PREPARING):
                try:
                    self.spoil(branch, amqp.XA_RBROLLBACK)
                except Exception:  # the channel's other branches are to go as well
                    log.exception("a bug leaves something of branch %s behind", branch.xid)
            if branch.state is BranchState.ROLLBACK_ONLY and not branch.involved:
                self.drop(branch)  # nobody is left who would have to hear of it

    def spoil(self, branch: Branch, code: int) -> None:
        """Nothing can come of it any more, and those who work in it hear so when they ask."""
        branch.state = BranchState.ROLLBACK_ONLY
        branch.code = code
        branch.set_alarm(None)
        try:
            self.outcomes.unlock(branch)
            self.let_go(branch)
        finally:
            branch.forget_work()

    # Work

    def publish(self, branch: Branch, work: DtxWork, message: Message, flags: int) -> None:
        if branch.state is not BranchState.OPEN:
            return  # rollback-only: the end will tell
        route = self.router.route_of(message.route)
        if route.by_headers:
            headers_of(message)  # fails on headers that cannot be read, while there is somebody to tell
        self.router.check_way(route, message, None)
        octets = len(message.content)
        if branch.octets + octets > self.limits.branch_bytes_max and not branch.is_own:
            raise too_much(f"over {self.limits.branch_bytes_max} octets in branch {branch.xid}")
        self.count(branch, 1)
        if self.router.is_too_large(message):
            further = cc_bcc.keys_of(message) if message.traits & traits.HAS_COPIES else []
            branch.large.append((message.route, further, message.header_size + message.body_size()))
        if self.store is None:
            branch.messages.append(message)
        else:
            branch.entries.append(self.store.stage(message, branch.owners))
        branch.note_published(work, flags, octets)
        branch.note_route(message.route, message.body_size())
        if message.traits & traits.HAS_COPIES:
            branch.has_further_keys = True

    def settle(
        self, branch: Branch, work: DtxWork, settlement: Settlement, deliveries: list[Delivery]
    ) -> None:
        if branch.state is not BranchState.OPEN:
            return
        if len(branch.settling) + len(deliveries) > self.settlements_max:
            raise too_much(f"over {self.settlements_max} settlements in branch {branch.xid}")
        self.count(branch, len(deliveries))
        branch.operations += len(deliveries)
        branch.settling.extend((work, settlement, delivery) for delivery in deliveries)
        work.settled_tags.update(delivery.tag for delivery in deliveries)

    def count(self, branch: Branch, more: int) -> None:
        if branch.operations + more > self.limits.operations_per_branch_max and not branch.is_own:
            most = self.limits.operations_per_branch_max
            raise too_much(f"over {most} messages and settlements in branch {branch.xid}")

    # Coordination: each returns the XA code, and the record that has to be safe before it is told

    def prepare(self, branch: Branch) -> tuple[int, int]:
        """In one go; where `is_much_to_lock`, prepare_in_portions is for it."""
        code = self.ended_unprepared(branch)
        if code is not None:
            return code, 0
        try:
            self.lock(branch)
            return amqp.XA_OK, self.seal(branch)
        except Exception:
            self.give_up(branch)
            raise

    def prepare_in_portions(self, branch: Branch) -> Ending:
        """The same, some deliveries in each step. Who rolls it back meanwhile has it rolled back."""
        code = self.ended_unprepared(branch)
        if code is not None:
            return code, 0
        try:
            yield from self.lock_in_portions(branch)
            if branch.state is BranchState.PREPARING:
                return amqp.XA_OK, self.seal(branch)
        except Exception:
            self.give_up(branch)
            raise
        return self.ended_meanwhile(branch), 0

    def ended_unprepared(self, branch: Branch) -> int | None:
        """The XA code if there is nothing to prepare, and the branch is gone; a fault if it cannot be."""
        self.not_busy(branch)
        if branch.state is BranchState.ROLLBACK_ONLY:
            self.drop(branch)
            return branch.code
        if branch.state is not BranchState.OPEN:
            raise wrong_state(f"branch {branch.xid} is {branch.state_text()} already")
        if branch.is_empty():
            self.drop(branch)
            return amqp.XA_RDONLY
        self.not_too_large(branch)
        return None

    def not_too_large(self, branch: Branch) -> None:
        """A fault if it has a message too large for a stream that it may come to; the branch stays as it is.

        A stream that is bound later, when nobody can be told, does not get it (Router.fitting).
        """
        for octets, further, size in branch.large:
            if self.router.has_exchange_of(octets):
                route = self.router.route_of(octets)
                refuse_too_large(self.router.reachable(route, further), size)

    def ended_meanwhile(self, branch: Branch) -> int:
        """The XA code of a branch that a rollback or the end of a channel has met while it was PREPARING."""
        if self.branches.get(branch.xid) is branch:
            self.drop(branch)
        return amqp.XA_RBROLLBACK if branch.code == amqp.XA_OK else branch.code

    def seal(self, branch: Branch) -> int:
        """All is locked: the branch is prepared. The record that has to be safe before that is told."""
        branch.state = BranchState.PREPARED
        branch.since_ms = self.now_ms()
        branch.timeout_s = 0
        sequence = 0 if self.store is None else put_manifest(self.store, self.router.name, branch)
        self.set_heuristic_alarm(branch)
        return sequence

    def give_up(self, branch: Branch) -> None:
        """A bug has met it on its way to being prepared: it is as if its work had failed."""
        with self.grouped():
            self.spoil(branch, amqp.XA_RBROLLBACK)

    def grouped(self) -> AbstractContextManager[Group | None]:
        """One group of the journal, if there is one."""
        return nullcontext() if self.store is None else self.store.journal.group()

    def is_much_to_lock(self, branch: Branch) -> bool:
        return branch.state is BranchState.OPEN and len(branch.settling) > LOCKED_AT_ONCE

    def lock(self, branch: Branch) -> None:
        """What was settled in it leaves its channels, which get credit for it."""
        while branch.settling:
            self.lock_some(branch, LOCKED_AT_ONCE)
        branch.release_works()
        self.leave_all(branch)

    def lock_in_portions(self, branch: Branch) -> Iterator[None]:
        """The same in steps. Whatever ends an open branch may end it between them: it is not PREPARING then.

        Channels leave it first: what they do from here on is not in it.
        """
        self.leave_all(branch)
        branch.set_alarm(None)
        branch.state = BranchState.PREPARING
        while branch.settling:
            self.lock_some(branch, LOCKED_IN_STEP)
            yield None
            if branch.state is not BranchState.PREPARING:
                return
        branch.release_works()

    def lock_some(self, branch: Branch, most: int) -> None:
        """Locks the first deliveries of those that are not locked yet."""
        by_work: dict[DtxWork, tuple[list[Settlement], list[Delivery]]] = {}
        portion = list(islice(branch.settling, most))
        for work, settlement, delivery in portion:
            if work not in by_work:
                by_work[work] = ([], [])
            settlements, deliveries = by_work[work]
            settlements.append(settlement)
            deliveries.append(delivery)
        for work, (settlements, deliveries) in by_work.items():
            work.settled_tags.difference_update([delivery.tag for delivery in deliveries])
            entries = self.entries_of(deliveries)
            detached = work.channel.detach(deliveries)
            for settlement, entry, delivery in zip(settlements, entries, detached, strict=True):
                branch.locks.append(Lock(settlement, delivery.queue, entry, delivery))
        for _ in portion:  # last: what a bug has met is in `settling` still, for forget_work
            branch.settling.popleft()

    def leave_all(self, branch: Branch) -> None:
        for work in list(branch.associated):
            self.leave(work)

    def entries_of(self, deliveries: list[Delivery]) -> list[int]:
        """What keeps these messages in the journal; 0 for one that is not there."""
        if self.store is None:
            return [0] * len(deliveries)
        journal_entry = self.store.journal_entry
        return [journal_entry(delivery.queue.number, delivery.message) for delivery in deliveries]

    def commit(self, branch: Branch, one_phase: bool) -> tuple[int, int]:
        """In one go; where `is_much_to_commit`, commit_in_portions is for it."""
        code = self.ended_uncommitted(branch, one_phase)
        return (amqp.XA_OK, self.commit_all([branch])) if code is None else (code, 0)

    def is_much_to_commit(self, branch: Branch) -> bool:
        return self.is_much_to_lock(branch) or self.outcomes.is_to_be_awaited([branch])

    def commit_in_portions(self, branch: Branch, one_phase: bool) -> Ending:
        """Locks what was settled in steps, and commits when all that the branch names is on disk."""
        code = self.ended_uncommitted(branch, one_phase)
        if code is not None:
            return code, 0
        if one_phase:
            try:
                yield from self.lock_in_portions(branch)
            except Exception:
                self.give_up(branch)
                raise
            if branch.state is not BranchState.PREPARING:
                return self.ended_meanwhile(branch), 0
        yield from self.outcomes.awaited_on_disk([branch])
        if one_phase and branch.state is BranchState.PREPARING:
            return amqp.XA_OK, self.commit_all([branch])
        if one_phase:
            return self.ended_meanwhile(branch), 0
        if self.branches.get(branch.xid) is not branch or branch.state is BranchState.DECIDED:
            raise self.unknown(branch.xid)
        return self.commit(branch, one_phase)

    def ended_uncommitted(self, branch: Branch, one_phase: bool) -> int | None:
        """The XA code if the branch has ended otherwise; a fault if it cannot be committed."""
        self.not_busy(branch)
        if branch.state is BranchState.HEURISTIC:
            return branch.code
        if branch.state is BranchState.ROLLBACK_ONLY and one_phase:
            self.drop(branch)
            return branch.code
        if one_phase and branch.state is not BranchState.OPEN:
            raise wrong_state(f"branch {branch.xid} is {branch.state_text()}: commit it without one-phase")
        if not one_phase and branch.state is not BranchState.PREPARED:
            raise wrong_state(f"branch {branch.xid} is not prepared: prepare it, or commit with one-phase")
        if one_phase:
            self.not_too_large(branch)
        return None

    def commit_all(self, branches: list[Branch], write_more: Callable[[], None] | None = None) -> int:
        """Commits them in one go, with what `write_more` adds to the journal; the record to wait for."""
        unprepared = (BranchState.OPEN, BranchState.PREPARING)
        for branch in branches:
            if branch.state in unprepared:
                try:
                    self.lock(branch)
                except Exception:
                    self.give_up(branch)
                    raise
        for branch in branches:
            branch.set_alarm(None)
        try:
            return self.outcomes.commit(branches, write_more)
        except Exception:
            for branch in branches:  # unless they are decided, nothing of them has happened
                if branch.state in unprepared:
                    self.give_up(branch)
                elif branch.state is BranchState.PREPARED and branch.xid in self.branches:
                    self.set_heuristic_alarm(branch)
            raise

    def rollback(self, branch: Branch) -> tuple[int, int]:
        self.not_busy(branch)
        if branch.state is BranchState.HEURISTIC:
            return branch.code, 0
        code = amqp.XA_RBTIMEOUT if branch.code == amqp.XA_RBTIMEOUT else amqp.XA_OK
        return code, self.undo(branch)

    def undo(self, branch: Branch) -> int:
        """What was published is gone, what was settled is back in its queues; and so is the branch.

        A bug on the way leaves a branch that can only be rolled back, once more.
        """
        with self.grouped() as group:
            self.let_go_of_manifest(branch)
            branch.state = BranchState.ROLLBACK_ONLY
            self.outcomes.unlock(branch)
            self.let_go(branch)
            branch.forget_work()
            self.drop(branch)
            self.router.secure_streams()
        return 0 if group is None else group.sequence

    def abandon(self, branch: Branch) -> None:
        """Rolls it back, unless it is decided or over."""
        is_there = self.branches.get(branch.xid) is branch
        if is_there and branch.state in (BranchState.OPEN, BranchState.ROLLBACK_ONLY):
            self.undo(branch)

    def complete_heuristically(self, branch: Branch, commit: bool) -> int:
        """Ends a prepared branch without its coordinator, who hears how when it asks, until it forgets."""
        if branch.state is not BranchState.PREPARED:
            raise wrong_state(f"branch {branch.xid} is {branch.state_text()}, not prepared")
        branch.set_alarm(None)
        if commit:
            try:
                return self.outcomes.commit([branch], None, amqp.XA_HEURCOM)
            except UnreadableFault:  # before anything has happened
                self.set_heuristic_alarm(branch)
                raise
        with self.grouped() as group:
            self.outcomes.record(branch, amqp.XA_HEURRB)  # first: if it fails, the branch is prepared still
            self.outcomes.unlock(branch)
            if self.store is not None:
                settle_published(self.store, branch)
            branch.forget_work()
            self.router.secure_streams()
        return 0 if group is None else group.sequence

    def forget(self, branch: Branch) -> int:
        if branch.state is not BranchState.HEURISTIC:
            raise wrong_state(f"branch {branch.xid} is {branch.state_text()}: there is nothing to forget")
        with self.grouped() as group:
            self.let_go_of_manifest(branch)
            self.let_go(branch)
            self.drop(branch)
        return 0 if group is None else group.sequence

    def recover(self, scan: tuple[int, int], user: User, anew: bool, octets_max: int) -> list[Branch]:
        """The next of those that are in doubt, or were completed heuristically, as many as fit."""
        after = 0 if anew else self.scans.get(scan, self.started)
        self.scans.pop(scan, None)
        found: list[Branch] = []
        states = (BranchState.PREPARED, BranchState.HEURISTIC)
        for branch in self.visible(user):
            if branch.state in states and branch.order > after:
                # As an octet array and a text, each with its letter and length.
                octets_max -= len(branch.xid.octets()) + len(branch.state_text()) + 10
                if octets_max < 0:
                    break
                found.append(branch)
        if found:
            self.scans[scan] = found[-1].order
            if len(self.scans) > SCANS_MAX:
                del self.scans[next(iter(self.scans))]
        return found

    # Time

    def set_timeout(self, branch: Branch, timeout_s: int) -> None:
        """From now on; 0 is for ever."""
        if branch.state is not BranchState.OPEN:
            raise wrong_state(f"branch {branch.xid} is {branch.state_text()}: it has no timeout")
        branch.timeout_s = timeout_s
        branch.set_alarm(None)
        if timeout_s:
            due_ms = self.now_ms() + 1000 * timeout_s
            branch.set_alarm(self.router.pass_work.timetable.at(due_ms, lambda: self.expire(branch)))

    def expire(self, branch: Branch) -> None:
        if branch.state is BranchState.OPEN:
            self.spoil(branch, amqp.XA_RBTIMEOUT)
            if not branch.involved:
                self.drop(branch)

    def set_heuristic_alarm(self, branch: Branch) -> None:
        branch.set_alarm(None)
        if self.limits.heuristic_timeout_s:
            due_ms = branch.since_ms + 1000 * self.limits.heuristic_timeout_s
            branch.set_alarm(self.router.pass_work.timetable.at(due_ms, lambda: self.decide(branch)))

    def decide(self, branch: Branch) -> None:
        if branch.state is BranchState.PREPARED:
            try:
                self.complete_heuristically(branch, commit=False)
            except Exception:
                log.exception("a bug keeps branch %s from its heuristic end", branch.xid)
                due_ms = self.now_ms() + AGAIN_MS
                branch.set_alarm(self.router.pass_work.timetable.at(due_ms, lambda: self.decide(branch)))

    # Markers

    def marker(self, name: str, user: User) -> Marker | None:
        """How far has been committed under the marker, None if there is none of that name."""
        marker = self.markers.get(name) or self.brief_markers.get(name)
        if marker is not None and not may_touch(user, marker.user, marker.life):
            raise ChannelFault(
                amqp.ACCESS_REFUSED,
                f"marker '{name}' belongs to another user than '{user.name}'",
            )
        return marker

    def mark(self, name: str, marker: Marker) -> None:
        """Notes the marker, inside the transaction that it is about, after make_room."""
        if self.store is not None:
            put_marker(self.store, self.router.name, name, marker)
        self.markers.pop(name, None)
        self.brief_markers.pop(name, None)
        (self.brief_markers if marker.keep_s else self.markers)[name] = marker

    def make_room(self, name: str, keep_s: int) -> None:
        """Lets markers go whose time is over; raises if there is no room for one more that lasts."""
        for markers in (self.markers, self.brief_markers):
            for oldest in [
                each for each in islice(markers, MARKERS_LOOKED_AT) if self.is_over(markers[each])
            ]:
                self.forget_marker(oldest)
        most = self.limits.markers_max
        if keep_s:
            if name not in self.brief_markers and len(self.brief_markers) >= most:
                self.forget_marker(next(iter(self.brief_markers)))
        elif name not in self.markers and len(self.markers) >= most:
            raise too_much(
                f"vhost '{self.router.name}' has {len(self.markers)} markers, the most there may be: forget "
                "those of writers that do not come back with dtx.forget-marker, or raise markers_max"
            )

    def is_over(self, marker: Marker) -> bool:
        return self.now_ms() - marker.used_ms > 1000 * (marker.keep_s or self.limits.marker_age_s)

    def forget_marker(self, name: str) -> None:
        if self.store is not None:
            self.store.journal.delete_value(marker_key(self.router.name, name))
        self.markers.pop(name, None)
        self.brief_markers.pop(name, None)

    def restore_marker(self, name: str, marker: Marker) -> None:
        if not marker.used_ms:  # of a version that noted no time
            marker = marker._replace(used_ms=self.now_ms())
        (self.brief_markers if marker.keep_s else self.markers)[name] = marker

    # The end of a branch

    def let_go(self, branch: Branch) -> None:
        """What the journal holds of it; of very many messages most of them in later passes."""
        self.let_go_of_manifest(branch)
        if self.store is None:
            return
        if len(branch.entries) <= LET_GO_AT_ONCE:
            settle_published(self.store, branch)
            return
        entries, branch.entries = branch.entries, array("Q")
        self.emptying.add(branch.owner())
        self.router.pass_work.chores.begin(self.emptied(self.store, branch.owner(), entries))

    def emptied(self, store: Store, owner: int, entries: array[int]) -> Iterator[None]:
        """Lets go of messages of a branch that is over. Until then no other branch has its number.

        A start finds no manifest of the branch, and lets go of what is left. After a bug no other branch has
        the number before that.
        """
        for at in range(0, len(entries), LET_GO_AT_ONCE):
            store.journal.settle_many(owner, entries[at : at + LET_GO_AT_ONCE])
            yield
        self.emptying.discard(owner)
        store.branch_owners.discard(owner)

    def let_go_of_manifest(self, branch: Branch) -> None:
        """From here on recovery takes it for one that was never prepared, whatever else is left of it."""
        if self.store is not None and branch.manifest:
            self.store.journal.append_settle(branch.owner(), branch.manifest)
            branch.manifest = 0

    def drop(self, branch: Branch) -> None:
        self.leave_all(branch)
        branch.release_works()
        branch.set_alarm(None)
        if self.store is not None and branch.entries:
            self.let_go(branch)  # what a bug has left
        del self.branches[branch.xid]
        if self.store is not None and branch.owner() not in self.emptying:
            self.store.branch_owners.discard(branch.owner())

    def not_busy(self, branch: Branch) -> None:
        if branch.is_busy():
            raise wrong_state(f"a channel still works in branch {branch.xid}: end it there first")

    def restore(self, branch: Branch) -> None:
        """One that recovery has found."""
        self.started += 1
        branch.order = self.started
        self.branches[branch.xid] = branch
        if branch.state is BranchState.PREPARED:
            self.set_heuristic_alarm(branch)
        elif branch.state is BranchState.DECIDED:
            self.outcomes.resume(branch)


def settle_published(store: Store, branch: Branch) -> None:
    """Lets go of what was published in it. What a bug leaves is in the branch still, for the next try."""
    settled = 0
    try:
        for entry in branch.entries:
            store.journal.append_settle(branch.owner(), entry)
            settled += 1
    finally:
        branch.shorten(settled)


def may_touch(user: User, owner: str, life: int) -> bool:
    """Whether the user is the owner, and not another one of that name, or may touch what others have."""
    is_owner = user.name == owner and life in (user.life, ANY_LIFE)
    return is_owner or user.has_tag(Tag.ADMINISTRATOR)


def wrong_state(why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"{why}")


def too_much(why: str) -> PeerFault:
    return ChannelFault(amqp.RESOURCE_ERROR, f"{why}")
