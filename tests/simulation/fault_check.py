"""What is found on disk after a bug, held against what the model knows from before it.

The failed request may have been done in part, so of what it was about (`touched`) nothing is known but that
it is the truth. All else is where it was, or where the broker was about to take it: a message that expires,
is over a limit or was rejected is in its morgue; one that was delayed is in its queues; one of a prepared
branch is in the branch, or in its queues.
"""

from __future__ import annotations

from flintmq.broker.queues.queue import Queue
from flintmq.broker.transactions.dtx_branch import BranchState

from .broker_model import Copy, Key, Model, ModelQueue
from .recovered_check import Doubled, RecoveredCheck
from .ruled_queues import DELIVERY_LIMIT, MORGUE, MORGUES, RULES

ADMINISTERED = ("user", "vhost", "grant", "inside")


class FaultCheck(RecoveredCheck):
    touched: set[int]
    moving: set[int]  # from one queue to another: in either of them, or in both
    deleting: str  # the exchange that the failed request was to delete
    expiring: set[int]  # messages with an expiration of their own
    memory: dict[int, int]
    now_ms: int
    administered_before: dict[Key, object]  # as memory had it before the crash
    doubtful: set[Key]  # what the last request of an administrator was about

    def bystander(self, name: str, count: int) -> None:
        """Takes the queue of somebody else away, with all that was confirmed there."""
        queue = self.host.queues.get(name)
        assert queue is not None, "a queue that others declared is lost"
        found = queue.message_count()
        assert found == count, f"of {count} messages confirmed to others {found} are left"
        self.host.delete_queue(queue)
        assert self.broker.store is not None
        self.broker.store.journal.commit_now()  # or a crash brings it back

    def read(self, queue: Queue) -> dict[int, bool]:
        self.is_whole(queue)
        try:
            return super().read(queue)
        except AssertionError as failure:
            if "twice" in str(failure):
                raise Doubled from failure  # what was tried again, for the bug: at least once, not exactly
            raise

    def is_whole(self, queue: Queue) -> None:
        """As many as before the crash, with those that are leased or locked now."""
        locked = sum(
            lock.queue is queue for each in self.host.branches.branches.values() for lock in each.locks
        )
        leased = sum(len(lease.deliveries) for lease in (queue.leases or {}).values())
        found = queue.message_count() + locked + leased
        wanted = self.memory.get(queue.number, 0)
        assert found == wanted, f"{queue.name} had {wanted} messages in the journal, and has {found}"

    def check_truth(self) -> None:
        places = self.model.places
        for number, found in self.found.items():
            ever = self.ever.setdefault(number, {})
            for each in (*found, *self.leased[number], *self.locked[number]):
                if self.has_just_come(number, each):
                    self.model.places += 1
                    ever[each] = self.model.places
                    assert each in self.may_come(number), f"{each} is invented in queue {number}"
        assert places <= self.model.places
        self.expect_damage()
        self.check_administered()
        self.check_gone()
        self.check_promises()

    def expect_damage(self) -> None:
        """A message that the bug kept out of a queue may be in the journal, settled. Damage may undo that."""
        for number in self.touched & self.sent.keys():
            exchange, key, _ = self.sent[number]
            if exchange and exchange not in self.model.exchanges and not exchange.startswith("amq."):
                continue
            for queue in self.model.route(exchange, key):
                if queue.number and number not in self.ever.setdefault(queue.number, {}):
                    self.model.places += 1
                    self.ever[queue.number][number] = self.model.places

    def has_just_come(self, queue: int, number: int) -> bool:
        """Whether the model has not seen the message come to the queue, in this life.

        A flipped bit may have cost the group that brought it there once before: it comes a second time, and
        its place is a new one.
        """
        known = self.model.on_disk.get(queue)
        if known is None:
            return number not in self.ever[queue]
        return number not in known.copies and number not in known.left

    def may_come(self, number: int) -> set[int]:
        """What may be new in a queue."""
        queue = self.model.on_disk.get(number)
        name = "" if queue is None else queue.name
        coming = self.touched | self.moving | self.on_their_way()
        if name in MORGUES:
            base = self.model.queues.get(name.removeprefix(MORGUE))
            if base is not None:
                coming |= base.copies.keys() | base.left.keys()
        return coming

    def check_administered(self) -> None:
        """The journal has what memory had; and what no request was about is as it was."""
        found = self.administered()
        before = self.administered_before
        wrong = {key for key in found.keys() | before.keys() if found.get(key) != before.get(key)}
        assert not wrong, f"{sorted(wrong)} of memory and of the journal differ"
        for key in self.model.history:
            if key[0] in ADMINISTERED and key not in self.doubtful:
                allowed = self.model.allowed(key, self.floor)
                assert found.get(key) in allowed, f"{key} is {found.get(key)}, allowed are {allowed}"

    def check_gone(self) -> None:
        """What was let go for good is not back."""
        for queue, found in self.recovered():
            for number in found:
                copy = queue.copies.get(number) or queue.left.get(number)
                if copy is None or number in self.touched:
                    continue
                assert not copy.settled or copy.settled > self.floor, f"{number} is back in {queue.name}"

    def check_promises(self) -> None:
        """What was there and was not to go is there."""
        for queue in self.model.on_disk.values():
            if queue.deleted or queue.number not in self.found:
                assert queue.deleted or queue.name == self.deleting, f"{queue.name} is lost"
                continue
            settling = {copy.number for branch in self.model.decided for copy, _ in branch.locked}
            for copy in queue.copies.values():
                if copy.sequence and copy.number not in self.touched and copy.number not in settling:
                    there = self.holds(queue.number, copy.number) or self.is_elsewhere(queue, copy)
                    assert there, f"{copy.number} of {queue.name} is lost"
        for branch in self.model.branches.values():
            if branch.state == "open":
                continue
            staged = {number for numbers in self.staged.values() for number in numbers}
            for exchange, key, number, persistent in branch.gathered[branch.applied :]:
                if number in self.touched or number in staged or not persistent:
                    continue
                if number in self.expiring:
                    continue  # it may have come to its queue, and its end there
                queues = self.durable_queues(exchange, key)
                there = not queues or any(self.holds(each.number, number) for each in queues)
                assert there, f"{number} of branch {branch.xid} is lost"
        decided = [each for each in self.staged if each.state is BranchState.DECIDED]
        assert all(each.manifest for each in decided)

    def durable_queues(self, exchange: str, key: str) -> list[ModelQueue]:
        """Where a message goes that the disk must keep there; none where its way is not known for certain."""
        if exchange and exchange not in (*self.model.exchanges, "amq.direct", "amq.fanout", "amq.topic"):
            return []
        if exchange in self.model.holders:
            return []
        queues = self.model.route(exchange, key)
        if any(each.name in RULES or not each.number or each.number not in self.found for each in queues):
            return []
        return [each for each in queues if each.number in self.found]

    def is_elsewhere(self, queue: ModelQueue, copy: Copy) -> bool:
        """What the broker itself was to take somewhere else, or to drop."""
        base = self.model.queues.get(queue.name.removeprefix(MORGUE)) if queue.name in MORGUES else None
        if base is not None and base.number in self.found and self.holds(base.number, copy.number):
            return True  # the letter is to leave a little later
        if copy.number in self.moving and any(copy.number in found for found in self.found.values()):
            return True
        if queue.name in self.model.holders:
            if copy.due_ms > self.now_ms:
                return False
            exchange, key, persistent = self.sent[copy.number]
            queues = self.model.route(exchange, key)
            lasting = [each for each in queues if each.number in self.found and each.name not in RULES]
            if not persistent or len(lasting) < len(queues) or not lasting or copy.number in self.expiring:
                return True
            return any(self.holds(each.number, copy.number) for each in lasting)
        may_die = 0 <= copy.due_ms <= self.now_ms
        rules = RULES.get(queue.name, {})
        may_die = may_die or "x-max-length" in rules
        may_die = may_die or ("x-delivery-limit" in rules and copy.returns >= DELIVERY_LIMIT)
        if not may_die:
            return False
        morgue = self.model.queues.get(MORGUE + queue.name)
        if not rules or morgue is None or not morgue.number or morgue.number not in self.found:
            return True
        return self.holds(morgue.number, copy.number)

    def next_life(self) -> Model:
        self.look_for_doubles()
        self.look_for_repeats()
        # What was tried again may have gone in one group, which one flipped bit costs whole.
        self.groups.append({number for found in self.found.values() for number in found})
        return super().next_life()

    def look_for_repeats(self) -> None:
        """What was sent, and for the bug not let go of, is sent once more: it will be there twice."""
        names = {queue.number: name for name, queue in self.queues().items()}
        numbers = {name: number for number, name in names.items()}
        for number, found in self.found.items():
            there = found.keys() | self.leased[number].keys() | self.locked[number].keys()
            morgue = numbers.get(MORGUE + names.get(number, ""), 0)
            if there & self.found.get(morgue, {}).keys():
                raise Doubled
            if number not in names and any(there & self.found[each].keys() for each in names):
                raise Doubled  # it is in an exchange that delays, and in a queue
