"""The basic class but for publishes: qos, consume, cancel, get, ack, reject and recover.

A plain basic.publish and basic.ack come by the short way, Session.publish and Session.ack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.auth import Operation
from flintmq.broker import queue_namespaces, quotas
from flintmq.broker.channels import direct_reply
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.consumer_terms import terms_of
from flintmq.broker.queues.queue import Queue
from flintmq.broker.services import browsing
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.server.commands.command import (
    AwaitedMethod,
    broker_channel,
    command,
    is_open,
    may,
    refuse_growth,
)
from flintmq.server.commands.queue import caught_up, named_queue
from flintmq.wire import amqp, methods

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer_selector import ConsumerSelector
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session

# How many of the messages of basic.get a channel may have unacked where memory is critical.
FETCHED_MAX = 16


@command("basic.qos")
def basic_qos(session: Session, channel: Channel, method: methods.BasicQos) -> None:
    set_prefetch(session, channel, method)
    session.send(channel.number, methods.BasicQosOk())


def set_prefetch(
    session: Session, channel: Channel, method: methods.BasicQos | methods.FileQos | methods.MessageQos
) -> None:
    """RabbitMQ's meaning of global: shared by the channel; else for each consumer made from now on."""
    owner = broker_channel(channel)
    session.broker.pass_work.copies += len(owner.consumers)  # a look at each takes as long
    for consumer in owner.consumers.values():
        caught_up(consumer.queue)
    if method.global_ or session.expects_standard():
        owner.global_count = method.prefetch_count
        owner.global_bytes = method.prefetch_size
    else:
        owner.prefetch_count = method.prefetch_count
        owner.prefetch_bytes = method.prefetch_size
        owner.global_count = owner.global_bytes = 0  # as in RabbitMQ: it takes the place of a shared limit
        if session.is_py_amqp():
            reset_prefetch(owner)
    owner.flow(owner.flowing)  # wakes those that waited for a wider limit


def reset_prefetch(owner: BrokerChannel) -> None:
    """The limit of new consumers is that of the present ones too, and of all together if they share it."""
    if owner.shares_prefetch:
        share_prefetch(owner)
    for consumer in owner.consumers.values():
        consumer.prefetch_count = owner.prefetch_count
        consumer.prefetch_bytes = owner.prefetch_bytes
        consumer.wake()


def share_prefetch(owner: BrokerChannel) -> None:
    owner.shares_prefetch = True
    owner.global_count = owner.prefetch_count
    owner.global_bytes = owner.prefetch_bytes


@command("basic.consume")
def basic_consume(session: Session, channel: Channel, method: methods.BasicConsume) -> None:
    owner = broker_channel(channel)
    is_reply = method.queue == direct_reply.NAME
    name, arguments = method.queue, method.arguments
    if name:
        name, arguments = queue_namespaces.qualified(name, arguments)
    queue = None if is_reply else caught_up(named_queue(owner, name, Operation.READ))
    session.broker.tell_lost_consumers()
    tag = method.consumer_tag or session.broker.new_name("amq.ctag-")
    if tag in owner.consumers:
        raise ConnectionFault(amqp.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    quotas.check_consumer(session.broker.config.limits, session.broker, owner)
    if queue is None:
        token = session.broker.new_name(f"{direct_reply.NAME}.")
        queue = direct_reply.open_queue(owner, token, method.no_ack)
    terms = terms_of(arguments)
    consumer = Consumer(owner, queue, tag, method.no_ack, method.no_local, method.exclusive, arguments, terms)
    owner.virtual_host.consume(consumer)
    if not method.no_wait:
        session.send(channel.number, methods.BasicConsumeOk(consumer_tag=tag))
    elif session.is_py_amqp() and not owner.global_count:
        # So kombu begins a Consumer of several queues, such as that of Celery: it waits for the last alone.
        share_prefetch(owner)


@command("basic.cancel")
def basic_cancel(session: Session, channel: Channel, method: methods.BasicCancel) -> None:
    owner = broker_channel(channel)
    session.broker.tell_lost_consumers()
    consumer = owner.consumers.get(method.consumer_tag)
    if consumer is not None:
        caught_up(consumer.queue)
        owner.virtual_host.cancel(consumer)
        if session.knows_interrupts():
            interrupt(owner, consumer)
    if not method.no_wait:
        session.send(channel.number, methods.BasicCancelOk(consumer_tag=method.consumer_tag))


def interrupt(owner: BrokerChannel, consumer: Consumer) -> None:
    """Calls off the delivery of a cancelled consumer that is on its way, and gives its message back."""
    tag = owner.output.streamed_tag(owner.number)
    if not tag or not owner.holds(tag) or owner.transaction is not None:
        return
    if owner.held(tag, False, "basic.cancel")[0].consumer is consumer:
        reject(owner, tag, True, "basic.cancel")


def reject(owner: BrokerChannel, tag: int, requeue: bool, what: str) -> None:
    """One delivery. If its body is on its way the rest is called off, as basic.reject of the standard has it.

    Not in a transaction, which may be rolled back.
    """
    owner.reject(tag, False, requeue, what)
    if owner.transaction is None:
        owner.output.call_off(owner.number, tag)


@command("basic.cancel-ok")
def basic_cancel_ok(session: Session, channel: Channel, method: methods.BasicCancelOk) -> None:
    """Our own basic.cancel asks for no answer; one that comes anyway is fine."""


@command("basic.get")
def basic_get(session: Session, channel: Channel, method: methods.BasicGet) -> None:
    owner = broker_channel(channel)
    queue = named_queue(owner, method.queue, Operation.READ)
    if not method.no_ack and owner.unacked.fetched >= FETCHED_MAX and session.is_critical():
        refuse_growth(channel, method)
    selection = None if owner.get_filters is None else owner.get_filters.get(queue.name)
    if selection is not None:
        caught_up(queue)
        work = fetched_selectively(session, channel, owner, queue, selection, method.no_ack)
        AwaitedMethod(session, channel, method).begin(work)
    elif caught_up(queue).sweep():
        AwaitedMethod(session, channel, method).begin(fetched(session, channel, owner, queue, method.no_ack))
    elif not owner.get(queue, method.no_ack):
        session.send(channel.number, methods.BasicGetEmpty())


def fetched(session: Session, channel: Channel, owner: BrokerChannel, queue: Queue, no_ack: bool) -> Chore:
    """A basic.get of a queue in which more has expired than a pass may take: it waits until that is gone."""
    while is_open(session, channel, owner) and queue.sweep():
        yield queue.room_for_letters()
    if not is_open(session, channel, owner):
        return
    may(owner, Operation.READ, "queue", queue.name)  # which may have been taken away meanwhile
    if queue.deleted:
        raise ChannelFault(amqp.NOT_FOUND, f"no queue '{queue.name}' in vhost '{owner.virtual_host.name}'")
    if not owner.get(queue, no_ack):
        session.send(channel.number, methods.BasicGetEmpty())


def fetched_selectively(
    session: Session,
    channel: Channel,
    owner: BrokerChannel,
    queue: Queue,
    selection: ConsumerSelector,
    no_ack: bool,
) -> Chore:
    """A basic.get with a filter, which looks through the queue in portions."""
    after = browsing.BEFORE_ALL
    while is_open(session, channel, owner):
        may(owner, Operation.READ, "queue", queue.name)
        if queue.deleted:
            raise ChannelFault(
                amqp.NOT_FOUND, f"no queue '{queue.name}' in vhost '{owner.virtual_host.name}'"
            )
        if queue.sweep():
            yield queue.room_for_letters()
            continue
        found, after, has_more = browsing.take_selected(queue, selection, after)
        if found is not None and found.message is not None:
            if owner.fetch(queue, found, found.message, no_ack):
                return
        elif not has_more:
            owner.note_empty_get()
            session.send(channel.number, methods.BasicGetEmpty())
            return
        yield None


@command("basic.ack")
def basic_ack(session: Session, channel: Channel, method: methods.BasicAck) -> None:
    broker_channel(channel).ack(method.delivery_tag, method.multiple)


@command("basic.reject")
def basic_reject(session: Session, channel: Channel, method: methods.BasicReject) -> None:
    reject(broker_channel(channel), method.delivery_tag, method.requeue, method.NAME)


@command("basic.nack")
def basic_nack(session: Session, channel: Channel, method: methods.BasicNack) -> None:
    """One for several deliveries may name some that the client has not heard of: those come to their end."""
    if not method.multiple:
        reject(broker_channel(channel), method.delivery_tag, method.requeue, method.NAME)
        return
    broker_channel(channel).reject(method.delivery_tag, method.multiple, method.requeue, method.NAME)


@command("basic.recover")
def basic_recover(session: Session, channel: Channel, method: methods.BasicRecover) -> None:
    broker_channel(channel).recover(method.requeue)
    session.send(channel.number, methods.BasicRecoverOk())


@command("basic.recover-async")
def basic_recover_async(session: Session, channel: Channel, method: methods.BasicRecoverAsync) -> None:
    broker_channel(channel).recover(method.requeue)
