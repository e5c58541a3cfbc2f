"""Histories in which the broker's own functions raise: whatever the bug, no promise is broken by it.

A history goes on as any other until the injector has raised somewhere. Then:

    now              no group of the journal is open; others publish and are confirmed
    memory, journal  hold the same of each queue, delaying exchange and branch
    after a crash    what was promised is there, but for what the failed request itself was to remove; what
                     was gone is not back; what others were confirmed is there

A request that fails is told so, and may be done in part; one that is told done is done whole.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

from flintmq.broker.channels.channel import Channel
from flintmq.broker.queues.queue import Queue
from flintmq.broker.recovery import LOST_AND_FOUND
from flintmq.errors import ConnectionFault
from flintmq.protocol import phases
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

from .administration_actions import HOSTS, USERS
from .agreement import check_agreement
from .broker_client import Client, Event
from .broker_history import BrokerHistory
from .broker_model import Copy, Key, ModelBranch, ModelChannel
from .fault_check import FaultCheck
from .fault_injector import INJECTOR, Injected
from .recovered_check import administered_by, entries_of
from .ruled_queues import MORGUES, RULES
from .simulated_disk import PowerLost

BYSTANDER = "bystander"
BYSTANDER_MESSAGES = 3
# A function that is not called in so many steps makes way for another.
STEPS_ARMED = 2
ROUNDS_MAX = 60
# In the place of a function that has raised.
UNREAD = "Disk.read"


class Faulted(Exception):
    """The injector has raised, and the client at hand has perhaps been told that its request failed."""


class FaultyClient(Client):
    """Does to its session what a link does when there is a bug."""

    events: list[Event]  # of this step, whether the model could make anything of them or not
    failed = False
    said: tuple[int, Method | None] = (0, None)

    def __post_init__(self) -> None:
        self.events = []
        super().__post_init__()

    def say(self, number: int, method: Method) -> None:
        self.said = (number, method)
        super().say(number, method)

    def take(self, octets: bytes) -> int:
        was_fired = bool(INJECTOR.fired)
        try:
            with INJECTOR.watching():
                used = super().take(octets)
        except Injected:
            self.failed = True
            with INJECTOR.watching():
                self.session.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, "INTERNAL_ERROR"))
            raise Faulted from None
        if self.session.connection.state >= phases.CONNECTION_CLOSING and INJECTOR.fired and not was_fired:
            raise Faulted
        return used

    def written(self) -> list[Event]:
        events = super().written()
        self.events += events
        return events

    def drop(self) -> None:
        with INJECTOR.watching():
            super().drop()


class FaultyHistory(BrokerHistory):
    """One seed with bugs."""

    faults = 0
    has_bystander = False
    removable: set[int]

    def __init__(self, seed: int) -> None:
        INJECTOR.install()
        INJECTOR.disarm()
        self.bugs = random.Random(f"bugs of {seed}")
        self.removable = set()
        self.moving: set[int] = set()
        self.deleting = ""
        self.doubtful: set[Key] = set()
        self.answers: dict[Client, tuple[dict[str, Any], bytes]] = {}
        super().__init__(seed)
        INJECTOR.when_fired = self.keep_power
        self.disk.when_unread = self.unread
        self.administered_share = self.bugs.choice((0.0, 0.1, 0.5))
        INJECTOR.arm(self.bugs)

    def make_client(self, publishes: bool) -> Client:
        return FaultyClient(self.broker, self.outbox, publishes=publishes)

    def start(self, is_rotten: bool = False) -> bool:
        failed = super().start(is_rotten)
        if not self.has_bystander:
            for name, queue in list(self.host.queues.items()):
                # A crash has brought it back, or a bit that flipped has.
                if name == BYSTANDER or (name.startswith(LOST_AND_FOUND) and self.is_bystanders(queue)):
                    self.host.delete_queue(queue)
        return failed

    def is_bystanders(self, queue: Queue) -> bool:
        """Whether it holds what others have published, rescued from a queue that is lost."""
        messages = self.store.load(entries_of(queue))
        return any(each is not None and BYSTANDER.encode() in each.content for each in messages)

    def keep_power(self) -> None:
        """Until the bug is looked into: the check after a loss of power knows of none."""
        self.disk.power_left = None

    def unread(self) -> None:
        """A read that fails in the middle of a request is as bad for it as a bug."""
        if INJECTOR.is_watching and not INJECTOR.fired:
            INJECTOR.fired = UNREAD
            self.keep_power()

    def is_refused(self) -> bool:
        return any(each.reader.unreadable for each in self.journals())

    # Where the broker is at work

    def live(self, steps: int) -> None:
        for number in range(steps):
            if number % STEPS_ARMED == 0 and (INJECTOR.point or not INJECTOR.left):
                INJECTOR.arm(self.bugs)
            self.step_or_fault()
        INJECTOR.disarm()
        self.finale()

    def step_or_fault(self) -> None:
        try:
            if not self.clients and not self.model.queues:
                self.furnish()
            self.step()
            self.check_counts()
        except PowerLost:
            INJECTOR.disarm()
            self.follow_delays(was_cut=True)
            self.listen(exact=False)
            self.reconcile(was_cut=True)
            self.crash(power=self.chance.random() < 0.7, was_cut=True)
            INJECTOR.arm(self.bugs)
        except Faulted:
            self.after_fault()
        except AssertionError:
            # What the model expects of the request at hand is not to be had; the rest is checked even so.
            if not INJECTOR.fired:
                raise
            self.after_fault()
        if INJECTOR.fired:
            self.after_fault()

    def reconcile(self, was_cut: bool = False) -> None:
        if INJECTOR.fired and not was_cut:
            raise Faulted
        super().reconcile(was_cut)

    def finish_pass(self) -> None:
        with INJECTOR.watching():
            self.broker.finish_pass()
        self.stop_if_fired()
        super().finish_pass()

    def collect(self) -> None:
        with INJECTOR.watching():
            self.store.collect()
            self.streams.collect()
        self.stop_if_fired()
        self.finish_pass()

    def run_alarm(self) -> bool:
        try:
            with INJECTOR.watching():
                is_run = super().run_alarm()
        except Injected:
            is_run = True  # a timetable goes on with the next one
        self.stop_if_fired()
        return is_run

    def stop_if_fired(self) -> None:
        if INJECTOR.fired:
            raise Faulted

    def crash(self, *arguments: Any, **named: Any) -> None:
        left, INJECTOR.left = INJECTOR.left, 0
        super().crash(*arguments, **named)
        INJECTOR.left = left

    # What requests may remove

    def publish(self, client: Client, channel: ModelChannel) -> None:
        self.removable = {self.numbers + 1}
        super().publish(client, channel)

    def settle(self, client: Client, channel: ModelChannel) -> None:
        self.removable = {held.copy.number for held in channel.unacked.values()}
        super().settle(client, channel)

    def get(self, client: Client, channel: ModelChannel, name: str, no_ack: bool) -> None:
        self.removable = {copy.number for copy in self.model.queues[name].ready()} if no_ack else set()
        super().get(client, channel, name, no_ack)

    def purge(self, client: Client, channel: ModelChannel) -> None:
        self.removable = self.all_numbers()
        super().purge(client, channel)

    def delete(self, client: Client, channel: ModelChannel) -> None:
        self.removable = self.all_numbers()
        super().delete(client, channel)

    def ask(self, client: Client, channel: ModelChannel, method: Method, *rest: Any, **named: Any) -> Event:
        if isinstance(method, methods.ExchangeDelete):
            self.deleting = method.exchange
        return super().ask(client, channel, method, *rest, **named)

    def declare_stream(self, client: Client, channel: ModelChannel) -> None:
        self.removable = set()
        super().declare_stream(client, channel)

    def end_transaction(self, client: Client, channel: ModelChannel) -> None:
        settled = {
            channel.unacked[tag].copy.number for tag, way in channel.settling.items() if way != "requeue"
        }
        self.removable = settled | {number for _, _, number, _ in channel.gathered}
        super().end_transaction(client, channel)

    def prepare(self, client: Client, channel: ModelChannel, branch: ModelBranch) -> None:
        self.removable = {number for _, _, number, _ in branch.gathered}
        super().prepare(client, channel, branch)

    def commit_branch(self, client: Client, channel: ModelChannel, branch: ModelBranch) -> None:
        self.removable = {copy.number for copy, way in branch.locked if way != "requeue"}
        if branch.channel is not None:
            self.removable |= {
                branch.channel.unacked[tag].copy.number
                for tag, way in branch.settling.items()
                if way != "requeue"
            }
        if branch.state == "open":
            self.removable |= {number for _, _, number, _ in branch.gathered}
        super().commit_branch(client, channel, branch)

    def roll_back(self, client: Client, channel: ModelChannel, branch: ModelBranch) -> None:
        self.removable = {number for _, _, number, _ in branch.gathered}
        super().roll_back(client, channel, branch)

    def ack_lease(self, client: Client, channel: ModelChannel) -> None:
        self.removable = {copy.number for lease in self.model.leases.values() for copy in lease.rows}
        super().ack_lease(client, channel)

    def die(self, copy: Copy, reason: str, sequence: int | None = None) -> Copy | None:
        if not copy.queue.number:  # in memory alone, until its letter is written
            self.removable = self.removable | {copy.number}
        return super().die(copy, reason, sequence)

    def step(self) -> None:
        self.removable = set()
        self.moving = set()
        self.deleting = ""
        for client in self.clients:
            if isinstance(client, FaultyClient):
                client.events = []
        super().step()

    def act(self) -> None:
        if self.model.queues and self.clients and self.bugs.random() < 0.05:
            client = self.bugs.choice(self.clients)
            if client.channels:
                self.move(client)
                return
        super().act()

    def all_numbers(self) -> set[int]:
        return {
            number
            for queue in (*self.model.queues.values(), *self.model.holders.values())
            for number in queue.copies
        }

    def move(self, client: Client) -> None:
        """queue.move, from a plain queue to another that has none of its messages."""
        names = [name for name in self.model.queues if name not in RULES and name not in MORGUES]
        self.bugs.shuffle(names)
        for source in names:
            ready = self.model.queues[source].ready()[:3]
            for name in names:
                target = self.model.queues[name]
                known = target.copies.keys() | target.left.keys() | self.ever.get(target.number, {}).keys()
                if name != source and ready and not known & {copy.number for copy in ready}:
                    self.removable = set()
                    self.moving = {copy.number for copy in ready}
                    if not target.number or not self.model.queues[source].number:
                        self.removable = self.moving  # what is in one of them ends with the broker
                    if any(self.is_expired(copy) or copy.due_ms >= 0 for copy in ready):
                        continue
                    self.request(client, "queue.move", queue=source, to=name, limit=len(ready))
                    for copy in ready:
                        self.model.settle(copy)
                        letters = self.enqueue(copy.number, [target], self.persistent[copy.number])
                        self.model.deaths += [(copy, letter) for letter in letters]
                    results, _ = self.answer(client)
                    assert results.get("moved") == len(ready), f"a move is answered by {results}"
                    self.reconcile()  # what has come to the head may have expired long ago
                    return

    # Administration

    def administer(self) -> None:
        self.doubtful = set()
        super().administer()

    def asked(self, client: Client, service: str, code: int, **arguments: object) -> bool:
        self.doubtful = keys_of(service, arguments)
        return super().asked(client, service, code, **arguments)

    def settle_chores(self) -> None:
        with INJECTOR.watching():
            super().settle_chores()
        self.stop_if_fired()

    # Services answer a bug by 541, and the connection stays

    def request(self, client: Client, service: str, **arguments: Any) -> None:
        was_fired = bool(INJECTOR.fired)
        super().request(client, service, **arguments)
        if INJECTOR.fired and not was_fired:
            results, body = super().answer(client)
            if results.get("error-code") == amqp.INTERNAL_ERROR:
                raise Faulted
            self.answers[client] = results, body

    def answer(self, client: Client) -> tuple[dict[str, Any], bytes]:
        known = self.answers.pop(client, None)
        return super().answer(client) if known is None else known

    # Afterwards

    def after_fault(self) -> None:
        """The bug is over; what was promised is looked for."""
        where = INJECTOR.fired
        INJECTOR.disarm()
        self.faults += 1
        try:
            self.check_fault(where == UNREAD)
        except AssertionError as failure:
            raise AssertionError(f"{where} has raised: {failure}") from failure
        INJECTOR.arm(self.bugs)

    def check_fault(self, is_unread: bool) -> None:
        assert not self.store.journal.in_group(), "a group of the journal is open"
        self.answers.clear()
        self.restore_disk()
        self.disk.reads_fail = is_unread and self.bugs.random() < 0.5  # for a while longer
        self.broker.pass_work.chores.finish()
        delivered = self.delivered()
        check_agreement(self.broker, self.channels())
        self.serve_bystander()
        self.disk.reads_fail = False
        if self.bugs.random() < 0.7:
            self.clock.now_s += 2.0  # what the bug has held up is tried again
            for _ in range(5):
                self.broker.timetable.run()
        self.broker.finish_pass()
        assert not self.store.journal.in_group(), "a group of the journal is open"
        check_agreement(self.broker, self.channels())
        self.come_to_rest()
        self.crash_after(delivered | self.removable | self.delivered())

    def channels(self) -> list[Channel]:
        return [
            channel.owner
            for client in self.clients
            for channel in client.session.connection.channels
            if channel is not None and isinstance(channel.owner, Channel)
        ]

    def delivered(self) -> set[int]:
        """What is on its way to clients that need not ack it."""
        numbers = set()
        for client in self.clients:
            client.written()
            for event in client.events if isinstance(client, FaultyClient) else ():
                if (
                    isinstance(event.method, (methods.BasicDeliver, methods.BasicGetOk))
                    and b"." in event.body
                ):
                    head = event.body[: event.body.index(b".")]
                    if head.isdigit():
                        numbers.add(int(head))
        return numbers

    def come_to_rest(self) -> None:
        for _ in range(ROUNDS_MAX):
            self.broker.finish_pass()
            self.clock.now_s += 0.02
            self.store.tick()
            self.streams.tick()
            self.store.collect()
            self.streams.collect()
            is_safe = self.store.synced == self.store.last() and not self.broker.storage_alarm()
            if is_safe and not self.streams.storage.dirty:
                return
        raise AssertionError("the broker does not come to rest")

    def serve_bystander(self) -> None:
        """Somebody else, who is not to notice anything."""
        client = Client(self.broker, self.outbox)
        client.say(1, methods.ChannelOpen())
        client.say(1, methods.QueueDeclare(queue=BYSTANDER, durable=True))
        client.say(1, methods.ConfirmSelect())
        for number in range(BYSTANDER_MESSAGES):
            client.publish(1, "", BYSTANDER, b"bystander %d" % number, persistent=True)
        confirmed = 0
        self.come_to_rest()
        for event in client.written():
            if isinstance(event.method, methods.BasicAck):
                confirmed = event.method.delivery_tag
        assert confirmed == BYSTANDER_MESSAGES, f"others had {confirmed} messages confirmed"
        client.drop()

    def crash_after(self, touched: set[int]) -> None:
        power = self.bugs.random() < 0.5
        floor = self.store.last()
        publishing, self.publishing = self.publishing, 0
        self.committing = set()
        old_model, clients = self.model, self.clients[:]
        gathered = {
            number
            for client in clients
            for channel in client.channels.values()
            for _, _, number, _ in channel.gathered
        } | {publishing}
        memory = self.in_memory()
        administered = administered_by(self.broker)
        now_ms = self.now_ms()
        for client in clients:
            client.output.release()
        self.clients.clear()
        self.outbox.clear()
        self.leave_visitors()
        self.outbox_of_visitors.clear()
        if power and self.options.sync.value == "always":
            self.disk.crash()
        else:
            self.disk.kill()
        self.has_bystander = True
        self.start(is_rotten=True)  # the power does not fail once more
        self.has_bystander = False
        check = FaultCheck(
            old_model,
            self.broker,
            self.report,
            floor,
            self.ever,
            self.body,
            self.groups,
            self.sent,
            gathered,
            False,
        )
        check.touched = touched
        check.moving = self.moving
        check.deleting = self.deleting
        check.expiring = set(self.expirations)
        check.memory = memory
        check.administered_before = administered
        check.doubtful = self.doubtful
        check.now_ms = now_ms
        check.bystander(BYSTANDER, BYSTANDER_MESSAGES)
        self.model = check.run(False, False)
        self.take_stock(check)

    def in_memory(self) -> dict[int, int]:
        """By the queue's number: how many messages it has, with those that are out."""
        store = self.store
        counts: dict[int, int] = {}
        for sequence in store.journal.index.live():
            for owner in store.journal.owners_of(sequence):
                counts[owner] = counts.get(owner, 0) + 1
        return counts


def keys_of(service: str, arguments: Mapping[str, object]) -> set[Key]:
    """What a request of an administrator may change."""
    user, host = arguments.get("user"), arguments.get("virtual_host")
    users, hosts = ([str(user)] if user else USERS), ([str(host)] if host else ("/", *HOSTS))
    keys: set[Key] = {("grant", each, name) for each in users for name in hosts}
    if service.startswith("user."):
        keys.add(("user", str(user)))
    if service.startswith("vhost."):
        keys |= {("vhost", str(host)), ("inside", str(host))}
    return keys


def run_seed(seed: int, steps: int = 40) -> int:
    """Returns how many faults there were; an AssertionError tells the seed."""
    logging.disable(logging.CRITICAL)
    history = None
    try:
        history = FaultyHistory(seed)
        history.run(steps)
    except Exception as failure:
        again = f"python -m tests.simulation.run --faults --seeds {seed}..{seed} --steps {steps}"
        raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}\n    {again}") from failure
    finally:
        INJECTOR.disarm()
        logging.disable(logging.NOTSET)
    return history.faults
