"""Services that tell what there is: the broker, queues, exchanges, bindings, consumers, connections.

Whoever may do anything at all with a queue or exchange may see it. Connections and consumers are told to
those they belong to, and all of a virtual host to users tagged `monitoring`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from flintmq import __version__
from flintmq.auth import Operation, Tag, may
from flintmq.broker.channels import direct_reply
from flintmq.broker.channels.client_connection import ClientConnection
from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.exchange import Exchange
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.queue import Queue
from flintmq.broker.services import browsing
from flintmq.broker.services.queue_identity import CREATION_ID, creation_id
from flintmq.broker.services.request import SERVICES, Request, Row, service
from flintmq.build import build
from flintmq.errors import ServiceFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable

PROTOCOLS = {amqp.VERSION_0_8: "0-8", amqp.VERSION_0_9: "0-9", amqp.VERSION_0_9_1: "0-9-1"}

# Which files there are does not change while it runs, and to look for them takes milliseconds.
BUILD = build()
# Queues or connections that one step counts: a quarter of a microsecond each.
COUNTED = 1024
# Behind every consumer tag.
LAST_TAG = chr(0x10FFFF)


def may_see(request: Request, name: str) -> bool:
    user, host = request.channel.user, request.channel.virtual_host.name
    return any(may(user, host, operation, name) for operation in Operation)


@service("broker.info")
def broker_info(request: Request) -> Iterator[None]:
    """Version, build, uptime, protocols, alarms, memory, disk, and how much there is in this virtual host."""
    broker, host = request.broker, request.channel.virtual_host
    connections = channels = consumers = ready = 0
    for at, client in enumerate(list(broker.connections.values())):
        if client.virtual_host is host:
            connections += 1
            channels += len(client.channels)
        if at % COUNTED == COUNTED - 1:
            yield
    last: str | None = None
    while names := list(islice(host.queue_names.after(last), COUNTED)):
        for name in names:
            queue = host.queues[name]
            consumers += len(queue.consumers)
            ready += queue.message_count()
        last = names[-1]
        yield
    request.reply(
        {
            "product": "FlintMQ",
            "version": __version__,
            "build": BUILD,
            "uptime-ms": broker.timetable.now_ms() - broker.timetable.started_ms,
            "now-ms": broker.timetable.now_ms(),
            "protocols": list(PROTOCOLS.values()),
            "virtual-host": host.name,
            "user": request.channel.user.name,
            "connections": connections,
            "channels": channels,
            "exchanges": len(host.exchanges),
            "queues": len(host.queues),
            "bindings": host.binding_count,
            "consumers": consumers,
            "messages-ready": ready,
            **({} if broker.condition is None else broker.condition()),
        }
    )


@service("broker.services")
def broker_services(request: Request) -> Iterator[None]:
    """The services there are, each with a line of help."""

    def row(name: str) -> Callable[[], FieldTable]:
        def make() -> FieldTable:
            lines = (SERVICES[name].__doc__ or "").strip().splitlines()
            return {"name": name, "help": lines[0] if lines else ""}

        return make

    return request.page((name, row(name)) for name in SERVICES)


@service("queue.list")
def queue_list(request: Request) -> Iterator[None]:
    """The queues of this virtual host, in the order of their names."""
    host = request.channel.virtual_host

    def rows(after: str) -> Iterator[Row]:
        for name in host.queue_names.after(after or None):
            queue = host.queues[name]
            if is_hidden(queue) or host.falling.is_gone(queue) or not may_see(request, name):
                yield name, None
            else:
                yield name, partial(queue_table, queue, request)

    return request.listing(rows)


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
def exchange_list(request: Request) -> Iterator[None]:
    """The exchanges of this virtual host, in the order of their names."""
    host = request.channel.virtual_host

    def rows(after: str) -> Iterator[Row]:
        for name in host.exchange_names.after(after or None):
            yield name, partial(exchange_table, host.exchanges[name]) if may_see(request, name) else None

    return request.listing(rows)


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
def binding_list(request: Request) -> Iterator[None]:
    """The bindings of this virtual host; `source` and `destination` narrow it down."""
    host = request.channel.virtual_host
    source, wanted = request.text("source", ""), request.text("destination", "")
    if source:
        host.find_exchange(source)
    ends = [each for each in (host.lookup_queue(wanted), host.exchanges.get(wanted)) if each is not None]

    def rows(after: str) -> Iterator[Row]:
        """By exchange, and in the order in which they were made."""
        name, number = binding_place(request, after)
        if name and name in host.exchanges:
            yield from of_exchange(host.exchanges[name], number)
        following = host.exchange_names.after(name or None)
        for each in ([] if after else [source]) if source else following:
            if each in host.exchanges:
                yield f"{each}\n{0:020}", None
                yield from of_exchange(host.exchanges[each], 0)

    def of_exchange(exchange: Exchange, number: int) -> Iterator[Row]:
        if wanted and not any(exchange.leads_to(end) for end in ends):
            return
        sees_source = may_see(request, exchange.name)
        for binding in exchange.bindings_after(number):
            target = binding.destination
            is_shown = sees_source and (not wanted or target.name == wanted) and may_see(request, target.name)
            is_shown = is_shown and not host.falling.is_gone(target)  # type: ignore[arg-type]
            yield (
                f"{exchange.name}\n{binding.number:020}",
                partial(binding_table, binding) if is_shown else None,
            )

    return request.listing(rows)


def binding_place(request: Request, after: str) -> tuple[str, int]:
    """The exchange and the number of the binding that a page ended with."""
    if not after:
        return "", 0
    name, _, number = after.rpartition("\n")
    if not name or not number.isdecimal():
        raise request.wrong("after", "expected what `next` was")
    return name, int(number[:20])


def binding_table(binding: Binding) -> FieldTable:
    return {
        "source": binding.source.name,
        "destination": binding.destination.name,
        "destination-type": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "routing-key": binding.routing_key,
        "arguments": binding.arguments,
    }


@service("consumer.list")
def consumer_list(request: Request) -> Iterator[None]:
    """The consumers of this virtual host, or of one `queue`."""
    only = request.text("queue", "")

    def rows(after: str) -> Iterator[Row]:
        for client in clients_from(request, after):
            for number in sorted(client.channels):
                channel = client.channels[number]
                start = f"{client.number:010} {number:05} "
                if start + LAST_TAG <= after:
                    continue
                for tag in sorted(channel.consumers):
                    if (place := start + tag) > after:
                        consumer = channel.consumers[tag]
                        is_wanted = not only or consumer.queue.name == only
                        yield place, partial(consumer_table, consumer) if is_wanted else None
            yield f"{client.number:010} ~", None

    return request.listing(rows)


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


@service("channel.info")
def channel_info(request: Request) -> None:
    """A channel of the asker's own connection (argument `channel`): what was published, what went nowhere."""
    number = request.number("channel", 1, 1, 65_535)
    client = request.broker.connections.get(request.channel.origin)
    channel = None if client is None else client.channels.get(number)
    if channel is None:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: this connection has no channel {number}")
    request.reply(
        {
            "channel": number,
            "published": channel.published,
            "confirmed": channel.confirmed,
            "unrouted": channel.unrouted,
            "consumers": len(channel.consumers),
        }
    )


@service("connection.list")
def connection_list(request: Request) -> Iterator[None]:
    """The connections to this virtual host: one's own, or all of them for users who monitor it."""

    def rows(after: str) -> Iterator[Row]:
        for client in clients_from(request, after):
            if (place := f"{client.number:010}") > after:
                yield place, partial(connection_table, client)

    return request.listing(rows)


def clients_from(request: Request, after: str) -> Iterator[ClientConnection]:
    """The connections that the asker may hear of, from the one on that a page ended with."""
    if after and not after[:10].isdecimal():
        raise request.wrong("after", "expected what `next` was")
    user, host = request.channel.user, request.channel.virtual_host
    sees_all = user.has_tag(Tag.MONITORING)
    connections = request.broker.connections
    numbers = sorted(connections)  # nearly in this order already: a millisecond for 65,536
    for number in numbers[bisect_left(numbers, int(after[:10] or 0)) :]:
        client = connections[number]
        if client.virtual_host is host and (sees_all or client.user.name == user.name):
            yield client


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
        "blocked": client.blocked,
    }
