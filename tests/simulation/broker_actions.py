"""What simulated clients do to a broker, each thing beside what the model makes of it.

ask        a method, and the one that must answer it at once
listen     all that the broker has written: deliveries go into the model, promises are noted
"""

from __future__ import annotations

import random

from flintmq.broker.broker import Broker
from flintmq.broker.store.store import Store
from flintmq.broker.virtual_host import VirtualHost
from flintmq.protocol.outbox import Output
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method
from flintmq.wire.properties import BasicProperties

from .broker_client import Client, Event
from .broker_model import (
    DELAYED,
    READY,
    Commit,
    Copy,
    Held,
    Model,
    ModelChannel,
    ModelConsumer,
    ModelQueue,
    ModelStream,
)
from .ruled_queues import MORGUE, MORGUES, RULES, RuledQueues, arguments_of

GOT = (methods.BasicGetOk, methods.BasicGetEmpty)
LATER = "later"  # the one that delays
CLOSING = "closing"  # the mode of a channel that the broker is to close
EXCHANGES = ("amq.direct", "amq.fanout", "amq.topic", "x1", "x2", "x3", LATER)
DELAYS_MS = (0, 10, 10, 100, 2000, 3_600_000)
PLAIN_QUEUES = ("q1", "q2", "q3", "q4")
PUBLIC_QUEUES = (*PLAIN_QUEUES, *RULES)
KEYS = ("a.b", "a.c", "b")
PATTERNS = ("a.b", "a.c", "b", "a.*", "#")


class Actions(RuledQueues):
    """The clients of a history."""

    chance: random.Random
    broker: Broker
    store: Store
    host: VirtualHost
    model: Model
    clients: list[Client]
    outbox: list[Output]
    numbers: int
    publishing: int
    committing: set[int]
    sizes: dict[int, int]
    ever: dict[int, dict[int, int]]
    groups: list[set[int]]
    sent: dict[int, tuple[str, str, bool]]
    delays: dict[int, int]
    dtx_share: float
    stream_share: int
    later_share: float
    queue_names: list[str]  # that this history has; few of them are fuller

    # Listening

    def listen(self, exact: bool = True, later: bool = False, was_cut: bool = False) -> list[Event]:
        """Takes in all that was written: deliveries into the model, promises noted; the rest is returned.

        `later`: deliveries wait for the next time, when the model knows what brought them about.
        `was_cut`: the power has failed, and nobody hears of deliveries that the action in hand has brought.
        """
        in_hand = self.in_hand() if was_cut else set()
        deliveries: dict[ModelQueue, list[tuple[Event, ModelConsumer, Copy]]] = {}
        replies: list[Event] = []
        for client in self.clients:
            waiting, client.postponed = client.postponed, []
            for event in [*waiting, *client.written()]:
                method = event.method
                if isinstance(method, methods.BasicDeliver) and later:
                    client.postponed.append(event)
                elif isinstance(method, methods.BasicDeliver) and number_of(event) in in_hand:
                    client.channels[event.channel].last_tag += 1
                elif isinstance(method, methods.BasicDeliver):
                    consumer = client.channels[event.channel].consumers[method.consumer_tag]
                    copy = self.copy_of(event, consumer.queue, method.redelivered)
                    self.take(event, method.delivery_tag, copy, consumer, consumer.no_ack)
                    deliveries.setdefault(consumer.queue, []).append((event, consumer, copy))
                elif isinstance(method, methods.BasicAck):
                    self.confirmed(client, client.channels[event.channel], method)
                elif isinstance(method, methods.BasicCancel):
                    channel = client.channels[event.channel]
                    # The client may have cancelled it meanwhile: the two cross.
                    consumer = channel.consumers.pop(method.consumer_tag, None)
                    assert consumer is None or consumer.queue.deleted
                elif (
                    isinstance(method, methods.ChannelClose)
                    and client.channels[event.channel].mode == CLOSING
                ):
                    self.closed(client, client.channels[event.channel])
                else:
                    replies.append(event)
        if exact:
            self.reconcile()
            self.check_order(deliveries)
        return replies

    def in_hand(self) -> set[int]:
        """Messages that the broker was publishing or committing when the power failed.

        A consumer that waits gets one that lives for a moment at once, before the model knows of it.
        """
        handed_over = {each[2] for branch in self.model.decided for each in branch.gathered[branch.applied :]}
        return {self.publishing} | self.committing | handed_over

    def check_order(self, deliveries: dict[ModelQueue, list[tuple[Event, ModelConsumer, Copy]]]) -> None:
        """Who got what first among several is not known; that nothing was passed over is."""
        for queue, handed_out in deliveries.items():
            last: dict[ModelConsumer, int] = {}
            if "x-max-priority" in arguments_of(queue.name) or queue.name in MORGUES:
                continue  # more of it may have come meanwhile; the order of letters is not known
            for _, consumer, copy in handed_out:
                assert consumer not in last or last[consumer] < copy.place, (
                    f"{copy.number} of {queue.name} is out of order"
                )
                last[consumer] = copy.place
            ready = [copy for copy in queue.ready() if not self.is_expired(copy)]
            assert not ready or ready[0].place > max(last.values()), f"{ready[0].number} was passed over"

    def copy_of(self, event: Event, queue: ModelQueue, redelivered: bool) -> Copy:
        number = number_of(event)
        assert event.body == self.body(number), f"{number} was changed"
        copy = queue.copies.get(number)
        if copy is None and queue.name in MORGUES:
            copy = self.letter_in(queue, number)
        assert copy is not None, f"{number} is not in {queue.name}"
        assert copy.state is READY, f"{number} of {queue.name} is handed out twice"
        assert redelivered == copy.redelivered, f"{number} says redelivered={redelivered}"
        assert redelivered or not self.is_expired(copy), f"{number} has expired"
        return copy

    def take(self, event: Event, tag: int, copy: Copy, consumer: ModelConsumer | None, no_ack: bool) -> None:
        channel = event.client.channels[event.channel]
        channel.last_tag += 1
        assert tag == channel.last_tag
        event.client.unheard_copies.append(copy)
        if no_ack:
            self.model.settle(copy)
        else:
            self.model.hand_out(copy, Held(copy, consumer), channel, tag)

    def confirmed(self, client: Client, channel: ModelChannel, method: methods.BasicAck) -> None:
        assert channel.confirmed < method.delivery_tag <= channel.published
        assert method.multiple or method.delivery_tag == channel.confirmed + 1
        for number in range(channel.confirmed + 1, method.delivery_tag + 1):
            client.unheard.append((f"confirm {number}", channel.sequences.pop(number, 0)))
            client.unheard_offsets += channel.offsets.pop(number, [])
        channel.confirmed = method.delivery_tag

    def ask(
        self,
        client: Client,
        channel: ModelChannel,
        method: Method,
        answer: type[Method],
        later: bool = False,
    ) -> Event:
        client.say(channel.number, method)
        replies = self.listen(exact=False, later=later)
        assert len(replies) == 1, f"{method} is answered by {replies}"
        assert type(replies[0].method) is answer, f"{method} is answered by {replies[0].method}"
        assert replies[0].client is client
        assert replies[0].channel == channel.number
        return replies[0]

    # What clients do: connections and channels

    def make_client(self, publishes: bool) -> Client:
        return Client(self.broker, self.outbox, publishes=publishes)

    def connect(self) -> None:
        client = self.make_client(publishes=self.chance.random() < 0.75)
        self.clients.append(client)
        self.open_channel(client)

    def lose(self, client: Client) -> None:
        # While one of its channels closes, what comes back by it to a queue at its limit may be handed to
        # another of them. Without acks nobody could tell what became of that, so it is cancelled first.
        for channel in client.channels.values():
            for tag, consumer in list(channel.consumers.items()):
                if consumer.no_ack and "x-max-length" in arguments_of(consumer.queue.name):
                    self.cancel_one(client, channel, tag)
        self.clients.remove(client)
        client.drop()
        for channel in client.channels.values():
            self.close_model_channel(channel)
        self.listen(exact=False)
        self.reconcile()

    def lose_connection(self, client: Client, channel: ModelChannel) -> None:
        if self.chance.random() < 0.4:
            self.lose(client)
            client.channels.clear()

    def open_channel(self, client: Client) -> None:
        channel = ModelChannel(1 if 1 not in client.channels else 2)
        client.channels[channel.number] = channel
        self.ask(client, channel, methods.ChannelOpen(), methods.ChannelOpenOk)
        mode = (
            3 if self.chance.random() < self.dtx_share else self.chance.randrange(4 if self.dtx_share else 3)
        )
        if mode <= 1:
            channel.mode = "confirm"
            self.ask(client, channel, methods.ConfirmSelect(), methods.ConfirmSelectOk)
        elif mode == 2:
            channel.mode = "tx"
            self.ask(client, channel, methods.TxSelect(), methods.TxSelectOk)
        elif mode == 3:
            channel.mode = "dtx"
            self.ask(client, channel, methods.DtxDemarcationSelect(), methods.DtxDemarcationSelectOk)
        channel.prefetch = self.chance.choice((0, 1, 2, 5))
        if channel.prefetch:
            qos = methods.BasicQos(prefetch_count=channel.prefetch)
            self.ask(client, channel, qos, methods.BasicQosOk)

    def close_channel(self, client: Client, channel: ModelChannel) -> None:
        """By asking for it, or by a mistake.

        What comes back by it to a queue at its limit may be handed to others at once.
        """
        if self.chance.random() < 0.5:
            self.ask(client, channel, methods.ChannelClose(), methods.ChannelCloseOk, later=True)
            self.close_model_channel(channel)
            del client.channels[channel.number]
            return
        channel.mode = CLOSING
        client.say(channel.number, methods.BasicAck(delivery_tag=channel.last_tag + 1))
        assert not self.listen(exact=False, later=True)
        self.close_model_channel(channel)
        if channel.confirmed == channel.published:
            assert channel.number not in client.channels, "the channel is not closed"

    def closed(self, client: Client, channel: ModelChannel) -> None:
        """The broker has closed the channel for a mistake; what was published before that is safe."""
        assert channel.confirmed == channel.published, "closed before all was confirmed"
        del client.channels[channel.number]
        client.say(channel.number, methods.ChannelCloseOk())

    def close_model_channel(self, channel: ModelChannel) -> None:
        for copy in self.model.close_channel(channel):
            self.come_back(copy)

    # Topology

    def tell(self, client: Client, what: str, *keys: tuple[str, ...]) -> None:
        """The answer just written promises that these are on disk as they are now."""
        client.unheard.append((what, max((self.model.sequence_of(key) for key in keys), default=0)))

    def declare_queue(self, client: Client, channel: ModelChannel) -> None:
        name = self.chance.choice(self.queue_names)
        if name in RULES and self.chance.random() < 0.3:
            name = MORGUE + name
        known = self.model.queues.get(name)
        durable = self.chance.random() < 0.75 if known is None else known.number != 0
        method = methods.QueueDeclare(queue=name, durable=durable, arguments=arguments_of(name))
        answer = self.ask(client, channel, method, methods.QueueDeclareOk).method
        self.reconcile()  # consumers that waited have had theirs, and what has expired before that is gone
        if known is None:
            queue = ModelQueue(name, self.host.queues[name].number)
            assert bool(queue.number) == durable
            if durable:
                self.ever[queue.number] = {}
            self.model.add_queue(queue, self.store.last())
        assert answer.message_count == len(self.model.queues[name].ready())  # type: ignore[attr-defined]
        self.tell(client, f"queue {name}", ("queue", name))

    def declare_exchange(self, client: Client, channel: ModelChannel, name: str = "") -> None:
        name = name or self.chance.choice(EXCHANGES[3:])
        known = self.model.exchanges.get(name)
        kind = self.chance.choice(("direct", "fanout", "topic"))
        kind, durable = known or (
            DELAYED + kind if name == LATER else kind,
            self.chance.random() < 0.7,
        )
        arguments = {"x-delayed-type": kind.removeprefix(DELAYED)} if name == LATER else {}
        method = methods.ExchangeDeclare(
            exchange=name, type=kind.partition(":")[0], durable=durable, arguments=arguments
        )
        self.ask(client, channel, method, methods.ExchangeDeclareOk)
        if known is None:
            self.model.add_exchange(name, kind, durable, self.store.last())
            if name == LATER:
                self.hold_delayed(name)
        self.tell(client, f"exchange {name}", ("exchange", name))

    def known_exchanges(self) -> list[str]:
        return [*EXCHANGES[:3], *self.model.exchanges]

    def bind(self, client: Client, channel: ModelChannel) -> None:
        names = [name for name in (*self.model.queues, *self.model.streams) if name not in MORGUES]
        if not names:
            return
        exchange = self.chance.choice(self.known_exchanges())
        if LATER in self.model.exchanges and self.chance.random() < self.later_share:
            exchange = LATER
        key = (
            "binding",
            exchange,
            self.chance.choice(names),
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
            is_behind = self.host.queues[name].dirty
            queue.deleted = True
            method = methods.QueueDelete(queue=name)
            answer = self.ask(client, channel, method, methods.QueueDeleteOk).method
            if not self.is_blind():  # else what has expired may be there still
                self.catch_up(queue, is_behind)
                assert answer.message_count == len(queue.ready())  # type: ignore[attr-defined]
            self.model.delete_queue(name, self.store.last())
            self.tell(client, f"no queue {name}", ("queue", name))

    def purge(self, client: Client, channel: ModelChannel) -> None:
        if not self.model.queues:
            return
        name = self.chance.choice(list(self.model.queues))
        queue = self.model.queues[name]
        is_behind = self.host.queues[name].dirty
        answer = self.ask(client, channel, methods.QueuePurge(queue=name), methods.QueuePurgeOk).method
        if not self.is_blind():  # else what has expired may have been there still
            self.catch_up(queue, is_behind)
            assert answer.message_count == len(queue.ready())  # type: ignore[attr-defined]
        for copy in queue.ready():
            self.model.settle(copy)

    def catch_up(self, queue: ModelQueue, is_behind: bool) -> None:
        """Consumers that waited have had theirs before the answer; what was in their way has expired."""
        if is_behind:
            self.expire_heads(queue)

    # Messages

    def body(self, number: int) -> bytes:
        return (b"%d." % number) * self.sizes[number]

    def publish(self, client: Client, channel: ModelChannel) -> None:
        if not client.publishes:
            return
        exchange = self.chance.choice(("", "", *self.known_exchanges()))
        if LATER in self.model.exchanges and self.chance.random() < self.later_share:
            exchange = LATER
        key = self.chance.choice(KEYS if exchange else [*self.queue_names, *self.model.streams])
        persistent = self.chance.random() < 0.75
        self.numbers += 1
        number = self.numbers
        self.sizes[number] = self.chance.choice((1, 1, 10, 100, 400))
        self.persistent[number] = persistent
        priority = self.chance.choice((None, None, 1, 2, 9))
        if priority is not None:
            self.priorities[number] = priority
        expiration = self.chance.choice((None, None, None, 50, 1000))
        if expiration is not None:
            self.expirations[number] = expiration
        headers = None
        if exchange == LATER and self.chance.random() < 0.8:
            self.delays[number] = self.chance.choice(DELAYS_MS)
            headers = {"x-delay": self.delays[number]}
        properties = None
        if priority is not None or expiration is not None or headers is not None:
            properties = BasicProperties(
                priority=priority,
                expiration=None if expiration is None else str(expiration),
                headers=headers,
            )
        self.sent[number] = (exchange, key, persistent)
        self.publishing = number  # the power may fail before the broker is done with it
        client.publish(channel.number, exchange, key, self.body(number), persistent, properties)
        self.publishing = 0
        if channel.mode == "tx":
            channel.gathered.append((exchange, key, number, persistent))
            return
        if channel.branch is not None:
            channel.branch.gathered.append((exchange, key, number, persistent))
            return
        ends = self.stream_ends()
        copies = self.route_out(number, exchange, key, persistent)
        if channel.mode == "confirm":
            channel.published += 1
            if copies:
                channel.sequences[channel.published] = self.store.last()
            channel.offsets[channel.published] = self.stream_ends_since(ends)

    def stream_ends(self) -> dict[ModelStream, int]:
        return {stream: len(stream.numbers) for stream in self.model.streams.values()}

    def stream_ends_since(self, before: dict[ModelStream, int]) -> list[tuple[ModelStream, int]]:
        """Those that have grown, and where they end now."""
        return [(stream, end) for stream, end in self.stream_ends().items() if end > before[stream]]

    def route_out(self, number: int, exchange: str, key: str, persistent: bool) -> list[Copy]:
        """A message takes its way, now; those of its copies that go to disk."""
        raise NotImplementedError

    def hold_delayed(self, name: str) -> None:
        """An exchange that delays was declared."""
        raise NotImplementedError

    def consume(self, client: Client, channel: ModelChannel) -> None:
        if not self.model.queues or len(channel.consumers) > 2:
            return
        tag = next(tag for tag in "abcd" if tag not in channel.consumers)
        queue = self.model.queues[self.chance.choice(list(self.model.queues))]
        no_ack = self.chance.random() < 0.2
        # One that never publishes refuses nothing by it, but is served by another way of handing out.
        no_local = not client.publishes and self.chance.random() < 0.5
        method = methods.BasicConsume(queue=queue.name, consumer_tag=tag, no_ack=no_ack, no_local=no_local)
        self.ask(client, channel, method, methods.BasicConsumeOk)
        channel.consumers[tag] = ModelConsumer(tag, queue, no_ack, channel.prefetch)
        queue.consumers.append(channel.consumers[tag])

    def cancel(self, client: Client, channel: ModelChannel) -> None:
        if channel.consumers:
            self.cancel_one(client, channel, self.chance.choice(list(channel.consumers)))

    def cancel_one(self, client: Client, channel: ModelChannel, tag: str) -> None:
        self.ask(client, channel, methods.BasicCancel(consumer_tag=tag), methods.BasicCancelOk)
        consumer = channel.consumers.pop(tag, None)
        if consumer is not None:  # else its queue went first
            consumer.queue.consumers.remove(consumer)

    def get_some(self, client: Client, channel: ModelChannel) -> None:
        if self.model.queues:
            name = self.chance.choice(list(self.model.queues))
            self.get(client, channel, name, no_ack=self.chance.random() < 0.3)

    def get(self, client: Client, channel: ModelChannel, name: str, no_ack: bool) -> None:
        queue = self.model.queues[name]
        client.say(channel.number, methods.BasicGet(queue=name, no_ack=no_ack))
        events = self.listen(exact=False)  # consumers that waited have had theirs first
        if self.is_blind() and not any(isinstance(each.method, GOT) for each in events):
            self.refused_to_read(client, channel, events)
            return
        [event] = events
        self.expire_heads(queue)  # which the broker has done just now
        ready = queue.ready()
        answer = event.method
        if not ready:
            assert isinstance(answer, methods.BasicGetEmpty), f"{name} has {answer}"
            return
        assert isinstance(answer, methods.BasicGetOk), f"{name} gives {answer}, not {ready[0].number}"
        copy = self.copy_of(event, queue, answer.redelivered)
        assert copy is ready[0] or name in MORGUES, f"{copy.number} was given before {ready[0].number}"
        self.take(event, answer.delivery_tag, copy, None, no_ack)
        if self.is_blind():
            self.reconcile()  # what is behind may have expired, or be on a disk that cannot be read
            return
        self.expire_heads(queue)
        assert answer.message_count == len(queue.ready())

    def refused_to_read(self, client: Client, channel: ModelChannel, events: list[Event]) -> None:
        """The next message cannot be read now, and waits; the channel ends when all is confirmed."""
        channel.mode = CLOSING
        self.close_model_channel(channel)
        for event in events:
            assert isinstance(event.method, methods.ChannelClose), f"answered by {event.method}"
            assert event.method.reply_code == amqp.RESOURCE_ERROR, f"refused by {event.method}"
            self.closed(client, channel)
        assert events or channel.confirmed < channel.published, "nothing answers a get"
        self.reconcile()

    def is_blind(self) -> bool:
        """Whether the broker cannot read, or has not looked yet whether it can again."""
        raise NotImplementedError

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
        if channel.branch is not None:
            channel.settling.update(dict.fromkeys(tags, way))
            channel.branch.settling.update(dict.fromkeys(tags, way))
            return
        for each in tags:
            if way == "requeue":
                self.come_back(self.model.put_back(channel, each))
            elif way == "reject":
                self.die(self.model.release(channel, each), "rejected")
            else:
                self.model.settle(self.model.release(channel, each))

    def recover(self, client: Client, channel: ModelChannel) -> None:
        requeue = self.chance.random() < 0.6
        client.say(channel.number, methods.BasicRecover(requeue=requeue))
        for tag in channel.free_tags():
            consumer = channel.unacked[tag].consumer
            is_kept = not requeue and consumer is not None and consumer in channel.consumers.values()
            copy = self.model.put_back(channel, tag)
            if is_kept:
                copy.returns += 1  # the same consumer has it again
            else:
                self.come_back(copy)
        [reply] = self.listen(exact=False)
        assert isinstance(reply.method, methods.BasicRecoverOk), f"a recover is answered by {reply.method}"

    def end_transaction(self, client: Client, channel: ModelChannel) -> None:
        if channel.mode != "tx":
            return
        if self.chance.random() < 0.25:
            self.ask(client, channel, methods.TxRollback(), methods.TxRollbackOk)
            channel.gathered.clear()
            channel.settling.clear()
            return
        # A queue at its limit hands out what it gets by the commit, before anybody hears of it.
        self.committing = {number for _, _, number, _ in channel.gathered}
        client.say(channel.number, methods.TxCommit())
        self.committing = set()
        commit = Commit(self.store.last())
        ends = self.stream_ends()
        for exchange, key, number, persistent in channel.gathered:
            if not exchange or exchange in self.known_exchanges():
                commit.published += self.route_out(number, exchange, key, persistent)
        for tag, way in channel.settling.items():
            if way == "requeue":
                self.come_back(self.model.put_back(channel, tag))
                continue
            copy = self.model.release(channel, tag)
            if way == "reject":
                letter = self.die(copy, "rejected", commit.sequence)
                if letter is not None:
                    commit.published.append(letter)
            else:
                self.model.settle(copy, commit.sequence)
            if copy.sequence:
                commit.settled.append(copy)
        channel.gathered.clear()
        channel.settling.clear()
        [reply] = self.listen(exact=False)
        assert isinstance(reply.method, methods.TxCommitOk), f"a commit is answered by {reply.method}"
        self.model.commits.append(commit)
        self.groups.append({copy.number for copy in commit.published})
        client.unheard.append(("commit", commit.sequence if commit.published or commit.settled else 0))
        client.unheard_offsets += self.stream_ends_since(ends)


def number_of(event: Event) -> int:
    return int(event.body[: event.body.index(b".")])


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
    "declare_stream": (1, 1),
    "read_stream": (1, 1),
    "lease": (1, 1, 2),
    "read_lease": (1, 1),
    "ack_lease": (1, 1),
    "tend_lease": (0, 1),
    "demarcate": (1, 1),
    "coordinate": (1, 1, 2),
    "close_channel": (0, 0, 1),
    "lose_connection": (0, 1),
}
# What a disk that cannot be read refuses, as a whole or in part: histories with bugs have that.
READING = {"read_stream", "lease", "read_lease", "ack_lease", "tend_lease", "demarcate", "coordinate"}
ACTIONS = (*REPEATS, "publish", "publish", "settle", "settle", "end_transaction", "demarcate", "coordinate")
