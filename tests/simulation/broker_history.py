"""One seed, one history: a whole broker on a faulty disk, its clients, and a model that watches.

Clients declare, publish, consume, settle and vanish; passes end when they like; the disk answers late,
fills up, fails, or goes dark in the middle of a write. What the broker writes is compared with the model
at once, what it promises when it leaves, and what it finds again in `recovered_check`.
"""

from __future__ import annotations

import logging
import random

from flintmq.config import Config
from flintmq.server.storage import recovered_broker
from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.wire import methods
from flintmq.wire.methods import Method
from flintmq.wire.output import Output

from .broker_client import Client, Event
from .broker_model import (
    READY,
    UNKNOWN,
    Commit,
    Copy,
    Held,
    Model,
    ModelChannel,
    ModelConsumer,
    ModelQueue,
)
from .journal_history import DIRECTORY, SimulatedClock
from .recovered_check import RecoveredCheck
from .simulated_disk import PowerLost, SimulatedDisk

CONFIG = Config()
EXCHANGES = ("amq.direct", "amq.fanout", "amq.topic", "x1", "x2", "x3")
QUEUES = ("q1", "q2", "q3", "q4")
KEYS = ("a.b", "a.c", "b")
PATTERNS = ("a.b", "a.c", "b", "a.*", "#")
CAPACITY = 1 << 40
CALM_ROUNDS_MAX = 60


class BrokerHistory:
    """Runs one seed; any broken promise is an AssertionError."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
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
        self.weights = [chance.choice((1, 1, 3)) for _ in ACTIONS]
        self.haste = chance.choice((0.1, 0.5, 0.9))  # how soon a pass ends
        self.sloth = chance.choice((0.1, 0.5, 0.9))  # how late the disk is
        self.numbers = 0
        self.sizes: dict[int, int] = {}
        self.lives = 0
        self.clients: list[Client] = []
        self.outbox: list[Output] = []
        self.model = Model()
        # Whatever went to disk: queue's number -> message's number -> place.
        self.ever: dict[int, dict[int, int]] = {}
        self.start()

    # Lives

    def start(self, is_rotten: bool = False) -> None:
        """Opens the broker on what the disk holds; the power may fail meanwhile, again and again.

        Not after a bit has flipped: what was mended is told once, by whoever has mended it.
        """
        while True:
            try:
                if self.chance.random() < 0.1 and not is_rotten:
                    self.disk.power_left = self.chance.randrange(20)
                self.broker, self.report = recovered_broker(
                    CONFIG, self.clock, _wake, DIRECTORY, self.disk, self.options
                )
                break
            except PowerLost:
                self.disk.crash()
        self.disk.power_left = None
        self.lives += 1
        self.host = self.broker.virtual_hosts["/"]
        store = self.broker.store
        assert store is not None
        self.store = store
        store.kept_messages, store.kept_bytes, store.kept_messages_lean = self.limits[:3]
        store.kept_bytes_lean, store.loaded_messages = self.limits[3:]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.step()
                self.check_counts()
            except PowerLost:
                self.listen(exact=False)
                self.crash(power=self.chance.random() < 0.7)
        self.finale()

    def finale(self) -> None:
        """Everything that should be there is handed out; then, after a clean stop, nothing is left."""
        self.calm()
        for client in list(self.clients):
            self.lose(client)
        self.connect()
        for name, queue in self.model.queues.items():
            while queue.ready():
                self.get(self.clients[0], self.clients[0].channels[1], name, no_ack=True)
            self.get(self.clients[0], self.clients[0].channels[1], name, no_ack=True)
        self.check_counts()
        self.clean_stop(may_rot=False)
        if self.options.sync is SyncPolicy.ALWAYS:
            assert not any(queue.copies for queue in self.model.queues.values())

    def crash(self, power: bool, floor: int | None = None, may_rot: bool = True) -> None:
        """Everything in memory is gone; the disk keeps what it keeps."""
        floor = self.store.synced if floor is None else floor
        for client in self.clients:
            client.output.release()
        self.clients.clear()
        self.outbox.clear()
        self.restore_disk()
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        rotten = may_rot and self.chance.random() < 0.05 and self.rot()
        self.start(rotten)
        is_strict = not rotten and (not power or self.options.sync is SyncPolicy.ALWAYS)
        check = RecoveredCheck(self.model, self.broker, self.report, floor, self.ever, self.body)
        self.model = check.run(is_strict, rotten and self.options.sync is SyncPolicy.ALWAYS)

    def clean_stop(self, may_rot: bool = True) -> None:
        """As the server does it."""
        sound = not self.is_faulty()
        for client in list(self.clients):
            self.lose(client)
        self.finish_pass()
        sound = sound and not self.store.alarm
        if self.options.sync is not SyncPolicy.ALWAYS:
            # The one sync at the end is all there is: what it loses nobody writes again.
            self.disk.sync_failures_left = 0
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
        self.disk.sync_failures_left = self.disk.write_failures_left = 0
        self.disk.power_left = None

    def is_faulty(self) -> bool:
        return bool(
            self.disk.capacity_octets != CAPACITY
            or self.disk.sync_failures_left
            or self.disk.write_failures_left
            or self.disk.power_left is not None
            or self.store.alarm
        )

    # Steps

    def step(self) -> None:
        way = self.chance.random()
        if way < 0.80:
            self.act()
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
            self.broker.shed()
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

    def act(self) -> None:
        if len(self.clients) < 2 and (not self.clients or self.chance.random() < 0.1):
            self.connect()
        client = self.chance.choice(self.clients)
        if not client.channels or (len(client.channels) < 2 and self.chance.random() < 0.1):
            self.open_channel(client)
        channel = client.channels[self.chance.choice(list(client.channels))]
        action = self.chance.choices(ACTIONS, self.weights)[0]
        for _ in range(self.chance.choice(REPEATS[action])):
            if channel.number in client.channels and client.channels[channel.number] is channel:
                getattr(self, action)(client, channel)

    def fault(self) -> None:
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
        self.broker.finish_pass()
        self.listen()
        self.model.end_pass(self.store.last())
        self.flush()

    def collect(self) -> None:
        self.store.collect()
        self.listen()
        self.flush()

    def tick(self) -> None:
        self.clock.now_s += self.chance.choice((0.005, 0.05, 0.3))
        self.store.tick()
        self.listen()
        self.flush()

    def flush(self) -> None:
        outbox = self.outbox[:]
        self.outbox.clear()
        for output in outbox:
            output.sender.hear(self.store.synced)

    def calm(self) -> None:
        """No more faults: soon everything is handed out, safe, and told."""
        self.restore_disk()
        for _ in range(CALM_ROUNDS_MAX):
            self.finish_pass()
            self.tick()
            self.collect()
            is_safe = self.store.synced == self.store.last() and not self.store.alarm
            if is_safe and not self.broker.has_work() and not self.outbox:
                break
        else:
            raise AssertionError(f"the broker does not come to rest; alarm: {self.store.alarm!r}")
        for client in self.clients:
            assert not client.unheard
            assert not client.output.barrier
            assert not client.output.pending()
            for channel in client.channels.values():
                assert channel.mode != "confirm" or channel.confirmed == channel.published, "not confirmed"
        for queue in self.model.queues.values():
            if queue.ready():
                for each in queue.consumers:
                    can_take = each.no_ack or not each.prefetch or each.outstanding < each.prefetch
                    assert not can_take, f"{each.tag} waits for what is in {queue.name}"

    def check_counts(self) -> None:
        assert set(self.host.queues) == set(self.model.queues)
        for name, queue in self.host.queues.items():
            model = self.model.queues[name]
            ready = len(model.ready())
            assert queue.message_count() == ready, f"{name} counts {queue.message_count()}, not {ready}"
            assert queue.unacked == model.out(), f"{name} has {queue.unacked} unacked, not {model.out()}"
            assert len(queue.consumers) == len(model.consumers)

    # Listening

    def listen(self, exact: bool = True) -> list[Event]:
        """Takes in all that was written: deliveries into the model, promises noted; the rest is returned."""
        deliveries: dict[ModelQueue, list[tuple[Event, ModelConsumer, Copy]]] = {}
        replies: list[Event] = []
        for client in self.clients:
            for event in client.written():
                method = event.method
                if isinstance(method, methods.BasicDeliver):
                    consumer = client.channels[event.channel].consumers[method.consumer_tag]
                    copy = self.copy_of(event, consumer.queue, method.redelivered)
                    self.take(event, method.delivery_tag, copy, consumer, consumer.no_ack)
                    deliveries.setdefault(consumer.queue, []).append((event, consumer, copy))
                elif isinstance(method, methods.BasicAck):
                    self.confirmed(client, client.channels[event.channel], method)
                elif isinstance(method, methods.BasicCancel):
                    channel = client.channels[event.channel]
                    assert channel.consumers.pop(method.consumer_tag).queue.deleted
                else:
                    replies.append(event)
        if exact:
            self.check_order(deliveries)
        return replies

    def check_order(self, deliveries: dict[ModelQueue, list[tuple[Event, ModelConsumer, Copy]]]) -> None:
        """Who got what first among several is not known; that nothing was passed over is."""
        for queue, handed_out in deliveries.items():
            last: dict[ModelConsumer, int] = {}
            for _, consumer, copy in handed_out:
                assert last.get(consumer, 0) < copy.place, f"{copy.number} of {queue.name} is out of order"
                last[consumer] = copy.place
            ready = queue.ready()
            assert not ready or ready[0].place > max(last.values()), f"{ready[0].number} was passed over"

    def copy_of(self, event: Event, queue: ModelQueue, redelivered: bool) -> Copy:
        number = int(event.body[: event.body.index(b".")])
        assert event.body == self.body(number), f"{number} was changed"
        copy = queue.copies.get(number)
        assert copy is not None, f"{number} is not in {queue.name}"
        assert copy.state is READY, f"{number} of {queue.name} is handed out twice"
        assert redelivered == copy.redelivered, f"{number} says redelivered={redelivered}"
        return copy

    def take(self, event: Event, tag: int, copy: Copy, consumer: ModelConsumer | None, no_ack: bool) -> None:
        channel = event.client.channels[event.channel]
        channel.last_tag += 1
        assert tag == channel.last_tag
        if no_ack:
            self.model.settle(copy)
        else:
            self.model.hand_out(copy, Held(copy, consumer), channel, tag)

    def confirmed(self, client: Client, channel: ModelChannel, method: methods.BasicAck) -> None:
        assert channel.confirmed < method.delivery_tag <= channel.published
        assert method.multiple or method.delivery_tag == channel.confirmed + 1
        for number in range(channel.confirmed + 1, method.delivery_tag + 1):
            client.unheard.append((f"confirm {number}", channel.sequences.pop(number, 0)))
        channel.confirmed = method.delivery_tag

    def ask(self, client: Client, channel: ModelChannel, method: Method, answer: type[Method]) -> Event:
        client.say(channel.number, method)
        replies = self.listen(exact=False)
        assert len(replies) == 1, f"{method} is answered by {replies}"
        assert type(replies[0].method) is answer, f"{method} is answered by {replies[0].method}"
        assert replies[0].client is client
        assert replies[0].channel == channel.number
        return replies[0]

    # What clients do: connections and channels

    def connect(self) -> None:
        client = Client(self.broker, self.outbox)
        self.clients.append(client)
        self.open_channel(client)

    def lose(self, client: Client) -> None:
        self.clients.remove(client)
        client.drop()
        for channel in client.channels.values():
            self.model.close_channel(channel)

    def lose_connection(self, client: Client, channel: ModelChannel) -> None:
        if self.chance.random() < 0.4:
            self.lose(client)
            client.channels.clear()

    def open_channel(self, client: Client) -> None:
        channel = ModelChannel(1 if 1 not in client.channels else 2)
        client.channels[channel.number] = channel
        self.ask(client, channel, methods.ChannelOpen(), methods.ChannelOpenOk)
        mode = self.chance.randrange(4)
        if mode <= 1:
            channel.mode = "confirm"
            self.ask(client, channel, methods.ConfirmSelect(), methods.ConfirmSelectOk)
        elif mode == 2:
            channel.mode = "tx"
            self.ask(client, channel, methods.TxSelect(), methods.TxSelectOk)
        channel.prefetch = self.chance.choice((0, 1, 2, 5))
        if channel.prefetch:
            qos = methods.BasicQos(prefetch_count=channel.prefetch)
            self.ask(client, channel, qos, methods.BasicQosOk)

    def close_channel(self, client: Client, channel: ModelChannel) -> None:
        """By asking for it, or by a mistake."""
        if self.chance.random() < 0.5:
            self.ask(client, channel, methods.ChannelClose(), methods.ChannelCloseOk)
        else:
            wrong = methods.BasicAck(delivery_tag=channel.last_tag + 1)
            self.ask(client, channel, wrong, methods.ChannelClose)
            client.say(channel.number, methods.ChannelCloseOk())
        self.model.close_channel(channel)
        del client.channels[channel.number]

    # Wiring

    def tell(self, client: Client, what: str, *keys: tuple[str, ...]) -> None:
        """The answer just written promises that these are on disk as they are now."""
        client.unheard.append((what, max((self.model.sequence_of(key) for key in keys), default=0)))

    def declare_queue(self, client: Client, channel: ModelChannel) -> None:
        name = self.chance.choice(QUEUES)
        known = self.model.queues.get(name)
        durable = self.chance.random() < 0.75 if known is None else known.number != 0
        method = methods.QueueDeclare(queue=name, durable=durable)
        answer = self.ask(client, channel, method, methods.QueueDeclareOk).method
        if known is None:
            queue = ModelQueue(name, self.host.queues[name].number)
            assert bool(queue.number) == durable
            if durable:
                self.ever[queue.number] = {}
            self.model.add_queue(queue, self.store.last())
        assert answer.message_count == len(self.model.queues[name].ready())  # type: ignore[attr-defined]
        self.tell(client, f"queue {name}", ("queue", name))

    def declare_exchange(self, client: Client, channel: ModelChannel) -> None:
        name = self.chance.choice(EXCHANGES[3:])
        known = self.model.exchanges.get(name)
        kind, durable = known or (
            self.chance.choice(("direct", "fanout", "topic")),
            self.chance.random() < 0.7,
        )
        method = methods.ExchangeDeclare(exchange=name, type=kind, durable=durable)
        self.ask(client, channel, method, methods.ExchangeDeclareOk)
        if known is None:
            self.model.add_exchange(name, kind, durable, self.store.last())
        self.tell(client, f"exchange {name}", ("exchange", name))

    def known_exchanges(self) -> list[str]:
        return [*EXCHANGES[:3], *self.model.exchanges]

    def bind(self, client: Client, channel: ModelChannel) -> None:
        if not self.model.queues:
            self.declare_queue(client, channel)
        key = (
            "binding",
            self.chance.choice(self.known_exchanges()),
            self.chance.choice(list(self.model.queues)),
            self.chance.choice(PATTERNS),
        )
        if key in self.model.bindings and self.chance.random() < 0.5:
            unbind = methods.QueueUnbind(exchange=key[1], queue=key[2], routing_key=key[3])
            self.ask(client, channel, unbind, methods.QueueUnbindOk)
            self.model.unbind(key, self.store.last())
        else:
            bind = methods.QueueBind(exchange=key[1], queue=key[2], routing_key=key[3])
            self.ask(client, channel, bind, methods.QueueBindOk)
            if key not in self.model.bindings:
                self.model.bind(key, self.store.last())
        self.tell(client, f"{key}", key)

    def delete(self, client: Client, channel: ModelChannel) -> None:
        if self.chance.random() < 0.5 and self.model.exchanges:
            name = self.chance.choice(list(self.model.exchanges))
            self.ask(client, channel, methods.ExchangeDelete(exchange=name), methods.ExchangeDeleteOk)
            self.model.delete_exchange(name, self.store.last())
            self.tell(client, f"no exchange {name}", ("exchange", name))
        elif self.model.queues:
            name = self.chance.choice(list(self.model.queues))
            queue = self.model.queues[name]
            count = len(queue.ready())
            queue.deleted = True
            method = methods.QueueDelete(queue=name)
            answer = self.ask(client, channel, method, methods.QueueDeleteOk).method
            assert answer.message_count == count  # type: ignore[attr-defined]
            self.model.delete_queue(name, self.store.last())
            self.tell(client, f"no queue {name}", ("queue", name))

    def purge(self, client: Client, channel: ModelChannel) -> None:
        if not self.model.queues:
            return
        name = self.chance.choice(list(self.model.queues))
        ready = self.model.queues[name].ready()
        answer = self.ask(client, channel, methods.QueuePurge(queue=name), methods.QueuePurgeOk).method
        assert answer.message_count == len(ready)  # type: ignore[attr-defined]
        for copy in ready:
            self.model.settle(copy)

    # Messages

    def body(self, number: int) -> bytes:
        return (b"%d." % number) * self.sizes[number]

    def publish(self, client: Client, channel: ModelChannel) -> None:
        exchange = self.chance.choice(("", "", *self.known_exchanges()))
        key = self.chance.choice(KEYS if exchange else QUEUES)
        persistent = self.chance.random() < 0.75
        self.numbers += 1
        number = self.numbers
        self.sizes[number] = self.chance.choice((1, 1, 10, 100, 400))
        client.publish(channel.number, exchange, key, self.body(number), persistent)
        if channel.mode == "tx":
            channel.gathered.append((exchange, key, number, persistent))
            return
        queues = self.model.route(exchange, key)
        copies = self.enqueue(number, queues, persistent)
        if channel.mode == "confirm":
            channel.published += 1
            if copies:
                channel.sequences[channel.published] = self.store.last()

    def enqueue(self, number: int, queues: list[ModelQueue], persistent: bool) -> list[Copy]:
        copies = self.model.enqueue(number, queues, persistent, self.store.last())
        for copy in copies:
            self.ever[copy.queue.number][number] = copy.place
        return copies

    def consume(self, client: Client, channel: ModelChannel) -> None:
        if not self.model.queues or len(channel.consumers) > 2:
            return
        tag = next(tag for tag in "abcd" if tag not in channel.consumers)
        queue = self.model.queues[self.chance.choice(list(self.model.queues))]
        no_ack = self.chance.random() < 0.2
        method = methods.BasicConsume(queue=queue.name, consumer_tag=tag, no_ack=no_ack)
        self.ask(client, channel, method, methods.BasicConsumeOk)
        channel.consumers[tag] = ModelConsumer(tag, queue, no_ack, channel.prefetch)
        queue.consumers.append(channel.consumers[tag])

    def cancel(self, client: Client, channel: ModelChannel) -> None:
        if channel.consumers:
            tag = self.chance.choice(list(channel.consumers))
            self.ask(client, channel, methods.BasicCancel(consumer_tag=tag), methods.BasicCancelOk)
            consumer = channel.consumers.pop(tag)
            consumer.queue.consumers.remove(consumer)

    def get_some(self, client: Client, channel: ModelChannel) -> None:
        if self.model.queues:
            name = self.chance.choice(list(self.model.queues))
            self.get(client, channel, name, no_ack=self.chance.random() < 0.3)

    def get(self, client: Client, channel: ModelChannel, name: str, no_ack: bool) -> None:
        queue = self.model.queues[name]
        ready = queue.ready()
        method = methods.BasicGet(queue=name, no_ack=no_ack)
        if not ready:
            self.ask(client, channel, method, methods.BasicGetEmpty)
            return
        event = self.ask(client, channel, method, methods.BasicGetOk)
        answer = event.method
        assert isinstance(answer, methods.BasicGetOk)
        copy = self.copy_of(event, queue, answer.redelivered)
        assert copy is ready[0], f"{copy.number} was given before {ready[0].number}"
        assert answer.message_count == len(ready) - 1
        self.take(event, answer.delivery_tag, copy, None, no_ack)

    def settle(self, client: Client, channel: ModelChannel) -> None:
        free = channel.free_tags()
        if not free:
            return
        tag = self.chance.choice(free)
        multiple = self.chance.random() < 0.3
        way = self.chance.choice(("ack", "ack", "ack", "reject", "requeue"))
        if way == "ack":
            client.say(channel.number, methods.BasicAck(delivery_tag=tag, multiple=multiple))
        else:
            nack = methods.BasicNack(delivery_tag=tag, multiple=multiple, requeue=way == "requeue")
            client.say(channel.number, nack)
        tags = [each for each in free if each <= tag] if multiple else [tag]
        if channel.mode == "tx":
            channel.settling.update(dict.fromkeys(tags, way))
            return
        for each in tags:
            if way == "requeue":
                self.model.put_back(channel, each)
            else:
                self.model.settle(self.model.release(channel, each))

    def recover(self, client: Client, channel: ModelChannel) -> None:
        requeue = self.chance.random() < 0.6
        for tag in channel.free_tags():
            self.model.put_back(channel, tag)
        self.ask(client, channel, methods.BasicRecover(requeue=requeue), methods.BasicRecoverOk)

    def end_transaction(self, client: Client, channel: ModelChannel) -> None:
        if channel.mode != "tx":
            return
        if self.chance.random() < 0.25:
            self.ask(client, channel, methods.TxRollback(), methods.TxRollbackOk)
            channel.gathered.clear()
            channel.settling.clear()
            return
        self.ask(client, channel, methods.TxCommit(), methods.TxCommitOk)
        commit = Commit(self.store.last())
        for exchange, key, number, persistent in channel.gathered:
            if not exchange or exchange in self.known_exchanges():
                commit.published += self.enqueue(number, self.model.route(exchange, key), persistent)
        for tag, way in channel.settling.items():
            if way == "requeue":
                self.model.put_back(channel, tag)
            else:
                copy = self.model.release(channel, tag)
                self.model.settle(copy, commit.sequence)
                if copy.sequence:
                    commit.settled.append(copy)
        channel.gathered.clear()
        channel.settling.clear()
        self.model.commits.append(commit)
        client.unheard.append(("commit", commit.sequence if commit.published or commit.settled else 0))


# How often an action is done when it is chosen.
REPEATS = {
    "declare_queue": (1, 2),
    "declare_exchange": (1, 1),
    "bind": (1, 3),
    "delete": (0, 0, 1),
    "purge": (0, 0, 1),
    "publish": (1, 3, 10),
    "consume": (1, 1),
    "cancel": (0, 1),
    "get_some": (1, 3),
    "settle": (1, 4),
    "recover": (0, 1),
    "end_transaction": (1, 1),
    "close_channel": (0, 0, 1),
    "lose_connection": (0, 1),
}
ACTIONS = (*REPEATS, "publish", "publish", "settle", "settle", "end_transaction")


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
