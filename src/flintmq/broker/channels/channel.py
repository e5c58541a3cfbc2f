"""A channel as the broker sees it: what the client publishes, consumes and settles on it.

unacked.py keeps the deliveries that the client has to settle, confirms.py knows which publishes wait for a
confirm. A channel writes into the output of its connection; it knows nothing of sockets or protocol states.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.auth import Heeded, Operation, require
from flintmq.broker.channels import publish_checks, routing_permissions, teardown
from flintmq.broker.channels.confirms import Confirms
from flintmq.broker.channels.overdue_deliveries import OverdueDeliveries, unknown_tag
from flintmq.broker.channels.unacked import UnackedDeliveries
from flintmq.broker.messages import cc_bcc, entry_number
from flintmq.broker.messages.header_changes import fitted
from flintmq.broker.messages.message import Message
from flintmq.broker.messages.published import lifetime_ms_of, refused
from flintmq.broker.queues import put_flags
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.streams.stream_arguments import refuse_too_large
from flintmq.errors import ChannelFault, UnreadableFault
from flintmq.wire import amqp, content, header_edits, octets, traits
from flintmq.wire.content_class import class_of, from_basic
from flintmq.wire.stream import HeldBody

if TYPE_CHECKING:
    from flintmq.auth import User
    from flintmq.broker.channels.file_transfers import FileTransfers
    from flintmq.broker.channels.message_transfers import MessageTransfers, Teller
    from flintmq.broker.channels.tickets import ChannelTickets
    from flintmq.broker.channels.transaction_scope import TransactionScope
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.exchanges.route import Route, RoutingContext
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.consumer_selector import ConsumerSelector
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.protocol.outbox import Output
    from flintmq.storage.spool import SpoolReader
    from flintmq.wire.stream import Body

log = logging.getLogger("flintmq.channel")

# Deliveries that one ack settles at once, some milliseconds; more are settled in portions.
SETTLED_MAX = 8192
# Whether a stream takes a message is asked of larger ones alone.
LARGE_BYTES_MIN = 4_194_304
# Exchanges, and routing keys of them, that a channel keeps as writable where keys matter: 520 octets each.
WRITABLE_MAX = 64
# The method that returns a message to its publisher, by the class of the content; else basic.return.
RETURNS = {traits.FILE_CONTENT: amqp.FILE_RETURN, traits.STREAM_CONTENT: amqp.STREAM_RETURN}

_RETURN_HEAD = struct.Struct(">IH")
_GET_OK_HEAD = struct.Struct(">IQB")
_LONG = struct.Struct(">I")


class Channel:
    """One open channel of one connection."""

    __slots__ = (
        "acks",
        "by_standard",
        "cancel_notices",
        "confirms",
        "consumers",
        "delivery_tag",
        "files",
        "flowing",
        "get_filters",
        "gets",
        "gets_empty",
        "gets_unasked",
        "global_bytes",
        "global_count",
        "last_queue",
        "last_route",
        "late",
        "messages",
        "number",
        "numeric",
        "origin",
        "output",
        "parked",
        "pass_work",
        "prefetch_bytes",
        "prefetch_count",
        "publishes",
        "redeliveries",
        "reply_name",
        "returns",
        "rights",
        "router",
        "shares_prefetch",
        "store",
        "stream_qos",
        "streaming",
        "tickets",
        "transaction",
        "unacked",
        "unasked",
        "unrouted",
        "user",
        "virtual_host",
        "writable",
    )

    def __init__(
        self, number: int, origin: int, virtual_host: VirtualHost, user: User, output: Output
    ) -> None:
        self.number = number
        self.origin = origin  # the number of the connection
        self.virtual_host = virtual_host
        self.user = user
        self.output = output
        self.router: Router = virtual_host.router
        self.pass_work: PassWork = virtual_host.pass_work
        self.consumers: dict[str, Consumer] = {}
        self.unacked = UnackedDeliveries()
        self.confirms = Confirms(number, origin, virtual_host.router, output)
        self.delivery_tag = 0
        self.prefetch_count = 0
        self.prefetch_bytes = 0
        self.global_count = 0
        self.global_bytes = 0
        self.shares_prefetch = False  # what basic.qos sets for each consumer is for all together too
        self.flowing = True
        self.parked: dict[Consumer, None] = {}
        self.transaction: TransactionScope | None = None
        self.store: Store | None = virtual_host.store
        self.streaming = 0  # bodies on their way out piece by piece: no delivery may come between
        # What stream.qos has set: octets in a second, and octets and messages that may wait for the socket.
        self.stream_qos = (0, 0, 0)
        self.late: OverdueDeliveries | None = None  # deliveries that were taken back as overdue
        self.unrouted = 0  # messages published that went to no queue, whether or not they were returned
        # Counts for the HTTP API and metrics: publishes, acks, deliveries that need no ack, and rare events.
        self.publishes = 0
        self.acks = 0
        self.unasked = 0
        self.redeliveries = 0
        self.returns = 0
        self.gets = 0
        self.gets_unasked = 0
        self.gets_empty = 0
        self.get_filters: dict[str, ConsumerSelector] | None = None  # what basic.get takes, by queue
        self.last_route: Route | None = None
        self.last_queue = ""
        self.reply_name = ""  # what amq.rabbitmq.reply-to stands for on this channel, see direct_reply.py
        self.cancel_notices = False  # whether the client wants to hear of consumers that end
        self.numeric = False  # whether field types are numbers for the client, see protocol/greeting.py
        self.tickets: ChannelTickets | None = None  # what access.request has granted
        self.files: FileTransfers | None = None  # contents of the file class that are on their way
        self.messages: MessageTransfers | None = None  # what the message class has on its way
        self.by_standard = False  # faults are those of AMQP 0-8 and 0-9, where RabbitMQ has others for 0-9-1
        # Exchanges that the user may write to, as found since `Router.rights` last changed; exchange and key,
        # in octets, where the client's id decides about keys. Where the id does not matter, the route knows.
        self.writable: set[Exchange | bytes | None] | None = None
        self.rights = self.router.rights

    # Publishing

    def publish(self, route_octets: bytes, flags: int, whole: bytes, header_size: int) -> int:
        """basic.publish with its content, header first. A publish at fault is counted: see `disown_publish`.

        A content of another class comes with a basic header too, and its class among the flags.
        """
        self.publishes += 1
        if self.confirms.active and self.transaction is None:
            self.confirms.count()
        found = content.survey(octets.readable_bytes(whole), 0, header_size)
        if found < 0:
            raise refused(found, whole)
        route = self.last_route
        if (
            route is None
            or route.generation != self.router.generation
            or (route.octets is not route_octets and route.octets != route_octets)
        ):
            route = self.find_route(route_octets)
        route.passed += 1
        if found & (traits.HAS_USER_ID | traits.HAS_REPLY_TO | traits.HAS_COPIES):
            size = len(whole)
            whole = publish_checks.look_into(self, whole, header_size, found)
            header_size += len(whole) - size
            found &= ~traits.UNPROVEN
        found |= flags & traits.CONTENT_CLASSES
        message = Message.create(route.octets, whole, header_size, found, self.origin)
        message.arrived_ms = self.pass_work.now_ms
        if found & traits.HAS_EXPIRATION:
            message.lifetime_ms = lifetime_ms_of(whole)
        if self.transaction is not None and not found & traits.STREAM_CONTENT:
            self.transaction.publish(message, flags)
            return 0
        self.forward(message, route, flags)
        return 0

    def disown_publish(self) -> None:
        """The newest publish was at fault: no confirm counts it."""
        if self.confirms.active and self.transaction is None:
            self.confirms.published -= 1

    def find_route(self, route_octets: bytes) -> Route:
        """The route of this exchange and key, if there is one and the user may write to it."""
        route = self.router.routes.get(route_octets)
        if route is None or route.generation != self.router.generation:
            route = self.new_route(route_octets)
        if self.rights != self.router.rights:
            self.rights = self.router.rights
            self.writable = None
        writable = self.writable
        if route.writer is not self.user and (
            writable is None or (route.exchange not in writable and route.octets not in writable)
        ):
            self.check_route(route)
        self.last_route = route
        return route

    def new_route(self, route_octets: bytes) -> Route:
        """Who may not write to an exchange need not know whether there is one of that name."""
        try:
            return self.router.route_of(route_octets)
        except ChannelFault:
            name = route_octets[1 : 1 + route_octets[0]].decode("utf-8", "surrogateescape")
            require(self.user, self.virtual_host.name, Operation.WRITE, "exchange", name)
            raise

    def check_route(self, route: Route) -> None:
        """Raises unless the user may publish to the exchange with this key; keeps the answer."""
        routing_permissions.check_publish(self, route.exchange)
        heeded = routing_permissions.check_topic(self, route.exchange, Operation.WRITE, route.key)
        if heeded is Heeded.KEY:
            route.writer = self.user
            return
        if self.writable is None:
            self.writable = set()
        if heeded is Heeded.NOTHING:
            self.writable.add(route.exchange)
            return
        if len(self.writable) >= WRITABLE_MAX:
            self.writable.clear()
        self.writable.add(route.octets)

    def check_copies(self, keys: list[str]) -> None:
        """Raises unless the user may use these further keys of the exchange that is being published to."""
        route = self.last_route
        if route is not None and self.user.topic_permissions:
            for key in keys:
                routing_permissions.check_topic(self, route.exchange, Operation.WRITE, key)

    def forward(self, message: Message, route: Route, flags: int) -> int:
        """Routes the message to its queues, or returns it to the publisher."""
        if message.traits & traits.HAS_COPIES:
            return self.forward_copies(message, route, flags)
        if not route.by_headers:
            self.hand_on(message, route, route.queues, flags)
            return 0
        matched = self.router.match(route, message, self)
        passage = self.router.take_passage()
        if matched is None:
            if self.router.is_traced:
                self.trace_publish(message, route, [])
            return 0
        route.copies += len(matched)
        return self.hand_on_passed(message, route, matched, flags, passage)

    def hand_on_passed(
        self, message: Message, route: Route, queues: list[Queue], flags: int, passage: RoutingContext | None
    ) -> int:
        """As `hand_on`; exchanges that have seen the message on its way forget it if it is refused."""
        try:
            happened = self.hand_on(message, route, queues, flags)
        except Exception:
            if passage is not None:
                passage.take_back()
            raise
        if passage is not None:
            passage.end(happened)
        return 0

    def hand_on(self, message: Message, route: Route, queues: list[Queue], flags: int) -> int:
        """Gives the message to these queues, or returns it to the publisher; flags of queues/put_flags.py."""
        if self.router.is_traced:
            self.trace_publish(message, route, queues)
        if not queues:
            self.unrouted += 1
            if flags & 1:  # mandatory
                self.give_back(message, amqp.NO_ROUTE, "NO_ROUTE")
            return put_flags.UNROUTED
        if flags & 2:  # immediate: only queues that deliver the message at once
            queues = [queue for queue in queues if queue.can_take_now(message)]
            if not queues:
                self.give_back(message, amqp.NO_CONSUMERS, "NO_CONSUMERS")
                return put_flags.UNROUTED
        if message.traits & traits.SPOOLED or len(message.content) > LARGE_BYTES_MIN:
            if message.traits & traits.MOVED:  # a branch that is committed: nothing refuses it any more
                queues = self.router.fitting(message, queues)
                if not queues:
                    return put_flags.REFUSED
            else:
                refuse_too_large(queues, message.header_size + message.body_size())
        if queues is route.queues:
            happened = self.router.enqueue(message, queues, route.owners, route.ruled)
        else:
            happened = self.router.enqueue(message, queues, None, self.router.is_ruled(queues))
        if happened:
            self.note_outcome(happened)
        if entry_number.is_in_journal(message.entry):
            confirms = self.confirms
            confirms.kept = entry_number.sequence_of(message.entry)
            if confirms.active and message.traits & traits.SPOOLED and self.store is not None:
                self.store.promised[confirms.kept] = (confirms, confirms.published)
        return happened

    def note_outcome(self, happened: int) -> None:
        """Acts on the flags of an enqueue, see queues/put_flags.py."""
        if happened & put_flags.REFUSED and self.confirms.active:
            self.confirms.lose(self.confirms.published)
        if happened & put_flags.IN_STREAM and self.virtual_host.streams is not None:
            self.virtual_host.streams.note(self.confirms)
        if happened & put_flags.CONGESTED:
            self.pass_work.pressed = True
        if happened & put_flags.DRAINED:
            self.pass_work.drained = True
        if happened & put_flags.CROWDED:
            self.pause_for_letters()

    def pause_for_letters(self) -> None:
        """Too many dead letters wait: nothing more is read from the connection until fewer do."""
        self.pass_work.crowded = self.router.dead_letters
        self.pass_work.load()

    def trace_publish(self, message: Message, route: Route, queues: list[Queue]) -> None:
        """Tells the firehose; requests to the broker may have secrets in them, and are left out."""
        firehose = self.router.firehose
        if firehose is not None and (route.exchange is None or route.exchange.type != "system"):
            firehose.published(self, message, queues)

    def trace_delivery(self, message: Message, queue: Queue, redelivered: bool) -> None:
        if self.router.firehose is not None:
            self.router.firehose.delivered(self, message, queue, redelivered)

    def forward_copies(self, message: Message, route: Route, flags: int) -> int:
        """As `forward`, for a message with further keys in CC and BCC."""
        keys = [route.key, *cc_bcc.keys_of(message)]
        queues = self.router.match_keys(route.exchange, keys, message, self)
        passage = self.router.take_passage()
        if queues is None:
            return 0
        shown = cc_bcc.without_blind(message)
        if self.store is None:
            return self.hand_on_passed(shown, route, queues, flags, passage)
        with self.store.sharing(self.store.arrived.get(message), shown):
            return self.hand_on_passed(shown, route, queues, flags, passage)

    def give_back(self, message: Message, code: int, text: str) -> None:
        """No queue takes the message: the publisher gets it back, or a reject in the message class."""
        if self.messages is not None and self.messages.takes_back():
            self.returns += 1
            return
        self.send_back(message, code, text)

    def send_back(self, message: Message, code: int, text: str) -> None:
        """basic.return, or that of the class of the content."""
        self.returns += 1
        method = RETURNS.get(message.traits & traits.CONTENT_CLASSES, amqp.BASIC_RETURN)
        payload = _RETURN_HEAD.pack(method, code) + bytes((len(text),)) + text.encode()
        payload += message.shown_route()
        body = self.body_of(message) if message.traits & traits.SPOOLED else None
        if message.traits & traits.CONTENT_CLASSES:
            message = of_its_class(message)
        self.write_content(payload, message, body, 0)

    def write_content(self, payload: bytes, message: Message, body: Body | None, tag: int) -> None:
        """Writes a method with its content, whose body may leave in pieces. A delivery has a `tag`."""
        if message.header_size > self.output.header_bytes_max:
            message = fitted(message, self.output.header_bytes_max)
        content = message.content
        if self.numeric:
            content = header_edits.with_numbers(content)
        if body is None and self.output.streams_large(len(content)):
            body = HeldBody(content, message.header_size)
            content = content[: message.header_size]
        self.output.write_method_content(self.number, payload, content, message.header_size)
        if body is not None:
            self.stream(body, tag)

    def body_of(self, message: Message) -> SpoolReader | None:
        """The reader of a spooled body; None if the body is lost."""
        return None if self.store is None else self.store.body_of(message)

    def stream(self, body: Body, tag: int) -> None:
        """The header is written; the body follows as the client reads. A delivery has a `tag`."""
        self.streaming += 1
        self.output.stream(self.number, body, self, tag)

    def stream_ended(self) -> None:
        self.streaming -= 1
        if not self.streaming:
            self.wake_parked()

    # Settling deliveries

    def ack(self, tag: int, multiple: bool) -> int:
        if self.transaction is not None:
            self.transaction.ack(self.held(tag, multiple, "basic.ack"))
            return 0
        if multiple:
            self.ack_through(tag)
        else:
            delivery = self.unacked.find(tag)
            if delivery is None:
                if self.forgive(tag, False):
                    return 0
                raise unknown_tag(tag)
            self.queue_settle(delivery)
            self.unacked.tidy()
        if self.parked:
            self.wake_parked()
        return 0

    def ack_through(self, tag: int) -> int:
        """Acks all deliveries up to `tag`; all that the channel holds when the tag is 0."""
        # A tag that is not outstanding is a mistake, such as a second ack, even if tags before it are.
        if tag and self.unacked.find(tag) is None and not self.is_late(tag):
            raise unknown_tag(tag)
        settled = 0
        rest: list[Delivery] = []
        ring = self.unacked.ring
        while ring.count:
            delivery = ring.at(0)
            if tag and delivery.tag > tag:
                break
            if delivery.message is not None:
                if settled == SETTLED_MAX:
                    rest.append(delivery)
                else:
                    self.queue_settle(delivery)
                    settled += 1
            ring.pop()
        self.forgive(tag, True)
        if rest:
            self.pass_work.chores.begin(teardown.settled(self.discard, rest, teardown.ACKED))
        return 0

    def queue_settle(self, delivery: Delivery) -> int:
        """The message of the delivery leaves its queue for good."""
        message = delivery.message
        queue = delivery.queue
        if message is not None:
            queue.settle(message)  # first: if that fails, the channel still holds the delivery
        self.unacked.release(delivery)
        self.acks += 1
        return queue.settled(1)

    def held(self, tag: int, multiple: bool, what: str) -> list[Delivery]:
        """The unsettled deliveries that `tag` names, none of them part of the open transaction."""
        found = self.unacked.find(tag)
        if (
            found is not None
            and self.transaction is not None
            and not self.transaction.without_settled([found])
        ):
            found = None
        if found is None and (tag or not multiple) and not self.is_late(tag):
            raise unknown_tag(tag, what)
        one = [] if found is None else [found]
        deliveries = self.unacked.through(tag) if multiple else one
        self.pass_work.copies += len(deliveries)  # each look takes as long, and the next one may look again
        if self.transaction is not None:
            deliveries = self.transaction.without_settled(deliveries)
        self.forgive(tag, multiple)
        return deliveries

    def reject(self, tag: int, multiple: bool, requeue: bool, what: str) -> None:
        """basic.reject and basic.nack"""
        deliveries = self.held(tag, multiple, what)
        if self.transaction is not None:
            self.transaction.reject(deliveries, requeue)
            return
        if requeue and len(deliveries) > teardown.RETURNED:
            take = teardown.portions(deliveries, teardown.RETURNED)
            self.pass_work.chores.begin(teardown.returned(self, take, False))
        elif requeue:
            self.requeue(deliveries, what == "basic.reject")
        elif len(deliveries) < 2 or teardown.refused_together(deliveries, 0) == len(deliveries):
            self.refuse(deliveries)
        else:
            self.part_with(tag)
            self.pass_work.chores.begin(teardown.refused(self, deliveries))

    def part_with(self, tag: int) -> None:
        """A chore settles what is up to `tag`: it must not go back should the channel close meanwhile."""
        ring = self.unacked.ring
        while ring.count and (not tag or ring.at(0).tag <= tag):
            ring.pop()

    def refuse(self, deliveries: list[Delivery]) -> None:
        """Rejected without requeue: dead letters, where the queue has an exchange for them."""
        for delivery in deliveries:
            message = delivery.message
            if message is not None:
                delivery.queue.bury(message, "rejected")
                self.unacked.release(delivery)
                delivery.queue.settled(1)
                delivery.queue.need_tally().rejected += 1
        self.unacked.tidy()
        self.wake_parked()
        if self.router.dead_letters.is_crowded():
            self.pause_for_letters()

    def discard(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.message is not None:
                self.queue_settle(delivery)
        self.unacked.tidy()
        self.wake_parked()

    def requeue(self, deliveries: list[Delivery], failed: bool = False) -> None:
        """Puts deliveries back into their queues, as new objects: those of the channel are emptied."""
        by_queue: dict[Queue, list[Delivery]] = {}
        for delivery in deliveries:
            if delivery.message is not None:
                by_queue.setdefault(delivery.queue, []).append(delivery)
        for queue, held in by_queue.items():
            backs = []
            for delivery in held:
                message = delivery.message
                if message is not None:
                    back = Delivery.create(0, message, queue, None, delivery.position, delivery.redeliveries)
                    backs.append(back)
            queue.requeue(backs, failed)
            for delivery in held:
                self.unacked.release(delivery)
        self.unacked.tidy()
        self.wake_parked()
        if failed and self.router.dead_letters.is_crowded():  # some may have come back too often
            self.pause_for_letters()

    def detach(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Releases unsettled deliveries from the channel; returns copies for whoever settles them."""
        detached: list[Delivery] = []
        for delivery in deliveries:
            message = delivery.message
            if message is not None:
                kept = Delivery.create(
                    0, message, delivery.queue, None, delivery.position, delivery.redeliveries
                )
                detached.append(kept)
                self.unacked.release(delivery)
        self.unacked.tidy()
        self.wake_parked()
        return detached

    def holds(self, tag: int) -> bool:
        """Whether the delivery with this tag is unsettled."""
        return self.unacked.find(tag) is not None

    def take_back(self, tag: int) -> None:
        """The client has not settled the delivery in time: the message goes back to its queue."""
        delivery = self.unacked.find(tag)
        if delivery is None or (
            self.transaction is not None and not self.transaction.without_settled([delivery])
        ):
            return
        consumer = delivery.consumer
        self.requeue([delivery], True)
        if self.late is None:
            self.late = OverdueDeliveries(self)
        self.late.add(tag, consumer)

    def is_late(self, tag: int) -> bool:
        """Whether the delivery was taken back as overdue."""
        return self.late is not None and tag in self.late.tags

    def forgive(self, tag: int, multiple: bool) -> bool:
        """Whether settling `tag` comes too late for a delivery that was taken back."""
        return self.late is not None and self.late.forgive(tag, multiple)

    def recover(self, requeue: bool) -> None:
        """basic.recover: what is unacked goes back to its queues, or out again to the same consumers."""
        deliveries = self.held(0, True, "basic.recover")
        if requeue:
            take = teardown.portions(deliveries, teardown.RETURNED)
            self.pass_work.chores.begin(teardown.returned(self, take, False))
            return
        orphans = [d for d in deliveries if d.consumer is None or d.consumer.cancelled]
        kept = [d for d in deliveries if d.consumer is not None and not d.consumer.cancelled]
        for delivery in kept:
            message, consumer = delivery.message, delivery.consumer
            if not self.output.has_room():
                orphans.append(delivery)  # the client does not read so much at once
            elif message is not None and consumer is not None:
                if consumer.terms is not None and not consumer.terms.admits(consumer, message):
                    orphans.append(delivery)  # delivered again when the consumer may take it
                    continue
                self.unacked.release(delivery)
                delivery.queue.settled(1)
                outstanding = self.unacked.outstanding
                again = delivery.redeliveries + 1
                try:
                    consumer.deliver(message, delivery.position, again)
                except Exception as failure:
                    if self.unacked.outstanding == outstanding:
                        delivery.queue.give_back(
                            Delivery.create(0, message, delivery.queue, None, delivery.position, again)
                        )
                    if not isinstance(failure, UnreadableFault):
                        raise
        take = teardown.portions(orphans, teardown.RETURNED)
        self.pass_work.chores.begin(teardown.returned(self, take, False))

    # Consuming

    def has_credit(self, message: Message) -> bool:
        """Whether the limits shared by all consumers of the channel allow the message."""
        if self.global_count and self.unacked.outstanding >= self.global_count:
            return False
        if self.global_bytes and self.unacked.outstanding:
            return self.unacked.outstanding_bytes + message.body_size() <= self.global_bytes
        return True

    def get(self, queue: Queue, no_ack: bool, teller: Teller | None = None) -> bool:
        """basic.get: sends get-ok with the next message, or the teller sends it; False if there is none."""
        while True:
            delivery = queue.take()
            if delivery is None or delivery.message is None:
                self.gets_empty += 1
                return False
            if self.fetch(queue, delivery, delivery.message, no_ack, teller):
                return True

    def fetch(
        self,
        queue: Queue,
        delivery: Delivery,
        message: Message,
        no_ack: bool,
        teller: Teller | None = None,
    ) -> bool:
        """Sends a message that was taken from its queue, as `get` does; False if the message is lost."""
        try:
            return self.give(queue, delivery, message, no_ack, teller)
        except Exception:
            if not self.unacked.ends_with(message, queue):
                queue.give_back(delivery)
            raise

    def note_empty_get(self) -> None:
        """Counts a basic.get that has found no message."""
        self.gets_empty += 1

    def give(
        self, queue: Queue, delivery: Delivery, message: Message, no_ack: bool, teller: Teller | None
    ) -> bool:
        """Sends get-ok with the message; False, and the message is gone, if the disk has lost its body."""
        body = None
        if message.traits & traits.SPOOLED:
            body = self.body_of(message)
            if body is None:
                log.error("queue %r goes on without a message that is lost", queue.name)
                queue.need_tally().lost += 1
                queue.settle(message)
                return False
        self.delivery_tag += 1
        redelivered = 1 if delivery.redeliveries else 0
        written = message
        if queue.rules is not None and queue.rules.retries is not None:
            written = queue.rules.retries.shown(message, delivery.redeliveries)
        if teller is not None:
            teller.tell(written, self.delivery_tag, delivery.redeliveries > 0, written.content, body)
        else:
            payload = (
                _GET_OK_HEAD.pack(amqp.BASIC_GET_OK, self.delivery_tag, redelivered)
                + message.shown_route()
                + _LONG.pack(queue.message_count())
            )
            self.write_content(payload, written, body, self.delivery_tag)
        queue.hand_out(message, self.output)
        if self.pass_work.sampled_ms != self.pass_work.now_ms:
            self.pass_work.note_wait(message.arrived_ms)
        if self.router.is_traced:
            self.trace_delivery(message, queue, delivery.redeliveries > 0)
        if redelivered:
            self.redeliveries += 1
            queue.need_tally().redeliveries += 1
        if no_ack:
            queue.settle(message)
            self.gets_unasked += 1
            queue.need_tally().gets_unasked += 1
            return True
        taken = Delivery.create(
            self.delivery_tag, message, queue, None, delivery.position, delivery.redeliveries
        )
        self.unacked.fetch(taken)
        self.gets += 1
        queue.need_tally().gets += 1
        queue.delivered(self, taken)
        return True

    def wake_parked(self) -> None:
        if self.parked:
            waiting = list(self.parked)
            self.parked.clear()
            for consumer in waiting:
                consumer.wake()

    def flow(self, active: bool) -> None:
        """channel.flow from the client: stops or starts deliveries."""
        self.flowing = active
        if active:
            self.wake_parked()

    def lose_consumer(self, consumer: Consumer) -> None:
        """The queue of the consumer is gone. The consumer hears of that after whoever deleted the queue."""
        self.consumers.pop(consumer.tag, None)
        if self.cancel_notices:
            self.pass_work.lost_consumers.append(consumer)

    def notify_cancel(self, consumer: Consumer) -> None:
        """basic.cancel from the server, to clients that know it."""
        if self.cancel_notices:
            self.output.write_method(
                self.number, _LONG.pack(amqp.BASIC_CANCEL) + consumer.tag_octets + b"\x01"
            )

    def close(self, farewell: Callable[[], None] | None = None) -> None:
        """Everything unacked goes back; an open transaction is rolled back.

        With a `farewell`, what was published is confirmed yet as it becomes safe, and then it is called.
        """
        self.retire(farewell)
        self.pass_work.chores.begin(teardown.of_channel(self))
        self.part()

    def confirm_safe(self) -> None:
        """Confirms now what need not wait for the disk: the client is about to close."""
        self.confirms.confirm_safe()
        if self.messages is not None:
            self.messages.confirms.confirm_safe()

    def part(self) -> None:
        """Says farewell if nothing is left to confirm."""
        self.confirms.part()
        if self.messages is not None:
            self.messages.confirms.part()

    def retire(self, farewell: Callable[[], None] | None) -> None:
        """The first part of `close`: the channel takes and gives nothing more, and holds its messages yet."""
        self.virtual_host.tally.closed(self)
        if self.tickets is not None:
            self.tickets.release()
        if self.files is not None:
            self.files.close()
        if self.messages is not None:
            farewell = self.messages.retire(farewell)
        self.confirms.retire(farewell)
        self.cancel_notices = False
        self.late = None
        self.flowing = False  # consumers of the channel get no more
        transaction, self.transaction = self.transaction, None
        try:
            if transaction is not None:
                transaction.close()
        except Exception:
            log.exception("a bug leaves the transaction of a channel behind")


def of_its_class(message: Message) -> Message:
    """The message with a header of the class it was published in, for a peer who knows that class."""
    header = from_basic(class_of(message.traits), message.content[: message.header_size])
    content = header + message.content[message.header_size :]
    return message.variant(message.route, content, len(header), message.traits)
