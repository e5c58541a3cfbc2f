"""What clients ask of a channel: each method of each class as one function, and the table of them.

A function takes the session, the protocol's channel and the method, calls the broker, and answers.
Faults are raised; the session turns them into a Close.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flintmq.auth import Operation, require
from flintmq.auth import may as is_allowed
from flintmq.broker import queue_namespaces, queue_templates, quotas, static_topology
from flintmq.broker.administration import way_in
from flintmq.broker.channels import direct_reply
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.channels.tickets import NEEDED, check_ticket
from flintmq.broker.exchanges.arguments import wrong
from flintmq.broker.exchanges.binding import VIA
from flintmq.broker.exchanges.chains import via_of
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES, known_type
from flintmq.broker.exchanges.system_exchange import SystemExchange
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.consumer_terms import terms_of
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_rules import kind_of
from flintmq.broker.scheduling.errands import attend
from flintmq.broker.services import browsing
from flintmq.broker.transactions.transaction import Transaction
from flintmq.errors import ChannelFault, ConnectionFault, PeerFault
from flintmq.protocol import phases
from flintmq.server.logs.audit_log import TOPOLOGY
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

if TYPE_CHECKING:
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.consumer_selector import ConsumerSelector
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.protocol.channel import Channel
    from flintmq.server.sessions.session import Session as Session  # for all commands
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.commands")

# What a method may leave in memory, on average: a queue takes 2 KiB.
COMMAND_BYTES = 2048
# Methods after which the broker holds more than before, but for publishes.
GROWING = frozenset(
    (
        "exchange.declare",
        "exchange.bind",
        "queue.declare",
        "queue.bind",
        "basic.consume",
        "file.consume",
        "stream.consume",
        "message.consume",
        "dtx.start",
    )
)
# How many of the messages of basic.get a channel may have unacked where memory is critical.
FETCHED_MAX = 16

COMMANDS: dict[str, Callable[[Session, Channel, Any], None]] = {}


def run(session: Session, channel: Channel, method: Method) -> None:
    command = COMMANDS.get(method.NAME)
    if command is None:
        raise not_implemented(method)
    if method.NAME in STRIPPED:
        strip_names(method)
    if session.connection.by_ticket and method.NAME in NEEDED:
        check_ticket(broker_channel(channel), method)
    pass_work = session.broker.pass_work
    pass_work.unwatched_bytes -= COMMAND_BYTES
    if pass_work.is_critical and method.NAME in GROWING and session.is_critical():
        refuse_growth(channel, method)
    command(session, channel, method)
    store = session.broker.store
    if store is not None and method.CLASS_ID in (amqp.CLASS_EXCHANGE, amqp.CLASS_QUEUE):
        # The durable topology may be told of when it is safe; that goes for what others changed too.
        topology = None if session.virtual_host is None else session.virtual_host.topology
        if topology is not None:
            store.hold_back(session.output, topology.sequence)


# The methods in which RabbitMQ takes line ends out of the names of exchanges and queues, wherever in a name
# they are. Others, basic.consume among them, take the names as they come.
STRIPPED = frozenset(
    f"{kind}.{verb}" for kind in ("exchange", "queue") for verb in ("declare", "delete", "bind", "unbind")
)
NAMES = ("exchange", "queue", "source", "destination")


def strip_names(method: Method) -> None:
    for field in NAMES:
        name = getattr(method, field, None)
        if name and ("\r" in name or "\n" in name):
            setattr(method, field, name.replace("\r", "").replace("\n", ""))


def refuse_growth(channel: Channel, method: Method) -> None:
    """Exchanges, queues and bindings cannot go to disk: no more of them while memory is critical.

    A channel may have one consumer all the same: somebody has to empty the queues.
    """
    if getattr(method, "passive", False):
        return
    if isinstance(method, methods.BasicConsume) and not broker_channel(channel).consumers:
        return
    text = f"memory is short: no {method.NAME} for now"
    raise ChannelFault(amqp.RESOURCE_ERROR, text, method.CLASS_ID, method.METHOD_ID)


def not_implemented(method: Method) -> ConnectionFault:
    text = f"{method.NAME} is not served here"
    return ConnectionFault(amqp.NOT_IMPLEMENTED, text, method.CLASS_ID, method.METHOD_ID)


def command(
    name: str,
) -> Callable[[Callable[[Session, Channel, Any], None]], Callable[[Session, Channel, Any], None]]:
    def register(
        function: Callable[[Session, Channel, Any], None],
    ) -> Callable[[Session, Channel, Any], None]:
        COMMANDS[name] = function
        return function

    return register


def broker_channel(channel: Channel) -> BrokerChannel:
    owner = channel.owner
    if not isinstance(owner, BrokerChannel):
        raise ConnectionFault(amqp.CHANNEL_ERROR, f"channel {channel.number} is not open")
    return owner


def may(owner: BrokerChannel, operation: Operation, kind: str, name: str) -> None:
    require(owner.user, owner.virtual_host.name, operation, kind, name)


# channel


@command("channel.open")
def channel_open(session: Session, channel: Channel, method: methods.ChannelOpen) -> None:
    session.open_channel(channel)
    opened = methods.ChannelOpenOk()
    if session.connection.version == amqp.VERSION_0_9:
        opened.channel_id = channel_id(session, channel)
    session.send(channel.number, opened)


@command("channel.close")
def channel_close(session: Session, channel: Channel, method: methods.ChannelClose) -> None:
    """While we wait for a close-ok of our own, a crossing close is answered and the wait goes on."""
    if channel.state == phases.CHANNEL_CLOSED:
        if channel.owner is not None:
            broker_channel(channel).confirm_safe()
        if not session.wants_whole_contents():
            session.output.drop_streams(channel.number)
        session.release_channel(channel)
        session.connection.forget_channel(channel)
    session.send(channel.number, methods.ChannelCloseOk())


@command("channel.close-ok")
def channel_close_ok(session: Session, channel: Channel, method: methods.ChannelCloseOk) -> None:
    """It may come before our close, which then is not sent."""
    if channel.owner is not None:
        session.release_channel(channel)
    session.connection.forget_channel(channel)


@command("channel.flow")
def channel_flow(session: Session, channel: Channel, method: methods.ChannelFlow) -> None:
    broker_channel(channel).flow(method.active)
    session.send(channel.number, methods.ChannelFlowOk(active=method.active))


@command("channel.flow-ok")
def channel_flow_ok(session: Session, channel: Channel, method: methods.ChannelFlowOk) -> None:
    """Flow is never asked of a client, so an answer to it means nothing."""


@command("channel.ping")
def channel_ping(session: Session, channel: Channel, method: methods.ChannelPing) -> None:
    """What it asks for is a pong of our own, which the client answers in turn."""
    session.send(channel.number, methods.ChannelOk())
    session.send(channel.number, methods.ChannelPong())


@command("channel.pong")
def channel_pong(session: Session, channel: Channel, method: methods.ChannelPong) -> None:
    session.send(channel.number, methods.ChannelOk())


@command("channel.ok")
def channel_ok(session: Session, channel: Channel, method: methods.ChannelOk) -> None:
    """The answer to our pong, which asks for nothing more."""


@command("channel.resume")
def channel_resume(session: Session, channel: Channel, method: methods.ChannelResume) -> None:
    """Goes on with the channel of this id, which channel.open-ok has told.

    A channel is not kept when its connection ends: what it held is in its queues again, and comes from there.
    """
    if method.channel_id != channel_id(session, channel):
        raise ChannelFault(
            amqp.NOT_FOUND,
            "no channel of this id is open on this connection: what an interrupted channel held is back in "
            "its queues, consume from these again",
        )
    broker_channel(channel).flow(True)
    session.send(channel.number, methods.ChannelOk())


def channel_id(session: Session, channel: Channel) -> bytes:
    """What channel.open-ok of 0-9 calls the channel: nothing else of this broker has the same name."""
    return b"%d.%d" % (session.number, channel.number)


# exchange


@command("exchange.declare")
def exchange_declare(session: Session, channel: Channel, method: methods.ExchangeDeclare) -> None:
    owner = broker_channel(channel)
    host = owner.virtual_host
    not_default(method.exchange)
    if method.passive:
        may_see(owner, "exchange", method.exchange)
        host.find_exchange(method.exchange)
    else:
        may(owner, Operation.CONFIGURE, "exchange", method.exchange)
        alternate = method.arguments.get("alternate-exchange")
        if alternate is not None:
            if not isinstance(alternate, str):
                raise wrong("alternate-exchange", "text")
            may(owner, Operation.READ, "exchange", method.exchange)
            may(owner, Operation.WRITE, "exchange", alternate)
        if method.type == SystemExchange.type:
            # Else who may declare exchanges could ask the broker what it is not to ask.
            may(owner, Operation.WRITE, "exchange", way_in.REQUESTS)
        if owner.by_standard:
            check_type(host.exchanges.get(method.exchange), method)
        quotas.check_exchange(session.broker.config.limits, host, method.exchange)
        host.declare_exchange(
            method.exchange,
            method.type,
            method.durable,
            method.auto_delete,
            method.internal,
            method.arguments,
        )
    if not method.no_wait:
        session.send(channel.number, methods.ExchangeDeclareOk())


def check_type(existing: Exchange | None, method: methods.ExchangeDeclare) -> None:
    """What 0-8 and 0-9 say of types: 503 for one that is not known, 530 for another than before.

    With 0-9-1 both are 406 on the channel, as in RabbitMQ.
    """
    kind = known_type(method.type, {})[0]
    if existing is not None and kind != existing.type:
        raise ConnectionFault(
            amqp.NOT_ALLOWED,
            f"exchange '{method.exchange}' is of type '{existing.type}': it cannot be declared as "
            f"'{method.type}'",
        )
    if existing is None and kind not in EXCHANGE_TYPES:
        known = ", ".join(sorted(EXCHANGE_TYPES))
        raise ConnectionFault(
            amqp.COMMAND_INVALID, f"unknown exchange type '{method.type}': known are {known}"
        )


@command("exchange.delete")
def exchange_delete(session: Session, channel: Channel, method: methods.ExchangeDelete) -> None:
    owner = broker_channel(channel)
    not_default(method.exchange)
    may(owner, Operation.CONFIGURE, "exchange", method.exchange)
    static_topology.refuse_deletion(owner.virtual_host, static_topology.EXCHANGE, method.exchange)
    is_there = method.exchange in owner.virtual_host.exchanges
    owner.virtual_host.delete_exchange(method.exchange, method.if_unused)
    if is_there:
        session.audit(TOPOLOGY, "exchange.delete", True, method.exchange)
    if not method.no_wait:
        session.send(channel.number, methods.ExchangeDeleteOk())


@command("exchange.bind")
def exchange_bind(session: Session, channel: Channel, method: methods.ExchangeBind) -> None:
    owner = broker_channel(channel)
    source, destination = exchange_pair(owner, method.source, method.destination)
    may_read_topic(owner, source, method.routing_key)
    may_chain(owner, method.arguments)
    refuse_transient(owner, source, destination, method.arguments)
    host, key, arguments = owner.virtual_host, method.routing_key, method.arguments
    quotas.check_binding(session.broker.config.limits, host, source, destination, key, arguments)
    host.bind(source, destination, key, arguments)
    if not method.no_wait:
        session.send(channel.number, methods.ExchangeBindOk())


@command("exchange.unbind")
def exchange_unbind(session: Session, channel: Channel, method: methods.ExchangeUnbind) -> None:
    owner = broker_channel(channel)
    may_bind_exchanges(owner, method.source, method.destination)
    if exists(owner.virtual_host.exchanges, method.source, method.destination):
        source, destination = exchange_pair(owner, method.source, method.destination)
        may_read_topic(owner, source, method.routing_key)
        static_topology.refuse_unbinding(
            owner.virtual_host, source, destination, method.routing_key, method.arguments
        )
        owner.virtual_host.unbind(source, destination, method.routing_key, method.arguments)
    if not method.no_wait:
        session.send(channel.number, methods.ExchangeUnbindOk())


def may_bind_exchanges(owner: BrokerChannel, source: str, destination: str) -> None:
    """Raises unless it is permitted, whether or not they exist: that is not for everybody to know."""
    not_default(source)
    not_default(destination)
    may(owner, Operation.WRITE, "exchange", destination)
    may(owner, Operation.READ, "exchange", source)


def exchange_pair(owner: BrokerChannel, source: str, destination: str) -> tuple[Any, Any]:
    may_bind_exchanges(owner, source, destination)
    return owner.virtual_host.find_exchange(source), owner.virtual_host.find_exchange(destination)


def exists(those: Mapping[str, object], *names: str) -> bool:
    """What is gone has no bindings left: unbinding it has nothing to do, and is no error, as in RabbitMQ."""
    return all(name in those for name in names)


def not_default(name: str) -> None:
    if not name:
        raise ChannelFault(amqp.ACCESS_REFUSED, "operation not permitted on the default exchange")


def may_see(owner: BrokerChannel, kind: str, name: str) -> None:
    """A passive declare tells whether something exists: any permission on it will do."""
    user, host = owner.user, owner.virtual_host.name
    if not any(is_allowed(user, host, each, name, kind) for each in (Operation.READ, Operation.WRITE)):
        may(owner, Operation.CONFIGURE, kind, name)


# queue


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
    durable, auto_delete, arguments = queue_templates.applied(
        session.broker.config.queue_templates,
        host.lookup_queue(name),
        method.durable,
        method.auto_delete,
        arguments,
    )
    may_dead_letter(owner, name, arguments)
    quotas.check_queue(session.broker.config.limits, host, name, owner.user.name)
    if host.policies is not None and host.lookup_queue(name) is None:
        host.policies.wait_for_decision(host, name, kind_of(arguments))
    declare = host.declare_queue if is_named else host.add_queue
    return declare(name, durable, method.exclusive, auto_delete, arguments, owner.origin)


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
    """The queue after waiting consumers have had what is theirs, be it from the same read."""
    if queue.dirty:
        queue.dispatch()
    return queue


@command("queue.bind")
def queue_bind(session: Session, channel: Channel, method: methods.QueueBind) -> None:
    owner = broker_channel(channel)
    queue, source, key, arguments = binding_ends(owner, method)
    may_chain(owner, arguments)
    refuse_transient(owner, source, queue, arguments)
    limits = session.broker.config.limits
    quotas.check_binding(limits, owner.virtual_host, source, queue, key, arguments)
    owner.virtual_host.bind(source, queue, key, arguments)
    if not method.no_wait:
        session.send(channel.number, methods.QueueBindOk())


def refuse_transient(
    owner: BrokerChannel, source: Exchange, destination: Queue | Exchange, arguments: FieldTable
) -> None:
    """004, durable wiring: nothing durable hangs on something transient; 0-9-1 demands the opposite.

    0-9 has 530 for it (queue.bind, transient-exchange), which elsewhere closes connections; 004 says that it
    is an exception of the channel.
    """
    if not owner.by_standard or not destination.durable:
        return
    exchanges = owner.virtual_host.exchanges
    names = via_of(arguments) if VIA in arguments else []
    for exchange in (source, *[exchanges[name] for name in names if name in exchanges]):
        if not exchange.durable:
            kind = "queue" if isinstance(destination, Queue) else "exchange"
            raise ChannelFault(
                amqp.NOT_ALLOWED,
                f"durable {kind} '{destination.name}' cannot be bound to exchange '{exchange.name}', "
                "which is transient",
            )


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
    if exists(host.exchanges, method.exchange) and host.lookup_queue(name) is not None:
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


def may_read_topic(owner: BrokerChannel, source: Exchange, key: str) -> None:
    """A binding reads what is published with keys that its own key matches."""
    owner.virtual_host.check_topic(source, owner.user, Operation.READ, key, owner.origin)


def may_chain(owner: BrokerChannel, arguments: FieldTable) -> None:
    """A chained binding tells of what comes by another exchange: that takes the permission to bind to it."""
    if VIA in arguments:
        for name in via_of(arguments):
            may(owner, Operation.READ, "exchange", name)


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
        if method.if_empty and queue.message_count():
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


# basic


@command("basic.qos")
def basic_qos(session: Session, channel: Channel, method: methods.BasicQos) -> None:
    set_prefetch(session, channel, method)
    session.send(channel.number, methods.BasicQosOk())


def set_prefetch(
    session: Session, channel: Channel, method: methods.BasicQos | methods.FileQos | methods.MessageQos
) -> None:
    """RabbitMQ's meaning of global: shared by the channel; else for each consumer made from now on."""
    owner = broker_channel(channel)
    for consumer in owner.consumers.values():
        caught_up(consumer.queue)
    if method.global_ or session.follows_standard_qos():
        owner.global_count = method.prefetch_count
        owner.global_bytes = method.prefetch_size
    else:
        owner.prefetch_count = method.prefetch_count
        owner.prefetch_bytes = method.prefetch_size
        owner.global_count = owner.global_bytes = 0  # as in RabbitMQ: it takes the place of a shared limit
    owner.flow(owner.flowing)  # wakes those that waited for a wider limit


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
        yield None
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
            yield None
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


def is_open(session: Session, channel: Channel, owner: BrokerChannel) -> bool:
    """Whether there is still somebody to answer."""
    return (
        channel.owner is owner
        and channel.state == phases.CHANNEL_OPEN
        and session.connection.state == phases.CONNECTION_OPEN
    )


class AwaitedMethod:
    """A method whose work is more than a pass may take: an errand of its connection."""

    def __init__(self, session: Session, channel: Channel, method: Method) -> None:
        self.session = session
        self.channel = channel
        self.owner = broker_channel(channel)
        self.method = method
        self.work: Chore = iter(())

    def begin(self, work: Chore) -> None:
        self.work = work
        attend(self.session.broker.pass_work, self.session.number, self)

    def serve(self) -> Chore:
        try:
            yield from self.work
        except PeerFault as fault:
            if not fault.class_id:
                fault.class_id, fault.method_id = self.method.CLASS_ID, self.method.METHOD_ID
            if is_open(self.session, self.channel, self.owner):
                self.session.fail(self.channel, fault)
        except Exception:
            log.exception("a bug ends the connection of %s", self.session)
            self.session.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, "see the log of the broker"))


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


# confirm and tx


@command("confirm.select")
def confirm_select(session: Session, channel: Channel, method: methods.ConfirmSelect) -> None:
    owner = broker_channel(channel)
    if owner.transaction is not None:
        raise wrong_mode("cannot switch from tx to confirm mode")
    owner.confirms.active = True
    if not method.no_wait:
        session.send(channel.number, methods.ConfirmSelectOk())


@command("tx.select")
def tx_select(session: Session, channel: Channel, method: methods.TxSelect) -> None:
    owner = broker_channel(channel)
    if owner.confirms.active:
        raise wrong_mode("cannot switch from confirm to tx mode")
    if owner.transaction is None:
        owner.transaction = Transaction(owner)
    if not isinstance(owner.transaction, Transaction):
        raise wrong_mode("cannot switch from dtx to tx mode")
    session.send(channel.number, methods.TxSelectOk())


@command("tx.commit")
def tx_commit(session: Session, channel: Channel, method: methods.TxCommit) -> None:
    transaction = open_transaction(channel)
    if transaction.is_large():
        AwaitedMethod(session, channel, method).begin(committed(session, channel, transaction))
        return
    transaction.commit()
    session.send(channel.number, methods.TxCommitOk())


def committed(session: Session, channel: Channel, transaction: Transaction) -> Chore:
    yield from transaction.commit_in_portions()
    if is_open(session, channel, transaction.channel):
        session.send(channel.number, methods.TxCommitOk())


@command("tx.rollback")
def tx_rollback(session: Session, channel: Channel, method: methods.TxRollback) -> None:
    open_transaction(channel).rollback()
    session.send(channel.number, methods.TxRollbackOk())


def open_transaction(channel: Channel) -> Transaction:
    transaction = broker_channel(channel).transaction
    if not isinstance(transaction, Transaction):
        raise wrong_mode("channel is not transactional")
    return transaction


def wrong_mode(why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"{why}")
