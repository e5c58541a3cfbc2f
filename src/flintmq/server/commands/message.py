"""The message class of AMQP 0-9: each request as one function, and what the client answers to ours.

A function takes the session, the protocol's channel, the id of the request and its method, and sees to it
that the request is answered once. How messages travel is in broker/channels/message_transfers.py, where
references wait in broker/store/staging.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flintmq.auth import AnswerPending, Operation
from flintmq.broker import queue_namespaces, quotas
from flintmq.broker.channels.file_transfers import IncomingFile, refused
from flintmq.broker.channels.message_terms import MessageTerms
from flintmq.broker.channels.message_transfers import (
    NOT_TAKEN,
    OK,
    OUTGOING_MAX,
    REJECTED,
    IncomingReference,
    MessageTransfers,
    OutgoingMessage,
)
from flintmq.broker.channels.staged_publish import Outcome, publish_staged
from flintmq.broker.channels.tickets import NEEDED, check_ticket
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.consumer_terms import rate_of
from flintmq.errors import ChannelFault, ConnectionFault, ServiceFault
from flintmq.server.commands.basic import FETCHED_MAX, reject, set_prefetch
from flintmq.server.commands.command import (
    COMMAND_BYTES,
    GROWING,
    AwaitedMethod,
    broker_channel,
    is_open,
    may,
    refuse_growth,
)
from flintmq.server.commands.content import route_of
from flintmq.server.commands.file import PROPERTIES_AT, staging_of
from flintmq.server.commands.queue import caught_up, named_queue
from flintmq.wire import amqp, methods
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.message_class import basic_header
from flintmq.wire.methods import Method, encode_method

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel as BrokerChannel
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.store.staging import StagedContent
    from flintmq.protocol.channel import Channel
    from flintmq.protocol.requests import Answered
    from flintmq.server.commands.command import Session
    from flintmq.wire.stream import Body

Request = Callable[["Session", "Channel", int, Any], None]
REQUESTS: dict[str, Request] = {}

# References of one connection that are open at the same time: each has a part or two in memory.
REFERENCES_MAX = 16
NAME_OCTETS_MAX = 255
# So much of a reference gathers in memory before it goes to the staging store.
HELD_BYTES_MAX = 1_048_576
IMMEDIATE = 2  # the flag of a publish
EMPTY = encode_method(amqp.VERSION_0_9, methods.MessageEmpty())


def run(session: Session, channel: Channel, request_id: int, method: Method) -> None:
    owner = broker_channel(channel)
    if session.connection.by_ticket and method.NAME in NEEDED:
        check_ticket(owner, method)
    pass_work = session.broker.pass_work
    pass_work.unwatched_bytes -= COMMAND_BYTES
    if pass_work.is_critical and method.NAME in GROWING and session.is_critical():
        refuse_growth(channel, method)
    REQUESTS[method.NAME](session, channel, request_id, method)


def request(name: str) -> Callable[[Request], Request]:
    def register(function: Request) -> Request:
        REQUESTS[name] = function
        return function

    return register


def transfers_of(channel: Channel) -> MessageTransfers:
    """Those of a channel, begun when it uses the message class for the first time."""
    owner = broker_channel(channel)
    found: MessageTransfers | None = owner.messages
    if found is None:
        if channel.requests is None:
            raise ConnectionFault(amqp.INTERNAL_ERROR, "a channel without requests")
        found = owner.messages = MessageTransfers(owner, channel.requests)
    return found


# Publishing


@request("message.transfer")
def transfer(session: Session, channel: Channel, request_id: int, method: methods.MessageTransfer) -> None:
    owner = broker_channel(channel)
    if method.immediate and owner.transaction is not None:
        raise ConnectionFault(amqp.NOT_IMPLEMENTED, "an immediate transfer is not part of a transaction here")
    route = route_of(method.destination, method.routing_key)
    if not session.has_published:
        session.has_published = not session.asks(route)
    if method.body.is_reference:
        transfer_reference(session, channel, request_id, method)
    else:
        publish(session, channel, request_id, method, method.body.octets)


def transfer_reference(
    session: Session, channel: Channel, request_id: int, method: methods.MessageTransfer
) -> None:
    """What can be refused is refused now; the message is published when its reference is closed."""
    owner = broker_channel(channel)
    reference = open_reference(channel, method.body.octets)
    if reference.transfer is not None:
        text = f"{shown(reference.name)} is transferred already: open another one for each transfer"
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)
    refuse_staged(owner, reference)
    header_of(session, method, 0)
    owner.find_route(route_of(method.destination, method.routing_key))
    reference.transfer = (request_id, method)


def publish(
    session: Session, channel: Channel, request_id: int, method: methods.MessageTransfer, body: bytes
) -> None:
    if len(body) > session.connection.message_bytes_max:
        text = f"message size {len(body)} is above the maximum of {session.connection.message_bytes_max}"
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)
    header = header_of(session, method, len(body))
    route = route_of(method.destination, method.routing_key)
    flags = IMMEDIATE if method.immediate else 0
    transfers_of(channel).publish(request_id, route, flags, header + body, len(header))


def header_of(session: Session, method: methods.MessageTransfer, body_size: int) -> bytes:
    header = basic_header(method, body_size)
    if len(header) > session.connection.frame_bytes_max - 8:
        text = f"the properties take {len(header)} octets, more than the frame of a basic header holds"
        raise ChannelFault(amqp.CONTENT_TOO_LARGE, text)
    return header


# References


def shown(name: bytes) -> str:
    return f"reference '{name[:80].decode('utf-8', 'replace')}'"


def open_reference(channel: Channel, name: bytes) -> IncomingReference:
    reference = transfers_of(channel).references.get(name)
    if reference is None:
        raise ChannelFault(amqp.NOT_FOUND, f"{shown(name)} is not open on this channel")
    return reference


def new_reference(session: Session, channel: Channel, name: bytes) -> IncomingReference:
    references = transfers_of(channel).references
    if name in references:
        raise ChannelFault(amqp.PRECONDITION_FAILED, f"{shown(name)} is open already")
    if len(name) > NAME_OCTETS_MAX:
        text = f"the name of a reference has {NAME_OCTETS_MAX} octets at the most, not {len(name)}"
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)
    open_now = sum(len(each.messages.references) for each in session.held_channels() if each.messages)
    if open_now >= REFERENCES_MAX:
        text = f"{REFERENCES_MAX} references are open on this connection: close one of them"
        raise ChannelFault(amqp.RESOURCE_ERROR, text)
    session.has_published = True  # where memory is short, those who append have to wait
    reference = references[name] = IncomingReference(name)
    return reference


def refuse_staged(owner: BrokerChannel, reference: IncomingReference) -> None:
    if owner.transaction is not None and reference.content is not None:
        text = f"{shown(reference.name)} is in the staging store, which is not part of a transaction here"
        raise ConnectionFault(amqp.NOT_IMPLEMENTED, text)


def stage(
    session: Session, channel: Channel, method: Method, reference: IncomingReference, content: StagedContent
) -> IncomingFile:
    """From now on the reference is in the staging store, with what was appended to it so far."""

    def wait(work: Chore) -> None:
        session.connection.paused = True
        AwaitedMethod(session, channel, method).begin(work)

    reference.staging = staging_of(session)
    reference.content = content
    reference.incoming = IncomingFile(reference.staging, content, wait)
    held, reference.held = reference.held, bytearray()
    reference.incoming.gathered += held
    return reference.incoming


@request("message.open")
def open_(session: Session, channel: Channel, request_id: int, method: methods.MessageOpen) -> None:
    new_reference(session, channel, method.reference)
    transfers_of(channel).respond(request_id, OK)


@request("message.append")
def append(session: Session, channel: Channel, request_id: int, method: methods.MessageAppend) -> None:
    """Answered when the octets are taken; message.checkpoint is when they are on disk."""
    owner = broker_channel(channel)
    reference = open_reference(channel, method.reference)
    if reference.incoming is None:
        size = len(reference.held) + len(method.octets)
        staging = session.broker.staging
        if size > HELD_BYTES_MAX and staging is not None:
            name = session.broker.new_name("")
            try:
                content = staging.open_unnamed(owner.virtual_host.name, owner.user.name, name)
            except ServiceFault as fault:
                raise refused(fault) from fault
            stage(session, channel, method, reference, content)
        elif size > session.connection.message_bytes_max:
            most = session.connection.message_bytes_max
            raise ChannelFault(
                amqp.PRECONDITION_FAILED, f"message size {size} is above the maximum of {most}"
            )
    if reference.incoming is None:
        reference.held += method.octets
    elif reference.content is not None and reference.content.is_published:
        text = f"content '{reference.identifier}' is published: it takes no more"
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)
    else:
        reference.incoming.append(method.octets)
    transfers_of(channel).respond(request_id, OK)


@request("message.checkpoint")
def checkpoint(
    session: Session, channel: Channel, request_id: int, method: methods.MessageCheckpoint
) -> None:
    """Answered when all that was appended is on disk, and can be found by the identifier."""
    owner = broker_channel(channel)
    staging = staging_of(session)
    reference = open_reference(channel, method.reference)
    try:
        if reference.content is None:
            host, user = owner.virtual_host.name, owner.user.name
            content = staging.open_unnamed(host, user, session.broker.new_name(""))
            stage(session, channel, method, reference, content)
            staging.rename(content, method.identifier)
        elif reference.identifier != method.identifier:
            check_here(reference)
            staging.rename(reference.content, method.identifier)
    except ServiceFault as fault:
        raise refused(fault) from fault
    reference.identifier = method.identifier
    work = checkpointed(session, channel, request_id, reference)
    AwaitedMethod(session, channel, method).begin(work)


def check_here(reference: IncomingReference) -> None:
    """Raises if another channel has resumed the reference meanwhile."""
    content = reference.content
    if content is not None and (content.deleted or content.writer is not reference.incoming):
        text = f"content '{content.identifier}' was resumed elsewhere, or has expired"
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)


def checkpointed(session: Session, channel: Channel, request_id: int, reference: IncomingReference) -> Chore:
    owner = broker_channel(channel)
    if reference.incoming is not None:
        yield from reference.incoming.written(True)
    if is_open(session, channel, owner):
        respond_when_safe(session, channel, request_id, OK)


def respond_when_safe(session: Session, channel: Channel, request_id: int, payload: bytes) -> None:
    owner = broker_channel(channel)
    if owner.store is not None:
        owner.store.hold_back(session.output, owner.store.last())
    transfers_of(channel).respond(request_id, payload)


@request("message.resume")
def resume(session: Session, channel: Channel, request_id: int, method: methods.MessageResume) -> None:
    """Answered with how much of the content is there, which is nothing where the identifier is new."""
    staging_of(session)
    reference = new_reference(session, channel, method.reference)
    work = resumed(session, channel, request_id, method, reference)
    AwaitedMethod(session, channel, method).begin(work)


def resumed(
    session: Session,
    channel: Channel,
    request_id: int,
    method: methods.MessageResume,
    reference: IncomingReference,
) -> Chore:
    owner, staging = broker_channel(channel), staging_of(session)
    host, user = owner.virtual_host.name, owner.user.name
    known = staging.find(host, user, method.identifier)
    while known is not None and known.writing:
        yield known.when_idle  # a part that came by a connection that is gone
    if not is_open(session, channel, owner):
        return
    try:
        content = staging.open(host, user, method.identifier, -1)
    except ServiceFault as fault:
        raise refused(fault) from fault
    reference.identifier = method.identifier
    stage(session, channel, method, reference, content)
    offset = encode_method(amqp.VERSION_0_9, methods.MessageOffset(value=content.staged))
    respond_when_safe(session, channel, request_id, offset)


@request("message.close")
def close(session: Session, channel: Channel, request_id: int, method: methods.MessageClose) -> None:
    """The reference is whole. If it was transferred, it is published now."""
    owner = broker_channel(channel)
    reference = open_reference(channel, method.reference)
    transfers = transfers_of(channel)
    if reference.transfer is not None:
        refuse_staged(owner, reference)
    if reference.incoming is not None:
        work = closed(session, channel, request_id, reference)
        AwaitedMethod(session, channel, method).begin(work)
        return
    if reference.transfer is not None:
        publish(session, channel, *reference.transfer, bytes(reference.held))
    del transfers.references[reference.name]
    transfers.respond(request_id, OK)


def closed(session: Session, channel: Channel, request_id: int, reference: IncomingReference) -> Chore:
    """The same for a reference that is in the staging store."""
    owner, transfers = broker_channel(channel), transfers_of(channel)
    if reference.incoming is not None:
        yield from reference.incoming.written(True)
    if not is_open(session, channel, owner):
        return
    is_due = reference.transfer is not None
    check_here(reference)
    while is_due and reference.transfer is not None and is_open(session, channel, owner):
        try:
            publish_reference(session, channel, reference, *reference.transfer)
            is_due = False
        except AnswerPending as pending:
            yield pending.question.tell  # a back end is asked whether the user may
            check_here(reference)
    if not is_open(session, channel, owner):
        return
    if reference.content is None or not reference.content.is_published:
        reference.end()
    transfers.references.pop(reference.name, None)
    transfers.respond(request_id, OK)


def publish_reference(
    session: Session,
    channel: Channel,
    reference: IncomingReference,
    request_id: int,
    method: methods.MessageTransfer,
) -> None:
    owner, transfers = broker_channel(channel), transfers_of(channel)
    content, staging = reference.content, staging_of(session)
    if content is None or content.is_published:
        transfers.confirm_when_safe(request_id)  # before a break of the connection: it is the same content
        return
    properties = header_of(session, method, 0)[PROPERTIES_AT:]
    route = route_of(method.destination, method.routing_key)
    transfers.is_publishing = True
    try:
        outcome = publish_staged(
            owner, staging, content, route, properties, method.immediate, mandatory=False
        )
    except ServiceFault as fault:
        raise refused(fault) from fault
    finally:
        transfers.is_publishing = False
    if outcome is Outcome.FULL:
        transfers.reject(request_id, REJECTED, "the queues are full and refuse it")
    elif outcome is Outcome.NO_CONSUMERS:
        transfers.reject(request_id, NOT_TAKEN, "NO_CONSUMERS")
    else:
        transfers.confirm_when_safe(request_id)


# Consuming


@request("message.consume")
def consume(session: Session, channel: Channel, request_id: int, method: methods.MessageConsume) -> None:
    owner = broker_channel(channel)
    name, arguments = method.queue, method.arguments
    if name:
        name, arguments = queue_namespaces.qualified(name, arguments)
    queue = caught_up(named_queue(owner, name, Operation.READ))
    session.broker.tell_lost_consumers()
    tag = method.destination
    if tag in owner.consumers:
        raise ConnectionFault(amqp.NOT_ALLOWED, f"attempt to reuse destination '{tag}'")
    quotas.check_consumer(session.broker.config.limits, session.broker, owner)
    transfers = transfers_of(channel)
    terms = MessageTerms(transfers, rate_of(arguments))
    consumer = Consumer(owner, queue, tag, method.no_ack, method.no_local, method.exclusive, arguments, terms)
    owner.virtual_host.consume(consumer)
    transfers.respond(request_id, OK)


@request("message.cancel")
def cancel(session: Session, channel: Channel, request_id: int, method: methods.MessageCancel) -> None:
    """A body that is on its way to the consumer is not finished, and its message goes back."""
    owner, transfers = broker_channel(channel), transfers_of(channel)
    session.broker.tell_lost_consumers()
    consumer = owner.consumers.get(method.destination)
    if consumer is not None and isinstance(consumer.terms, MessageTerms):
        caught_up(consumer.queue)
        owner.virtual_host.cancel(consumer)
        for tag in [outgoing.settles for outgoing in transfers.outgoing]:
            is_held = tag and owner.transaction is None and owner.holds(tag)
            if is_held and owner.held(tag, False, method.NAME)[0].consumer is consumer:
                reject(owner, tag, True, method.NAME)
    transfers.respond(request_id, OK)


class GetTeller:
    """Sends the message of a message.get, and then answers it."""

    def __init__(self, transfers: MessageTransfers, request_id: int, destination: str, no_ack: bool) -> None:
        self.transfers = transfers
        self.request_id = request_id
        self.destination = encode_shortstr(destination)
        self.no_ack = no_ack

    def tell(self, message: Message, tag: int, redelivered: bool, content: bytes, body: Body | None) -> None:
        settles = 0 if self.no_ack else tag
        self.transfers.deliver(
            self.destination, message, settles, redelivered, content, body, self.answer, self.take_back
        )

    def answer(self) -> None:
        self.transfers.respond(self.request_id, OK)

    def take_back(self) -> None:
        """A recover or a timeout has put the message back before all of it was sent: nothing was got."""
        self.transfers.respond(self.request_id, EMPTY)


@request("message.get")
def get(session: Session, channel: Channel, request_id: int, method: methods.MessageGet) -> None:
    """Answered when the message is sent; by message.empty if there is none, or if it went back meanwhile."""
    owner, transfers = broker_channel(channel), transfers_of(channel)
    queue = named_queue(owner, method.queue, Operation.READ)
    if not method.no_ack and owner.unacked.fetched >= FETCHED_MAX and session.is_critical():
        refuse_growth(channel, method)
    if len(transfers.outgoing) >= OUTGOING_MAX or not transfers.may_ask():
        text = "too many messages are on their way to this channel: answer their transfers first"
        raise ChannelFault(amqp.RESOURCE_ERROR, text)
    if caught_up(queue).sweep():
        AwaitedMethod(session, channel, method).begin(fetched(session, channel, request_id, method, queue))
    else:
        take(channel, request_id, method, queue)


def fetched(
    session: Session, channel: Channel, request_id: int, method: methods.MessageGet, queue: Queue
) -> Chore:
    """Where more has expired than a pass may take, it waits until that is gone."""
    owner = broker_channel(channel)
    while is_open(session, channel, owner) and queue.sweep():
        yield queue.room_for_letters()
    if not is_open(session, channel, owner):
        return
    may(owner, Operation.READ, "queue", queue.name)
    if queue.deleted:
        raise ChannelFault(amqp.NOT_FOUND, f"no queue '{queue.name}' in vhost '{owner.virtual_host.name}'")
    take(channel, request_id, method, queue)


def take(channel: Channel, request_id: int, method: methods.MessageGet, queue: Queue) -> None:
    transfers = transfers_of(channel)
    teller = GetTeller(transfers, request_id, method.destination, method.no_ack)
    if not broker_channel(channel).get(queue, method.no_ack, teller):
        transfers.respond(request_id, EMPTY)


@request("message.qos")
def qos(session: Session, channel: Channel, request_id: int, method: methods.MessageQos) -> None:
    set_prefetch(session, channel, method)
    transfers_of(channel).respond(request_id, OK)


@request("message.recover")
def recover(session: Session, channel: Channel, request_id: int, method: methods.MessageRecover) -> None:
    owner = broker_channel(channel)
    if owner.transaction is not None:  # 0-9, message.recover, 02
        raise ChannelFault(amqp.PRECONDITION_FAILED, "message.recover on a transactional channel")
    owner.recover(method.requeue)
    transfers_of(channel).respond(request_id, OK)


# What the client answers


def answered(session: Session, channel: Channel, method: Method, requests: Answered) -> None:
    """Transfers are settled; of a body that is on its way the next part follows."""
    owner, transfers = broker_channel(channel), transfers_of(channel)
    requeue = False
    if isinstance(method, methods.MessageReject):
        if method.code not in (REJECTED, NOT_TAKEN):
            raise ConnectionFault(
                amqp.SYNTAX_ERROR, f"message.reject with the code {method.code}: use 0 or 1"
            )
        requeue = method.code == NOT_TAKEN
    for _, waiter in requests:
        if isinstance(waiter, OutgoingMessage):
            transfers.answered(waiter)
        elif isinstance(waiter, int) and waiter and owner.holds(waiter):
            if isinstance(method, methods.MessageReject):
                reject(owner, waiter, requeue, method.NAME)
            else:
                owner.ack(waiter, False)
    owner.flow(owner.flowing)  # wakes who waited for answers
