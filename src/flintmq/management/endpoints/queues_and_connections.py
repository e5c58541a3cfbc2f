"""Queues, exchanges, bindings, connections, channels, consumers: what there is, and changes of it.

Lists come from snapshots; changes are made by AMQP methods on a connection in the name of the user, so that
the user's permissions hold as they do over AMQP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.queue_history import Counts, Tick
from flintmq.management.broker_state.queue_policies import PolicyRow
from flintmq.management.broker_state.samples import TOLD_MAX, add_samples
from flintmq.management.requests.context import Context
from flintmq.management.requests.faults import BadRequest, NotAuthorised, NotFound
from flintmq.management.requests.listing import PAGE_SIZE_MAX, Listing, answer
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
from flintmq.snapshot_rows import BindingRow, ChannelRow, ConnectionRow, ExchangeRow, QueueRow

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
# Columns of a queue in which all queues of a list are alike.
SAME_OF_ALL = (
    *("node", "state", "recoverable_slaves", "reductions", "reductions_details", "garbage_collection"),
    *("exclusive_consumer_tag", "single_active_consumer_tag", "head_message_timestamp"),
    "message_bytes_unacknowledged",
)
# Samples of one value over all rows of a list, further apart where rows are many: each row has twelve values
# with samples, each sample some 220 octets before it is sent. 6,000 x 12 x 220 octets are 16 MB.
LIST_SAMPLES_MAX = 6000
BINDING_BODY = {"type": "object", "properties": {"routing_key": TEXT, "arguments": TABLE}}


async def seen_hosts(call: Call) -> list[str]:
    """The virtual hosts that the user may look into."""
    return [host for host in await call.context.hosts() if call.identity.sees(host)]


# Queues


class QueueShapes:
    """How to show the queues of one virtual host."""

    def __init__(self, context: Context, vhost: str) -> None:
        self.context = context
        self.vhost = vhost
        self.snapshot = context.snapshots.queues(vhost)
        self.length_ticks: list[Tick] = []
        self.rate_ticks: list[Tick] = []

    async def prepare(self) -> list[tuple[QueueShapes, QueueRow]]:
        self.rows = await self.snapshot.current()
        # Before anybody else has a turn: another snapshot may be on its way.
        self.now = self.context.queue_history.tick_of(self.snapshot.taken_s)
        self.before = self.snapshot.earlier()
        self.seconds = 0.0 if self.before is None else self.snapshot.taken_s - self.before[0]
        self.policies = await self.context.queue_policies(self.vhost)
        return [(self, row) for row in self.rows.values()]

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

    def points(self, row: QueueRow, ticks: list[Tick]) -> list[tuple[int, Counts]]:
        """Of a queue without a history those that its rate is counted from."""
        found = self.context.queue_history.points(self.vhost, row, self.now, ticks)
        earlier = self.earlier(row)
        if len(found) > 1 or earlier is None:
            return found
        before_ms = self.now.wall_ms - round(1000 * self.seconds)
        return [(self.now.wall_ms, Counts.of(row)), (before_ms, Counts.of(earlier))]

    def shape(self, row: QueueRow) -> dict[str, Any]:
        before = self.earlier(row)
        signature = (row.ready, row.unacked, row.consumers, row.entered, row.settled, row.unasked)
        idle = self.context.idle_since(self.vhost, row.name, signature, self.context.clock.wall_ms())
        found = shapes.queue(row, self.vhost, self.context.node, before, self.seconds, idle)
        holding = self.policies.of(row)
        found["policy"] = holding.policy
        found["operator_policy"] = holding.operator_policy
        found["effective_policy_definition"] = holding.definition
        return found


def name_of(policy: PolicyRow | None) -> str:
    return "" if policy is None else policy.name


def queue_listing(rows: list[tuple[QueueShapes, QueueRow]]) -> Listing[tuple[QueueShapes, QueueRow]]:
    def counted(count: Count) -> Any:
        return lambda pair: count(pair[1])

    def rated(count: Count) -> Any:
        def value(pair: tuple[QueueShapes, QueueRow]) -> float:
            owner, row = pair
            before = owner.earlier(row)
            if before is None or before is row or owner.seconds <= 0:
                return 0.0
            return (count(row) - count(before)) / owner.seconds

        return value

    # Each column that differs from queue to queue: to shape 100,000 of them takes seconds.
    quick: dict[str, Any] = {
        **{f"message_stats.{name}": counted(count) for name, count in shapes.QUEUE_STATS.items()},
        **{f"message_stats.{name}_details.rate": rated(count) for name, count in shapes.QUEUE_STATS.items()},
        **{f"{name}_details.rate": rated(count) for name, count in shapes.QUEUE_DEPTHS.items()},
        **{name: counted(count) for name, count in shapes.QUEUE_DEPTHS.items()},
        **{f"message_stats.{name}_details": rated(count) for name, count in shapes.QUEUE_STATS.items()},
        **{f"{name}_details": rated(count) for name, count in shapes.QUEUE_DEPTHS.items()},
        **dict.fromkeys(SAME_OF_ALL, lambda pair: ""),
        **dict.fromkeys(("members", "online", "readers", "leader"), lambda pair: pair[1].is_stream),
        **dict.fromkeys(("owner_pid_details", "owner_pid_details.name"), owner_of),
        **dict.fromkeys(("backing_queue_status", "backing_queue_status.len"), lambda pair: pair[1].ready),
        "message_stats": counted(shapes.delivered_or_got),
        "message_bytes_persistent": lambda pair: shapes.message_bytes(pair[1]) if pair[1].number else 0,
        "messages_ready_ram": lambda pair: pair[1].ready - pair[1].paged,
        "messages_unacknowledged_ram": lambda pair: pair[1].unacked,
        "policy": lambda pair: pair[0].policies.of(pair[1]).policy or "",
        "operator_policy": lambda pair: pair[0].policies.of(pair[1]).operator_policy or "",
        "effective_policy_definition": lambda pair: pair[0].policies.of(pair[1]).written,
        "idle_since": lambda pair: pair[0].context.known_idle(pair[0].vhost, pair[1].name),
        "messages_ram": lambda pair: pair[1].ready + pair[1].unacked - pair[1].paged,
        "messages_dropped": lambda pair: pair[1].overflowed,
        "messages_expired": lambda pair: pair[1].expired,
        "messages_lost": lambda pair: pair[1].lost,
        "messages_paged_out": lambda pair: pair[1].paged,
        "messages_persistent": lambda pair: pair[1].ready + pair[1].unacked if pair[1].number else 0,
        "message_bytes_ready": counted(shapes.message_bytes),
        "message_bytes_paged_out": lambda pair: pair[1].paged_bytes,
        "message_bytes_ram": lambda pair: pair[1].ready_bytes,
        "consumer_utilisation": lambda pair: pair[1].has_active,
        "consumer_capacity": lambda pair: pair[1].has_active,
        "leases": lambda pair: pair[1].leases,
        "name": lambda pair: pair[1].name,
        "vhost": lambda pair: pair[0].vhost,
        "consumers": lambda pair: pair[1].consumers,
        "memory": lambda pair: pair[1].ready_bytes,
        "message_bytes": counted(shapes.message_bytes),
        "durable": lambda pair: pair[1].durable,
        "auto_delete": lambda pair: pair[1].auto_delete,
        "exclusive": lambda pair: pair[1].exclusive,
        "type": lambda pair: shapes.queue_type(pair[1]),
    }
    parts: dict[str, Any] = {
        "arguments": lambda pair: shapes.table(pair[1].arguments),
        "effective_policy_definition": lambda pair: pair[0].policies.of(pair[1]).definition,
    }
    return Listing(
        rows,
        lambda pair: pair[0].shape(pair[1]),
        lambda pair: pair[1].name,
        quick,
        parts,
        lambda pair: pair[0].told(pair[1]),
    )


def owner_of(pair: tuple[QueueShapes, QueueRow]) -> str:
    return str(pair[1].owner) if pair[1].exclusive else ""


async def queues_in(call: Call, hosts: list[str]) -> Response:
    """The queues of some virtual hosts, with samples if there are not too many of them."""
    lengths, rates = call.sampled("lengths"), call.sampled("msg_rates")
    shown = [QueueShapes(call.context, host) for host in hosts]
    rows = [row for each in shown for row in await each.prepare()]
    told = call.number("page_size", 100, 1, PAGE_SIZE_MAX) if call.is_paged else len(rows)
    if 0 < told <= PAGE_SIZE_MAX:
        for each in shown:
            each.sample(lengths, rates, max(2, min(TOLD_MAX, LIST_SAMPLES_MAX // told)))
    return answer(call, queue_listing(rows))


@endpoint("GET", "/api/queues", query=(*LIST_QUERY, *SAMPLED, "disable_stats", "enable_queue_totals"))
async def queues(call: Call) -> Response:
    """All queues that the user may see."""
    return await queues_in(call, await seen_hosts(call))


@endpoint("GET", "/api/queues/{vhost}", query=(*LIST_QUERY, *SAMPLED))
async def queues_of_host(call: Call) -> Response:
    """The queues of a virtual host."""
    return await queues_in(call, [call.vhost])


@endpoint("GET", "/api/queues/{vhost}/{name}", query=(*SAMPLED, "columns"))
async def queue_one(call: Call) -> Any:
    """One queue, with its consumers."""
    lengths, rates = call.sampled("lengths"), call.sampled("msg_rates")
    shown = QueueShapes(call.context, call.vhost)
    await shown.prepare()
    row = shown.rows.get(call["name"])
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
    connections = await call.context.snapshots.connections.current() if of_queue else {}
    return [shapes.consumer(row, connections.get(row.connection), call.context.node) for row in of_queue]


@endpoint("PUT", "/api/queues/{vhost}/{name}", body=QUEUE_BODY)
async def queue_put(call: Call) -> Response:
    """Declares a queue; 201 if it is new."""
    body = await call.json()
    arguments = table_of(body, "arguments")
    async with call.connection() as connection:
        is_there = call["name"] in await call.context.snapshots.queues(call.vhost).current()
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
    if call["name"] not in await call.context.snapshots.queues(call.vhost).current():
        raise NotFound
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        await channel.delete_queue(
            call["name"], if_unused=call.flag("if-unused"), if_empty=call.flag("if-empty")
        )
    return no_content()


@endpoint("DELETE", "/api/queues/{vhost}/{name}/contents")
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
    if name not in await call.context.snapshots.queues(vhost).current():
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
    if call["name"] not in await call.context.snapshots.queues(call.vhost).current():
        raise NotFound
    return no_content()


# Exchanges


NAMELESS = ExchangeRow("", "direct", True, False, False, b"", 0)


class ExchangeShapes:
    """How to show the exchanges of one virtual host."""

    def __init__(self, context: Context, vhost: str) -> None:
        self.context = context
        self.vhost = vhost

    async def prepare(self) -> list[tuple[ExchangeShapes, ExchangeRow]]:
        """The nameless one first. None is shaped or matched with policies before it is told."""
        self.rows = await self.context.snapshots.exchanges(self.vhost).current()
        self.now, self.before, self.seconds = await self.context.passed(self.vhost)
        self.policies = await self.context.policies(self.vhost, False)
        return [(self, NAMELESS), *((self, row) for row in self.rows.values())]

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


def exchange_listing(rows: list[tuple[ExchangeShapes, ExchangeRow]]) -> Listing[Any]:
    quick: dict[str, Any] = {
        "name": lambda pair: pair[1].name,
        "vhost": lambda pair: pair[0].vhost,
        "type": lambda pair: pair[1].type,
        "durable": lambda pair: pair[1].durable,
        "auto_delete": lambda pair: pair[1].auto_delete,
        "internal": lambda pair: pair[1].internal,
        "policy": lambda pair: name_of(pair[0].policy_of(pair[1])),
    }
    parts: dict[str, Any] = {
        "arguments": lambda pair: shapes.table(pair[1].arguments),
        "message_stats": lambda pair: pair[0].shape(pair[1]).get("message_stats"),
    }
    return Listing(rows, lambda pair: pair[0].shape(pair[1]), lambda pair: pair[1].name, quick, parts)


@endpoint("GET", "/api/exchanges", query=LIST_QUERY)
async def exchanges(call: Call) -> Response:
    """All exchanges that the user may see."""
    rows = []
    for host in await seen_hosts(call):
        rows += await ExchangeShapes(call.context, host).prepare()
    return answer(call, exchange_listing(rows))


@endpoint("GET", "/api/exchanges/{vhost}", query=LIST_QUERY)
async def exchanges_of_host(call: Call) -> Response:
    """The exchanges of a virtual host."""
    return answer(call, exchange_listing(await ExchangeShapes(call.context, call.vhost).prepare()))


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
    rows: list[tuple[str, BindingRow]] = []
    for host in await seen_hosts(call):
        rows += await bindings_in(call, host)
    return answer_bindings(call, rows)


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
    ends = exchanges if call["kind"] == "e" else await call.context.snapshots.queues(call.vhost).current()
    source = named_exchange(call["source"])
    if (source and source not in exchanges) or call["destination"] not in ends:
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
    call.context.changed()
    made = [
        shapes.binding(row, host)["properties_key"]
        for host, row in between(call, await bindings_in(call, call.vhost))
        if row.routing_key == key and shapes.table(row.arguments) == shapes.plain(arguments)
    ]
    location = made[-1] if made else shapes.properties_key(key, b"")
    return Response(status_code=201, headers={"location": location})


@endpoint("GET", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}")
async def binding_one(call: Call) -> dict[str, Any]:
    """One binding."""
    check_kind(call)
    return shapes.binding((await binding_of(call)), call.vhost)


async def binding_of(call: Call) -> BindingRow:
    """The binding that the path names; segments were decoded once, its key is encoded in itself."""
    wanted = call["properties_key"]
    for _, row in between(call, await bindings_in(call, call.vhost)):
        key = shapes.properties_key(row.routing_key, row.arguments)
        if wanted in (key, row.routing_key or "~") and (wanted == key or not row.arguments):
            return row
    raise NotFound


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
    before = snapshot.earlier()
    seconds = 0.0 if before is None else snapshot.taken_s - before[0]

    def shape(row: ConnectionRow) -> dict[str, Any]:
        earlier = None if before is None else before[1].get(row.number)
        return shapes.connection(row, call.context.node, earlier, seconds)

    shown = [
        row for row in rows.values() if sees_of_user(call, row.vhost, row.user) and vhost in (None, row.vhost)
    ]
    quick = {
        "name": shapes.connection_name,
        "user": lambda row: row.user,
        "vhost": lambda row: row.vhost,
        "channels": lambda row: row.channels,
        "connected_at": lambda row: row.since_ms,
        "state": lambda row: "blocked" if row.blocked else "running",
        "recv_oct": lambda row: row.described.get("received", 0),
        "send_oct": lambda row: row.described.get("sent", 0),
    }
    return Listing(shown, shape, shapes.connection_name, quick)


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
            await close_connection(call, row)
    return no_content()


async def channel_rows(call: Call, connection: int | None, vhost: str | None = None) -> Listing[ChannelRow]:
    snapshot = call.context.snapshots.channels
    rows = await snapshot.current()
    connections = await call.context.snapshots.connections.current()
    before = snapshot.earlier()
    seconds = 0.0 if before is None else snapshot.taken_s - before[0]

    def shape(row: ChannelRow) -> dict[str, Any]:
        earlier = None if before is None else before[1].get((row.connection, row.number))
        return shapes.channel(row, connections.get(row.connection), call.context.node, earlier, seconds)

    def name(row: ChannelRow) -> str:
        return f"{shapes.ends_of(connections.get(row.connection))['name']} ({row.number})"

    shown = [
        row
        for row in rows.values()
        if sees_of_user(call, row.vhost, row.user)
        and connection in (None, row.connection)
        and vhost in (None, row.vhost)
    ]
    return Listing(shown, shape, name, {"name": name, "user": lambda row: row.user})


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
            connections = await call.context.snapshots.connections.current()
            found = listing.shape(row)
            found["consumer_details"] = [
                shapes.consumer(each, connections.get(each.connection), call.context.node)
                for each in consumers.values()
                if (each.connection, each.channel) == (row.connection, row.number)
            ]
            found["publishes"], found["deliveries"] = [], []
            return found
    raise NotFound


async def consumer_rows(call: Call, vhost: str | None) -> Response:
    rows = await call.context.snapshots.consumers.current()
    connections = await call.context.snapshots.connections.current()
    shown = [
        row for row in rows.values() if sees_of_user(call, row.vhost, row.user) and vhost in (None, row.vhost)
    ]
    listing = Listing(
        shown,
        lambda row: shapes.consumer(row, connections.get(row.connection), call.context.node),
        lambda row: row.tag,
    )
    return answer(call, listing)


@endpoint("GET", "/api/consumers", query=LIST_QUERY)
async def consumers(call: Call) -> Response:
    """Consumers: one's own, or all for those who monitor."""
    return await consumer_rows(call, None)


@endpoint("GET", "/api/consumers/{vhost}", query=LIST_QUERY)
async def consumers_of_host(call: Call) -> Response:
    """The consumers in a virtual host."""
    return await consumer_rows(call, call.vhost)
