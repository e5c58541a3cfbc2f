"""Queues, exchanges, bindings, connections, channels, consumers: what there is, and changes of it.

Lists come from snapshots; changes are made by AMQP methods on a connection in the name of the user, so that
the user's permissions hold as they do over AMQP.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import quote, unquote_plus

from starlette.responses import Response

from flintmq.client.core.errors import ServiceError
from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.broker_link import unless_gone
from flintmq.management.broker_state.queue_history import Counts, Now
from flintmq.management.broker_state.queue_policies import Effective, PolicyRow
from flintmq.management.broker_state.samples import TOLD_MAX, add_samples
from flintmq.management.requests.context import Context
from flintmq.management.requests.faults import BadRequest, NotAuthorised, NotFound
from flintmq.management.requests.listing import PAGE_SIZE_MAX, Listing, Part, answer
from flintmq.management.requests.routes import (
    LIST_QUERY,
    SAMPLED,
    Call,
    endpoint,
    flag_of,
    no_content,
    table_of,
    text_of,
)
from flintmq.snapshot_rows import (
    BindingRow,
    ChannelRow,
    ConnectionRow,
    ConsumerRow,
    ExchangeRow,
    OctetsRow,
    QueueRow,
)
from flintmq.wire import amqp
from flintmq.wire.tables import encode_table

FLAG = {"type": "boolean"}
TABLE = {"type": "object", "additionalProperties": True}
TEXT = {"type": "string"}

QUEUE_BODY = {
    "type": "object",
    "properties": {"durable": FLAG, "auto_delete": FLAG, "arguments": TABLE, "node": TEXT},
}
EXCHANGE_BODY = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": TEXT,
        "durable": FLAG,
        "auto_delete": FLAG,
        "internal": FLAG,
        "arguments": TABLE,
    },
}
Count = Callable[[QueueRow], int]
QUEUE_TYPES = frozenset(("classic", "quorum", "stream"))
# Samples of one value over all rows of a list, further apart where rows are many: each row has 13 values
# with samples, each sample some 220 octets before it is sent. 6,000 x 13 x 220 octets are 17 MB.
LIST_SAMPLES_MAX = 6000
BINDING_BODY = {"type": "object", "properties": {"routing_key": TEXT, "arguments": TABLE}}


# Queues


# What queues are sorted by in a column. To shape 100,000 of them takes seconds.
QUEUE_COLUMNS: dict[str, Callable[[QueueRow], Any]] = {
    **shapes.QUEUE_DEPTHS,
    **{f"message_stats.{name}": count for name, count in shapes.QUEUE_STATS.items()},
    **dict.fromkeys(("members", "online", "readers", "leader"), lambda row: row.is_stream),
    **dict.fromkeys(
        ("owner_pid_details", "owner_pid_details.name"), lambda row: str(row.owner) if row.exclusive else ""
    ),
    **dict.fromkeys(
        ("backing_queue_status", "backing_queue_status.len"), lambda row: None if row.is_stream else row.ready
    ),
    **dict.fromkeys(
        ("backing_queue_status.mode", "backing_queue_status.version"), lambda row: not row.is_stream
    ),
    "auto_delete": lambda row: row.auto_delete,
    "consumer_capacity": lambda row: row.has_active,
    "consumer_utilisation": lambda row: row.has_active,
    "consumers": lambda row: row.consumers,
    "durable": lambda row: row.durable,
    "exclusive": lambda row: row.exclusive,
    "leases": lambda row: row.leases,
    "memory": lambda row: row.ready_bytes,
    "message_bytes": shapes.message_bytes,
    "message_bytes_paged_out": lambda row: row.paged_bytes,
    "message_bytes_persistent": lambda row: shapes.message_bytes(row) if row.number else 0,
    "message_bytes_ram": lambda row: row.ready_bytes,
    "message_bytes_ready": shapes.message_bytes,
    "message_stats": shapes.delivered_or_got,
    "messages_dropped": lambda row: row.overflowed,
    "messages_expired": lambda row: row.expired,
    "messages_lost": lambda row: row.lost,
    "messages_paged_out": lambda row: row.paged,
    "messages_persistent": lambda row: row.ready + row.unacked if row.number else 0,
    "messages_ram": lambda row: row.ready + row.unacked - row.paged,
    "messages_ready_ram": lambda row: row.ready - row.paged,
    "messages_unacknowledged_ram": lambda row: row.unacked,
    "name": lambda row: row.name,
    "type": shapes.queue_type,
}
# Columns with a rate: what is counted.
QUEUE_RATES: dict[str, Count] = {
    f"{prefix}{name}_details{suffix}": count
    for prefix, counts in (("message_stats.", shapes.QUEUE_STATS), ("", shapes.QUEUE_DEPTHS))
    for name, count in counts.items()
    for suffix in ("", ".rate")
}


# Columns of the policies that hold for a queue.
HOLDING: dict[str, Callable[[Effective], Any]] = {
    "policy": lambda holding: holding.policy,
    "operator_policy": lambda holding: holding.operator_policy,
    "effective_policy_definition": lambda holding: holding.definition,
}


def reader_of(value: Callable[[Effective], Any], path: list[str]) -> Callable[[Effective], Any]:
    return lambda holding: shapes.inner(value(holding), path)


class QueueShapes:
    """How to show the queues of one virtual host."""

    def __init__(self, context: Context, vhost: str) -> None:
        self.context = context
        self.vhost = vhost
        self.snapshot = context.snapshots.queues(vhost)
        self.length_ticks: list[int] = []
        self.rate_ticks: list[int] = []

    async def prepare(self) -> Mapping[Hashable, QueueRow]:
        """The queues by name."""
        self.policies = await self.context.queue_policies(self.vhost)
        rows = await self.snapshot.current()
        # Before anybody else has a turn: another snapshot may be on its way.
        self.now: Now = self.context.queue_history.now_of(self.snapshot.taken_s)
        self.before = self.snapshot.earlier()
        self.seconds = 0.0 if self.before is None else self.snapshot.taken_s - self.before[0]
        return rows

    def earlier(self, row: QueueRow) -> QueueRow | None:
        """The queue as it was when the seconds began that rates are counted over."""
        if self.before is None:
            return None
        before = self.before[1].get(row.name)
        if before is row:
            return row
        if before is None or shapes.has_begun_anew(row, before):
            return shapes.as_declared(row)
        return before

    def sample(self, lengths: tuple[float, float], rates: tuple[float, float], most: int) -> None:
        """Rows are told with samples: how far they go back, how far apart they are, how many at most."""
        history = self.context.queue_history
        self.length_ticks, self.rate_ticks = (
            history.ticks(self.vhost, self.now, age_s, max(incr_s, age_s / most), most) if age_s else []
            for age_s, incr_s in (lengths, rates)
        )

    def told(self, row: QueueRow) -> dict[str, Any]:
        """The row with the samples that were asked for."""
        found = self.shape(row)
        if self.length_ticks:
            points = self.points(row, self.length_ticks)
            add_samples(found, [at_ms for at_ms, _ in points], [each.depths() for _, each in points])
        if self.rate_ticks and "message_stats" in found:
            points = self.points(row, self.rate_ticks)
            stats = found["message_stats"]
            add_samples(stats, [at_ms for at_ms, _ in points], [each.stats() for _, each in points])
        return found

    def points(self, row: QueueRow, ticks: list[int]) -> list[tuple[int, Counts]]:
        """Of a queue without a history those that its rate is counted from."""
        found = self.context.queue_history.points(self.vhost, row, self.now, ticks)
        earlier = self.earlier(row)
        if len(found) > 1 or earlier is None:
            return found
        before_ms = self.now.wall_ms - round(1000 * self.seconds)
        return [(self.now.wall_ms, Counts.of(row)), (before_ms, Counts.of(earlier))]

    def shape(self, row: QueueRow) -> dict[str, Any]:
        before = self.earlier(row)
        signature = (
            *(row.ready, row.unacked, row.delayed, row.consumers),
            *(row.entered, row.settled, row.unasked),
        )
        idle = self.context.idle_since(self.vhost, row.name, signature, self.context.clock.wall_ms())
        found = shapes.queue(row, self.vhost, self.context.node, before, self.seconds, idle)
        holding = self.policies.of(row)
        for name, value in HOLDING.items():
            found[name] = value(holding)
        return found

    def quick(self, column: str) -> Callable[[QueueRow], Any] | None:
        """What the queues are sorted by in a column, but for the columns that lie in a part."""
        if column in QUEUE_COLUMNS:
            return QUEUE_COLUMNS[column]
        if column in QUEUE_RATES:
            return self.rate_of(QUEUE_RATES[column])
        columns: dict[str, Callable[[QueueRow], Any]] = {
            "idle_since": lambda row: self.context.known_idle(self.vhost, row.name),
            "vhost": lambda row: self.vhost,
        }
        return columns.get(column)

    def rate_of(self, count: Count) -> Callable[[QueueRow], float]:
        if self.before is None or self.seconds <= 0:
            return lambda row: 0.0
        earlier, seconds = self.earlier, self.seconds

        def rate(row: QueueRow) -> float:
            before = earlier(row)
            return 0.0 if before is None or before is row else (count(row) - count(before)) / seconds

        return rate

    async def listing(self, types: frozenset[str] = frozenset()) -> Listing[QueueRow]:
        """Of all queues, or of those of some types."""
        rows = list((await self.prepare()).values())
        if types:
            rows = [row for row in rows if shapes.queue_type(row) in types]
        parts = {
            "arguments": Part(
                lambda row: row.arguments, shapes.argument_reader, self.context.argument_orders.of
            ),
            **{name: Part(self.policies.of, partial(reader_of, value)) for name, value in HOLDING.items()},
        }
        return Listing(
            rows, self.shape, lambda row: row.name, self.quick, parts, is_complete=True, told=self.told
        )


def name_of(policy: PolicyRow | None) -> str:
    return "" if policy is None else policy.name


def with_samples(call: Call, shown: list[QueueShapes], listings: Sequence[Listing[QueueRow]]) -> Response:
    """Queues with the samples that were asked for, if there are not too many queues."""
    lengths, rates = call.sampled("lengths"), call.sampled("msg_rates")
    rows = sum(len(listing.rows) for listing in listings)
    told = call.number("page_size", 100, 1, PAGE_SIZE_MAX) if call.is_paged else rows
    if 0 < told <= PAGE_SIZE_MAX:
        for each in shown:
            each.sample(lengths, rates, max(2, min(TOLD_MAX, LIST_SAMPLES_MAX // told)))
    return answer(call, *listings)


def types_of(call: Call) -> frozenset[str]:
    """The types that queues are narrowed down to: none means all of them."""
    types = frozenset(name for name in call.query("type").split(",") if name)
    if unknown := types - QUEUE_TYPES:
        raise BadRequest(f"type must be of {', '.join(sorted(QUEUE_TYPES))}, not {min(unknown)}")
    return types


@endpoint("GET", "/api/queues", query=(*LIST_QUERY, *SAMPLED, "type", "disable_stats", "enable_queue_totals"))
async def queues(call: Call) -> Response:
    """All queues that the user may see, or those of some types."""
    shown: list[QueueShapes] = []
    types = types_of(call)

    async def listing(host: str) -> Listing[QueueRow]:
        of_host = QueueShapes(call.context, host)
        found = await of_host.listing(types)
        shown.append(of_host)
        return found

    return with_samples(call, shown, await call.context.of_hosts(call.identity.sees, listing))


@endpoint("GET", "/api/queues/{vhost}", query=(*LIST_QUERY, *SAMPLED, "type"))
async def queues_of_host(call: Call) -> Response:
    """The queues of a virtual host, or those of some types."""
    shown = QueueShapes(call.context, call.vhost)
    return with_samples(call, [shown], [await shown.listing(types_of(call))])


@endpoint("GET", "/api/queues/{vhost}/{name}", query=(*SAMPLED, "columns"))
async def queue_one(call: Call) -> Any:
    """One queue, with its consumers."""
    lengths, rates = call.sampled("lengths"), call.sampled("msg_rates")
    shown = QueueShapes(call.context, call.vhost)
    row = (await shown.prepare()).get(call["name"])
    if row is None:
        raise NotFound
    shown.sample(lengths, rates, TOLD_MAX)
    found = shown.told(row)
    found["consumer_details"] = await consumers_of(call, call.vhost, call["name"])
    found["deliveries"], found["incoming"] = [], []
    info = await call.context.link.ask(
        "management.queue-info", {"queue": call["name"], "virtual-host": call.vhost}
    )
    return found | shapes.plain(info.results)


async def consumers_of(call: Call, vhost: str, queue: str) -> list[dict[str, Any]]:
    consumers = await call.context.snapshots.consumers.current()
    of_queue = [row for row in consumers.values() if row.vhost == vhost and row.queue == queue]
    return [] if not of_queue else list(map(await consumer_shape(call), of_queue))


async def has_queue(call: Call, name: str) -> bool:
    """Whether the virtual host has the queue now: after a change a snapshot would be a new one of all."""
    arguments: dict[str, Any] = {"queue": name, "virtual-host": call.vhost}
    try:
        await call.context.link.ask("management.queue-info", arguments)
    except ServiceError as error:
        if error.code != amqp.NOT_FOUND:
            raise
        return False
    return True


@endpoint("PUT", "/api/queues/{vhost}/{name}", body=QUEUE_BODY)
async def queue_put(call: Call) -> Response:
    """Declares a queue; 201 if it is new."""
    body = await call.json()
    arguments = table_of(body, "arguments")
    async with call.connection() as connection:
        is_there = await has_queue(call, call["name"])
        async with connection.channel() as channel:
            durable = flag_of(body, "durable") if "durable" in body else True
            await channel.queue(
                call["name"],
                durable=durable,
                auto_delete=flag_of(body, "auto_delete"),
                arguments=arguments,
            )
    return no_content(204 if is_there else 201)


@endpoint("DELETE", "/api/queues/{vhost}/{name}", query=("if-empty", "if-unused"))
async def queue_delete(call: Call) -> Response:
    """Deletes a queue with its messages."""
    if not await has_queue(call, call["name"]):
        raise NotFound
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        await channel.delete_queue(
            call["name"], if_unused=call.flag("if-unused"), if_empty=call.flag("if-empty")
        )
    return no_content()


@endpoint("DELETE", "/api/queues/{vhost}/{name}/contents", of_messages=True)
async def queue_purge(call: Call) -> Response:
    """Drops all messages that are ready."""
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        await channel.purge_queue(call["name"])
    return no_content()


@endpoint("GET", "/api/queues/{vhost}/{name}/bindings", query=LIST_QUERY)
async def queue_bindings(call: Call) -> Response:
    """The bindings of a queue."""
    vhost, name = call.vhost, call["name"]
    if not await has_queue(call, name):
        raise NotFound
    rows = await bindings_in(call, vhost)
    return answer_bindings(
        call, [(host, row) for host, row in rows if row.destination == name and is_to_queue(row)]
    )


@endpoint("POST", "/api/queues/{vhost}/{name}/actions", body={"type": "object", "required": ["action"]})
async def queue_action(call: Call) -> Response:
    """RabbitMQ's actions on mirrored queues: there is nothing to synchronise here."""
    action = text_of(await call.json(), "action")
    if action not in ("sync", "cancel_sync"):
        raise BadRequest(f"unknown action: {action}")
    if not await has_queue(call, call["name"]):
        raise NotFound
    return no_content()


# Exchanges


NAMELESS = ExchangeRow("", "direct", True, False, False, b"", 0)


class ExchangeShapes:
    """How to show the exchanges of one virtual host."""

    def __init__(self, context: Context, vhost: str) -> None:
        self.context = context
        self.vhost = vhost

    async def prepare(self) -> None:
        """None is shaped or matched with policies before it is told."""
        self.rows = await self.context.snapshots.exchanges(self.vhost).current()
        passed = await self.context.client_watch.passed(self.vhost)
        before = self.context.client_watch.passed_before(self.vhost, passed)
        self.now = passed.counts
        self.seconds = 0.0 if before is None else before[0]
        self.before = None if before is None else before[1]
        self.policies = await self.context.policies(self.vhost, False)

    def shape(self, row: ExchangeRow) -> dict[str, Any]:
        earlier = None if self.before is None else self.before.get(row.name, (0, 0))
        shown = shapes.exchange(row, self.vhost, self.now.get(row.name), earlier, self.seconds)
        chosen = self.policy_of(row)
        if chosen is None:
            shown.pop("policy")
        else:
            shown["policy"] = chosen.name
        return shown

    def policy_of(self, row: ExchangeRow) -> PolicyRow | None:
        return next((each for each in self.policies if each.matches(row.name, ("all", "exchanges"))), None)

    async def listing(self) -> Listing[ExchangeRow]:
        """The nameless one first."""
        await self.prepare()
        quick: dict[str, Callable[[ExchangeRow], Any]] = {
            "name": lambda row: row.name,
            "vhost": lambda row: self.vhost,
            "type": lambda row: row.type,
            "durable": lambda row: row.durable,
            "auto_delete": lambda row: row.auto_delete,
            "internal": lambda row: row.internal,
            "policy": lambda row: name_of(self.policy_of(row)),
        }
        arguments: Part[ExchangeRow] = Part(
            lambda row: row.arguments, shapes.argument_reader, self.context.argument_orders.of
        )
        rows = [NAMELESS, *self.rows.values()]
        return Listing(rows, self.shape, lambda row: row.name, quick.get, {"arguments": arguments})


@endpoint("GET", "/api/exchanges", query=LIST_QUERY)
async def exchanges(call: Call) -> Response:
    """All exchanges that the user may see."""
    context = call.context
    return answer(
        call,
        *await context.of_hosts(call.identity.sees, lambda host: ExchangeShapes(context, host).listing()),
    )


@endpoint("GET", "/api/exchanges/{vhost}", query=LIST_QUERY)
async def exchanges_of_host(call: Call) -> Response:
    """The exchanges of a virtual host."""
    return answer(call, await ExchangeShapes(call.context, call.vhost).listing())


@endpoint("GET", "/api/exchanges/{vhost}/{name}", query=("columns",))
async def exchange_one(call: Call) -> dict[str, Any]:
    """One exchange."""
    name = named_exchange(call["name"])
    shown = ExchangeShapes(call.context, call.vhost)
    await shown.prepare()
    row = shown.rows.get(name) if name else NAMELESS
    if row is None:
        raise NotFound
    return {**shown.shape(row), "incoming": [], "outgoing": []}


def named_exchange(name: str) -> str:
    """The nameless exchange has a name in paths."""
    return "" if name == "amq.default" else name


@endpoint("PUT", "/api/exchanges/{vhost}/{name}", body=EXCHANGE_BODY)
async def exchange_put(call: Call) -> Response:
    """Declares an exchange; 201 if it is new."""
    body = await call.json()
    kind = text_of(body, "type")
    is_there = call["name"] in await call.context.snapshots.exchanges(call.vhost).current()
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        await channel.exchange(
            call["name"],
            kind,
            durable=flag_of(body, "durable") if "durable" in body else True,
            auto_delete=flag_of(body, "auto_delete"),
            internal=flag_of(body, "internal"),
            arguments=table_of(body, "arguments"),
        )
    return no_content(204 if is_there else 201)


@endpoint("DELETE", "/api/exchanges/{vhost}/{name}", query=("if-unused",))
async def exchange_delete(call: Call) -> Response:
    """Deletes an exchange."""
    if call["name"] not in await call.context.snapshots.exchanges(call.vhost).current():
        raise NotFound
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        await channel.delete_exchange(call["name"], if_unused=call.flag("if-unused"))
    return no_content()


@endpoint("GET", "/api/exchanges/{vhost}/{name}/bindings/source", query=LIST_QUERY)
async def exchange_bindings_from(call: Call) -> Response:
    """The bindings that lead away from an exchange."""
    vhost, name = call.vhost, named_exchange(call["name"])
    rows = await bindings_in(call, vhost)
    return answer_bindings(call, [(host, row) for host, row in rows if row.source == name])


@endpoint("GET", "/api/exchanges/{vhost}/{name}/bindings/destination", query=LIST_QUERY)
async def exchange_bindings_to(call: Call) -> Response:
    """The bindings that lead to an exchange."""
    vhost, name = call.vhost, named_exchange(call["name"])
    rows = await bindings_in(call, vhost)
    return answer_bindings(
        call, [(host, row) for host, row in rows if row.destination == name and not is_to_queue(row)]
    )


# Bindings


def is_to_queue(row: BindingRow) -> bool:
    return row.destination_type == "queue"


async def bindings_in(call: Call, vhost: str) -> list[tuple[str, BindingRow]]:
    """With those of the nameless exchange, which leads to each queue by its name."""
    queues = await call.context.snapshots.queues(vhost).current()
    bindings = await call.context.snapshots.bindings(vhost).current()
    nameless = [(vhost, BindingRow("", name, "queue", name, b"")) for name in map(str, queues)]
    return nameless + [(vhost, row) for row in bindings.values()]


def answer_bindings(call: Call, rows: list[tuple[str, BindingRow]]) -> Response:
    listing = Listing(rows, lambda pair: shapes.binding(pair[1], pair[0]), lambda pair: pair[1].source)
    return answer(call, listing)


@endpoint("GET", "/api/bindings", query=LIST_QUERY)
async def bindings(call: Call) -> Response:
    """All bindings that the user may see."""
    rows = await call.context.of_hosts(call.identity.sees, lambda host: bindings_in(call, host))
    return answer_bindings(call, list(chain.from_iterable(rows)))


@endpoint("GET", "/api/bindings/{vhost}", query=LIST_QUERY)
async def bindings_of_host(call: Call) -> Response:
    """The bindings of a virtual host."""
    return answer_bindings(call, await bindings_in(call, call.vhost))


def between(call: Call, rows: list[tuple[str, BindingRow]]) -> list[tuple[str, BindingRow]]:
    """Those from the exchange of the path to its queue or exchange."""
    kind = {"q": "queue", "e": "exchange"}[call["kind"]]
    source, destination = named_exchange(call["source"]), call["destination"]
    return [
        (host, row)
        for host, row in rows
        if row.source == source and row.destination == destination and row.destination_type == kind
    ]


def check_kind(call: Call) -> None:
    if call["kind"] not in ("q", "e"):
        raise NotFound


@endpoint("GET", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}", query=LIST_QUERY)
async def bindings_between(call: Call) -> Response:
    """The bindings between an exchange and a queue (q) or an exchange (e)."""
    check_kind(call)
    await both_exist(call)
    return answer_bindings(call, between(call, await bindings_in(call, call.vhost)))


async def both_exist(call: Call) -> None:
    exchanges = await call.context.snapshots.exchanges(call.vhost).current()
    source, destination = named_exchange(call["source"]), call["destination"]
    is_to_exchange = call["kind"] == "e"
    if (source and source not in exchanges) or (is_to_exchange and destination not in exchanges):
        raise NotFound
    if not is_to_exchange and not await has_queue(call, destination):
        raise NotFound


@endpoint("POST", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}", body=BINDING_BODY)
async def binding_post(call: Call) -> Response:
    """Binds; the Location header names the binding."""
    check_kind(call)
    await both_exist(call)
    body = await call.json()
    key, arguments = text_of(body, "routing_key", ""), table_of(body, "arguments")
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        bind = channel.bind_queue if call["kind"] == "q" else channel.bind_exchange
        await bind(call["destination"], named_exchange(call["source"]), key, arguments)
    # The broker has the arguments as they were sent. Location is relative to the path, and encoded once more
    # than the key is in itself: tools take the last segment, decode it and look for that properties_key.
    properties_key = shapes.properties_key(key, encode_table(arguments) if arguments else b"")
    location = f"{quote(call['destination'], safe='')}/{quote(properties_key, safe='')}"
    return Response(status_code=201, headers={"location": location})


@endpoint("GET", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}")
async def binding_one(call: Call) -> dict[str, Any]:
    """One binding."""
    check_kind(call)
    return shapes.binding((await binding_of(call)), call.vhost)


async def binding_of(call: Call) -> BindingRow:
    """The binding that the path names; segments were decoded once, its key is encoded in itself.

    Some tools put the key into the path as it is listed, and it is decoded here.
    """
    wanted = call["properties_key"]
    decoded: BindingRow | None = None
    for _, row in between(call, await bindings_in(call, call.vhost)):
        key = shapes.properties_key(row.routing_key, row.arguments)
        if wanted == key:
            return row
        if wanted == unquote_plus(key):
            decoded = row
    if decoded is None:
        raise NotFound
    return decoded


@endpoint("DELETE", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}")
async def binding_delete(call: Call) -> Response:
    """Takes a binding away."""
    check_kind(call)
    row = await binding_of(call)
    arguments = shapes.wire_table(row.arguments)
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        unbind = channel.unbind_queue if call["kind"] == "q" else channel.unbind_exchange
        await unbind(row.destination, row.source, row.routing_key, arguments)
    return no_content()


# Connections, channels, consumers


def sees_of_user(call: Call, vhost: str, user: str) -> bool:
    """Connections of others are for those who monitor."""
    return call.identity.sees_all or (call.identity.sees(vhost) and user == call.identity.user)


async def connection_rows(call: Call, vhost: str | None) -> Listing[ConnectionRow]:
    snapshot = call.context.snapshots.connections
    rows = await snapshot.current()
    before = call.context.client_watch.octets.before(snapshot.taken_s)
    seconds = 0.0 if before is None else before[0]

    def shape(row: ConnectionRow) -> dict[str, Any]:
        # One that is younger than the look has sent all that it has sent since then.
        earlier = None if before is None else before[1].get(row.number, OctetsRow(row.number, 0, 0))
        return shapes.connection(row, call.context.node, earlier, seconds)

    shown = [
        row for row in rows.values() if sees_of_user(call, row.vhost, row.user) and vhost in (None, row.vhost)
    ]
    quick: dict[str, Callable[[ConnectionRow], Any]] = {
        "name": shapes.connection_name,
        "user": lambda row: row.user,
        "vhost": lambda row: row.vhost,
        "channels": lambda row: row.channels,
        "connected_at": lambda row: row.since_ms,
        "state": lambda row: "blocked" if row.blocked else "running",
        "recv_oct": lambda row: row.described.get("received", 0),
        "send_oct": lambda row: row.described.get("sent", 0),
    }
    return Listing(shown, shape, shapes.connection_name, quick.get, also=lambda row: row.name)


@endpoint("GET", "/api/connections", query=LIST_QUERY)
async def connections(call: Call) -> Response:
    """Connections: one's own, or all for those who monitor."""
    return answer(call, await connection_rows(call, None))


@endpoint("GET", "/api/vhosts/{vhost}/connections", query=LIST_QUERY)
async def connections_of_host(call: Call) -> Response:
    """The connections to a virtual host."""
    return answer(call, await connection_rows(call, call.vhost))


@endpoint("GET", "/api/connections/username/{user}", query=LIST_QUERY)
async def connections_of_user(call: Call) -> Response:
    """The connections of a user."""
    listing = await connection_rows(call, None)
    listing.rows = [row for row in listing.rows if row.user == call["user"]]
    return answer(call, listing)


@endpoint("GET", "/api/connections/{name}", query=("columns",))
async def connection_one(call: Call) -> dict[str, Any]:
    """One connection, by its name or its number."""
    listing = await connection_rows(call, None)
    return listing.shape(one_connection(call, listing))


def one_connection(call: Call, listing: Listing[ConnectionRow]) -> ConnectionRow:
    for row in listing.rows:
        if call["name"] in (shapes.connection_name(row), str(row.number)):
            return row
    raise NotFound


@endpoint("DELETE", "/api/connections/{name}")
async def connection_delete(call: Call) -> Response:
    """Closes a connection; the header X-Reason says why."""
    row = one_connection(call, await connection_rows(call, None))
    await close_connection(call, row)
    return no_content()


async def close_connection(call: Call, row: ConnectionRow) -> None:
    if row.user != call.identity.user and not call.identity.has("administrator"):
        raise NotAuthorised("Not administrator user")
    reason = call.request.headers.get("x-reason", "Closed via management plugin")
    await call.ask("connection.close", {"number": row.number, "reason": reason[:200]})


@endpoint("DELETE", "/api/connections/username/{user}")
async def connections_of_user_delete(call: Call) -> Response:
    """Closes all connections of a user."""
    if not call.identity.has("administrator") and call["user"] != call.identity.user:
        raise NotAuthorised("Not administrator user")
    for row in (await connection_rows(call, None)).rows:
        if row.user == call["user"]:
            with unless_gone():
                await close_connection(call, row)
    return no_content()


async def channel_rows(call: Call, connection: int | None, vhost: str | None = None) -> Listing[ChannelRow]:
    snapshot = call.context.snapshots.channels
    rows = await snapshot.current()
    before = call.context.client_watch.channels.before(snapshot.taken_s)
    connections = await call.context.snapshots.connections.current()
    seconds = 0.0 if before is None else before[0]

    def shape(row: ChannelRow) -> dict[str, Any]:
        connection, node = connections.get(row.connection), call.context.node
        if before is None:
            return shapes.channel(row, connection, node, None, seconds)
        earlier = before[1].get((row.connection, row.number))
        if earlier is None or shapes.is_another(row, earlier):
            earlier = shapes.as_opened(row)
        return shapes.channel(row, connection, node, earlier, seconds)

    def name(row: ChannelRow) -> str:
        return f"{shapes.ends_of(connections.get(row.connection))['name']} ({row.number})"

    shown = [
        row
        for row in rows.values()
        if sees_of_user(call, row.vhost, row.user)
        and connection in (None, row.connection)
        and vhost in (None, row.vhost)
    ]

    def given_name(row: ChannelRow) -> str:
        connection = connections.get(row.connection)
        return "" if connection is None else connection.name

    quick: dict[str, Callable[[ChannelRow], str]] = {"name": name, "user": lambda row: row.user}
    return Listing(shown, shape, name, quick.get, also=given_name)


@endpoint("GET", "/api/channels", query=LIST_QUERY)
async def channels(call: Call) -> Response:
    """Channels: those of one's own connections, or all for those who monitor."""
    return answer(call, await channel_rows(call, None))


@endpoint("GET", "/api/vhosts/{vhost}/channels", query=LIST_QUERY)
async def channels_of_host(call: Call) -> Response:
    """The channels in a virtual host."""
    return answer(call, await channel_rows(call, None, call.vhost))


@endpoint("GET", "/api/connections/{name}/channels", query=LIST_QUERY)
async def channels_of_connection(call: Call) -> Response:
    """The channels of a connection."""
    row = one_connection(call, await connection_rows(call, None))
    return answer(call, await channel_rows(call, row.number))


@endpoint("GET", "/api/channels/{name}", query=("columns",))
async def channel_one(call: Call) -> dict[str, Any]:
    """One channel, with its consumers."""
    listing = await channel_rows(call, None)
    for row in listing.rows:
        if listing.name(row) == call["name"]:
            consumers = await call.context.snapshots.consumers.current()
            found = listing.shape(row)
            of_channel = [
                each
                for each in consumers.values()
                if (each.connection, each.channel) == (row.connection, row.number)
            ]
            found["consumer_details"] = list(map(await consumer_shape(call), of_channel))
            found["publishes"], found["deliveries"] = [], []
            return found
    raise NotFound


async def consumer_shape(call: Call) -> Callable[[ConsumerRow], dict[str, Any]]:
    """How to show a consumer, with what holds it back."""
    context = call.context
    connections = await context.snapshots.connections.current()
    channels = await context.snapshots.channels.current()
    now_ms = context.clock.wall_ms()

    def shape(row: ConsumerRow) -> dict[str, Any]:
        channel = channels.get((row.connection, row.channel))
        waited_s = context.client_watch.waited_s((row.connection, row.channel, row.tag), row, channel)
        connection = connections.get(row.connection)
        return shapes.consumer(row, connection, channel, context.node, waited_s, now_ms)

    return shape


async def consumer_rows(call: Call, vhost: str | None) -> Response:
    rows = await call.context.snapshots.consumers.current()
    shown = [
        row for row in rows.values() if sees_of_user(call, row.vhost, row.user) and vhost in (None, row.vhost)
    ]
    return answer(call, Listing(shown, await consumer_shape(call), lambda row: row.tag))


@endpoint("GET", "/api/consumers", query=LIST_QUERY)
async def consumers(call: Call) -> Response:
    """Consumers: one's own, or all for those who monitor."""
    return await consumer_rows(call, None)


@endpoint("GET", "/api/consumers/{vhost}", query=LIST_QUERY)
async def consumers_of_host(call: Call) -> Response:
    """The consumers in a virtual host."""
    return await consumer_rows(call, call.vhost)
