"""What RabbitMQ's API has no like of: peek and search, move and copy, streams, leases, branches, limits."""

from __future__ import annotations

from typing import Any

from flintmq.client.core.errors import ServiceError
from flintmq.management.broker_state import shapes
from flintmq.management.endpoints.messages import body_out, number_of, properties_out
from flintmq.management.requests.faults import BadRequest, NotFound
from flintmq.management.requests.routes import ADMINISTRATOR, MONITORING, Call, endpoint, text_of
from flintmq.wire import amqp
from flintmq.wire.columns import Columns
from flintmq.wire.properties import decode_basic_properties

PEEK_MAX = 500
SHOWN_BYTES = 65_536
MOVED_AT_ONCE = 10_000
OBJECT = {"type": "object"}


@endpoint(
    "GET",
    "/api/flintmq/queues/{vhost}/{name}/peek",
    query=("after", "limit", "selector", "contains", "truncate"),
)
async def peek(call: Call) -> dict[str, Any]:
    """Messages that wait in a queue, where they are: nothing is taken, nothing is marked."""
    arguments: dict[str, Any] = {
        "queue": call["name"],
        "limit": call.number("limit", 50, 1, PEEK_MAX),
        "columns": ["properties"],
    }
    if call.query("after"):
        arguments["after"] = call.number("after", 0, 0, 2**62)
    for name in ("selector", "contains"):
        if call.query(name):
            arguments[name] = call.query(name)
    reply = await call.reply("queue.peek", arguments, call.vhost)
    most = call.number("truncate", SHOWN_BYTES, 0, 2**31)
    results = reply.results
    return {
        "messages": [peeked(row, most) for row in Columns(reply.body).rows()] if reply.body else [],
        "last": results["last"],
        "more": results["more"],
        "looked_at": results["looked-at"],
    }


def peeked(row: dict[str, Any], most: int) -> dict[str, Any]:
    octets = row.get("properties") or b""
    properties = decode_basic_properties(octets, 0, len(octets)) if octets else None
    return {
        "place": row["offset"],
        "arrived_ms": row["timestamp"] // 1000,
        "exchange": shapes.plain(row["exchange"]),
        "routing_key": shapes.plain(row["routing_key"]),
        "redelivered": bool(row.get("redelivered")),
        "properties": {} if properties is None else properties_out(properties),
        **body_out(row["value"], "auto", most),
    }


async def moved(call: Call, service: str, verb: str) -> dict[str, Any]:
    """Of what waits at first, in portions: others have their turn, and it ends with who asked for it."""
    body = await call.json()
    arguments: dict[str, Any] = {"queue": call["name"], "to": text_of(body, "to")}
    wanted = number_of(body, "limit", 1, 2**31) if "limit" in body else 2**62
    waiting = (await call.ask("queue.info", {"queue": call["name"]}, call.vhost))["messages-ready"]
    total, done = max(1, min(wanted, waiting)), 0
    while True:
        arguments["limit"] = min(MOVED_AT_ONCE, total - done)
        found: dict[str, Any] = shapes.plain(await call.ask(service, arguments, call.vhost))
        done += found[verb]
        if not found[verb] or "stopped" in found or done >= total or await call.request.is_disconnected():
            return {**found, verb: done}
        if "last" in found:
            arguments["after"] = found["last"]


@endpoint("POST", "/api/flintmq/queues/{vhost}/{name}/move", body=OBJECT, of_messages=True)
async def move(call: Call) -> dict[str, Any]:
    """Moves messages to the queue `to`: all that wait, or `limit` of them."""
    return await moved(call, "queue.move", "moved")


@endpoint("POST", "/api/flintmq/queues/{vhost}/{name}/copy", body=OBJECT, of_messages=True)
async def copy(call: Call) -> dict[str, Any]:
    """Copies messages to the queue `to`: all that wait, or `limit` of them."""
    return await moved(call, "queue.copy", "copied")


@endpoint("GET", "/api/flintmq/queues/{vhost}/{name}/offsets")
async def offsets(call: Call) -> dict[str, Any]:
    """First and end offset of a stream."""
    try:
        found: dict[str, Any] = shapes.plain(
            await call.ask("stream.offsets", {"stream": call["name"]}, call.vhost)
        )
    except ServiceError as error:
        if error.code == amqp.PRECONDITION_FAILED:
            raise BadRequest(error.text) from None
        raise
    return found


@endpoint("GET", "/api/flintmq/branches/{vhost}")
async def branches(call: Call) -> list[dict[str, Any]]:
    """The branches of distributed transactions that the user may see in a virtual host."""
    return [shapes.plain(row) for row in await call.rows("dtx.list", vhost=call.vhost)]


@endpoint("GET", "/api/flintmq/queues/{vhost}/{name}/leases")
async def leases(call: Call) -> list[dict[str, Any]]:
    """The leases of a queue: who reads it in batches, and what is out."""
    rows = await call.rows("lease.list", {"queue": call["name"]}, call.vhost)
    return [shapes.plain(row) for row in rows]


@endpoint("GET", "/api/flintmq/alarms", MONITORING)
async def alarms(call: Call) -> dict[str, Any]:
    """The alarms that are on, why, and which connections wait because of them."""
    now = await call.context.samples.current()
    connections = await call.context.snapshots.connections.current()
    return {
        "alarms": now.broker.get("alarms", []),
        "memory_bytes": now.broker.get("memory-bytes", 0),
        "memory_bytes_high": now.broker.get("memory-bytes-high", 0),
        "disk_bytes": now.broker.get("disk-bytes"),
        "disk_bytes_free": now.broker.get("disk-bytes-free"),
        "blocked": [
            {"name": shapes.connection_name(row), "user": row.user, "reason": row.blocked}
            for row in connections.values()
            if row.blocked
        ],
    }


@endpoint("GET", "/api/flintmq/limits", MONITORING)
async def limits(call: Call) -> dict[str, Any]:
    """How much memory and disk there is, and the limits beyond which publishers wait."""
    now = await call.context.samples.current()
    names = ("memory-bytes", "memory-bytes-high", "disk-bytes-free", "disk-bytes-free-min")
    return {name.replace("-", "_"): now.broker.get(name) for name in names}


@endpoint("PUT", "/api/flintmq/limits/memory", ADMINISTRATOR, body=OBJECT)
async def memory_limit(call: Call) -> dict[str, Any]:
    """Sets the memory limit, until the broker ends: a `share` of the machine's memory, or `bytes`."""
    return await limited(call, "memory-limit.set", ("share", "bytes"))


@endpoint("PUT", "/api/flintmq/limits/disk", ADMINISTRATOR, body=OBJECT)
async def disk_limit(call: Call) -> dict[str, Any]:
    """Sets the limit of free disk space, until the broker ends: `bytes`, or a `memory_share`."""
    return await limited(call, "disk-limit.set", ("bytes", "memory_share"))


async def limited(call: Call, service: str, names: tuple[str, ...]) -> dict[str, Any]:
    body = await call.json()
    if len(body) != 1 or not body.keys() <= set(names):
        raise BadRequest(f"expected one of {' and '.join(names)}")
    arguments = {name.replace("_", "-"): value for name, value in body.items()}
    found: dict[str, Any] = await call.ask(service, arguments)
    return {name.replace("-", "_"): value for name, value in found.items()}


@endpoint("GET", "/api/flintmq/services")
async def services(call: Call) -> list[dict[str, Any]]:
    """The services that any AMQP client can ask, each with a line of help."""
    rows = await call.rows("broker.services")
    return [row for row in rows if not str(row["name"]).startswith("management.")]


@endpoint("GET", "/api/flintmq/info")
async def info(call: Call) -> dict[str, Any]:
    """Version, build, uptime, protocols."""
    if not call.identity.virtual_hosts:
        raise NotFound("the user may enter no virtual host")
    host = sorted(call.identity.virtual_hosts)[0]
    found: dict[str, Any] = shapes.plain(await call.ask("broker.info", {}, host))
    return found
