"""The queue class: declare, bind, unbind, purge and delete, and which queue a name stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flintmq.auth import Operation
from flintmq.broker import queue_namespaces, queue_templates, quotas, static_topology
from flintmq.broker.channels import direct_reply
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_rules import kind_of
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.server.commands.command import broker_channel, command, is_early, may, may_see
from flintmq.server.commands.exchange import (
    answer_bound,
    exists,
    may_chain,
    may_read_topic,
    not_default,
    refuse_transient,
)
from flintmq.server.logs.audit_log import TOPOLOGY
from flintmq.wire import amqp, methods

if TYPE_CHECKING:
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session
    from flintmq.wire.tables import FieldTable


@command("queue.declare")
def queue_declare(session: Session, channel: Channel, method: methods.QueueDeclare) -> None:
    owner = broker_channel(channel)
    host = owner.virtual_host
    if method.queue.startswith(direct_reply.NAME):
        declare_reply_queue(session, channel, method)
        return
    if method.passive:
        name = (
            queue_namespaces.qualified(method.queue, method.arguments)[0]
            if method.queue
            else last_queue(owner)
        )
        may_see(owner, "queue", name)
        queue = host.find_queue(name, owner.origin)
        if queue.rules is not None:
            queue.rules.touch()
    else:
        queue = declared_queue(session, owner, method)
        host.tally.queues_declared += 1
    owner.last_queue = queue.name
    caught_up(queue)
    if not method.no_wait:
        session.send(
            channel.number,
            methods.QueueDeclareOk(
                # The name as it was given, without its namespace: clients wait for that.
                queue=queue.name if isinstance(method.queue, DrawnName) else method.queue or queue.name,
                message_count=queue.message_count(),
                consumer_count=len(queue.consumers),
            ),
        )


class DrawnName(str):
    """The name that the broker has given to a queue declared without one."""

    __slots__ = ()


def declared_queue(session: Session, owner: BrokerChannel, method: methods.QueueDeclare) -> Queue:
    """The queue of a declaration that is not passive: one that is there, or a new one."""
    host = owner.virtual_host
    if not method.queue:
        # The method keeps the name: when a back end has to be asked, the method is run again.
        method.queue = DrawnName(session.broker.new_name("amq.gen-"))
    is_named = not isinstance(method.queue, DrawnName)
    # Compiled code takes a str alone, none of its subclasses.
    name, arguments = queue_namespaces.qualified(str(method.queue), method.arguments)
    may(owner, Operation.CONFIGURE, "queue", name)
    existing = host.lookup_queue(name)
    durable, exclusive, auto_delete = method.durable, method.exclusive, method.auto_delete
    if existing is not None and is_early(session, owner):
        # 0-9, queue.declare, durable/pre-existence and auto-delete/pre-existence. Nothing there lets a queue
        # be refused to the connection that it is private to.
        durable, auto_delete = existing.durable, existing.auto_delete
        exclusive = exclusive or existing.exclusive
    if existing is None and is_named and name.startswith("amq.") and is_early(session, owner):
        # 0-9, queue.declare, queue/reserved-prefix
        raise ConnectionFault(amqp.NOT_ALLOWED, f"queue name '{name}' begins with 'amq.', which is reserved")
    durable, auto_delete, arguments = queue_templates.applied(
        session.broker.config.queue_templates, existing, durable, auto_delete, arguments
    )
    may_dead_letter(owner, name, arguments)
    quotas.check_queue(session.broker.config.limits, host, name, owner.user.name)
    if host.policies is not None and existing is None:
        host.policies.wait_for_decision(host, name, kind_of(arguments))
    declare = host.declare_queue if is_named else host.add_queue
    return declare(name, durable, exclusive, auto_delete, arguments, owner.origin)


def declare_reply_queue(session: Session, channel: Channel, method: methods.QueueDeclare) -> None:
    """Makes nothing: tells whether somebody waits there for an answer."""
    host = broker_channel(channel).virtual_host
    if not direct_reply.exists(host.queues, method.queue):
        raise ChannelFault(amqp.NOT_FOUND, f"no queue '{method.queue}' in vhost '{host.name}'")
    if not method.no_wait:
        found = methods.QueueDeclareOk(queue=method.queue, message_count=0, consumer_count=1)
        session.send(channel.number, found)


def may_dead_letter(owner: BrokerChannel, name: str, arguments: Mapping[str, Any]) -> None:
    """Who has a queue send its dead letters somewhere needs to be allowed to read the one and write there."""
    exchange = arguments.get("x-dead-letter-exchange")
    if isinstance(exchange, str):
        may(owner, Operation.READ, "queue", name)
        may(owner, Operation.WRITE, "exchange", exchange)


def last_queue(owner: BrokerChannel) -> str:
    """The queue that an empty name stands for."""
    if not owner.last_queue:
        if owner.by_standard:  # 0-9, queue.bind, empty-queue, and others like it
            raise ConnectionFault(amqp.NOT_ALLOWED, "no queue was declared before on this channel")
        raise ChannelFault(amqp.NOT_FOUND, "no previously declared queue")
    return owner.last_queue


def named_queue(owner: BrokerChannel, name: str, operation: Operation) -> Queue:
    name = name or last_queue(owner)
    may(owner, operation, "queue", name)
    return owner.virtual_host.find_queue(name, owner.origin)


def caught_up(queue: Queue) -> Queue:
    """The queue after waiting consumers have had what is theirs, be it from the same read.

    They get it for some milliseconds at most, in all such methods between two passes together; the rest is
    for the next pass. So is what cannot be read now: the queue can be declared, consumed from and deleted
    meanwhile. Nobody takes anything from a stream, so its readers wait for the pass: each new one would feed
    all before it.
    """
    pass_work = queue.pass_work
    if queue.is_stream or not queue.dirty or pass_work.early_left <= 0:
        return queue
    pass_work.begin_early()
    try:
        queue.dispatch_early()
    finally:
        pass_work.end_early()
    return queue


@command("queue.bind")
def queue_bind(session: Session, channel: Channel, method: methods.QueueBind) -> None:
    owner = broker_channel(channel)
    if not (is_early(session, owner) and is_default_binding(owner, method)):
        queue, source, key, arguments = binding_ends(owner, method)
        may_chain(owner, arguments)
        refuse_transient(owner, source, queue, arguments)
        limits = session.broker.config.limits
        quotas.check_binding(limits, owner.virtual_host, source, queue, key, arguments)
        owner.virtual_host.bind(source, queue, key, arguments)
        answer_bound(session, channel, method, source.find_binding(queue, key, arguments))
    elif not method.no_wait:
        session.send(channel.number, methods.QueueBindOk())


def is_default_binding(owner: BrokerChannel, method: methods.QueueBind) -> bool:
    """Whether this is the binding that each queue has to the nameless exchange.

    To 0-8 and 0-9 it is one made twice: 0-9, queue.declare, default-binding; queue.bind, duplicates.
    """
    if method.exchange or method.arguments:
        return False
    queue = named_queue(owner, method.queue, Operation.WRITE)
    may(owner, Operation.READ, "exchange", "")
    return method.routing_key == queue.name or not (method.queue or method.routing_key)


@command("queue.unbind")
def queue_unbind(session: Session, channel: Channel, method: methods.QueueUnbind) -> None:
    owner = broker_channel(channel)
    host = owner.virtual_host
    name = (
        queue_namespaces.qualified(method.queue, method.arguments)[0] if method.queue else last_queue(owner)
    )
    not_default(method.exchange)
    may(owner, Operation.WRITE, "queue", name)
    may(owner, Operation.READ, "exchange", method.exchange)
    # 0-9, queue.unbind, queue/02 and exchange/03: 404; with 0-9-1 it is no error, as in RabbitMQ.
    is_there = exists(host.exchanges, method.exchange) and host.lookup_queue(name) is not None
    if is_there or is_early(session, owner):
        queue, source, key, arguments = binding_ends(owner, method)
        static_topology.refuse_unbinding(host, source, queue, key, arguments)
        host.unbind(source, queue, key, arguments)
    session.send(channel.number, methods.QueueUnbindOk())


def binding_ends(
    owner: BrokerChannel, method: methods.QueueBind | methods.QueueUnbind
) -> tuple[Queue, Any, str, FieldTable]:
    not_default(method.exchange)
    name, arguments = method.queue, method.arguments
    if name:
        name, arguments = queue_namespaces.qualified(name, arguments)
    queue = named_queue(owner, name, Operation.WRITE)
    may(owner, Operation.READ, "exchange", method.exchange)
    source = owner.virtual_host.find_exchange(method.exchange)
    # With neither name nor key given, both mean the queue declared last.
    key = method.routing_key if method.queue or method.routing_key else queue.name
    may_read_topic(owner, source, key)
    return queue, source, key, arguments


@command("queue.purge")
def queue_purge(session: Session, channel: Channel, method: methods.QueuePurge) -> None:
    queue = caught_up(named_queue(broker_channel(channel), method.queue, Operation.READ))
    count = queue.purge()
    session.audit(TOPOLOGY, "queue.purge", True, queue.name)
    if not method.no_wait:
        session.send(channel.number, methods.QueuePurgeOk(message_count=count))


@command("queue.delete")
def queue_delete(session: Session, channel: Channel, method: methods.QueueDelete) -> None:
    owner = broker_channel(channel)
    name = method.queue or last_queue(owner)
    may(owner, Operation.CONFIGURE, "queue", name)
    count = 0
    # 0-9, queue.delete, queue/02: 404; with 0-9-1 it is no error, as in RabbitMQ.
    if owner.by_standard or owner.virtual_host.lookup_queue(name) is not None:
        queue = owner.virtual_host.find_queue(name, owner.origin)
        static_topology.refuse_deletion(owner.virtual_host, static_topology.QUEUE, name)
        if method.if_unused and queue.consumers:
            raise in_use(queue, owner, "in use")
        caught_up(queue)
        if method.if_empty and (queue.message_count() or queue.waiting_count()):
            raise in_use(queue, owner, "not empty")
        count = owner.virtual_host.delete_queue(queue)
        session.audit(TOPOLOGY, "queue.delete", True, name)
    if not method.no_wait:
        session.send(channel.number, methods.QueueDeleteOk(message_count=count))


def in_use(queue: Queue, owner: BrokerChannel, why: str) -> ChannelFault:
    return ChannelFault(
        amqp.PRECONDITION_FAILED,
        f"queue '{queue.name}' in vhost '{owner.virtual_host.name}' {why}",
    )
