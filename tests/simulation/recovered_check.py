"""What a broker found on its disk after a crash, held against what the model allows.

    topology   a value that the key had at `floor` or since
    messages   all entries up to `floor` whose letting go is not on disk; none whose letting go is
    order      of each queue as published
    leases     a state that they had at `floor` or since, or over where a message of theirs is not there
    commits    whole
    marks      what was handed out before `floor` is redelivered

`floor` is the last record that was synced. After a flipped bit one record may be missing, or the group it
was in, and that is reported. Under a policy that promises less than a sync the loss of power may cost
anything, but never the truth.
"""

from __future__ import annotations

from collections.abc import Callable

from flintmq.broker.broker import Broker
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.exchange import Exchange
from flintmq.broker.exchanges.system_exchange import SystemExchange
from flintmq.broker.messages.message import Message
from flintmq.broker.queues.leases import Lease
from flintmq.broker.queues.priority_queue import PriorityQueue
from flintmq.broker.queues.queue import Queue
from flintmq.broker.recovery import LOST_AND_FOUND
from flintmq.broker.services import browsing
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.broker.transactions.dtx_branch import Branch, BranchState
from flintmq.broker.virtual_host import PREDECLARED_NAMES
from flintmq.storage.journal.replay import RecoveryReport
from flintmq.storage.streams.columns import fetch
from flintmq.wire import columns

from .administration_actions import HOSTS, INSIDE, USERS
from .broker_model import (
    DELAYED,
    OUT,
    Commit,
    Copy,
    Key,
    LeaseValue,
    Model,
    ModelBranch,
    ModelLease,
    ModelQueue,
    ModelStream,
)
from .ruled_queues import MORGUES, arguments_of

LOCKED_PLACE = 1 << 40
HOLE = -1  # in a stream, where less was promised than a sync
ENTRY_MASK = (1 << 64) - 1


class Doubled(Exception):
    """A message is back where it was, and also where it went from there.

    That is right where the group that took it there was lost and a later one was not. It will come to a
    queue that has it, and the model knows each message once.
    """


class RecoveredCheck:
    def __init__(
        self,
        model: Model,
        broker: Broker,
        report: RecoveryReport,
        floor: int,
        ever: dict[int, dict[int, int]],
        body: Callable[[int], bytes],
        groups: list[set[int]],
        sent: dict[int, tuple[str, str, bool]],
        gathered: set[int],
        keeps_delivered_marks: bool,
    ) -> None:
        self.model = model
        self.broker = broker
        self.report = report
        self.floor = floor
        self.ever = ever
        self.body = body
        self.groups = groups
        self.sent = sent
        self.gathered = gathered  # in transactions that were open
        self.keeps_delivered_marks = keeps_delivered_marks  # all that clients have heard of
        # Of branches: the messages each one holds in order, and by the queue's number what it has locked.
        self.staged: dict[Branch, list[int]] = {}
        self.locked: dict[int, dict[int, tuple[Branch, str]]] = {}
        self.lock_order: dict[Branch, list[tuple[int, int]]] = {}  # of each branch: queue and message
        # By the queue's number: what readers hold under leases, and whether it is marked as handed out.
        self.leased: dict[int, dict[int, bool]] = {}
        # By exchange and message: when it is due, and its entry; by the stream's number: what it holds.
        self.delayed: dict[tuple[int, int], tuple[int, int]] = {}
        self.streams: dict[int, list[int]] = {}
        self.host = broker.virtual_hosts["/"]
        # By the queue's number: what is on disk, in order, and whether it is marked as handed out.
        self.found: dict[int, dict[int, bool]] = {}
        # By queue and message: when it expires, and how often it came back.
        self.facts: dict[tuple[int, int], tuple[int, int]] = {}

    def run(self, is_strict: bool, is_rotten: bool) -> Model:
        """Returns the model of the next life."""
        for queue in self.queues().values():
            self.found[queue.number] = self.read(queue)
            self.locked[queue.number] = {}
            self.leased[queue.number] = self.read_leased(queue)
        for exchange in self.host.exchanges.values():
            if isinstance(exchange, DelayedExchange):
                self.read_delayed(exchange)
        for queue in self.host.queues.values():
            if isinstance(queue, StreamQueue):
                self.streams[queue.number] = self.read_stream(queue)
        for branch in self.host.branches.branches.values():
            self.read_branch(branch)
        for queue in self.queues().values():
            assert queue.unacked == len(self.locked[queue.number]) + len(self.leased[queue.number])
        self.check_truth()
        self.groups += self.groups_of_moves()
        if is_strict:
            assert not self.report.damaged, f"damage out of nothing: {self.report.lines()}"
            for key, value in self.topology().items():
                if key[0] == "lease":
                    self.check_lease(key, value)
                    continue
                allowed = [self.without_gone(each) for each in self.model.allowed(key, self.floor)]
                if key[0] == "inside" and None in allowed and isinstance(value, int):
                    # Its virtual host was being deleted: of what was not yet promised any part may have come.
                    assert any(isinstance(each, int) and value <= each for each in allowed)
                    continue
                assert value in allowed, f"{key} is {value}, allowed are {allowed}"
            self.check_messages()
            for commit in self.model.commits:
                self.check_commit(commit)
            for copy, letter in self.model.deaths:
                self.check_death(copy, letter)
            self.check_streams()
            if self.keeps_delivered_marks:
                self.check_moved()
        elif is_rotten:
            self.check_rotten()
        if not is_strict:
            self.look_for_doubles()
        return self.next_life()

    def queues(self) -> dict[str, Queue]:
        """Those that are not streams."""
        return {name: queue for name, queue in self.host.queues.items() if not queue.is_stream}

    def read_delayed(self, exchange: DelayedExchange) -> None:
        """What waits for its time, in the order in which it came."""
        assert exchange.number
        store = self.broker.store
        assert store is not None
        found: dict[int, bool] = {}
        waiting = {each & ENTRY_MASK: each >> 64 for each in exchange.waiting}
        assert len(waiting) == len(exchange.waiting)
        for entry, message in zip(sorted(waiting), store.load(sorted(waiting)), strict=True):
            assert message is not None
            number = self.number_of(message)
            assert number not in found, f"{number} waits twice"
            found[number] = False
            self.delayed[exchange.number, number] = waiting[entry], entry
        self.found[exchange.number] = found
        self.locked[exchange.number] = {}
        self.leased[exchange.number] = {}

    def read_stream(self, queue: StreamQueue) -> list[int]:
        """The message of each offset; HOLE where there is none."""
        numbers = [HOLE] * queue.log.end
        at = queue.log.first
        while at < queue.log.end:
            body, _, _, at = fetch(queue.log, at, queue.log.end, 1 << 20, columns.STANDARD)
            found = columns.Columns(bytes(body))
            for offset, value in zip(found.numbers("offset"), found.values("value"), strict=True):
                assert numbers[offset] == HOLE, f"{queue.name} has offset {offset} twice"
                numbers[offset] = int(value[: value.index(b".")])
                assert value == self.body(numbers[offset]), f"{numbers[offset]} was changed"
        return numbers

    def on_their_way(self) -> set[int]:
        """What the power may have caught between here and a stream, which is written first."""
        held = {number for holder in self.model.holders.values() for number in holder.copies}
        staged = {each[2] for branch in self.model.branches.values() for each in branch.gathered}
        return held | staged | self.gathered

    def check_streams(self) -> None:
        for name, stream in self.model.streams.items():
            found = self.streams.get(stream.number)
            if found is None or stream.deleted:
                continue  # gone, or going: nothing was promised but that
            if not stream.has_holes:
                known = len(stream.numbers)
                assert found[:known] == stream.numbers[: len(found)], f"{name} is not what was published"
                extra = set(found[known:])
                assert extra <= self.on_their_way(), f"{extra - self.on_their_way()} in {name} are invented"
            assert len(found) >= stream.promised, f"{name} ends at {len(found)}, before {stream.promised}"
        for copy, stream, end in self.model.moves:
            found = self.streams.get(stream.number)
            if found is None or stream.deleted:
                continue
            if copy.queue.number not in self.found or copy.sequence > self.floor:
                continue
            there = len(found) >= end or self.holds(copy.queue.number, copy.number)
            assert there, f"{copy.number} is neither in {stream.name} nor where it was"

    def read(self, queue: Queue) -> dict[int, bool]:
        assert queue.durable
        assert queue.number
        store = self.broker.store
        assert store is not None
        entries = sorted(entries_of(queue))
        assert queue.message_count() == len(entries)
        found: dict[int, bool] = {}
        for entry, message in zip(entries, store.load(entries), strict=True):
            assert message is not None, f"entry {entry >> 1} cannot be read"
            number = self.number_of(message)
            assert number not in found, f"{number} is in {queue.name} twice"
            found[number] = entry >> 1 <= queue.handed_out
            self.facts[queue.number, number] = self.fact_of(queue, message, found[number])
        return found

    def read_leased(self, queue: Queue) -> dict[int, bool]:
        """What readers hold; it is nobody else's."""
        held: dict[int, bool] = {}
        for lease in (queue.leases or {}).values():
            assert len(lease.deliveries) == lease.last - lease.acked
            for delivery in lease.deliveries:
                message = browsing.message_of(queue, delivery)
                assert message is not None
                number = self.number_of(message)
                assert number not in held, f"{number} of {queue.name} is leased twice"
                assert number not in self.found[queue.number], f"{number} of {queue.name} is leased and ready"
                held[number] = message.entry >> 1 <= queue.handed_out
                self.facts[queue.number, number] = self.fact_of(queue, message, held[number])
        return held

    def number_of(self, message: Message) -> int:
        octets = message.content[message.header_size :]
        number = int(octets[: octets.index(b".")])
        assert octets == self.body(number), f"{number} was changed"
        return number

    def read_branch(self, branch: Branch) -> None:
        store = self.broker.store
        assert store is not None
        messages = store.staged(list(branch.entries))
        self.staged[branch] = [self.number_of(message) for message in messages if message is not None]
        order = self.lock_order[branch] = []
        for lock, message in zip(
            branch.locks, store.load([lock.entry << 1 for lock in branch.locks]), strict=True
        ):
            assert message is not None
            number = self.number_of(message)
            assert number not in self.found[lock.queue.number], f"{number} is locked and ready"
            self.locked[lock.queue.number][number] = (branch, lock.settlement.name.lower())
            order.append((lock.queue.number, number))
            due_ms, _ = self.fact_of(lock.queue, message, True)
            notes = returns_of(lock.queue)
            # It has not come back by the crash: the branch has it still.
            self.facts[lock.queue.number, number] = due_ms, notes.get(message.entry, 0)

    def holds(self, queue: int, number: int) -> bool:
        return number in self.found[queue] or number in self.locked[queue] or number in self.leased[queue]

    def without_gone(self, value: object) -> object:
        """What a branch must hold, without locks on messages that are gone: with their queue, or torn off."""
        if not isinstance(value, tuple):
            return value
        numbers, locks = value
        return numbers, frozenset(lock for lock in locks if not self.is_gone(lock[0], lock[1]))

    def is_gone(self, queue: int, number: int) -> bool:
        if queue not in self.found:
            return True
        copy = self.model.on_disk[queue].copies.get(number)
        return copy is not None and copy.sequence > self.floor and not self.holds(queue, number)

    def check_lease(self, key: Key, value: object) -> None:
        """As it was, numbers and all; or over, where a message of it is not there."""
        number = int(key[1])
        if number not in self.found:
            assert value is None
            return
        allowed: list[object] = []
        for each in self.model.allowed(key, self.floor):
            is_whole = isinstance(each, LeaseValue) and all(self.holds(number, row) for row in each.rows)
            allowed.append(each.released() if isinstance(each, LeaseValue) and not is_whole else each)
        assert value in allowed, f"{key} is {value}, allowed are {allowed}"

    def is_decided(self, number: int) -> bool:
        """Whether the message is on its way out of a branch, to its queues or to be a dead letter."""
        return any(
            number in staged and branch.state is BranchState.DECIDED for branch, staged in self.staged.items()
        ) or any(self.is_to_be_settled(queue, number) for queue in self.locked)

    def is_to_be_settled(self, queue: int, number: int) -> bool:
        """Whether a branch that is decided has locked the message."""
        found = self.locked[queue].get(number)
        return found is not None and found[0].state is BranchState.DECIDED

    def fact_of(self, queue: Queue, message: Message, handed_out: bool) -> tuple[int, int]:
        now_ms = self.broker.timetable.now_ms()
        arrived_ms = min(message.arrived_ms, now_ms) or now_ms
        times = [arguments_of(queue.name).get("x-message-ttl", -1), message.lifetime_ms]
        chosen = [each for each in times if each >= 0]
        notes = returns_of(queue)
        returns = notes.get(message.entry, 1) if handed_out else 0
        return arrived_ms + min(chosen) if chosen else -1, returns

    def check_death(self, copy: Copy, letter: Copy) -> None:
        """A letter and the end of its original are one group: never both of them, and never neither."""
        here, there = copy.queue.number, letter.queue.number
        if here not in self.found or there not in self.found or not copy.sequence:
            return
        both = self.holds(here, copy.number), self.holds(there, letter.number)
        assert both != (True, True), f"{copy.number} is in {copy.queue.name} and in its morgue"
        if copy.sequence <= self.floor and not letter.settled:
            assert any(both), f"{copy.number} is neither in {copy.queue.name} nor in its morgue"

    def check_moved(self) -> None:
        """What the broker itself has put into a queue was heard of only if it is there for good."""
        heard = {
            (queue.number, copy.number)
            for queue in self.model.on_disk.values()
            for copy in (*queue.copies.values(), *queue.left.values())
            if copy.sequence and copy.heard
        }
        for copy, letter in self.model.deaths:
            if (letter.queue.number, letter.number) in heard:
                is_back = self.is_back(copy.queue.number, copy.number)
                assert not is_back, f"the letter of {copy.number} was heard, and it is in {copy.queue.name}"
        numbers = {number for _, number in heard}
        for exchange in self.model.holders.values():
            back = numbers & self.found.get(exchange.number, {}).keys()
            assert not back, f"{back} were heard, and are in {exchange.name}"
        for branch, staged in self.staged.items():
            assert not numbers.intersection(staged), f"{staged} of {branch.xid} were heard, and are in it"

    def check_truth(self) -> None:
        letters = {queue.number for name, queue in self.host.queues.items() if name in MORGUES}
        for stream in self.model.streams.values():
            for known, number in zip(stream.numbers, self.streams.get(stream.number, []), strict=False):
                assert number in (known, HOLE), f"{stream.name}: {known} has become {number}"
        for number, found in self.found.items():
            ever = self.ever[number]
            known = found.keys() | self.leased[number].keys() | self.locked[number].keys()
            assert known <= ever.keys(), f"{known - ever.keys()} are invented"
            places = [ever[each] for each in found]
            if number in letters:
                continue  # the model does not know which of two died first
            assert places == sorted(places), f"queue {number} is out of order"

    def topology(self) -> dict[Key, object]:
        """Every key that is on disk or may be, and what it means there."""
        found: dict[Key, object] = dict.fromkeys(self.model.history)
        for name, exchange in self.host.exchanges.items():
            assert exchange.durable
            if not is_predeclared(exchange):
                found["exchange", name] = kind_of(exchange)
            for binding in exchange.bindings.values():
                found["binding", name, binding.destination.name, binding.routing_key] = True
        for name, queue in self.host.queues.items():
            found["queue", name] = queue.number
            for reader, lease in (queue.leases or {}).items():
                found["lease", str(queue.number), reader] = self.value_of(lease)
        found.update(self.administered())
        for branch, staged in self.staged.items():
            locks = frozenset(
                (queue, number, way)
                for queue, those in self.locked.items()
                for number, (by, way) in those.items()
                if by is branch
            )
            is_decided = branch.state is BranchState.DECIDED
            found["branch", str(branch.xid)] = "decided" if is_decided else (tuple(staged), locks)
        return found

    def administered(self) -> dict[Key, object]:
        return administered_by(self.broker)

    def value_of(self, lease: Lease) -> LeaseValue:
        messages = [browsing.message_of(lease.queue, each) for each in lease.deliveries]
        rows = [self.number_of(message) for message in messages if message is not None]
        return LeaseValue(lease.epoch, lease.acked, lease.last, tuple(lease.ends), tuple(rows))

    def recovered(self) -> list[tuple[ModelQueue, dict[int, bool]]]:
        """Queues that the model knows; after a bit has flipped one may be back that it does not."""
        known = self.model.on_disk
        return [(known[number], found) for number, found in self.found.items() if number in known]

    def check_messages(self) -> None:
        for queue, found in self.recovered():
            marks = {**found, **self.leased[queue.number]}
            for number in marks:
                copy = queue.copies.get(number) or queue.left.get(number)
                assert copy is not None, f"{number} is back in {queue.name}"
                assert not copy.settled or copy.settled > self.floor, f"{number} is back in {queue.name}"
                is_noted = copy.heard and self.keeps_delivered_marks
                if is_noted or 0 < copy.handed_out <= self.floor:
                    assert marks[number], f"{number} of {queue.name} was handed out and does not say so"
            for number in self.locked[queue.number]:
                copy = queue.copies.get(number) or queue.left.get(number)
                assert copy is not None, f"{number} of {queue.name} is locked"
                assert not copy.settled or copy.settled > self.floor, (
                    f"{number} of {queue.name} is locked again"
                )
            for copy in queue.copies.values():
                if 0 < copy.sequence <= self.floor:
                    there = self.holds(queue.number, copy.number)
                    assert there, f"{copy.number} of {queue.name} is lost"

    def check_commit(self, commit: Commit) -> None:
        happened: dict[bool, Copy] = {}
        for copy in commit.published:
            if not copy.settled and copy.queue.number in self.found:
                is_there = self.holds(copy.queue.number, copy.number) or self.is_decided(copy.number)
                happened[is_there] = copy
        for copy in commit.settled:
            if copy.queue.number in self.found:
                is_there = self.holds(copy.queue.number, copy.number)
                is_there = is_there and not self.is_to_be_settled(copy.queue.number, copy.number)
                if is_there or copy.sequence <= self.floor:
                    happened[not is_there] = copy
        assert len(happened) < 2, f"half a commit: {happened[True].number} but not {happened[False].number}"

    def check_rotten(self) -> None:
        """One flipped bit costs one record, or one group, and is told."""
        numbers = {
            copy.number
            for queue, _ in self.recovered()
            for copy in queue.copies.values()
            if 0 < copy.sequence <= self.floor
            and not self.holds(queue.number, copy.number)
            and not self.is_decided(copy.number)
            and not self.is_before(queue.number, copy.number)
        }
        grouped = any(numbers <= group for group in self.groups)
        assert len(numbers) <= 1 or grouped, f"one bit cost {sorted(numbers)}"
        wrong = [
            key
            for key, value in self.topology().items()
            # A lost record of a branch or a lease is the end of it; so is, for a lease, a lost message.
            # With a user or a virtual host go its permissions, and what is in it.
            if key[0] not in ("binding", "branch", "lease", "grant", "inside")
            and not key[1].startswith(LOST_AND_FOUND)  # where the messages of a lost queue are rescued to
            and value not in self.model.allowed(key, self.floor)
        ]
        assert len(wrong) <= 1, f"one bit cost {wrong}"
        assert not (numbers and wrong)
        if numbers or wrong:
            report = self.report
            # In the last batch damage looks like a write that the crash cut short.
            told = report.damaged or report.set_aside or report.groups_dropped or report.torn_octets
            assert told, f"{numbers or wrong} went without a word: {report.lines()}"

    def before(self) -> dict[tuple[int, int], int]:
        deaths = {
            (letter.queue.number, letter.number): copy.queue.number for copy, letter in self.model.deaths
        }
        return {**self.model.before, **deaths}

    def is_back(self, queue: int, number: int) -> bool:
        return queue in self.found and self.holds(queue, number)

    def is_before(self, queue: int, number: int) -> bool:
        """What died or came to its time: its group may be lost, and then it is where it was before."""
        before = self.before()
        while queue := before.get((queue, number), 0):
            if self.is_back(queue, number):
                return True
        return False

    def look_for_doubles(self) -> None:
        # A branch holds what was published in it until that is handed over, in one group.
        staged = {number for numbers in self.staged.values() for number in numbers}
        for queue, found in self.found.items():
            for number in (*found, *self.leased[queue], *self.locked[queue]):
                if number in staged or self.is_before(queue, number):
                    raise Doubled

    def groups_of_moves(self) -> list[set[int]]:
        """What went to other places in one group. Where it was before, it may be no more: that was let go."""
        groups: dict[int, set[int]] = {}
        for _, letter in self.model.deaths:
            groups.setdefault(letter.sequence, set()).add(letter.number)
        return list(groups.values())

    def next_life(self) -> Model:
        """What was found is the truth from here on."""
        model = Model()
        model.before = self.before()
        model.places = self.model.places
        for key, value in self.administered().items():
            model.note(key, value, 0)
        for name, exchange in self.host.exchanges.items():
            if not is_predeclared(exchange):
                model.add_exchange(name, kind_of(exchange), True, 0)
            if isinstance(exchange, DelayedExchange):
                self.next_holder(model, exchange)
        for name, queue in self.host.queues.items():
            if isinstance(queue, StreamQueue):
                stream = ModelStream(name, queue.number, log=queue.log)
                stream.numbers = self.streams[queue.number]
                stream.has_holes = HOLE in stream.numbers
                stream.promised = 0 if stream.has_holes else len(stream.numbers)
                model.add_stream(stream, 0)
        for name, queue in self.queues().items():
            fresh = ModelQueue(name, queue.number)
            model.add_queue(fresh, 0)
            ever = self.ever[queue.number]
            for number, handed_out in self.found[queue.number].items():
                fresh.copies[number] = Copy(number, fresh, ever[number], 1, redelivered=handed_out)
            for number in self.locked[queue.number]:
                # Ahead of all others when it comes back, in the order of entries.
                place = ever[number] - LOCKED_PLACE
                fresh.copies[number] = Copy(number, fresh, place, 1, state=OUT, redelivered=True)
            self.next_leases(model, fresh, queue)
        self.next_branches(model)
        for name, exchange in self.host.exchanges.items():
            for binding in exchange.bindings.values():
                model.bind(("binding", name, binding.destination.name, binding.routing_key), 0)
        return model

    def next_holder(self, model: Model, exchange: DelayedExchange) -> None:
        holder = ModelQueue(exchange.name, exchange.number)
        model.add_holder(holder)
        for number in self.found[exchange.number]:
            copy = Copy(number, holder, self.ever[exchange.number][number], 1)
            copy.due_ms, copy.entry = self.delayed[exchange.number, number]
            holder.copies[number] = copy

    def next_leases(self, model: Model, fresh: ModelQueue, queue: Queue) -> None:
        marks = self.leased[queue.number]
        for reader, lease in (queue.leases or {}).items():
            value = self.value_of(lease)
            held = ModelLease(reader, fresh, value.epoch, value.acked, value.last, list(value.ends))
            for number in value.rows:
                copy = Copy(number, fresh, self.ever[queue.number][number], 1, OUT, marks[number])
                fresh.copies[number] = copy
                held.rows.append(copy)
            held.timeout_ms = lease.timeout_ms
            held.due_ms = self.broker.timetable.now_ms() + lease.timeout_ms
            model.leases[queue.name, reader] = held
            model.note_lease(held, value, 0)

    def next_branches(self, model: Model) -> None:
        queues = {queue.number: queue for queue in model.queues.values()}
        for branch, staged in self.staged.items():
            fresh = ModelBranch(branch.xid, None)
            fresh.state = "decided" if branch.state is BranchState.DECIDED else "prepared"
            for number in staged:
                exchange, key, persistent = self.sent[number]
                fresh.gathered.append((exchange, key, number, persistent))
            for queue, number in self.lock_order[branch]:
                fresh.locked.append((queues[queue].copies[number], self.locked[queue][number][1]))
            model.branches[fresh.xid] = fresh
            if fresh.state == "decided":
                model.decided.append(fresh)
            model.note(fresh.key(), "decided" if fresh.state == "decided" else fresh.value(), 0)


def administered_by(broker: Broker) -> dict[Key, object]:
    """Users, virtual hosts and permissions of the history, and what is in the virtual hosts."""
    found: dict[Key, object] = {}
    for user in broker.users:
        if user.name in USERS:
            found["user", user.name] = frozenset(map(str, user.tags))
            for host, granted in user.permissions.items():
                if host in broker.virtual_hosts:
                    found["grant", user.name, host] = granted.settings.read
    for name in HOSTS:
        virtual_host = broker.virtual_hosts.get(name)
        if virtual_host is not None:
            found["vhost", name] = True
            if INSIDE in virtual_host.queues:
                found["inside", name] = virtual_host.queues[INSIDE].message_count()
    return found


def entries_of(queue: Queue) -> list[int]:
    """Everything that is ready, in the paged tail or in memory."""
    if isinstance(queue, PriorityQueue):
        return [entry for lane in queue.lanes.values() for entry in entries_of(lane)]
    ring = [queue.ready.at(index) for index in range(queue.ready.count)]
    back = [delivery.entry() for delivery in queue.returned]
    return [*queue.tail, *(message.entry for message in ring if message is not None), *back]


def is_predeclared(exchange: Exchange) -> bool:
    """Whether no client has declared it. A flipped bit may bring back the former name of amq.system."""
    return exchange.name in PREDECLARED_NAMES or isinstance(exchange, SystemExchange)


def kind_of(exchange: Exchange) -> str:
    if not isinstance(exchange, DelayedExchange):
        return exchange.type
    return f"{DELAYED}{exchange.arguments['x-delayed-type']}"


def returns_of(queue: Queue) -> dict[int, int]:
    """By entry: how often messages of the queue came back."""
    retries = None if queue.rules is None else queue.rules.retries
    return {} if retries is None else retries.notes
