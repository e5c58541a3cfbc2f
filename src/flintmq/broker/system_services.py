"""Services that tell what there is: the broker, queues, exchanges, bindings, consumers, connections.

Whoever may do anything at all with a queue or exchange may see it. Connections and consumers are told to
those they belong to, and all of a virtual host to users tagged `monitoring`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flintmq import __version__
from flintmq.auth import Operation, Tag, may
from flintmq.broker import browsing, direct_reply
from flintmq.broker.binding import Binding
from flintmq.broker.client_connection import ClientConnection
from flintmq.broker.consumer import Consumer
from flintmq.broker.delayed_exchange import DelayedExchange
from flintmq.broker.exchange import Exchange
from flintmq.broker.queue import Queue
from flintmq.broker.queue_identity import CREATION_ID, creation_id
from flintmq.broker.services import SERVICES, Request, service
from flintmq.build import build
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable

PROTOCOLS = {amqp.VERSION_0_8: "0-8", amqp.VERSION_0_9: "0-9", amqp.VERSION_0_9_1: "0-9-1"}

Row = tuple[str, Callable[[], FieldTable]]


def may_see(request: Request, name: str) -> bool:
    user, host = request.channel.user, request.channel.virtual_host.name
    return any(may(user, host, operation, name) for operation in Operation)


@service("broker.info")
def broker_info(request: Request) -> None:
    """Version, build, uptime, protocols, and how much there is in this virtual host."""
    broker, host = request.broker, request.channel.virtual_host
    connections = [each for each in broker.connections.values() if each.virtual_host is host]
    request.reply(
        {
            "product": "FlintMQ",
            "version": __version__,
            "build": build(),
            "uptime-ms": broker.timetable.now_ms() - broker.timetable.started_ms,
            "now-ms": broker.timetable.now_ms(),
            "protocols": list(PROTOCOLS.values()),
            "virtual-host": host.name,
            "user": request.channel.user.name,
            "connections": len(connections),
            "channels": sum(len(each.channels) for each in connections),
            "exchanges": len(host.exchanges),
            "queues": len(host.queues),
            "bindings": host.binding_count,
            "consumers": sum(len(queue.consumers) for queue in host.queues.values()),
            "messages-ready": sum(queue.message_count() for queue in host.queues.values()),
        }
    )


@service("broker.services")
def broker_services(request: Request) -> None:
    """The services there are, each with a line of help."""

    def row(name: str) -> Callable[[], FieldTable]:
        def make() -> FieldTable:
            lines = (SERVICES[name].__doc__ or "").strip().splitlines()
            return {"name": name, "help": lines[0] if lines else ""}

        return make

    request.page((name, row(name)) for name in SERVICES)


@service("queue.list")
def queue_list(request: Request) -> None:
    """The queues of this virtual host, in the order of their names."""
    queues = request.channel.virtual_host.queues

    def rows() -> Iterator[Row]:
        for name, queue in queues.items():
            if not is_hidden(queue) and may_see(request, name):
                yield name, lambda queue=queue: queue_table(queue, request)  # type: ignore[misc]

    request.page(rows())


@service("queue.info")
def queue_info(request: Request) -> None:
    """One queue (argument `queue`), with its arguments."""
    name = request.text("queue")
    if not may_see(request, name):
        request.require(Operation.READ, "queue", name)
    queue = request.channel.virtual_host.find_queue(name, request.channel.origin)
    found = queue_table(queue, request)
    request.reply({**found, CREATION_ID: creation_id(queue, request), "arguments": queue.arguments})


def is_hidden(queue: Queue) -> bool:
    """Names of direct reply-to are known to those alone who were told."""
    return queue.name.startswith(direct_reply.NAME)


def queue_table(queue: Queue, request: Request) -> FieldTable:
    table: FieldTable = {
        "name": queue.name,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto-delete": queue.auto_delete,
        "messages-ready": queue.message_count(),
        "messages-unacked": queue.unacked,
        "consumers": len(queue.consumers),
    }
    oldest_ms = browsing.oldest_ms(queue)
    if oldest_ms is not None:
        table["oldest-ms"] = oldest_ms
        table["oldest-age-ms"] = max(0, request.broker.timetable.now_ms() - oldest_ms)
    return table


@service("exchange.list")
def exchange_list(request: Request) -> None:
    """The exchanges of this virtual host, in the order of their names."""
    exchanges = request.channel.virtual_host.exchanges

    def rows() -> Iterator[Row]:
        for name, exchange in exchanges.items():
            if may_see(request, name):
                yield name, lambda exchange=exchange: exchange_table(exchange)  # type: ignore[misc]

    request.page(rows())


def exchange_table(exchange: Exchange) -> FieldTable:
    table: FieldTable = {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto-delete": exchange.auto_delete,
        "internal": exchange.internal,
        "bindings": len(exchange.bindings),
        "arguments": exchange.arguments,
    }
    if isinstance(exchange, DelayedExchange):
        table["messages-delayed"] = len(exchange.waiting)
    return table


@service("binding.list")
def binding_list(request: Request) -> None:
    """The bindings of this virtual host; `source` and `destination` narrow it down."""
    host = request.channel.virtual_host
    source, destination = request.text("source", ""), request.text("destination", "")
    sources = list(host.exchanges.values())
    if source:
        sources = [host.find_exchange(source)]

    def rows() -> Iterator[Row]:
        for exchange in sources:
            if not may_see(request, exchange.name):
                continue
            for binding in exchange.bindings.values():
                target = binding.destination.name
                if (not destination or target == destination) and may_see(request, target):
                    kind = "q" if isinstance(binding.destination, Queue) else "x"
                    place = "\n".join((exchange.name, kind, target, binding.properties_key))
                    yield place, lambda binding=binding: binding_table(binding)  # type: ignore[misc]

    request.page(rows())


def binding_table(binding: Binding) -> FieldTable:
    return {
        "source": binding.source.name,
        "destination": binding.destination.name,
        "destination-type": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "routing-key": binding.routing_key,
        "arguments": binding.arguments,
    }


@service("consumer.list")
def consumer_list(request: Request) -> None:
    """The consumers of this virtual host, or of one `queue`."""
    only = request.text("queue", "")

    def rows() -> Iterator[Row]:
        for client in clients(request):
            for channel in client.channels.values():
                for tag, consumer in channel.consumers.items():
                    if not only or consumer.queue.name == only:
                        place = f"{client.number:010} {channel.number:05} {tag}"
                        yield place, lambda consumer=consumer: consumer_table(consumer)  # type: ignore[misc]

    request.page(rows())


def consumer_table(consumer: Consumer) -> FieldTable:
    queue = consumer.queue
    return {
        "connection": consumer.channel.origin,
        "channel": consumer.channel.number,
        "consumer-tag": consumer.tag,
        "queue": direct_reply.NAME if is_hidden(queue) else queue.name,
        "no-ack": consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch-count": consumer.prefetch_count,
        "unacked": consumer.outstanding,
        "arguments": consumer.arguments,
    }


@service("connection.list")
def connection_list(request: Request) -> None:
    """The connections to this virtual host: one's own, or all of them for users who monitor it."""
    request.page(
        (f"{client.number:010}", lambda client=client: connection_table(client))  # type: ignore[misc]
        for client in clients(request)
    )


def clients(request: Request) -> list[ClientConnection]:
    """The connections that the asker may hear of."""
    user, host = request.channel.user, request.channel.virtual_host
    sees_all = user.has_tag(Tag.MONITORING)
    return [
        client
        for client in request.broker.connections.values()
        if client.virtual_host is host and (sees_all or client.user.name == user.name)
    ]


def connection_table(client: ClientConnection) -> FieldTable:
    product = client.client_properties.get("product")
    name = client.client_properties.get("connection_name")
    return {
        "number": client.number,
        "user": client.user.name,
        "peer-address": client.peer_address,
        "protocol": PROTOCOLS[client.version],
        "channels": len(client.channels),
        "connected-ms": client.since_ms,
        "product": product[:80] if isinstance(product, str) else "",
        "connection-name": name[:80] if isinstance(name, str) else "",
    }
