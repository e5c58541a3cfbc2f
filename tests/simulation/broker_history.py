"""One seed, one history: a whole broker on a faulty disk, its clients, and a model that watches.

Clients declare, publish, consume, settle and vanish; passes end when they like; the disk answers late,
fills up, fails, or goes dark in the middle of a write. What the broker writes is compared with the model
at once, what it promises when it leaves, and what it finds again in `recovered_check`.
"""

from __future__ import annotations

import heapq
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flintmq.broker.memory_shedding import MemoryShedding
from flintmq.config import Config
from flintmq.protocol.outbox import Output
from flintmq.server.data_directory import recovered_broker
from flintmq.storage.journal.journal import Journal
from flintmq.storage.journal.reader import READ_AGAIN_S
from flintmq.storage.options import JournalOptions, SyncPolicy

from .administration_actions import AdministrationActions
from .broker_actions import ACTIONS, CLOSING, LATER, PUBLIC_QUEUES, READING, REPEATS
from .broker_client import Client
from .broker_model import UNKNOWN, Model
from .journal_history import DIRECTORY, SimulatedClock
from .lease_actions import REPLIES
from .recovered_check import Doubled, RecoveredCheck
from .ruled_queues import MORGUE
from .simulated_disk import PowerLost, SimulatedDisk

CONFIG = Config()
CAPACITY = 1 << 40
CALM_ROUNDS_MAX = 60
SHEDDING_STEPS = 20


class BrokerHistory(AdministrationActions):
    """Runs one seed; any broken promise is an AssertionError."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.spoiler = random.Random(f"streams of {seed}")
        self.clerk = random.Random(f"administration of {seed}")
        self.reader = random.Random(f"reads of {seed}")
        self.unread_share = self.reader.choice((0.0, 0.1, 0.5))
        self.unclosed_share = self.reader.choice((0.0, 0.05, 0.3))
        self.administered_share = self.clerk.choice((0.0, 0.0, 0.1, 0.5))
        self.visitors = []
        self.outbox_of_visitors: list[Output] = []
        self.disk = SimulatedDisk(chance)
        self.clock = SimulatedClock(chance)
        self.options = JournalOptions(
            threaded=False,
            segment_octets=chance.choice((4096, 4096, 8192, 65536)),
            rewrite_step_octets=chance.choice((64, 512, 8192)),
            spare_segments=chance.choice((0, 1, 2)),
            retry_interval_ms=10,
            rewrite_delay_ms=chance.choice((0, 0, 30)),
            sync=chance.choice((*[SyncPolicy.ALWAYS] * 6, SyncPolicy.INTERVAL, SyncPolicy.NEVER)),
        )
        self.limits = (
            chance.choice((1, 3, 8, 131_072)),
            chance.choice((200, 3000, 67_108_864)),
            chance.choice((0, 1, 3)),
            chance.choice((100, 1000, 1_048_576)),
            chance.choice((1, 2, 5, 1024)),
        )
        # The largest commit in one group, and how much of a larger one is handed over at a time. Below 0
        # every commit is large, and settles one message at a time.
        self.commit_limits = chance.choice(((1 << 25, 0), (1 << 25, 0), (-1, 0), (300, 100), (1000, 2000)))
        self.weights = [chance.choice((1, 1, 3)) for _ in ACTIONS]
        self.dtx_share = chance.choice((0.0, 0.0, 0.2, 0.8))
        self.lease_share = chance.choice((0, 1, 1, 4))
        self.stream_share = chance.choice((0, 1, 2))
        self.later_share = chance.choice((0.0, 0.2, 0.6))
        if self.dtx_share > 0.5:
            for at, action in enumerate(ACTIONS):
                self.weights[at] *= 5 if action in ("demarcate", "coordinate") else 1
        self.queue_names = chance.sample(PUBLIC_QUEUES, chance.choice((1, 2, 4, len(PUBLIC_QUEUES))))
        for at, action in enumerate(ACTIONS):
            if action.endswith("lease"):
                self.weights[at] *= self.lease_share
            elif action.endswith("stream"):
                self.weights[at] *= self.stream_share
            elif action in ("publish", "declare_queue") and self.lease_share > 1:
                self.weights[at] *= 3
        self.haste = chance.choice((0.1, 0.5, 0.9))  # how soon a pass ends
        self.sloth = chance.choice((0.1, 0.5, 0.9))  # how late the disk is
        self.disk.closes_lose = self.options.sync is SyncPolicy.ALWAYS
        self.numbers = 0
        self.sizes: dict[int, int] = {}
        self.persistent: dict[int, bool] = {}
        self.expirations: dict[int, int] = {}
        self.priorities: dict[int, int] = {}
        self.lives = 0
        self.clients: list[Client] = []
        self.outbox: list[Output] = []
        self.publishing = 0
        self.committing: set[int] = set()
        self.model = Model()
        # Whatever went to disk: queue's number -> message's number -> place.
        self.ever: dict[int, dict[int, int]] = {}
        self.groups: list[set[int]] = []  # messages committed together
        self.sent: dict[int, tuple[str, str, bool]] = {}  # exchange, key, whether persistent
        self.delays: dict[int, int] = {}
        self.put_off = {}
        self.blind_s = 0.0  # when the broker could not read for the last time
        self.start()

    # Lives

    def start(self, is_rotten: bool = False) -> bool:
        """Opens the broker on what the disk holds; the power may fail meanwhile, again and again.

        Not after a bit has flipped: what was mended is told once, by whoever has mended it.
        Returns whether it did.
        """
        failed = False
        while True:
            try:
                if self.chance.random() < 0.1 and not is_rotten:
                    self.disk.power_left = self.chance.randrange(20)
                self.broker, self.report = recovered_broker(
                    CONFIG, self.clock, _wake, DIRECTORY, self.disk, self.options
                )
                break
            except PowerLost:
                failed = True
                self.disk.crash()
        self.disk.power_left = None
        self.syncs_failed = self.disk.syncs_failed
        self.lives += 1
        by_the_wall_ms = self.clock.wall_ms() - round(self.clock.now_s * 1000)
        latest_ms = max(by_the_wall_ms, self.offset_ms if self.lives > 1 else by_the_wall_ms)
        self.offset_ms = self.broker.timetable.offset_ms
        assert by_the_wall_ms <= self.offset_ms <= latest_ms, "the time of the broker has leapt"
        self.host = self.broker.virtual_hosts["/"]
        store = self.broker.store
        assert store is not None
        self.store = store
        assert self.broker.streams is not None
        self.streams = self.broker.streams
        store.kept_messages, store.kept_bytes, store.kept_messages_lean = self.limits[:3]
        store.kept_bytes_lean, store.loaded_messages = self.limits[3:]
        outcomes = self.host.branches.outcomes
        outcomes.group_bytes_max, outcomes.portion_bytes = self.commit_limits
        if outcomes.group_bytes_max < 0:
            outcomes.group_settled_max = outcomes.portion_settled = 0
        return failed

    def run(self, steps: int) -> None:
        """To its end, or as far as the model can follow."""
        with suppress(Doubled):
            self.live(steps)

    def live(self, steps: int) -> None:
        if self.chance.random() < 0.7:
            self.furnish()
        for _ in range(steps):
            try:
                self.step()
                self.check_counts()
            except PowerLost:
                # Perhaps in the middle of a release, of which a queue at its limit hands out what it gets,
                # and any queue what lives for a moment.
                self.follow_delays(was_cut=True)
                self.listen(exact=False, was_cut=True)
                self.reconcile(was_cut=True)
                self.crash(power=self.chance.random() < 0.7, was_cut=True)
        self.finale()

    def furnish(self) -> None:
        """Else a short history has hardly anything in its queues."""
        self.connect()
        [client] = self.clients
        for _ in range(2 * len(self.queue_names)):
            self.declare_queue(client, client.channels[1])
        for _ in range(2 * self.stream_share):
            self.declare_stream(client, client.channels[1])
        if self.later_share:
            self.declare_exchange(client, client.channels[1], LATER)
        for _ in range(4):
            self.bind(client, client.channels[1])
        for _ in range(4 * len(self.queue_names)):
            self.publish(client, client.channels[1])
            self.reconcile()

    def finale(self) -> None:
        """Everything that should be there is handed out; then, after a clean stop, nothing is left."""
        self.calm()
        for client in list(self.clients):
            self.lose(client)
        self.connect()
        for branch in list(self.model.branches.values()):
            self.roll_back(self.clients[0], self.clients[0].channels[1], branch)
        self.clock.now_s += 1_000_000  # whatever waits for its time has waited long enough
        self.calm()
        for lease in list(self.model.leases.values()):
            self.release_lease(self.clients[0], lease)
            self.reconcile()
        # Morgues last: what expires meanwhile is found there.
        for name, queue in sorted(self.model.queues.items(), key=lambda each: each[0].startswith(MORGUE)):
            while queue.ready():
                self.get(self.clients[0], self.clients[0].channels[1], name, no_ack=True)
            self.get(self.clients[0], self.clients[0].channels[1], name, no_ack=True)
        self.check_counts()
        self.clean_stop(may_rot=False)
        if self.options.sync is SyncPolicy.ALWAYS:
            assert not any(queue.copies for queue in self.model.queues.values())

    def crash(
        self, power: bool, floor: int | None = None, may_rot: bool = True, was_cut: bool = False
    ) -> None:
        """Everything in memory is gone; the disk keeps what it keeps. `was_cut`: in the middle of a write."""
        floor = self.store.synced if floor is None else floor
        keeps_delivered_marks = not was_cut and not self.store.delivered_marks.is_failing
        # A failed sync takes what was merely written, as the loss of power does.
        keeps_written = not power and self.disk.syncs_failed == self.syncs_failed
        gathered = {
            number
            for client in self.clients
            for channel in client.channels.values()
            for _, _, number, _ in channel.gathered
        } | {self.publishing}
        self.publishing = 0
        self.committing = set()
        for client in self.clients:
            client.output.release()
        self.clients.clear()
        self.outbox.clear()
        self.leave_visitors()
        self.restore_disk()
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        rotten = may_rot and self.chance.random() < 0.05 and self.rot()
        power = self.start(rotten) or power
        keeps_written = keeps_written and not power
        is_strict = not rotten and (keeps_written or self.options.sync is SyncPolicy.ALWAYS)
        check = RecoveredCheck(
            self.model,
            self.broker,
            self.report,
            floor,
            self.ever,
            self.body,
            self.groups,
            self.sent,
            gathered,
            keeps_delivered_marks and not power,
        )
        self.model = check.run(is_strict, rotten and self.options.sync is SyncPolicy.ALWAYS)
        self.take_stock(check)

    def take_stock(self, check: RecoveredCheck) -> None:
        """What the next life goes by: when messages expire, their lanes, how often they came back."""
        for queue in self.model.queues.values():
            for number, copy in queue.copies.items():
                copy.due_ms, copy.returns = check.facts[queue.number, number]
                copy.rank = self.rank_of(number, queue.name)

    def clean_stop(self, may_rot: bool = True) -> None:
        """As the server does it."""
        sound = not self.is_faulty()
        for client in [*self.clients]:
            self.lose(client)
        for visitor in self.visitors:
            visitor.drop()
        self.finish_pass()
        sound = sound and not self.broker.storage_alarm()
        if self.options.sync is not SyncPolicy.ALWAYS:
            # The one sync at the end is all there is: what it loses nobody writes again.
            self.disk.sync_failures_left = 0
        self.streams.close()
        self.store.close()
        power = self.chance.random() < 0.5
        self.crash(power, UNKNOWN - 1 if sound else None, may_rot)

    def rot(self) -> bool:
        """Flips one bit in a segment of the journal."""
        names = [name for name in self.disk.list(DIRECTORY) if name.endswith(".segment")]
        if not names:
            return False
        path = f"{DIRECTORY}/{self.chance.choice(names)}"
        octets = self.disk.content(path)
        if octets:
            self.disk.flip_bit(path, self.chance.randrange(len(octets)), self.chance.randrange(8))
        return bool(octets)

    def restore_disk(self) -> None:
        self.disk.capacity_octets = CAPACITY
        self.disk.sync_failures_left = self.disk.write_failures_left = self.disk.close_failures_left = 0
        self.disk.reads_fail = False
        self.disk.broken_directory = ""
        self.disk.power_left = None

    def is_faulty(self) -> bool:
        return bool(
            self.disk.capacity_octets != CAPACITY
            or self.disk.sync_failures_left
            or self.disk.write_failures_left
            or self.disk.close_failures_left
            or self.disk.reads_fail
            or self.disk.broken_directory
            or self.disk.power_left is not None
            or self.broker.storage_alarm()
        )

    # Steps

    def step(self) -> None:
        self.spoil_reads()
        way = self.chance.random()
        if way < 0.80:
            self.act()
            if self.clerk.random() < self.administered_share:
                self.administer()
            if self.chance.random() < self.haste:
                self.finish_pass()
            if self.chance.random() >= self.sloth:
                self.collect()
        elif way < 0.88:
            self.finish_pass()
            self.collect()
        elif way < 0.92:
            self.tick()
        elif way < 0.94:
            self.shed()
        elif way < 0.955:
            self.fault()
        elif way < 0.97:
            self.calm()
        elif way < 0.985:
            self.disk.power_left = self.chance.randrange(12)
        elif way < 0.993:
            self.crash(power=self.chance.random() < 0.7)
        else:
            self.clean_stop()

    def spoil_reads(self) -> None:
        """For some steps the disk gives nothing back; closes fail now and then."""
        if self.reader.random() < self.unclosed_share:
            self.disk.close_failures_left = self.reader.choice((1, 2, 10))
        if self.disk.reads_fail:
            self.disk.reads_fail = self.reader.random() < 0.8
        else:
            self.disk.reads_fail = self.reader.random() < self.unread_share
        self.note_blind()

    def note_blind(self) -> None:
        if self.is_blind():
            self.blind_s = self.clock.now_s

    def is_blind(self) -> bool:
        """Whether the broker cannot read, or has not looked yet whether it can again."""
        return self.disk.reads_fail or any(each.reader.unreadable for each in self.journals())

    def is_refused(self) -> bool:
        """Whether requests that need the disk would fail, which the model does not follow."""
        return self.is_blind()

    def journals(self) -> tuple[Journal, ...]:
        return self.store.journal, self.store.overflow.journal

    @contextmanager
    def sound(self) -> Iterator[None]:
        """What is looked up inside is the model's doing, which can read all there is."""
        told = [dict(each.reader.unreadable) for each in self.journals()]
        for each in self.journals():
            each.reader.unreadable.clear()
        with self.disk.sound():
            yield
        for each, unreadable in zip(self.journals(), told, strict=True):
            each.reader.unreadable.update(unreadable)

    def act(self) -> None:
        if len(self.clients) < 2 and (not self.clients or self.chance.random() < 0.1):
            self.connect()
        client = self.chance.choice(self.clients)
        if not client.channels or (len(client.channels) < 2 and self.chance.random() < 0.1):
            self.open_channel(client)
        channel = client.channels[self.chance.choice(list(client.channels))]
        if channel.mode == CLOSING:
            return
        action = self.chance.choices(ACTIONS, self.weights)[0]
        if action in READING and self.is_refused():
            return
        for _ in range(self.chance.choice(REPEATS[action])):
            if channel.number in client.channels and client.channels[channel.number] is channel:
                getattr(self, action)(client, channel)
                assert not self.listen(exact=False)  # a queue at its limit hands out what it can
                self.reconcile()

    def fault(self) -> None:
        if self.spoiler.random() < 0.3:
            # Of streams alone: the journal, which works, has to wait for them.
            self.disk.broken_directory = f"{DIRECTORY}/streams"
            return
        way = self.chance.randrange(3)
        if way == 0:
            # What is never synced is not promised to survive the failure of a sync.
            if self.options.sync is not SyncPolicy.NEVER:
                self.disk.sync_failures_left = self.chance.choice((1, 1, 2, 3))
        elif way == 1:
            self.disk.write_failures_left = self.chance.choice((1, 1, 2))
        else:
            self.disk.capacity_octets = self.disk.used_octets() + self.chance.choice((0, 3000, 6000))

    # The server's part

    def finish_pass(self) -> None:
        assert not self.store.journal.in_group(), "a group of the journal is open at the end of a pass"
        self.broker.finish_pass()
        self.listen()
        self.model.end_pass(self.store.last())
        self.flush()

    def collect(self) -> None:
        self.store.collect()
        self.streams.collect()
        self.finish_pass()

    def shed(self) -> None:
        """Memory is short for some steps, or until there is nothing more to move."""
        shedding = MemoryShedding(self.broker)
        for _ in range(SHEDDING_STEPS):
            if not shedding.step():
                return

    def tick(self) -> None:
        self.clock.now_s += self.chance.choice((0.005, 0.05, 0.3))
        if self.chance.random() < 0.05:
            self.clock.now_s += self.chance.choice((60.0, 7200.0, 100_000.0))  # it was stopped meanwhile
        if self.chance.random() < 0.1:
            # Somebody sets the machine's clock: it matters to nobody until the next start.
            self.clock.skew_s += self.chance.choice((-20_000.0, -1000.0, -0.1, 0.1, 1000.0, 20_000.0))
        self.store.tick()
        self.streams.tick()
        while self.run_alarm():
            self.follow_decided()
            self.follow_leases()
            self.follow_delays()
            self.listen(exact=False)
            self.reconcile()
        self.check_leases()
        self.check_delays()
        self.finish_pass()

    def run_alarm(self) -> bool:
        """The next one that is due, alone: so the model sees what each of them does."""
        timetable = self.broker.timetable
        due_ms = timetable.next_due_ms()
        if due_ms is None or due_ms > self.now_ms():
            return False
        callback = heapq.heappop(timetable.alarms).callback
        assert callback is not None
        callback()
        return True

    def flush(self) -> None:
        outbox = self.outbox[:]
        self.outbox.clear()
        for output in outbox:
            output.sender.hear(self.store.synced)

    def calm(self) -> None:
        """No more faults: soon everything is handed out, safe, and told."""
        self.note_blind()
        self.restore_disk()
        if self.clock.now_s - self.blind_s < READ_AGAIN_S:
            self.clock.now_s += READ_AGAIN_S  # when the files are looked at again
            self.tick()
            self.clock.now_s += READ_AGAIN_S  # when the queues are
        rounds = 0
        for _ in range(CALM_ROUNDS_MAX):
            self.finish_pass()
            self.tick()
            self.collect()
            is_safe = self.store.synced == self.store.last() and not self.store.alarm
            is_safe = is_safe and not self.streams.alarm and not self.streams.storage.dirty
            is_safe = is_safe and not self.streams.waiting and not self.streams.outputs
            is_safe = is_safe and not self.host.branches.outcomes.decided
            # What is behind a message that has just expired has its turn a millisecond later.
            is_safe = is_safe and self.broker.timetable.next_due_ms() != self.now_ms() + 1
            rounds = rounds + 1 if is_safe and not self.broker.has_work() and not self.outbox else 0
            if rounds == 3:  # so that what was late already has had its turn
                break
        else:
            raise AssertionError(f"the broker does not come to rest; alarm: {self.store.alarm!r}")
        self.syncs_failed = self.disk.syncs_failed
        for client in self.clients:
            assert not client.unheard
            assert not client.unheard_offsets
            assert not client.output.barrier
            assert not client.output.pending()
            for channel in client.channels.values():
                assert channel.mode != "confirm" or channel.confirmed == channel.published, "not confirmed"
        self.check_expiry()
        for queue in self.model.queues.values():
            if any(not self.is_expired(copy) for copy in queue.ready()):
                for each in queue.consumers:
                    can_take = each.no_ack or not each.prefetch or each.outstanding < each.prefetch
                    assert not can_take, f"{each.tag} waits for what is in {queue.name}"

    def check_expiry(self) -> None:
        """Nothing that has expired stays at the head of its queue; what was put back may, for a moment."""
        for name, queue in self.model.queues.items():
            head = next(iter(queue.ready()), None)
            if head is not None and not head.redelivered:
                is_late = 0 <= head.due_ms < self.now_ms()
                assert not is_late, f"{head.number} of {name} has expired and is there"

    def check_counts(self) -> None:
        real = {name: queue for name, queue in self.host.queues.items() if not name.startswith(REPLIES)}
        streams = {name for name, queue in real.items() if queue.is_stream}
        assert streams == set(self.model.streams)
        for name in streams:
            del real[name]
        assert set(real) == set(self.model.queues)
        for name, queue in real.items():
            model = self.model.queues[name]
            ready = len(model.ready())
            assert queue.message_count() == ready, f"{name} counts {queue.message_count()}, not {ready}"
            assert queue.unacked == model.out(), f"{name} has {queue.unacked} unacked, not {model.out()}"
            assert len(queue.consumers) == len(model.consumers)


def _wake() -> None:
    """There are no threads."""


def run_seed(seed: int, steps: int = 80) -> int:
    """Returns how many lives the broker had; an AssertionError tells the seed."""
    logging.disable(logging.CRITICAL)
    try:
        history = BrokerHistory(seed)
        history.run(steps)
    except Exception as failure:
        again = f"python -m tests.simulation.run --seeds {seed}..{seed} --steps {steps}"
        raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}\n    {again}") from failure
    finally:
        logging.disable(logging.NOTSET)
    return history.lives
