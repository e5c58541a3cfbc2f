"""How things look in RabbitMQ's JSON: its names of fields, from the broker's rows.

What FlintMQ has no like of is left out, or has the value of an idle RabbitMQ where tools insist on the field;
docs/management.md lists the differences.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus

from flintmq import amounts
from flintmq.management.broker_state.samples import rate
from flintmq.snapshot_rows import (
    COUNTED,
    BindingRow,
    ChannelRow,
    ConnectionRow,
    ConsumerRow,
    ExchangeRow,
    OctetsRow,
    QueueRow,
)
from flintmq.wire.tables import decode_table, join_entries, split_entries

# Of a table that is remembered.
REMEMBERED_BYTES_MAX = 1024
GARBAGE = {
    "fullsweep_after": 0,
    "max_heap_size": 0,
    "min_bin_vheap_size": 0,
    "min_heap_size": 0,
    "minor_gcs": 0,
}


def table(octets: bytes) -> dict[str, Any]:
    """A table of the wire, as JSON has it. Small ones are remembered: many queues and clients have the same,
    and what a client says of itself may be as large as a frame."""
    return decoded(octets) if len(octets) > REMEMBERED_BYTES_MAX else remembered(octets)


def decoded(octets: bytes) -> dict[str, Any]:
    found: dict[str, Any] = plain(wire_table(octets))
    return found


remembered = lru_cache(4096)(decoded)


def wire_table(octets: bytes) -> dict[str, Any]:
    """A table of the wire, as the client takes it."""
    return decode_table(octets, 0, len(octets))[0] if octets else {}


def argument_reader(path: list[str]) -> Callable[[bytes], Any]:
    """What reads one value of tables of the wire, as JSON has it. A table that has the name nowhere in its
    octets is not decoded, and none is kept: of 100,000 tables each may be another."""
    name = path[0].encode() if path else b""

    def value(octets: bytes) -> Any:
        if name not in octets:
            return None
        return plain(inner(wire_table(octets), path))

    return value


def inner(shown: Any, path: list[str]) -> Any:
    """The value that lies in others by these names; None where there is none."""
    for name in path:
        if not isinstance(shown, dict):
            return None
        shown = shown.get(name)
    return shown


def plain(value: Any) -> Any:
    """A value of AMQP as JSON can hold it."""
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {plain(str(name)): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    return float(value) if isinstance(value, Decimal) else value


def with_rates(
    counts: Mapping[str, float], before: Mapping[str, float] | None, seconds: float
) -> dict[str, Any]:
    """Each count, and its rate beside it."""
    found: dict[str, Any] = {}
    for name, count in counts.items():
        earlier = None if before is None else before.get(name, 0)
        found[name] = count
        found[f"{name}_details"] = {"rate": rate(count, earlier, seconds)}
    return found


def octets(counts: Mapping[str, int]) -> dict[str, int]:
    """What came from clients and went to them, as RabbitMQ calls it."""
    return {"recv_oct": counts["received"], "send_oct": counts["sent"]}


# Queues


def queue_type(row: QueueRow) -> str:
    """classic, quorum or stream."""
    if row.is_stream:
        return "stream"
    # Most queues name no type: their arguments need not be decoded.
    if b"x-queue-type" not in row.arguments:
        return "classic"
    return "quorum" if table(row.arguments).get("x-queue-type") == "quorum" else "classic"


def delivered(row: QueueRow) -> int:
    """Messages delivered that are to be acked."""
    return max(0, row.settled + row.requeued + row.unacked - row.gets)


def delivered_or_got(row: QueueRow) -> int:
    return delivered(row) + row.unasked + row.gets + row.gets_unasked


# A consumer whose client leaves so much unread is held back by it.
PENDING_BYTES = 1_000_000
# One that has worked on what it holds for so long is told as one that waits: two looks.
WAITED_S = 10.0
# The counts of a queue are the end of its row.
FIRST_COUNT = QueueRow._fields.index("ready")


def has_begun_anew(row: QueueRow, before: QueueRow) -> bool:
    """Whether a queue was deleted since then, and declared again: what it counts has gone back."""
    return (
        row.number != before.number
        or row.entered < before.entered
        or row.settled < before.settled
        or row.unasked < before.unasked
        or row.gets < before.gets
        or row.gets_unasked < before.gets_unasked
        or row.redeliveries < before.redeliveries
    )


def as_declared(row: QueueRow) -> QueueRow:
    """The row of a queue as it was when nothing had happened in it yet."""
    return QueueRow._make([*row[:FIRST_COUNT], *[0] * (len(row) - FIRST_COUNT)])


def as_opened(row: ChannelRow) -> ChannelRow:
    """The row of a channel as it was when nothing had happened on it yet."""
    return ChannelRow._make([*row[: -len(COUNTED)], *[0] * len(COUNTED)])


def is_another(row: ChannelRow, earlier: ChannelRow) -> bool:
    """Whether the number of a channel was that of another one before: counts of one channel never shrink."""
    return any(getattr(row, count) < getattr(earlier, count) for count in COUNTED)


# What message_stats of a queue count.
QUEUE_STATS: dict[str, Callable[[QueueRow], int]] = {
    "ack": lambda row: max(0, row.settled - row.rejected),
    "deliver": delivered,
    "deliver_get": delivered_or_got,
    "deliver_no_ack": lambda row: row.unasked,
    "get": lambda row: row.gets,
    "get_empty": lambda row: 0,
    "get_no_ack": lambda row: row.gets_unasked,
    "publish": lambda row: row.entered,
    "redeliver": lambda row: row.redeliveries,
}
QUEUE_DEPTHS: dict[str, Callable[[QueueRow], int]] = {
    "messages": lambda row: row.ready + row.unacked,
    "messages_delayed": lambda row: row.delayed,
    "messages_ready": lambda row: row.ready,
    "messages_unacknowledged": lambda row: row.unacked,
}


def message_bytes(row: QueueRow) -> int:
    """Octets of all that is ready, in memory or on disk."""
    return row.ready_bytes + row.paged_bytes


def queue_stats(row: QueueRow) -> dict[str, int]:
    return {name: count(row) for name, count in QUEUE_STATS.items()}


def queue_depths(row: QueueRow) -> dict[str, int]:
    return {name: count(row) for name, count in QUEUE_DEPTHS.items()}


def queue(
    row: QueueRow, vhost: str, node: str, before: QueueRow | None, seconds: float, idle_since: str | None
) -> dict[str, Any]:
    kind = queue_type(row)
    earlier = None if before is None else queue_stats(before)
    found: dict[str, Any] = {
        "arguments": table(row.arguments),
        "auto_delete": row.auto_delete,
        "consumer_capacity": 1.0 if row.has_active else 0.0,
        "consumer_utilisation": 1.0 if row.has_active else 0.0,
        "consumers": row.consumers,
        "durable": row.durable,
        "exclusive": row.exclusive,
        "exclusive_consumer_tag": None,
        "garbage_collection": GARBAGE,
        "head_message_timestamp": None,
        "memory": row.ready_bytes,
        "message_bytes": message_bytes(row),
        "message_bytes_paged_out": row.paged_bytes,
        "message_bytes_persistent": message_bytes(row) if row.number else 0,
        "message_bytes_ram": row.ready_bytes,
        "message_bytes_ready": message_bytes(row),
        "message_bytes_unacknowledged": 0,
        **with_rates(queue_depths(row), None if before is None else queue_depths(before), seconds),
        "messages_dropped": row.overflowed,
        "messages_expired": row.expired,
        "messages_lost": row.lost,
        "messages_paged_out": row.paged,
        "messages_persistent": row.ready + row.unacked if row.number else 0,
        "messages_ram": row.ready + row.unacked - row.paged,
        "messages_ready_ram": row.ready - row.paged,
        "messages_unacknowledged_ram": row.unacked,
        "name": row.name,
        "node": node,
        "recoverable_slaves": None,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        "single_active_consumer_tag": None,
        "state": "running",
        "type": kind,
        "vhost": vhost,
        "leases": row.leases,
    }
    stats = queue_stats(row)
    if any(stats.values()):
        found["message_stats"] = with_rates(stats, earlier, seconds)
    if idle_since is not None:
        found["idle_since"] = idle_since
    if row.exclusive:
        found["owner_pid_details"] = {"name": str(row.owner)}
    if row.is_stream:
        found |= {"members": [node], "online": [node], "readers": {node: row.consumers}, "leader": node}
    else:
        found["backing_queue_status"] = {"len": row.ready, "mode": "default", "version": 1}
    return found


# Exchanges and bindings


def exchange(
    row: ExchangeRow,
    vhost: str,
    counts: tuple[int, int] | None,
    before: tuple[int, int] | None,
    seconds: float,
) -> dict[str, Any]:
    is_ours = not row.name or row.name.startswith("amq.")
    found: dict[str, Any] = {
        "arguments": table(row.arguments),
        "auto_delete": row.auto_delete,
        "durable": row.durable,
        "internal": row.internal,
        "name": row.name,
        "policy": None,
        "type": row.type,
        "user_who_performed_action": "rmq-internal" if is_ours else "",
        "vhost": vhost,
    }
    if counts is not None:
        now = {"publish_in": counts[0], "publish_out": counts[1]}
        earlier = None if before is None else {"publish_in": before[0], "publish_out": before[1]}
        found["message_stats"] = with_rates(now, earlier, seconds)
    return found


def properties_key(routing_key: str, arguments: bytes) -> str:
    """Names one of the bindings between two ends, in a path."""
    key = quote_plus(routing_key.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if not arguments:
        return key or "~"
    # In whatever order they were given, it is the same binding.
    entries = join_entries(sorted(split_entries(arguments, 0, len(arguments))))
    digest = hashlib.sha256(entries).digest()[:16]
    return f"{key}~{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def binding(row: BindingRow, vhost: str) -> dict[str, Any]:
    return {
        "source": row.source,
        "vhost": vhost,
        "destination": row.destination,
        "destination_type": row.destination_type,
        "routing_key": row.routing_key,
        "arguments": table(row.arguments),
        "properties_key": properties_key(row.routing_key, row.arguments),
    }


# Connections, channels, consumers


def connection_name(row: ConnectionRow) -> str:
    ends = row.described
    peer, here = ends.get("peer", row.peer_address), ends.get("here", "")
    return f"{peer}:{ends.get('peer-port', 0)} -> {here}:{ends.get('port', 0)}"


def connection(row: ConnectionRow, node: str, before: OctetsRow | None, seconds: float) -> dict[str, Any]:
    ends = row.described
    properties = table(row.client_properties)
    octets = {"recv_oct": ends.get("received", 0), "send_oct": ends.get("sent", 0)}
    were = None if before is None else {"recv_oct": before.received, "send_oct": before.sent}
    found: dict[str, Any] = {
        "auth_mechanism": "PLAIN",
        "channel_max": ends.get("channel-max", 0),
        "channels": row.channels,
        "client_properties": properties,
        "connected_at": row.since_ms,
        "frame_max": ends.get("frame-max", 0),
        "garbage_collection": GARBAGE,
        "host": ends.get("here", ""),
        "name": connection_name(row),
        "node": node,
        "number": row.number,
        "peer_cert_issuer": None,
        "peer_cert_subject": None,
        "peer_cert_validity": None,
        "peer_host": ends.get("peer", row.peer_address),
        "peer_port": ends.get("peer-port", 0),
        "port": ends.get("port", 0),
        "protocol": f"AMQP {row.protocol}",
        "recv_cnt": 0,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        "send_cnt": 0,
        "send_pend": ends.get("pending", 0),
        "ssl": bool(ends.get("tls")),
        "ssl_cipher": ends.get("tls-cipher"),
        "ssl_hash": None,
        "ssl_key_exchange": None,
        "ssl_protocol": ends.get("tls-protocol"),
        "state": "blocked" if row.blocked else "running",
        "timeout": ends.get("heartbeat", 0),
        "type": "network",
        "user": row.user,
        "user_provided_name": str(properties.get("connection_name", "")),
        "user_who_performed_action": row.user,
        "vhost": row.vhost,
        **with_rates(octets, were, seconds),
    }
    if row.blocked:
        found["blocked_reason"] = row.blocked
    return found


def channel_stats(row: ChannelRow | Mapping[str, int]) -> dict[str, int]:
    """message_stats of a channel, or of what channels have counted together."""
    counts: Mapping[str, Any] = row._asdict() if isinstance(row, ChannelRow) else row
    gets, gets_unasked, unasked = counts["gets"], counts["gets_unasked"], counts["unasked"]
    return {
        "ack": counts["acks"],
        "confirm": counts["confirmed"],
        "deliver": max(0, counts["delivery_tag"] - unasked - gets - gets_unasked),
        "deliver_get": counts["delivery_tag"],
        "deliver_no_ack": unasked,
        "drop_unroutable": max(0, counts["unrouted"] - counts["returns"]),
        "get": gets,
        "get_empty": counts["gets_empty"],
        "get_no_ack": gets_unasked,
        "publish": counts["publishes"],
        "redeliver": counts["redeliveries"],
        "return_unroutable": counts["returns"],
    }


def ends_of(connection: ConnectionRow | None) -> dict[str, Any]:
    if connection is None:
        return {"name": "", "peer_host": "", "peer_port": 0, "user_provided_name": ""}
    ends = connection.described
    return {
        "name": connection_name(connection),
        "peer_host": ends.get("peer", connection.peer_address),
        "peer_port": ends.get("peer-port", 0),
        "user_provided_name": connection.name,
    }


def channel(
    row: ChannelRow,
    connection: ConnectionRow | None,
    node: str,
    before: ChannelRow | None,
    seconds: float,
) -> dict[str, Any]:
    ends = ends_of(connection)
    stats = channel_stats(row)
    found: dict[str, Any] = {
        "acks_uncommitted": 0,
        "confirm": row.confirm,
        "connection_details": ends,
        "consumer_count": row.consumers,
        "garbage_collection": GARBAGE,
        "global_prefetch_count": row.global_prefetch_count,
        "messages_unacknowledged": row.unacked,
        "messages_uncommitted": 0,
        "messages_unconfirmed": row.unconfirmed,
        "name": f"{ends['name']} ({row.number})",
        "node": node,
        "number": row.number,
        "pending_raft_commands": 0,
        "prefetch_count": row.prefetch_count,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        "state": "running" if row.flowing else "flow",
        "transactional": row.transactional,
        "user": row.user,
        "user_who_performed_action": row.user,
        "vhost": row.vhost,
    }
    if any(stats.values()):
        found["message_stats"] = with_rates(stats, None if before is None else channel_stats(before), seconds)
    return found


def consumer(
    row: ConsumerRow,
    connection: ConnectionRow | None,
    channel: ChannelRow | None,
    node: str,
    waited_s: float,
    now_ms: int,
) -> dict[str, Any]:
    """`waited_s` is for how long it has waited for its own acks."""
    ends = ends_of(connection)
    held_by, why = held_back(connection, channel, waited_s)
    return {
        "arguments": table(row.arguments),
        "ack_required": not row.no_ack,
        "active": row.is_active,
        "activity_status": "up" if row.is_active else "waiting",
        "channel_details": {
            "connection_name": ends["name"],
            "name": f"{ends['name']} ({row.channel})",
            "node": node,
            "number": row.channel,
            "peer_host": ends["peer_host"],
            "peer_port": ends["peer_port"],
            "user": row.user,
            "user_provided_name": ends["user_provided_name"],
        },
        "consumer_tag": row.tag,
        "exclusive": row.exclusive,
        "held_back_by": held_by,
        "held_back_reason": why,
        "held_back_since": now_ms - round(1000 * waited_s) if held_by == "acks" else None,
        "prefetch_count": row.prefetch_count,
        "queue": {"name": row.queue, "vhost": row.vhost},
        "unacked": row.unacked,
    }


def held_back(
    connection: ConnectionRow | None, channel: ChannelRow | None, waited_s: float
) -> tuple[str | None, str | None]:
    """What keeps a consumer from getting messages, and that in words; None for one that gets them."""
    if connection is not None and connection.blocked:
        return "alarm", f"the connection is not read from, its acks either: {connection.blocked}"
    if channel is not None and not channel.flowing:
        return "flow", "the client has stopped the flow of its channel"
    pending = 0 if connection is None else connection.described.get("pending", 0)
    if pending >= PENDING_BYTES:
        return "client", f"the client reads slowly: {amounts.size(pending)} wait to be sent to it"
    if waited_s >= WAITED_S:
        return "acks", "the prefetch is full, and nothing was acked meanwhile"
    return None, None
