"""Topology that the settings declare: always durable, there from the start, not the clients' to delete."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flintmq.broker.exchanges.exchange import Exchange
from flintmq.broker.queue_templates import TEMPLATE, applied
from flintmq.errors import ChannelFault, ConfigFault, PeerFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.config import BindingSettings, ExchangeSettings, QueueSettings
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.static_topology")

EXCHANGE = "exchange"
QUEUE = "queue"
SECTIONS = ("exchanges", "queues", "bindings")


def declare_all(broker: Broker) -> None:
    """What the settings name, after recovery: some of it may be there already."""
    config = broker.config
    where = ""
    try:
        for index, exchange in enumerate(config.exchanges):
            where = f"exchanges[{index}]"
            declare_exchange(broker, exchange)
        for index, queue in enumerate(config.queues):
            where = f"queues[{index}]"
            declare_queue(broker, queue)
        for index, binding in enumerate(config.bindings):
            where = f"bindings[{index}]"
            bind(broker, binding)
    except PeerFault as fault:
        raise ConfigFault(f"{where}: {fault.reply_text}") from None


def declare_again(broker: Broker) -> None:
    """The settings have changed: what they no longer name is an ordinary exchange, queue or binding now."""
    for host in broker.virtual_hosts.values():
        host.static_topology.clear()
    declare_all(broker)


def declare_exchange(broker: Broker, settings: ExchangeSettings) -> None:
    host = broker.virtual_hosts[settings.virtual_host]
    existed = settings.name in host.exchanges
    try:
        host.declare_exchange(
            settings.name, settings.type, True, False, settings.internal, dict(settings.arguments)
        )
    except PeerFault as fault:
        if not existed:
            raise
        log.error(
            "exchange %r stays as it is, not as the settings have it: %s", settings.name, fault.reply_text
        )
    host.static_topology.add((EXCHANGE, settings.name))


def declare_queue(broker: Broker, settings: QueueSettings) -> None:
    host = broker.virtual_hosts[settings.virtual_host]
    existing = host.queues.get(settings.name)
    arguments: FieldTable = dict(settings.arguments)
    if settings.template:
        arguments[TEMPLATE] = settings.template
    _, _, arguments = applied(broker.config.queue_templates, existing, True, False, arguments)
    try:
        host.declare_queue(settings.name, True, False, False, arguments, 0)
    except PeerFault as fault:
        if existing is None:
            raise
        log.error("queue %r stays as it is, not as the settings have it: %s", settings.name, fault.reply_text)
    host.static_topology.add((QUEUE, settings.name))


def bind(broker: Broker, settings: BindingSettings) -> None:
    host = broker.virtual_hosts[settings.virtual_host]
    source = host.find_exchange(settings.source)
    destination: Queue | Exchange
    if settings.queue:
        destination = host.find_queue(settings.queue, 0)
    else:
        destination = host.find_exchange(settings.exchange)
    host.bind(source, destination, settings.routing_key, dict(settings.arguments))
    found = source.find_binding(destination, settings.routing_key, dict(settings.arguments))
    if found is not None:
        kind = QUEUE if settings.queue else EXCHANGE
        host.static_topology.add((source.name, kind, destination.name, found.properties_key))


def refuse_deletion(host: VirtualHost, kind: str, name: str) -> None:
    if (kind, name) in host.static_topology:
        raise ChannelFault(
            amqp.ACCESS_REFUSED,
            f"{kind} '{name}' in vhost '{host.name}' is declared by the broker's settings",
        )


def refuse_unbinding(
    host: VirtualHost, source: Exchange, destination: Queue | Exchange, key: str, arguments: FieldTable
) -> None:
    if not host.static_topology:
        return
    found = source.find_binding(destination, key, arguments)
    kind = EXCHANGE if isinstance(destination, Exchange) else QUEUE
    if (
        found is not None
        and (source.name, kind, destination.name, found.properties_key) in host.static_topology
    ):
        raise ChannelFault(
            amqp.ACCESS_REFUSED,
            f"the binding from '{source.name}' to {kind} '{destination.name}' "
            f"is declared by the broker's settings",
        )
