"""The exchange class: declare, delete, bind and unbind.

What a binding needs, be it of a queue or of an exchange, is here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq.auth import Operation
from flintmq.broker import quotas, static_topology
from flintmq.broker.administration import administrator_access
from flintmq.broker.channels import routing_permissions
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.exchanges.arguments import wrong
from flintmq.broker.exchanges.binding import VIA
from flintmq.broker.exchanges.chains import via_of
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES, known_type
from flintmq.broker.exchanges.recent_history_exchange import RecentHistoryExchange
from flintmq.broker.exchanges.system_exchange import SystemExchange
from flintmq.broker.queues.queue import Queue
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.server.commands.command import (
    AwaitedMethod,
    broker_channel,
    command,
    is_early,
    is_open,
    may,
    may_see,
)
from flintmq.server.logs.audit_log import TOPOLOGY
from flintmq.wire import amqp, methods

if TYPE_CHECKING:
    from flintmq.broker.exchanges.binding import Binding
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session
    from flintmq.wire.tables import FieldTable


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
            may(owner, Operation.WRITE, "exchange", administrator_access.REQUESTS)
        durable, auto_delete = method.durable, method.auto_delete
        if owner.by_standard:
            existing = host.exchanges.get(method.exchange)
            check_type(existing, method)
            # 0-9, exchange.declare, durable/sticky and auto-delete/sticky
            if existing is not None and is_early(session, owner):
                durable, auto_delete = existing.durable, existing.auto_delete
        quotas.check_exchange(session.broker.config.limits, host, method.exchange)
        host.declare_exchange(
            method.exchange,
            method.type,
            durable,
            auto_delete,
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
    if is_early(session, owner):  # 0-9, exchange.delete, exchange/exists: 404; with 0-9-1 it is no error
        owner.virtual_host.find_exchange(method.exchange)
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
    answer_bound(session, channel, method, source.find_binding(destination, key, arguments))


def answer_bound(
    session: Session,
    channel: Channel,
    method: methods.ExchangeBind | methods.QueueBind,
    binding: Binding | None,
) -> None:
    """Answers, where the exchange hands over the recent past first when the destination has got it."""
    source = None if binding is None else binding.source
    if isinstance(source, RecentHistoryExchange) and binding in source.handing_over:
        wait = partial(source.when_handed_over, binding)
        AwaitedMethod(session, channel, method).begin(bound(session, channel, method, wait))
    elif not method.no_wait:
        session.send(channel.number, bind_ok(method))


def bound(
    session: Session, channel: Channel, method: methods.ExchangeBind | methods.QueueBind, wait: Wait
) -> Chore:
    owner = broker_channel(channel)
    yield wait
    if not method.no_wait and is_open(session, channel, owner):
        session.send(channel.number, bind_ok(method))


def bind_ok(method: methods.ExchangeBind | methods.QueueBind) -> methods.Method:
    return methods.QueueBindOk() if isinstance(method, methods.QueueBind) else methods.ExchangeBindOk()


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


def may_read_topic(owner: BrokerChannel, source: Exchange, key: str) -> None:
    """A binding reads what is published with keys that its own key matches."""
    routing_permissions.check_topic(owner, source, Operation.READ, key)


def may_chain(owner: BrokerChannel, arguments: FieldTable) -> None:
    """A chained binding tells of what comes by another exchange: that takes the permission to bind to it."""
    if VIA in arguments:
        for name in via_of(arguments):
            may(owner, Operation.READ, "exchange", name)


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
