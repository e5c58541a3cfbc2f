"""What clients of AMQP/Fast ask of a handle: each HANDLE command as one function.

A function takes the session, the handle and the command, and asks the broker by methods of AMQP. Faults are
raised; the session closes the handle for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.auth import AnswerPending, Operation
from flintmq.auth import may as is_allowed
from flintmq.broker import quotas
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.consumer_terms import ConsumerTerms
from flintmq.checks import NAME_OCTETS_MAX, octets_of
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.protocol import phases
from flintmq.protocol.fast.connection import HANDLES_MAX, MESSAGE_NOT_FOUND, MESSAGE_TOO_LARGE
from flintmq.protocol.fast.handle import QUEUE, TOPIC, Handle
from flintmq.protocol.fast.outbox import Target
from flintmq.server.commands import basic as basic_class
from flintmq.server.commands import command as channel_commands
from flintmq.server.commands import queue as queue_class
from flintmq.server.fast.listings import NUMBERS_MAX, Listing, Looking, message_list
from flintmq.server.sessions.session import METHOD_COPIES
from flintmq.wire import amqp, methods, traits
from flintmq.wire.fast import commands, crossing, message_head
from flintmq.wire.fast.commands import Command
from flintmq.wire.fields import encode_shortstr

if TYPE_CHECKING:
    from flintmq.auth.asked_permissions import Pending
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.protocol.channel import Channel
    from flintmq.server.fast.session import FastSession

TOPIC_EXCHANGE = "amq.topic"
# Queues that are made for clients of AMQP/Fast tell normal from high priorities, and all in between.
QUEUE_ARGUMENTS = {"x-max-priority": message_head.PRIORITY_MAX}
# Queues that one name may stand for: each gets a reference to the message in the same pass.
DESTINATIONS_MAX = 256
LOOKED_MAX = 4096
# Questions to a back end about them that are on their way together.
ASKED_AT_ONCE = 8
# What it takes to find them, as copies of messages count: a millisecond.
GROUP_COPIES = 65_536
# A look at one of many takes some 0.2 microseconds, of which METHOD_COPIES are 40.
LOOK_COPIES = 20
# What a selector of HANDLE QUERY is: docs/selectors.md.
SELECTOR_TYPE = "application/x-flintmq-selector"


class SharedPrefetch(ConsumerTerms):
    """The prefetch of one CONSUME whose name stands for several queues: it is for all of them together.

    A consumer that it stops waits with its channel, which wakes it when the client settles anything there.
    """

    __slots__ = ("consumers", "prefetch_count")

    def __init__(self, prefetch_count: int) -> None:
        super().__init__()
        self.prefetch_count = prefetch_count
        self.consumers: dict[Consumer, None] = {}

    def admits(self, consumer: Consumer, message: Message) -> bool:
        self.consumers[consumer] = None
        return sum(each.outstanding for each in self.consumers) < self.prefetch_count


class Consumers:
    """What the handles of one connection consume."""

    def __init__(self, session: FastSession) -> None:
        self.session = session
        self.serial = 0
        self.earlier = 0  # the serial of the last one that was there when the command in hand came
        self.tags: dict[int, list[str]] = {}  # by handle
        self.handles: dict[bytes, Handle] = {}  # by tag, an encoded short string
        self.paused: dict[int, list[Consumer]] = {}  # by handle: out of their queues for now

    def add(self, handle: Handle, name: str) -> str:
        """The tag of a new one, whose messages are from the destination of this name."""
        self.serial += 1
        tag = f"fast-{handle.number}-{self.serial}"
        octets = encode_shortstr(tag)
        self.tags.setdefault(handle.number, []).append(tag)
        self.handles[octets] = handle
        self.session.out.targets[octets] = Target(
            handle.number, shown_name(name) if handle.service == QUEUE else b""
        )
        return tag

    def handle_of(self, tag: bytes) -> Handle | None:
        return self.handles.get(tag)

    def share(self, handle: Handle, prefetch_count: int) -> None:
        """Those that the command in hand has made have their prefetch together."""
        owner = self.session.owner_of(handle.channel)
        terms = SharedPrefetch(prefetch_count)
        for tag in self.tags[handle.number]:
            alone = owner.consumers.get(tag) if int(tag.rpartition("-")[2]) > self.earlier else None
            if alone is not None:
                alone.queue.unsubscribe(alone)
                owner.virtual_host.consume(
                    Consumer(owner, alone.queue, tag, False, alone.no_local, False, alone.arguments, terms)
                )

    def forget(self, handle: Handle) -> None:
        """The handle is gone, and the channel with its consumers goes another way."""
        self.drop_paused(handle.number)
        for tag in self.tags.pop(handle.number, ()):
            octets = encode_shortstr(tag)
            self.handles.pop(octets, None)
            self.session.out.targets.pop(octets, None)

    def drop_paused(self, number: int) -> None:
        """Queues that go with their last consumer go with one that was paused, too."""
        for consumer in self.paused.pop(number, ()):
            consumer.channel.virtual_host.drop_unconsumed(consumer.queue)

    def depart(self) -> None:
        """The connection is over."""
        for number in list(self.paused):
            self.drop_paused(number)

    def cancel(self, handle: Handle) -> None:
        """The handle wants no more; what it has got stays unacked."""
        channel = handle.channel
        if channel.state == phases.CHANNEL_OPEN:
            for tag in self.tags.get(handle.number, ()):
                cancel = methods.BasicCancel(consumer_tag=tag, no_wait=True)
                channel_commands.run(self.session, channel, cancel)
        self.forget(handle)

    def pause(self, handle: Handle) -> None:
        """Others get what it would have got; what is to come to it waits in its queues."""
        self.session.count_work(METHOD_COPIES * len(self.tags.get(handle.number, ())))
        owner = self.session.owner_of(handle.channel)
        stopped = self.paused.setdefault(handle.number, [])
        for tag in self.tags.get(handle.number, ()):
            consumer = owner.consumers.pop(tag, None)
            if consumer is not None:
                consumer.queue.unsubscribe(consumer)
                stopped.append(consumer)

    def check_room(self, channel: Channel, more: int) -> None:
        """Raises if there would be too many with those that are paused, whom the broker does not know."""
        if not self.paused:
            return  # the broker counts all of them
        limits = self.session.broker.config.limits
        self.session.count_work(LOOK_COPIES * len(self.tags))
        of_channel = sum([len(tags) for number, tags in self.tags.items() if self.is_of(number, channel)])
        if of_channel + more > limits.consumers_per_channel_max:
            raise quotas.too_many_consumers(limits.consumers_per_channel_max, "channel")
        if len(self.handles) + more > limits.consumers_per_connection_max:
            raise quotas.too_many_consumers(limits.consumers_per_connection_max, "connection")

    def is_of(self, number: int, channel: Channel) -> bool:
        handle = self.session.fast.handles.get(number)
        return handle is not None and handle.channel is channel

    def resume(self, handle: Handle) -> None:
        """All that is asked of a new consumer is asked of one that comes back."""
        owner = self.session.owner_of(handle.channel)
        broker = self.session.broker
        stopped = self.paused.get(handle.number, [])
        self.session.count_work(METHOD_COPIES * len(stopped))
        for consumer in stopped:
            if consumer.queue.deleted:
                raise no_queue(self.session, consumer.queue.name)
            queue_class.named_queue(owner, consumer.queue.name, Operation.READ)
        while stopped:
            quotas.check_consumer(broker.config.limits, broker, owner)
            consumer = stopped.pop(0)
            consumer.cancelled = False
            consumer.parked = False
            owner.virtual_host.consume(consumer)
        self.paused.pop(handle.number, None)


def shown_name(queue: str) -> bytes:
    """The name of a queue, of which clients of other protocols may have made one that is no text."""
    return crossing.short_text(queue.encode("utf-8", "surrogateescape"))


def opened(session: FastSession, command: commands.HandleOpen) -> Handle | None:
    """HANDLE OPEN: the handle that it makes; None if its channel is closing, and nothing is made."""
    fast = session.fast
    channel = fast.channel_of(command.channel_id)
    if channel is None:
        raise fast.no_channel(command.channel_id)
    if channel.state != phases.CHANNEL_OPEN:
        return None
    existing = fast.handles.get(command.handle_id)
    if existing is not None:
        if not existing.is_closing:
            text = f"handle {command.handle_id} is open already"
            session.handle_fault(existing, ChannelFault(amqp.CHANNEL_ERROR, text))
        return None
    if len(fast.handles) >= HANDLES_MAX:
        raise ConnectionFault(amqp.RESOURCE_ERROR, f"more than {HANDLES_MAX} handles are open")
    handle = Handle(command.handle_id, channel, command.service_type, command.dest_name)
    handle.mime_type, handle.encoding = command.mime_type, command.encoding
    handle.is_producer, handle.is_consumer = command.producer, command.consumer
    handle.is_browser = command.browser
    fast.handles[handle.number] = handle
    fast.current = handle
    return handle


def run(session: FastSession, handle: Handle, command: Command) -> None:
    HANDLE_COMMANDS[command.NAME](session, handle, command)


def handle_open(session: FastSession, handle: Handle, command: commands.HandleOpen) -> None:
    if handle.service not in (QUEUE, TOPIC):
        text = f"service type {handle.service} is not served: 1 is for queues, 2 for topics"
        raise ChannelFault(amqp.NOT_IMPLEMENTED, text)
    if command.temporary:
        open_temporary(session, handle)
    session.confirm_handle(handle, command.confirm_tag)


def open_temporary(session: FastSession, handle: Handle) -> None:
    """Section "Temporary Queues and Topics": it goes with the connection, and reopening it empties it."""
    if handle.service == QUEUE:
        existing = session.owner_of(handle.channel).virtual_host.lookup_queue(handle.name)
        answer = session.ask(
            handle.channel,
            methods.QueueDeclare(queue=handle.name, exclusive=True, arguments=dict(QUEUE_ARGUMENTS)),
        )
        if isinstance(answer, methods.QueueDeclareOk):
            handle.name = str(answer.queue)
        if existing is not None:
            session.ask(handle.channel, methods.QueuePurge(queue=handle.name, no_wait=True))
    elif not handle.name:
        handle.name = session.broker.new_name("amq.gen-")
    created = commands.HandleCreated(handle.number, handle.name)
    session.reply(handle.channel, commands.encode(created))


def full_name(handle: Handle, name: str) -> str:
    """Section "Destination Name Hierarchies": simple concatenation."""
    full = handle.name + name
    if octets_of(full) > NAME_OCTETS_MAX:
        raise ChannelFault(amqp.NOT_FOUND, f"no destination has a name of more than {NAME_OCTETS_MAX} octets")
    return full


def find_route(session: FastSession, handle: Handle, name: str, is_known: bool) -> None:
    """Sets where a SEND goes; raises if that is nowhere, or not permitted."""
    owner = session.owner_of(handle.channel)
    full = full_name(handle, name)
    if handle.service == TOPIC:
        route = encode_shortstr(TOPIC_EXCHANGE) + encode_shortstr(full)
        owner.find_route(route)
        handle.route, handle.flags, handle.is_exact = route, 0, True
        return
    owner.find_route(
        encode_shortstr("") + encode_shortstr(full)
    )  # who may not send need not know what there is
    names = destinations(session, handle, name) if is_known else [full]
    if not names:
        raise no_queue(session, full)
    # Mandatory: a queue may go meanwhile.
    handle.route, handle.flags, handle.copies = encode_shortstr("") + encode_shortstr(names[0]), 1, names[1:]
    handle.is_exact = names == [full]


def destinations(session: FastSession, handle: Handle, name: str) -> list[str]:
    """The queue of this name; without a further name than the handle's, all whose names begin so.

    Those that are exclusive to other connections are left out.
    """
    owner = session.owner_of(handle.channel)
    host = owner.virtual_host
    full = full_name(handle, name)
    if full and host.lookup_queue(full) is not None:
        return [full]
    if name:
        return []
    found: list[str] = []
    session.count_work(GROUP_COPIES)
    for looked_at, each in enumerate(host.queue_names.after(full)):
        if not each.startswith(full):
            break
        queue = host.queues.get(each)
        if queue is not None and (not queue.exclusive or queue.owner == owner.origin):
            found.append(each)
        if len(found) > DESTINATIONS_MAX or looked_at == LOOKED_MAX:
            text = f"'{full}' stands for more than {DESTINATIONS_MAX} queues: use a longer name"
            raise ChannelFault(amqp.RESOURCE_ERROR, text)
    return found


def consumed(session: FastSession, handle: Handle, name: str) -> list[str]:
    """The destinations of a consumer: of those that it does not name, what the user may read from."""
    found = destinations(session, handle, name)
    if found == [full_name(handle, name)]:
        return found
    for at in range(0, len(found), ASKED_AT_ONCE):
        decide(session, handle, found[at : at + ASKED_AT_ONCE])
    return [each for each in found if session.decided[each]]


def decide(session: FastSession, handle: Handle, names: list[str]) -> None:
    """Finds out which of the queues the user may read from; a back end is asked about all that it has to be.

    What is known is kept with the command. A refusal of a back end may be old before the last of its answers
    is there, and the command, which is tried again with each of them, would ask again for ever.
    """
    owner = session.owner_of(handle.channel)
    user, host, decided = owner.user, owner.virtual_host.name, session.decided
    question: Pending | None = None
    for each in names:
        if each not in decided:
            try:
                decided[each] = is_allowed(user, host, Operation.READ, each, "queue")
            except AnswerPending as pending:
                question = question or pending.question
    if question is not None:
        raise AnswerPending(question)


def no_queue(session: FastSession, name: str) -> ChannelFault:
    host = "" if session.virtual_host is None else session.virtual_host.name
    return ChannelFault(amqp.NOT_FOUND, f"no queue '{name}' in vhost '{host}'")


def handle_consume(session: FastSession, handle: Handle, command: commands.HandleConsume) -> None:
    if not handle.is_consumer:
        raise ChannelFault(amqp.NOT_ALLOWED, f"handle {handle.number} was not opened by a consumer")
    if not command.prefetch and not command.no_ack:
        raise ChannelFault(amqp.NOT_ALLOWED, "prefetch is at least 1 where messages are to be acked")
    channel = handle.channel
    owner = session.owner_of(channel)
    name = full_name(handle, command.dest_name)
    if handle.service == TOPIC:
        queues = {subscribed(session, handle, name): ""}
    else:
        if command.dynamic and name:
            # First, for what follows depends on whether the queue is there.
            channel_commands.may(owner, Operation.READ, "queue", name)
        queues = {each: each for each in consumed(session, handle, command.dest_name)}
        if not queues and command.dynamic and name:
            declare = methods.QueueDeclare(queue=name, durable=True, arguments=dict(QUEUE_ARGUMENTS))
            session.ask(channel, declare)
        if not name and not queues:
            raise no_queue(session, name)
        queues = queues or {name: name}  # of which the broker says that it is not there
    selector = selector_text(command.selector)
    owner.prefetch_count = command.prefetch
    session.count_work(METHOD_COPIES * len(queues))
    session.consumers.check_room(channel, len(queues))
    for queue, destination in queues.items():
        session.ask(
            channel,
            methods.BasicConsume(
                queue=queue,
                consumer_tag=session.consumers.add(handle, destination),
                no_ack=command.no_ack,
                no_local=command.no_local and handle.service == TOPIC,
                no_wait=True,
                arguments={"x-selector": selector} if selector else {},
            ),
        )
    if len(queues) > 1 and not command.no_ack:
        session.consumers.share(handle, command.prefetch)
    if handle.number in session.consumers.paused:
        session.consumers.pause(handle)
    session.confirm_handle(handle, command.confirm_tag)


def subscribed(session: FastSession, handle: Handle, name: str) -> str:
    """The queue of a subscription to a topic, which ends with its handle, channel or connection."""
    channel = handle.channel
    answer = session.ask(
        channel, methods.QueueDeclare(exclusive=True, auto_delete=True, arguments=dict(QUEUE_ARGUMENTS))
    )
    queue = str(answer.queue) if isinstance(answer, methods.QueueDeclareOk) else ""
    key = name + "#" if not name or name.endswith(".") else name
    session.ask(
        channel, methods.QueueBind(queue=queue, exchange=TOPIC_EXCHANGE, routing_key=key, no_wait=True)
    )
    return queue


def selector_text(selector: dict[str, Any]) -> str:
    """A selector of the broker: all of these fields, with these values where there are any."""
    terms = []
    for name, value in selector.items():
        field = '"' + name.replace('"', '""') + '"'
        if value in ("", b""):
            terms.append(f"{field} IS NOT NULL")
        elif isinstance(value, str):
            terms.append(f"{field} = '" + value.replace("'", "''") + "'")
        elif isinstance(value, int):
            terms.append(f"{field} = {value}")
        else:
            raise ChannelFault(
                amqp.NOT_IMPLEMENTED, f"selector: field '{name}' is to be a string or an integer"
            )
    return " AND ".join(terms)


def handle_flow(session: FastSession, handle: Handle, command: commands.HandleFlow) -> None:
    if command.flow_pause:
        session.consumers.pause(handle)
    else:
        session.consumers.resume(handle)
    session.confirm_handle(handle, command.confirm_tag)


def handle_unget(session: FastSession, handle: Handle, command: commands.HandleUnget) -> None:
    if handle.service != QUEUE:
        raise ChannelFault(amqp.NOT_ALLOWED, "only messages of queues can be pushed back")
    owner = session.owner_of(handle.channel)
    tag = session.whole_tag(owner, command.message_nbr)
    if tag & 0xFFFFFFFF != command.message_nbr or not owner.holds(tag):
        text = f"message {command.message_nbr} is not unacked on channel {handle.channel.number}"
        raise ChannelFault(MESSAGE_NOT_FOUND, text)
    basic_class.reject(owner, tag, True, "basic.reject")
    session.confirm_handle(handle, command.confirm_tag)


def handle_query(session: FastSession, handle: Handle, command: commands.HandleQuery) -> None:
    """The selector is one of the broker; the document leaves its syntax to the MIME type."""
    queue = browsed_queue(session, handle, full_name(handle, command.dest_name))
    if command.selector and command.mime_type not in ("", SELECTOR_TYPE):
        text = f"selectors of type '{command.mime_type}' are not known: use {SELECTOR_TYPE}"
        raise ChannelFault(amqp.NOT_IMPLEMENTED, text)
    selector = commands.read_text(command.selector, "handle.query: selector")
    listing = session.listings.get(handle.number)
    if listing is None or listing.queue is not queue or not command.message_nbr:
        session.listings.pop(handle.number, None)
        listing = session.listings[handle.number] = Listing(queue)
    work = listed(session, handle, listing, listing.list_on(command.message_nbr, selector))
    channel_commands.AwaitedMethod(session, handle.channel, methods.BasicGet(queue=queue.name)).begin(work)


def listed(session: FastSession, handle: Handle, listing: Listing, looking: Looking) -> Chore:
    """INDEX, when enough of the queue was looked at; the oldest listings make room for it."""
    numbers, is_more = yield from looking
    listings = session.listings
    kept = sum(len(each.places) for each in listings.values())
    for number in list(listings):
        if kept <= NUMBERS_MAX:
            break
        if listings[number] is not listing:
            kept -= len(listings.pop(number).places)
    if session.fast.handles.get(handle.number) is handle and not handle.is_closing:
        index = commands.HandleIndex(handle.number, numbers[-1] if is_more else 0, message_list(numbers))
        session.reply(handle.channel, commands.encode(index))


def browsed_queue(session: FastSession, handle: Handle, name: str) -> Queue:
    if not handle.is_browser:
        raise ChannelFault(amqp.NOT_ALLOWED, f"handle {handle.number} was not opened by a browser")
    if handle.service != QUEUE:
        raise ChannelFault(amqp.NOT_IMPLEMENTED, "topics hold no messages: browse a queue")
    owner = session.owner_of(handle.channel)
    queue = queue_class.named_queue(owner, name, Operation.READ) if name else None
    if queue is None:
        raise no_queue(session, name)
    if queue.is_stream:
        raise ChannelFault(
            amqp.NOT_IMPLEMENTED, f"'{name}' is a stream, which is not browsed: consume from it"
        )
    return queue


def handle_browse(session: FastSession, handle: Handle, command: commands.HandleBrowse) -> None:
    listing = session.listings.get(handle.number)
    found = None
    if listing is not None:
        browsed_queue(session, handle, listing.queue.name)  # the permission may have gone
        found = listing.find(command.message_nbr)
    if listing is None or found is None:
        not_found(session, handle, command)
        return
    message, is_redelivered = found
    if message.body_size() > session.out.body_bytes_max:
        raise too_large(listing.queue.name)
    owner = session.owner_of(handle.channel)
    body = None
    if message.traits & traits.SPOOLED:
        body = owner.body_of(message)
        if body is None:
            not_found(session, handle, command)
            return
    session.out.write_browsed(
        handle.channel.number,
        Target(handle.number, shown_name(listing.queue.name)),
        command.message_nbr,
        is_redelivered,
        message.content,
        message.header_size,
        body,
    )


def too_large(name: str) -> ChannelFault:
    """A message that came in parts, or by another protocol."""
    text = f"a message of queue '{name}' has more than 4 GiB: take it by another protocol than AMQP/Fast"
    return ChannelFault(MESSAGE_TOO_LARGE, text)


def not_found(session: FastSession, handle: Handle, command: commands.HandleBrowse) -> None:
    """HANDLE BROWSE: one of the few cases in which a failure is told and nothing is closed."""
    reply = commands.HandleReply(
        handle.number, command.confirm_tag, MESSAGE_NOT_FOUND, f"message {command.message_nbr} not found"
    )
    session.reply(handle.channel, commands.encode(reply))


def handle_close(session: FastSession, handle: Handle, command: commands.HandleClose) -> None:
    """Of the peer: it closes the handle, or answers our own close."""
    if not handle.is_closing:
        session.end_handle(handle)
        close = commands.HandleClose(handle.number, amqp.REPLY_SUCCESS, "Ok")
        session.reply(handle.channel, commands.encode(close))
    session.fast.handles.pop(handle.number, None)


HANDLE_COMMANDS: dict[str, Any] = {
    "handle.open": handle_open,
    "handle.consume": handle_consume,
    "handle.flow": handle_flow,
    "handle.unget": handle_unget,
    "handle.query": handle_query,
    "handle.browse": handle_browse,
    "handle.close": handle_close,
}
