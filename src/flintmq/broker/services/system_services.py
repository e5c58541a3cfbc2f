"""Services that tell what there is: the broker, queues, exchanges, bindings, consumers, connections.

Whoever may do anything at all with a queue or exchange may see it. Connections and consumers are told to
those they belong to, and all of a virtual host to users tagged `monitoring`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from flintmq import __version__
from flintmq.auth import Operation, Tag, may
from flintmq.auth.asked_permissions import AskedHosts
from flintmq.broker.channels import direct_reply
from flintmq.broker.channels.channel import Channel
from flintmq.broker.channels.client_connection import ClientConnection
from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.exchange import Exchange
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_rules import kind_of
from flintmq.broker.queues.queue_survey import QueueSums
from flintmq.broker.services import browsing
from flintmq.broker.services.arguments import PAGE, Argument
from flintmq.broker.services.queue_identity import CREATION_ID, creation_id
from flintmq.broker.services.request import ARGUMENTS, SERVICES, Request, Row, service, shortened
from flintmq.build import build
from flintmq.errors import ServiceFault
from flintmq.wire import amqp, fast, fast09
from flintmq.wire.tables import FieldTable, FieldValue

if TYPE_CHECKING:
    from flintmq.broker.channels.host_tally import QueueCounts
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.broker.scheduling.timetable import Timetable
    from flintmq.broker.virtual_host import VirtualHost

PROTOCOLS = {
    amqp.VERSION_0_8: "0-8",
    amqp.VERSION_0_9: "0-9",
    amqp.VERSION_0_9_1: "0-9-1",
    fast.VERSION: "Fast 0.8",
    fast09.VERSION: "Fast 0.9",
}

# Which files there are does not change while it runs, and to look for them takes milliseconds.
BUILD = build()
# Queues that one step counts: a quarter of a microsecond each. More of them are not counted anew for so long.
COUNTED = 1024
COUNTED_MS = 1000
# Behind every consumer tag.
LAST_TAG = chr(0x10FFFF)
# broker.info has to fit in a frame of 4,096 octets, the least there is. With the longest names it takes some
# 2,000 octets; 8 unreadable files of 125 octets, 4 certificates of 180 and the reason of an alarm make 3,960.
CERTIFICATES_MAX = 4
CERTIFICATE_OCTETS_MAX = 120
REASON_OCTETS_MAX = 255
CLUSTER_NAME_OCTETS_MAX = 255
# Of the reason of a close, which the log has too.
CLOSE_REASON_MAX = 200


def may_see(request: Request, name: str) -> bool:
    user, host = request.user, request.channel.virtual_host.name
    if isinstance(user.permissions, AskedHosts):  # a list must not ask a back end about each name
        return user.has_tag(Tag.MONITORING)
    return any(may(user, host, operation, name) for operation in Operation)


@service("broker.info", "")
def broker_info(request: Request) -> Chore:
    """Version, build, uptime, protocols, alarms, memory, disk, and how much there is in this virtual host."""
    broker, host = request.broker, request.channel.virtual_host
    sums, counted_ms = yield from counted(host, broker.timetable)
    request.reply(
        {
            "product": "FlintMQ",
            "version": __version__,
            "build": BUILD,
            "uptime-ms": broker.timetable.now_ms() - broker.timetable.started_ms,
            "now-ms": broker.timetable.now_ms(),
            "protocols": list(PROTOCOLS.values()),
            "cluster-name": shortened(
                broker.administration.parameters.cluster_name(), CLUSTER_NAME_OCTETS_MAX
            ),
            "virtual-host": host.name,
            "user": request.user.name,
            "connections": len(broker.clients.by_host.get(host, ())),
            "channels": broker.clients.channels_of_host.get(host, 0),
            "exchanges": len(host.exchanges),
            "queues": len(host.queues) - host.reply_queues,
            "bindings": host.binding_count,
            "consumers": sums.consumers,
            "messages-ready": sums.ready,
            "messages-delayed": sums.delayed,
            "counted-ms": counted_ms,
            **({} if broker.process is None else fitting(broker.process.condition())),
        }
    )


def counted(host: VirtualHost, timetable: Timetable) -> Generator[Wait | None, None, tuple[QueueSums, int]]:
    """What the queues hold together, and when they were counted: now, if they are few.

    Many are counted once a second at most, in portions, for all who ask meanwhile.
    """
    counts = host.tally.queue_counts
    while True:
        now_ms = timetable.now_ms()
        if len(host.queues) <= COUNTED:
            sums = QueueSums(direct_reply.NAME)
            sums.add(host.queues, list(host.queues))
            return sums, now_ms
        if counts.sums is not None and now_ms - counts.counted_ms < COUNTED_MS:
            return counts.sums, counts.counted_ms
        before = counts.sums
        if counts.waiting is None:
            yield from count(host, counts, now_ms)
        else:
            yield counts.waiting.append
        # However long that took: a count of more than a second is old when it ends, as the next would be.
        if counts.sums is not None and counts.sums is not before:
            return counts.sums, counts.counted_ms


def count(host: VirtualHost, counts: QueueCounts, now_ms: int) -> Iterator[None]:
    """Counts the queues, and lets those go on who wait for that."""
    counts.waiting = []
    try:
        sums = QueueSums(direct_reply.NAME)
        last: str | None = None
        while names := host.queue_names.portion(last, COUNTED):
            sums.add(host.queues, names)
            last = names[-1]
            yield
        counts.sums, counts.counted_ms = sums, now_ms
    finally:
        waiting, counts.waiting = counts.waiting, None
        for go_on in waiting:
            go_on()


def fitting(condition: FieldTable) -> FieldTable:
    """The condition of the process, with no more rows and no longer texts than a small frame has room for."""
    alarms: Any = condition["alarms"]
    told: list[FieldValue] = [
        {**alarm, "reason": shortened(alarm["reason"], REASON_OCTETS_MAX)} for alarm in alarms
    ]
    found: FieldTable = {**condition, "alarms": told}
    if "certificates" in condition:
        certificates: Any = condition["certificates"]
        found["certificates"] = [
            {**each, "certificate": shortened(each["certificate"], CERTIFICATE_OCTETS_MAX)}
            for each in sorted(certificates, key=itemgetter("ends-ms"))[:CERTIFICATES_MAX]
        ]
    return found


@service("broker.services", PAGE)
def broker_services(request: Request) -> Iterator[None]:
    """The services there are, each with a line of help."""

    def row(name: str) -> Callable[[], FieldTable]:
        def make() -> FieldTable:
            lines = (SERVICES[name].__doc__ or "").strip().splitlines()
            known = [f"{each.name}{'' if each.is_required else '?'}" for each in arguments_of(name)]
            return {"name": name, "help": lines[0] if lines else "", "arguments": list(known)}

        return make

    return request.page((name, row(name)) for name in SERVICES)


def arguments_of(name: str) -> list[Argument]:
    return list(ARGUMENTS.get(name, {}).values())


@service("queue.list", PAGE)
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


@service("queue.info", "queue text")
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
        "type": kind_of(queue.arguments),
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto-delete": queue.auto_delete,
        "messages-ready": queue.message_count(),
        "messages-unacked": queue.unacked,
        "messages-entered": browsing.entered(queue),
        "consumers": len(queue.consumers),
    }
    rules = queue.rules
    if rules is not None and rules.settings.dead_letter_exchange is not None:
        table["dead-letter-exchange"] = rules.settings.dead_letter_exchange
    if rules is not None and rules.settings.message_ttl_ms is not None:
        table["message-ttl-ms"] = rules.settings.message_ttl_ms
    if queue.waiting_count():
        table["messages-delayed"] = queue.waiting_count()
        table["messages-delayed-returns"] = queue.waiting_returns()
    if queue.leases:
        table["leases"] = len(queue.leases)
    tally = queue.tally
    table["messages-dropped"] = 0 if tally is None else tally.overflowed
    table["messages-expired"] = 0 if tally is None else tally.expired
    table["messages-lost"] = 0 if tally is None else tally.lost
    if rules is not None and rules.goals is not None:
        table["messages-late"] = rules.goals.late
    oldest_ms, lifetime_ms = browsing.oldest(queue)
    if oldest_ms is not None:
        table["oldest-ms"] = oldest_ms
        table["oldest-age-ms"] = max(0, request.broker.timetable.now_ms() - oldest_ms)
    if lifetime_ms >= 0:
        table["oldest-lifetime-ms"] = lifetime_ms
    return table


@service("exchange.list", PAGE)
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


@service("binding.list", "source? text, destination? text, " + PAGE)
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


@service("consumer.list", "queue? text, everywhere? flag, " + PAGE)
def consumer_list(request: Request) -> Iterator[None]:
    """The consumers of this virtual host or, with `everywhere`, of all; those of one `queue`."""
    only = request.text("queue", "")
    ordered = OrderedConsumers()

    def rows(after: str) -> Iterator[Row]:
        for client in clients_from(request, after):
            for start, channel in channels_after(client, after):
                for place, consumer in ordered.after(channel, start, after):
                    is_wanted = not only or consumer.queue.name == only
                    yield place, partial(consumer_table, consumer) if is_wanted else None
                if not channel.consumers and (place := f"{start} {LAST_TAG}") > after:
                    yield place, None
            yield f"{client.number:010} ~", None

    return request.listing(rows)


class OrderedConsumers:
    """The consumers of channels in the order of their tags.

    The tags of the channel that was looked at last are kept: to sort them again takes milliseconds, and each
    step of a list comes back to them.
    """

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.tags: list[str] = []

    def after(self, channel: Channel, start: str, after: str) -> Iterator[tuple[str, Consumer]]:
        """Those of a channel, whose place is `start`, behind the place `after`; each with its own place."""
        if channel is not self.channel:
            self.channel = channel
            self.tags = sorted(channel.consumers)
        before = f"{start} "
        first = bisect_right(self.tags, after[len(before) :]) if after.startswith(before) else 0
        for at in range(first, len(self.tags)):
            consumer = channel.consumers.get(self.tags[at])  # it may have gone since the last step
            if consumer is not None and (place := before + consumer.tag) > after:
                yield place, consumer


def consumer_table(consumer: Consumer) -> FieldTable:
    queue = consumer.queue
    return {
        "connection": consumer.channel.origin,
        "channel": consumer.channel.number,
        "virtual-host": consumer.channel.virtual_host.name,
        "consumer-tag": consumer.tag,
        "queue": direct_reply.NAME if is_hidden(queue) else queue.name,
        "no-ack": consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch-count": consumer.prefetch_count,
        "unacked": consumer.outstanding,
        "arguments": consumer.arguments,
    }


@service("channel.info", "channel? number")
def channel_info(request: Request) -> None:
    """A channel of the asker's own connection (argument `channel`): what was published, what went nowhere."""
    number = request.number("channel", 1, 1, 65_535)
    client = request.broker.connections.get(request.channel.origin)
    channel = None if client is None else client.channels.get(number)
    if channel is None:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: this connection has no channel {number}")
    request.reply(
        {
            "connection": request.channel.origin,
            "channel": number,
            "published": channel.confirms.published,
            "confirmed": channel.confirms.confirmed,
            "unrouted": channel.unrouted,
            "consumers": len(channel.consumers),
        }
    )


@service("channel.list", "everywhere? flag, " + PAGE)
def channel_list(request: Request) -> Iterator[None]:
    """The channels of connections that connection.list shows, and what they do."""

    def rows(after: str) -> Iterator[Row]:
        for client in clients_from(request, after):
            for place, channel in channels_after(client, after):
                if place > after:
                    yield place, partial(channel_table, client, channel)
            yield f"{client.number:010} ~", None

    return request.listing(rows)


def channel_table(client: ClientConnection, channel: Channel) -> FieldTable:
    oldest_tag, oldest_queue = oldest_unacked(channel)
    return {
        "connection": client.number,
        "channel": channel.number,
        "user": client.user.name,
        "virtual-host": client.virtual_host.name,
        "consumers": len(channel.consumers),
        "unacked": channel.unacked.outstanding + channel.unacked.fetched,
        # Both tell a message that was forgotten from one that is being worked on, at no cost for others.
        "oldest-unacked": oldest_tag,
        "oldest-unacked-queue": oldest_queue,
        "acks": channel.acks,
        "unconfirmed": channel.confirms.published - channel.confirms.confirmed,
        "unrouted": channel.unrouted,
        "prefetch-count": channel.prefetch_count,
        "global-prefetch-count": channel.global_count,
        "confirm": channel.confirms.active,
        "transactional": channel.transaction is not None,
        "flow": channel.flowing,
    }


def oldest_unacked(channel: Channel) -> tuple[int, str]:
    """The delivery tag of the channel's oldest unacked message, and its queue; 0 if there is none."""
    ring = channel.unacked.ring
    oldest = ring.at(0) if ring.count else None
    if oldest is None or oldest.message is None:  # settled a moment ago
        return 0, ""
    return oldest.tag, oldest.queue.name


@service("connection.close", "number number, reason? text", changes=True, administers=True)
def connection_close(request: Request) -> None:
    """Closes connection `number` with 320 and a `reason`: one's own, or any for administrators."""
    number = request.number("number")
    client = request.broker.connections.get(number)
    # Who may not close a connection learns no more than of one that is not there.
    if client is None or not may_close(request, client):
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no connection {number}")
    reason = request.text("reason", "closed by an administrator")[:CLOSE_REASON_MAX]
    request.reply({})
    closed = request.broker.administration.closed([client], reason, request.channel.origin)
    request.broker.pass_work.chores.begin(closed)  # who closes the own connection hears the answer before


def may_close(request: Request, client: ClientConnection) -> bool:
    return request.user.has_tag(Tag.ADMINISTRATOR) or client.user.name == request.user.name


@service("connection.list", "everywhere? flag, " + PAGE)
def connection_list(request: Request) -> Iterator[None]:
    """The connections to this virtual host, with `everywhere` to any: one's own, or all for who monitors."""

    def rows(after: str) -> Iterator[Row]:
        for client in clients_from(request, after):
            if (place := f"{client.number:010}") > after:
                yield place, partial(connection_table, client)

    return request.listing(rows)


def clients_from(request: Request, after: str) -> Iterator[ClientConnection]:
    """The connections that the asker may hear of, from the one on that a page ended with."""
    if after and not after[:10].isdecimal():
        raise request.wrong("after", "expected what `next` was")
    user, host = request.user, request.channel.virtual_host
    everywhere = request.flag("everywhere", False)
    sees_all = user.has_tag(Tag.MONITORING)
    connections = request.broker.connections
    numbers = sorted(connections)  # nearly in this order already: a millisecond for 65,536
    for number in numbers[bisect_left(numbers, int(after[:10] or 0)) :]:
        client = connections[number]
        if (everywhere or client.virtual_host is host) and (sees_all or client.user.name == user.name):
            yield client


def channels_after(client: ClientConnection, after: str) -> Iterator[tuple[str, Channel]]:
    """The channels from the one on that a page ended with, each with its place among those of all clients."""
    channels = client.channels
    numbers = sorted(channels)
    places = partial("{:010} {:05}".format, client.number)
    for number in numbers[bisect_left(numbers, after[: len(places(0))], key=places) :]:
        yield places(number), channels[number]


def connection_table(client: ClientConnection) -> FieldTable:
    product = client.client_properties.get("product")
    ends = client.peer.describe()
    return {
        "number": client.number,
        "user": client.user.name,
        "virtual-host": client.virtual_host.name,
        "peer-address": client.peer_address,
        "peer-port": ends.get("peer-port", 0),
        "protocol": PROTOCOLS[client.version],
        "channels": len(client.channels),
        "connected-ms": client.since_ms,
        "product": product[:80] if isinstance(product, str) else "",
        "connection-name": given_name(client),
        "blocked": client.blocked,
    }


def given_name(client: ClientConnection) -> str:
    """The name that the client has given its connection; empty if it has none."""
    name = client.client_properties.get("connection_name")
    return name[:80] if isinstance(name, str) else ""
