"""Services for the management process alone: logins of its users, totals, and snapshots of all there is.

A snapshot is a portion of rows, each a tuple of plain values whose names are in snapshot_rows.py,
marshalled: the process that asks runs the same Python. Tables that clients gave travel as they do on the
wire, as bytes, and are decoded over there. A portion is worked on, and marshalled, in steps of some fifty
microseconds: a message that comes meanwhile waits for one of them.
"""

from __future__ import annotations

import marshal
import os
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import flintmq.broker.services.permission_explanations  # noqa: F401 - registers its service
from flintmq.auth import Accepted, AnswerPending, Refused, Tag, Verification
from flintmq.broker.channels import direct_reply
from flintmq.broker.channels.host_tally import COUNTED, counts_of
from flintmq.broker.exchanges.router import copies_of
from flintmq.broker.queues import queue_survey
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_survey import QueueSums, shown_queues
from flintmq.broker.services import browsing
from flintmq.broker.services.acting import named_user, require_internal
from flintmq.broker.services.request import Request, service
from flintmq.broker.services.row_columns import headers_octets
from flintmq.broker.services.system_services import (
    LAST_TAG,
    PROTOCOLS,
    OrderedConsumers,
    channels_after,
    given_name,
    is_hidden,
    oldest_unacked,
)
from flintmq.broker.transactions.transaction import Transaction
from flintmq.errors import ServiceFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable, FieldValue, encode_table

if TYPE_CHECKING:
    from flintmq.auth import User
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.channels.client_connection import ClientConnection
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.broker.scheduling.timetable import Timetable
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost

Tuple = tuple[Any, ...]
# From behind a place on: the place of each row, and the row, or None where there is none to show.
Rows = Callable[[str], Iterator[tuple[str, Tuple | None]]]

# Rows of one answer, and of one step towards it: four microseconds each, and one more to marshal it.
ROWS_MAX = 4096
STEP_ROWS = 16
# Queues that one answer looks at, whether they have changed or not, and how many of them it tells of.
LOOKED_AT_MAX = 16_384
CHANGED_MAX = 512
# Routes whose counts one step adds up, a fifth of a microsecond each.
STEP_ROUTES = 256
# How long one step looks at queues, by how many there are, and how long others have their turn then. A queue
# takes one or two microseconds, as most of them are in no cache. Steps are longer where queues are very many,
# or a look would take too long.
STEP_S_MIN = 0.00005
STEP_S_MAX = 0.0003
STEP_S_OF_QUEUE = 5e-9
PAUSE_MS = 1
# Queues between two looks at the clock, and in a step by a clock that stands still.
STEP_QUEUES_MIN = 32
STEP_QUEUES_MAX = 512
# Connections and channels that one step adds up, a microsecond and a half each.
STEP_CHANNELS = 32
# How often a login is tried whose password is set meanwhile.
LOGINS_MAX = 10
# Virtual hosts named with a login: who may enter more than these asks for the list.
HOSTS_MAX = 1000
# Virtual hosts about which a back end is asked for one of its users.
HOSTS_ASKED_MAX = 200
# Of these so many at a time, as there are threads for it: one that hangs does not add to the next.
HOSTS_ASKED_AT_ONCE = 8

# Deliveries of a channel that are looked at for the oldest one of a consumer, a tenth of a microsecond each.
PASSED_OVER_MAX = 64

# What a message that is unacked takes in memory beside its content.
UNACKED_MESSAGE_BYTES = 512

NO_TABLE = b""
NOTHING_SELDOM = (0,) * 11


@service("management.authenticate", "user? text, password? secret, token? secret, peer-address text")
def authenticate(request: Request) -> Chore:
    """Checks `user` and `password`, or a `token`, of somebody at `peer-address`: `tags`, and `virtual-hosts`.

    Who is refused gets `refused`, the reason, and `pause-ms`, after which the peer is to hear of it. A user
    whom a back end alone knows gets a number, `visitor`, to be named with the user's name.
    """
    require_internal(request)
    broker = request.broker
    address = request.text("peer-address")
    if broker.failed_logins.is_banned(address):
        request.reply({"refused": f"{address} is banned", "pause-ms": 0})
        return
    name = request.text("user", "")
    for _ in range(LOGINS_MAX):
        known = broker.users.get(name)
        changes = 0 if known is None else known.password_changes
        if "token" in request.arguments:
            begun = broker.authentication.borne(secret(request, "token"), address)
        else:
            begun = broker.authentication.login(name, secret(request, "password"), address)
        step = yield from settled(request, begun)
        # A password that is set during the login refuses it. Tools that set passwords ask while they do so: a
        # right password must not be told to be wrong.
        if not isinstance(step, Refused) or known is None or known.password_changes == changes:
            break
    if isinstance(step, Refused):
        pause_s = broker.failed_logins.note(address, step.user or name, step.is_fault)
        audit_login(request, step.user or name, address, step.reason)
        request.reply({"refused": step.reason, "pause-ms": int(1000 * pause_s)})
        return
    user = step.user
    audit_login(request, user.name, address, "")
    visitor = 0 if broker.users.get(user.name) is user else broker.users.visitors.enter(user)
    yield from tell_identity(request, user, visitor)


def secret(request: Request, name: str) -> bytes:
    given = request.arguments.get(name, b"")
    octets = given.encode() if isinstance(given, str) else given
    if not isinstance(octets, bytes):
        raise request.wrong(name, "expected text")
    return octets


def audit_login(request: Request, user: str, address: str, refused: str) -> None:
    broker = request.broker
    broker.events.logged_in(user, address, refused, "http")
    if broker.audit is not None:
        broker.audit.note("login", "http.login", not refused, user, address, reason=refused)


@service("management.pipeline-ended", "pipeline text, state text, reason text")
def pipeline_ended(request: Request) -> None:
    """A `pipeline` that ran does so no more, for a `reason`: told as an event."""
    require_internal(request)
    broker = request.broker
    fields = {
        "name": request.text("pipeline"),
        "state": request.text("state"),
        "reason": request.text("reason"),
    }
    broker.events.tell("alert.pipeline.dead", "", fields)
    request.reply({})


@service("management.identity", "user text, visitor? number")
def identity_of(request: Request) -> Chore:
    """What a user may do now who has logged in before: `tags` and `virtual-hosts`.

    `login` is another text after a change that ends logins of before.
    """
    require_internal(request)
    visitor = request.number("visitor", 0)
    user = named_user(request, request.text("user"), visitor)
    if user is None:
        raise ServiceFault(amqp.ACCESS_REFUSED, "the user is gone")
    yield from tell_identity(request, user, visitor)


def tell_identity(request: Request, user: User, visitor: int) -> Chore:
    broker = request.broker
    hosts: list[FieldValue] = []
    names = list(broker.virtual_hosts)[: HOSTS_ASKED_MAX if visitor else None]
    for at, host in enumerate(names):
        if visitor and at % HOSTS_ASKED_AT_ONCE == 0:
            for each in names[at : at + HOSTS_ASKED_AT_ONCE]:
                with suppress(AnswerPending):  # the answer is waited for below
                    user.may_enter(each)
        while True:
            try:
                if user.may_enter(host):
                    hosts.append(host)
                break
            except AnswerPending as pending:
                yield pending.question.tell
    request.reply(
        {
            "user": user.name,
            "tags": [str(tag) for tag in sorted(user.tags)],
            "sees-all": user.has_tag(Tag.MONITORING),
            "virtual-hosts": hosts[:HOSTS_MAX],
            "changes": user.changes,
            "login": f"visitor {visitor}" if visitor else login_of(user),
            "visitor": visitor,
        }
    )


def login_of(user: User) -> str:
    """Another text after a change that ends logins of before."""
    return f"{user.life} {user.password_changes}"


def settled(
    request: Request, step: Accepted | Refused | Verification
) -> Generator[Wait, None, Accepted | Refused]:
    """For a chore that waits for the end of a login."""
    while isinstance(step, Verification):
        found = yield from verified(request, step)
        step = step.finish(found)
    return step


def verified(request: Request, verification: Verification) -> Generator[Wait, None, Any]:
    """For a chore that waits for the check of a password."""
    verifying = request.broker.verifying
    if verifying is None:
        return verification.run()
    found: list[Any] = []

    def wait(go_on: Callable[[], None]) -> None:
        def done(each: Any) -> None:
            found.append(each)
            go_on()

        verifying(verification, done)

    yield wait
    return found[0]


# Totals


@service("management.totals", "")
def totals(request: Request) -> Chore:
    """What there is and what was done, of each virtual host; and how the broker is."""
    require_internal(request)
    hosts = yield from counted_hosts(request)
    request.reply({}, marshal.dumps({"hosts": hosts, "broker": broker_counts(request)}))


def counted_hosts(request: Request) -> Generator[Wait | None, None, dict[str, Any]]:
    """The counts of each virtual host."""
    broker = request.broker
    hosts: dict[str, Any] = {}
    pace = Pace(broker.timetable, sum(len(host.queues) for host in broker.virtual_hosts.values()))
    for name, host in list(broker.virtual_hosts.items()):
        sums = QueueSums(direct_reply.NAME)
        last: str | None = None
        while names := host.queue_names.portion(last, STEP_QUEUES_MIN):
            sums.add(host.queues, names)
            last = names[-1]
            if pace.is_over(len(names)):
                yield from pace.pause()
        hosts[name] = host_counts(host, sums)
        if pace.is_over(1):
            yield from pace.pause()
    for _ in add_connections(broker.connections, hosts):
        yield from pace.pause()
    return hosts


class Pace:
    """Of a look at so many queues, in short steps with a pause after each: nobody waits for the numbers."""

    def __init__(self, timetable: Timetable, queues: int) -> None:
        self.timetable = timetable
        self.step_s = max(STEP_S_MIN, min(STEP_S_OF_QUEUE * queues, STEP_S_MAX))
        self.begin()

    def begin(self) -> None:
        self.until_s = self.timetable.clock.monotonic_s() + self.step_s
        self.looked_at = 0

    def is_over(self, queues: int) -> bool:
        """Whether the step is, after a look at so many queues."""
        self.looked_at += queues
        return self.looked_at >= STEP_QUEUES_MAX or self.timetable.clock.monotonic_s() >= self.until_s

    def pause(self) -> Chore:
        yield self.breathe
        self.begin()

    def breathe(self, go_on: Callable[[], None]) -> None:
        self.timetable.at(self.timetable.now_ms() + PAUSE_MS, go_on)


def host_counts(host: VirtualHost, sums: QueueSums) -> dict[str, Any]:
    tally = host.tally
    return {
        **dict(zip(COUNTED, tally.of_channels, strict=True)),
        "channels_opened": tally.channels_opened,
        "channels_closed": tally.channels_closed,
        "queues_created": tally.queues_created,
        "queues_declared": tally.queues_declared,
        "queues_deleted": tally.queues_deleted,
        "received": tally.received_octets,
        "sent": tally.sent_octets,
        "tracing": host.router.is_traced,
        "queues": sums.queues,
        "exchanges": len(host.exchanges),
        "bindings": host.binding_count,
        "connections": 0,
        "channels": 0,
        "consumers": sums.consumers,
        "ready": sums.ready,
        "streams": sums.streams,
        "kept": sums.kept,
        "unacked": sums.unacked,
        "delayed": sums.delayed,
        "ready_bytes": sums.ready_bytes,
        "unacked_bytes": 0,
        "oldest_ms": sums.oldest_ms,
    }


def add_connections(connections: dict[int, ClientConnection], hosts: dict[str, Any]) -> Iterator[None]:
    """In steps: one connection may have thousands of channels."""
    looked_at = 0
    for client in list(connections.values()):
        counted = hosts.get(client.virtual_host.name, {})
        if counted:
            counted["connections"] += 1
            counted["channels"] += len(client.channels)
            received, sent = client.peer.octets()
            counted["received"] += received
            counted["sent"] += sent
        for channel in (None, *client.channels.values()):
            if channel is not None and counted:
                add_channel(counted, channel)
            looked_at += 1
            if looked_at % STEP_CHANNELS == 0:
                yield


def add_channel(counted: dict[str, Any], channel: Channel) -> None:
    unacked = channel.unacked
    counted["unacked_bytes"] += unacked.outstanding_bytes + UNACKED_MESSAGE_BYTES * unacked.outstanding
    for name, count in zip(COUNTED, counts_of(channel), strict=True):
        counted[name] += count


def broker_counts(request: Request) -> dict[str, Any]:
    broker = request.broker
    condition = {} if broker.process is None else broker.process.condition()
    pass_work, store = broker.pass_work, broker.store
    fates = pass_work.fates.told()
    fates["lost"] = pass_work.fates.lost + (0 if store is None else store.lost)
    return {
        **condition,
        "now_ms": broker.timetable.now_ms(),
        "started_ms": broker.started_ms,
        "connections_made": broker.connections_made - len(broker.clients.internal),
        "connections_open": len(broker.connections),
        "passes": pass_work.passes,
        "pid": os.getpid(),
        "cluster_name": broker.administration.parameters.cluster_name(),
        "logins": {
            PROTOCOLS[version]: tuple(counts) for version, counts in broker.failed_logins.decided.items()
        },
        "turn_times": pass_work.turn_times.told(),
        "waits": pass_work.waits.told(),
        "fates": fates,
        "output_bytes": pass_work.room.held_bytes,
        "routes": sum(len(host.router.routes) for host in broker.virtual_hosts.values()),
        **({} if store is None else journal_counts(store)),
    }


def journal_counts(store: Store) -> dict[str, Any]:
    return {
        "directory": str(store.journal.directory),
        "sync_times": store.journal.writer.sync_times.told(),
        "journal_waiting_bytes": store.journal.waiting_octets() + store.overflow.journal.waiting_octets(),
    }


# Snapshots


@service("management.snapshot", "kind text, virtual-host? text, limit? number, after? text")
def snapshot(request: Request) -> Iterator[None]:
    """Rows of a `kind` behind `after`, `limit` of them at most: marshalled, with `next` unless it is the end.

    Queues, exchanges and bindings are those of `virtual-host`.
    """
    require_internal(request)
    broker = request.broker
    kind = request.text("kind")
    limit = request.number("limit", ROWS_MAX, 1, ROWS_MAX)
    place = request.text("after", "")
    if kind in HOST_ROWS:
        host = broker.virtual_hosts.get(request.text("virtual-host"))
        if host is None:
            raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no such virtual host")
        source: Rows = HOST_ROWS[kind](host)
    elif kind in BROKER_ROWS:
        source = BROKER_ROWS[kind](broker.connections)
    else:
        raise request.wrong("kind", f"expected one of {', '.join((*HOST_ROWS, *BROKER_ROWS))}")
    parts: list[bytes] = []
    told = 0
    while True:
        rows: list[Tuple] = []
        is_end = True
        for looked_at, (at, row) in enumerate(source(place), 1):
            place = at
            if row is not None:
                rows.append(row)
            if looked_at == STEP_ROWS or told + len(rows) == limit:
                is_end = False
                break
        parts.append(marshal.dumps(rows))
        told += len(rows)
        if is_end or told == limit:
            request.reply({} if is_end else {"next": place}, marshal.dumps(parts))
            return
        yield


@service("management.changed-queues", "virtual-host text, since number, after? text")
def changed_queues(request: Request) -> Chore:
    """Rows of queues behind `after` in which a look has found a change in the pass `since` or later.

    `gone` has the names of queues that have gone since then, the last of them if they are many; an answer
    behind `after` has none. `count` is how many queues the answer is about, `pass` the number of the present
    pass; `next` is left out at the end. Who knows the queues of an earlier answer, without those that are
    gone, and whose number differs from `count` with the new ones, knows one more that is gone.
    """
    require_internal(request)
    broker = request.broker
    host = broker.virtual_hosts.get(request.text("virtual-host"))
    if host is None:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no such virtual host")
    since, place = request.number("since"), request.text("after", "")
    found: FieldTable = {"pass": broker.pass_work.passes}
    if since and not place:
        found["gone"] = list[FieldValue](host.tally.queue_marks.gone_since(since))
    parts: list[bytes] = []
    pace = Pace(broker.timetable, len(host.queues))
    count = looked_at = told = 0
    while names := host.queue_names.portion(place or None, STEP_QUEUES_MIN):
        queues = shown_queues(host.queues, names, direct_reply.NAME, host.falling.departed)
        changed = host.tally.queue_marks.changed(queues, since, broker.pass_work.passes, mark_of_other)
        count += len(queues)
        for at in range(0, len(changed), STEP_ROWS):
            if at:
                yield None
            some = changed[at : at + STEP_ROWS]
            rows = [queue_row(queue) for queue in some if not queue.deleted]
            count -= len(some) - len(rows)
            told += len(rows)
            parts.append(marshal.dumps(rows))
        place = names[-1]
        looked_at += len(names)
        if looked_at >= LOOKED_AT_MAX or told >= CHANGED_MAX:
            found["next"] = place
            break
        if changed:
            yield None  # whoever knows nothing of them yet is told without pauses
        elif pace.is_over(len(names)):
            yield from pace.pause()
    request.reply({**found, "count": count}, marshal.dumps(parts))


def mark_of_other(queue: Queue) -> int:
    """Of a queue that is more than a plain one."""
    return hash(queue_row(queue))


def packed(table: FieldTable) -> bytes:
    return encode_table(table) if table else NO_TABLE


def queue_rows(host: VirtualHost) -> Rows:
    def rows(after: str) -> Iterator[tuple[str, Tuple | None]]:
        queues, falling = host.queues, host.falling
        for name in host.queue_names.after(after or None):
            queue = queues[name]
            yield name, None if is_hidden(queue) or falling.is_gone(queue) else queue_row(queue)

    return rows


def queue_row(queue: Queue) -> Tuple:
    return (
        queue.name,
        queue.durable,
        queue.exclusive,
        queue.auto_delete,
        queue.is_stream,
        packed(queue.arguments),
        queue.owner,
        queue.number,
        len(queue.consumers),
        queue.message_count(),
        queue.unacked,
        queue.waiting_count(),
        queue.waiting_returns(),
        *browsing.held(queue),
        browsing.entered(queue),
        queue.settled_count,
        queue.unasked,
        *(NOTHING_SELDOM if queue.tally is None else queue_survey.counts_of(queue.tally)),
        len(queue.leases) if queue.leases else 0,
        bool(queue.active),
        queue_survey.oldest_ms_of(queue),
    )


def exchange_rows(host: VirtualHost) -> Rows:
    def rows(after: str) -> Iterator[tuple[str, Tuple | None]]:
        for name in host.exchange_names.after(after or None):
            yield name, exchange_row(host.exchanges[name])

    return rows


def exchange_row(exchange: Exchange) -> Tuple:
    return (
        exchange.name,
        exchange.type,
        exchange.durable,
        exchange.auto_delete,
        exchange.internal,
        packed(exchange.arguments),
        len(exchange.bindings),
    )


def binding_rows(host: VirtualHost) -> Rows:
    def rows(after: str) -> Iterator[tuple[str, Tuple | None]]:
        """By exchange, and in the order in which they were made."""
        name, _, number = after.rpartition("\n")
        if name in host.exchanges:
            yield from of_exchange(host.exchanges[name], int(number))
        for each in host.exchange_names.after(name or None):
            yield f"{each}\n0", None
            yield from of_exchange(host.exchanges[each], 0)

    def of_exchange(exchange: Exchange, number: int) -> Iterator[tuple[str, Tuple | None]]:
        for binding in exchange.bindings_after(number):
            target = binding.destination
            row = (
                exchange.name,
                target.name,
                "queue" if isinstance(target, Queue) else "exchange",
                binding.routing_key,
                packed(binding.arguments),
            )
            yield f"{exchange.name}\n{binding.number}", row

    return rows


class Clients:
    """The connections that were open when a portion began, in the order of their numbers.

    Their order is found once for all steps of a portion: there may be 100,000 of them.
    """

    def __init__(self, connections: dict[int, ClientConnection]) -> None:
        self.connections = connections
        self.numbers = sorted(connections)

    def after(self, place: str) -> Iterator[ClientConnection]:
        """From the one on that a portion or a step ended with; those that have gone are left out."""
        for at in range(bisect_left(self.numbers, int(place[:10] or 0)), len(self.numbers)):
            client = self.connections.get(self.numbers[at])
            if client is not None:
                yield client


def connection_rows(connections: dict[int, ClientConnection]) -> Rows:
    clients = Clients(connections)

    def rows(after: str) -> Iterator[tuple[str, Tuple | None]]:
        for client in clients.after(after):
            place = f"{client.number:010}"
            if place > after:
                yield place, connection_row(client)

    return rows


def connection_row(client: ClientConnection) -> Tuple:
    return (
        client.number,
        client.virtual_host.name,
        client.user.name,
        client.peer_address,
        PROTOCOLS[client.version],
        client.since_ms,
        client.blocked,
        len(client.channels),
        packed(client.client_properties),
        client.peer.describe(),
        given_name(client),
    )


def octets_rows(connections: dict[int, ClientConnection]) -> Rows:
    clients = Clients(connections)

    def rows(after: str) -> Iterator[tuple[str, Tuple | None]]:
        for client in clients.after(after):
            place = f"{client.number:010}"
            if place > after:
                yield place, (client.number, *client.peer.octets())

    return rows


def channel_rows(connections: dict[int, ClientConnection]) -> Rows:
    clients = Clients(connections)

    def rows(after: str) -> Iterator[tuple[str, Tuple | None]]:
        for client in clients.after(after):
            for place, channel in channels_after(client, after):
                if place > after:
                    yield place, channel_row(client, channel)
            yield f"{client.number:010} ~", None

    return rows


def channel_row(client: ClientConnection, channel: Channel) -> Tuple:
    return (
        client.number,
        channel.number,
        client.virtual_host.name,
        client.user.name,
        len(channel.consumers),
        channel.unacked.outstanding + channel.unacked.fetched,
        channel.confirms.published - channel.confirms.confirmed,
        channel.prefetch_count,
        channel.global_count,
        channel.confirms.active,
        isinstance(channel.transaction, Transaction),
        channel.flowing,
        *oldest_unacked(channel),
        *counts_of(channel),
    )


def consumer_rows(connections: dict[int, ClientConnection]) -> Rows:
    clients = Clients(connections)
    ordered = OrderedConsumers()

    def rows(after: str) -> Iterator[tuple[str, Tuple | None]]:
        for client in clients.after(after):
            for start, channel in channels_after(client, after):
                for place, consumer in ordered.after(channel, start, after):
                    yield place, None if is_hidden(consumer.queue) else consumer_row(client, consumer)
                if not channel.consumers and (place := f"{start} {LAST_TAG}") > after:
                    yield place, None
            yield f"{client.number:010} ~", None

    return rows


def consumer_row(client: ClientConnection, consumer: Consumer) -> Tuple:
    rules = consumer.queue.rules
    choice = None if rules is None else rules.choice
    chosen = choice.single if choice is not None and choice.single_active else None
    return (
        client.number,
        consumer.channel.number,
        client.virtual_host.name,
        client.user.name,
        consumer.tag,
        consumer.queue.name,
        consumer.no_ack,
        consumer.exclusive,
        consumer.prefetch_count,
        consumer.outstanding,
        packed(consumer.arguments),
        chosen is None or chosen is consumer,
        consumer.priority,
        oldest_held(consumer),
    )


def oldest_held(consumer: Consumer) -> int:
    """The delivery tag of the oldest message that a consumer with a full prefetch holds unacked; else 0.

    Others on the channel may hold older ones, of which so many are passed over.
    """
    if not consumer.prefetch_count or consumer.outstanding < consumer.prefetch_count:
        return 0
    ring = consumer.channel.unacked.ring
    for index in range(min(ring.count, PASSED_OVER_MAX)):
        delivery = ring.at(index)
        if delivery.consumer is consumer and delivery.message is not None:
            return int(delivery.tag)
    return 0


HOST_ROWS = {"queues": queue_rows, "exchanges": exchange_rows, "bindings": binding_rows}
BROKER_ROWS = {
    "connections": connection_rows,
    "octets": octets_rows,
    "channels": channel_rows,
    "consumers": consumer_rows,
}


@service("management.exchange-counts", "virtual-host text")
def exchange_counts(request: Request) -> Iterator[None]:
    """Of the exchanges of `virtual-host`: messages published to them, and the copies in queues."""
    require_internal(request)
    broker = request.broker
    host = broker.virtual_hosts.get(request.text("virtual-host"))
    if host is None:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no such virtual host")
    found: dict[str, tuple[int, int]] = dict(host.router.passed)
    for at, route in enumerate(list(host.router.routes.values()), 1):
        if route.passed:
            name = "" if route.exchange is None else route.exchange.name
            passed, copies = found.get(name, (0, 0))
            found[name] = (passed + route.passed, copies + copies_of(route))
        if at % STEP_ROUTES == 0:
            yield
    request.reply({}, marshal.dumps(found))


@service("management.journal", "")
def journal_info(request: Request) -> None:
    """How the journal is: its segments and octets, how far it is synced, and what is wrong with it."""
    require_internal(request)
    broker = request.broker
    if broker.store is None:
        raise ServiceFault(amqp.NOT_FOUND, "the broker keeps no journal: it runs without a data directory")
    journal = broker.store.journal
    request.reply(
        {
            "directory": str(journal.directory),
            "segments": len(journal.segments),
            "bytes": journal.disk_octets(),
            "segment_bytes": journal.options.segment_octets,
            "sync_interval_ms": journal.options.sync_interval_ms,
            "last_sequence": journal.next_sequence - 1,
            "synced_sequence": journal.synced_sequence,
            "is_behind": journal.is_behind(),
            "alarm": journal.alarm,
            "missing": journal.missing,
            "held": journal.held,
        }
    )


@service("management.queue-heads", "virtual-host text, queues any")
def queue_heads(request: Request) -> Iterator[None]:
    """The first message of each of `queues`: name, when it came, its lifetime or -1, its headers.

    Queues that are empty or gone are left out.
    """
    require_internal(request)
    host = request.broker.virtual_hosts.get(request.text("virtual-host"))
    if host is None:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no such virtual host")
    names = request.arguments["queues"]
    if not isinstance(names, list):
        raise request.wrong("queues", "expected a list of names")
    found: list[Tuple] = []
    for name in names:
        queue = host.lookup_queue(name) if isinstance(name, str) else None
        if queue is not None and not queue.is_stream:
            message = browsing.first_message(queue)
            if message is not None:
                head = message.arrived_ms, message.lifetime_ms, headers_octets(message)
                found.append((name, *head))
        yield  # the message may lie on disk
    request.reply({}, marshal.dumps(found))


@service("management.queue-info", "virtual-host text, queue text")
def queue_details(request: Request) -> None:
    """Of one queue what takes a look into it: the age of its oldest message, and who has it for himself."""
    require_internal(request)
    broker = request.broker
    host = broker.virtual_hosts.get(request.text("virtual-host"))
    queue = None if host is None else host.lookup_queue(request.text("queue"))
    if queue is None:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no such queue")
    found: FieldTable = {}
    oldest_ms = browsing.oldest_ms(queue)
    if oldest_ms is not None:
        found["head_message_timestamp"] = oldest_ms // 1000
        found["oldest_age_ms"] = max(0, broker.timetable.now_ms() - oldest_ms)
    choice = None if queue.rules is None else queue.rules.choice
    if choice is not None and choice.single_active and choice.single is not None:
        found["single_active_consumer_tag"] = choice.single.tag
    for consumer in queue.consumers:
        if consumer.exclusive:
            found["exclusive_consumer_tag"] = consumer.tag
    request.reply(found)
