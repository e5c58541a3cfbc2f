"""Metrics for Prometheus, with RabbitMQ's names so that its dashboards work, and some of our own.

    /metrics               sums over all objects
    /metrics/per-object    each queue, connection, channel and consumer by itself
    /metrics/detailed      chosen families, of chosen virtual hosts

They are told without a login, as RabbitMQ's are, to this machine alone; others take the tag `monitoring`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.responses import Response, StreamingResponse

from flintmq import __version__
from flintmq.auth.user import is_loopback
from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.samples import Totals
from flintmq.management.endpoints.overview import RABBITMQ_VERSION, open_files, stats
from flintmq.management.requests.faults import NotAuthorised
from flintmq.management.requests.identities import peer_of
from flintmq.management.requests.routes import ANYBODY, Call, endpoint
from flintmq.pipelines.run import status
from flintmq.snapshot_rows import ChannelRow, ConnectionRow, QueueRow

TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Samples made between two turns of others.
STEP = 2000
# Totals that are not older are good enough for a scrape.
FRESH_S = 1.0
# Pipelines, and flows of each, that are told of.
PIPELINES_MAX = 1000
FLOWS_MAX = 100
LIVELY = (status.STARTING, status.RUNNING, status.WAITING)
# What a kept route takes in memory, about.
ROUTE_BYTES = 500
Labels = dict[str, str]
QueuesByHost = list[tuple[str, Iterable[QueueRow]]]
Row = TypeVar("Row")
Made = TypeVar("Made")


class Family(NamedTuple):
    """One metric with its values, each behind its labels as they are written; those of a histogram have
    suffixes of the name."""

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[str, float]]
    suffixes: Iterable[str] = repeat("")


class Once(Generic[Row, Made]):
    """What is made of each row when it is asked for the first time. Of 100,000 rows, which many families are
    made of, none is made before its turn to be written."""

    def __init__(self, rows: Iterable[Row], make: Callable[[Row], Made]) -> None:
        self.made: list[Made] = []
        self.rest = map(make, rows)

    def __iter__(self) -> Iterator[Made]:
        yield from self.made
        for each in self.rest:
            self.made.append(each)
            yield each


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def written(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{escaped(value)}"' for name, value in labels.items()]) + "}"


def number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


async def exposition(families: Iterable[Family]) -> AsyncIterator[bytes]:
    """The text, in portions."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.append(f"# HELP {family.name} {family.help}")
        for (labels, value), suffix in zip(family.samples, family.suffixes, strict=False):
            lines.append(f"{family.name}{suffix}{labels} {number(value)}")
            if len(lines) >= STEP:
                yield ("\n".join(lines) + "\n").encode("utf-8", "replace")
                lines = []
                await asyncio.sleep(0)
    yield ("\n".join(lines) + "\n").encode("utf-8", "replace")


def gauge(name: str, text: str, value: float, **labels: str) -> Family:
    return Family(name, "gauge", text, [(written(labels), value)])


def counter(name: str, text: str, value: float, **labels: str) -> Family:
    return Family(name, "counter", text, [(written(labels), value)])


def histogram(name: str, text: str, told: tuple[list[int], list[int], int]) -> Family:
    """Of values in microseconds, as Histogram.told has them; shown in seconds."""
    bounds, counts, sum_us = told
    samples: list[tuple[str, float]] = []
    below = 0
    for bound_us, count in zip(bounds, counts, strict=False):
        below += count
        samples.append((written({"le": repr(bound_us / 1_000_000)}), below))
    below += counts[-1]
    samples += [(written({"le": "+Inf"}), below), ("", sum_us / 1_000_000), ("", below)]
    suffixes = ["_bucket"] * (len(bounds) + 1) + ["_sum", "_count"]
    return Family(name, "histogram", text, samples, suffixes)


# What each metric of a queue is.
QUEUE_GAUGES = (
    ("messages_ready", "Messages ready to be delivered to consumers", lambda row: row.ready),
    (
        "messages_unacked",
        "Messages delivered to consumers but not yet acknowledged",
        lambda row: row.unacked,
    ),
    (
        "messages",
        "Sum of ready and unacknowledged messages - total queue depth",
        lambda row: row.ready + row.unacked,
    ),
    ("consumers", "Consumers on a queue", lambda row: row.consumers),
    ("messages_ram", "Ready and unacknowledged messages stored in memory", lambda row: in_memory(row)),
    ("messages_ready_ram", "Ready messages stored in memory", lambda row: row.ready - row.paged),
    ("messages_unacked_ram", "Unacknowledged messages stored in memory", lambda row: row.unacked),
    ("messages_persistent", "Persistent messages", lambda row: persistent(row)),
    ("messages_bytes", "Size in bytes of ready messages", shapes.message_bytes),
    ("messages_ready_bytes", "Size in bytes of ready messages", shapes.message_bytes),
    ("messages_ram_bytes", "Size of messages stored in memory", lambda row: row.ready_bytes),
    ("messages_paged_out", "Messages paged out to disk", lambda row: row.paged),
    ("messages_paged_out_bytes", "Size in bytes of messages paged out to disk", lambda row: row.paged_bytes),
    ("process_memory_bytes", "Memory in bytes used by the queue", lambda row: row.ready_bytes),
)


DELAYED = "Messages that wait for a retry, neither ready nor unacknowledged"
OLDEST = "Age of the message that has waited longest"
QUEUE_FATES = (
    ("expired", "Messages whose time to live was over"),
    ("dead_lettered", "Messages that died and had a dead letter"),
    ("dropped", "Messages that died without a dead letter"),
    ("refused", "Publishes that the queue refused, as it was full"),
    ("overflowed", "Messages that died as there was no room for them, with or without a dead letter"),
    ("lost", "Messages that the disk did not give back"),
)


def in_memory(row: QueueRow) -> int:
    return row.ready + row.unacked - row.paged


def persistent(row: QueueRow) -> int:
    return row.ready + row.unacked if row.number else 0


CHANNEL_COUNTERS = (
    (
        "get_ack_total",
        "Total number of messages fetched with basic.get in manual acknowledgement mode",
        "get",
    ),
    (
        "get_total",
        "Total number of messages fetched with basic.get in automatic acknowledgement mode",
        "get_no_ack",
    ),
    ("get_empty_total", "Total number of times basic.get operations fetched no message", "get_empty"),
    ("messages_acked_total", "Total number of messages acknowledged by consumers", "ack"),
    ("messages_confirmed_total", "Total number of messages published and confirmed", "confirm"),
    (
        "messages_delivered_ack_total",
        "Total number of messages delivered to consumers in manual acknowledgement mode",
        "deliver",
    ),
    (
        "messages_delivered_total",
        "Total number of messages delivered to consumers in automatic acknowledgement mode",
        "deliver_no_ack",
    ),
    (
        "messages_published_total",
        "Total number of messages published into an exchange on a channel",
        "publish",
    ),
    ("messages_redelivered_total", "Total number of messages redelivered to consumers", "redeliver"),
    (
        "messages_unroutable_dropped_total",
        "Total number of messages published as non-mandatory and dropped as unroutable",
        "drop_unroutable",
    ),
    (
        "messages_unroutable_returned_total",
        "Total number of messages published as mandatory and returned as unroutable",
        "return_unroutable",
    ),
)
GLOBAL_COUNTERS = (
    ("messages_received_total", "Total number of messages received from publishers", "publish"),
    ("messages_confirmed_total", "Total number of messages confirmed to publishers", "confirm"),
    ("messages_unroutable_dropped_total", "Total number of messages dropped", "drop_unroutable"),
    ("messages_unroutable_returned_total", "Total number of messages returned", "return_unroutable"),
)
GLOBAL_QUEUE_COUNTERS = (
    ("messages_acknowledged_total", "Total number of message acknowledgements received", "ack"),
    ("messages_redelivered_total", "Total number of messages redelivered to consumers", "redeliver"),
    (
        "messages_delivered_consume_auto_ack_total",
        "Total number of messages delivered to consumers with automatic acknowledgement",
        "deliver_no_ack",
    ),
    (
        "messages_delivered_consume_manual_ack_total",
        "Total number of messages delivered to consumers with manual acknowledgement",
        "deliver",
    ),
    (
        "messages_delivered_get_auto_ack_total",
        "Total number of messages delivered by basic.get with automatic acknowledgement",
        "get_no_ack",
    ),
    (
        "messages_delivered_get_manual_ack_total",
        "Total number of messages delivered by basic.get with manual acknowledgement",
        "get",
    ),
    ("messages_get_empty_total", "Total number of basic.get operations that found no message", "get_empty"),
    ("messages_delivered_total", "Total number of messages delivered to consumers", "deliver_get"),
)


def identity_families(call: Call, now: Totals) -> list[Family]:
    """Who this is: dashboards join on these."""
    node = call.context.node
    cluster = now.broker["cluster_name"] or node
    return [
        gauge(
            "rabbitmq_build_info",
            "RabbitMQ & Erlang/OTP version info",
            1,
            rabbitmq_version=RABBITMQ_VERSION,
            prometheus_plugin_version=RABBITMQ_VERSION,
            prometheus_client_version=__version__,
            erlang_version="",
            flintmq_version=__version__,
        ),
        gauge(
            "rabbitmq_identity_info",
            "RabbitMQ node & cluster identity info",
            1,
            rabbitmq_node=node,
            rabbitmq_cluster=cluster,
            rabbitmq_cluster_permanent_id=node,
        ),
    ]


def node_families(call: Call, now: Totals) -> list[Family]:
    """How the broker itself is."""
    broker = now.broker
    alarms = {alarm["resource"] for alarm in broker.get("alarms", [])}
    used, most = open_files(broker["pid"])
    made, open_now = broker["connections_made"], broker["connections_open"]
    uptime_s = (broker["now_ms"] - broker["started_ms"]) / 1000
    memory, memory_high = broker.get("memory-bytes", 0), broker.get("memory-bytes-high", 0)
    disk_min = broker.get("disk-bytes-free-min", 0)
    gauges = (
        ("alarms_file_descriptor_limit", "is 1 if file descriptor limit alarm is in effect", 0),
        ("alarms_free_disk_space_watermark", "is 1 if free disk space alarm is in effect", "disk" in alarms),
        ("alarms_memory_used_watermark", "is 1 if memory watermark alarm is in effect", "memory" in alarms),
        ("process_open_fds", "Open file descriptors", used),
        ("process_max_fds", "Open file descriptors limit", most),
        ("process_open_tcp_sockets", "Open TCP sockets", open_now),
        ("process_max_tcp_sockets", "Open TCP sockets limit", most),
        ("process_resident_memory_bytes", "Memory used in bytes", memory),
        ("resident_memory_limit_bytes", "Memory high watermark in bytes", memory_high),
        ("disk_space_available_bytes", "Disk space available in bytes", broker.get("disk-bytes-free", 0)),
        ("disk_space_available_limit_bytes", "Free disk space low watermark in bytes", disk_min),
        ("erlang_uptime_seconds", "Node uptime", uptime_s),
        ("erlang_processes_used", "Erlang processes used: connections", open_now),
        ("erlang_processes_limit", "Erlang processes limit: descriptors", most),
    )
    return [
        *identity_families(call, now),
        *[gauge(f"rabbitmq_{name}", text, value) for name, text, value in gauges],
        *login_families(call, broker["logins"]),
        counter("rabbitmq_connections_opened_total", "Total number of connections opened", made),
        counter(
            "rabbitmq_connections_closed_total", "Total number of connections closed", max(0, made - open_now)
        ),
        gauge("flintmq_connections_blocked", "Connections that wait", broker.get("connections-blocked", 0)),
        counter("flintmq_passes_total", "Passes of the event loop", broker.get("passes", 0)),
        gauge("flintmq_journal_bytes", "Disk that the journal takes", broker.get("disk-bytes", 0)),
        certificate_family(broker.get("certificates", [])),
        *time_families(broker),
        *fate_families(broker["fates"]),
        memory_family(now),
    ]


# Labels of protocols, RabbitMQ's where it has one.
PROTOCOL_LABELS = {
    "0-9-1": "amqp091",
    "0-9": "amqp09",
    "0-8": "amqp08",
    "Fast 0.8": "fast08",
    "Fast 0.9": "fast09",
}


def login_families(call: Call, logins: dict[str, tuple[int, int]]) -> list[Family]:
    """Logins by protocol; of the usual ones also while nobody has tried any, so that rates begin at 0."""
    identities = call.context.identities
    counted = {PROTOCOL_LABELS[name]: counts for name, counts in {"0-9-1": (0, 0), **logins}.items()}
    counted["http"] = identities.attempts - identities.failures, identities.failures
    families = (
        ("attempts", "authentication attempts", sum),
        ("attempts_failed", "failed authentication attempts", itemgetter(1)),
        ("attempts_succeeded", "successful authentication attempts", itemgetter(0)),
    )
    return [
        Family(
            f"rabbitmq_auth_{name}_total",
            "counter",
            f"Total number of {text}",
            [(written({"protocol": protocol}), value(counts)) for protocol, counts in counted.items()],
        )
        for name, text, value in families
    ]


def certificate_family(certificates: list[dict[str, Any]]) -> Family:
    """When the certificates end that the broker shows to AMQP clients."""
    ends = [(written({"certificate": each["certificate"]}), each["ends-ms"] / 1000) for each in certificates]
    text = "When a certificate ends, in seconds since 1970"
    return Family("flintmq_certificate_expiry_timestamp_seconds", "gauge", text, ends)


def time_families(broker: dict[str, Any]) -> list[Family]:
    """How long things take."""
    found = [
        histogram(
            "flintmq_turn_seconds",
            "Time that a turn of the event loop takes: reads, passes, sends",
            broker["turn_times"],
        ),
        histogram(
            "flintmq_message_wait_seconds",
            "Time between publish and delivery of sampled messages, one in a millisecond",
            broker["waits"],
        ),
    ]
    if "sync_times" in broker:
        _, counts, sum_us = broker["sync_times"]
        found += [
            histogram(
                "flintmq_journal_sync_seconds", "Time that a sync of the journal takes", broker["sync_times"]
            ),
            counter("rabbitmq_io_sync_ops_total", "Total number of I/O sync operations", sum(counts)),
            counter("rabbitmq_io_sync_time_seconds_total", "Total I/O sync time", sum_us / 1_000_000),
        ]
    return found


DEATHS = (
    ("expired", "message TTL exceeded"),
    ("maxlen", "overflow drop-head or reject-publish-dlx"),
    ("rejected", "basic.reject or basic.nack"),
    ("delivery_limit", "delivery-limit exceeded"),
)


def fate_families(fates: dict[str, Any]) -> list[Family]:
    """What became of messages that no client got."""
    kind = {"queue_type": "rabbit_classic_queue"}
    dead = [
        Family(
            f"rabbitmq_global_messages_dead_lettered_{reason}_total",
            "counter",
            f"Total number of messages dead-lettered due to {text}",
            [
                (written({**kind, "dead_letter_strategy": strategy}), fates[fate][reason])
                for fate, strategy in (("lettered", "at_most_once"), ("dropped", "disabled"))
            ],
        )
        for reason, text in DEATHS
    ]
    expired = fates["lettered"]["expired"] + fates["dropped"]["expired"]
    counts = (
        ("expired", "Messages whose time to live was over", expired),
        ("dropped", "Messages that died without a dead letter", sum(fates["dropped"].values())),
        ("dead_lettered", "Messages that died and had a dead letter", sum(fates["lettered"].values())),
        ("dead_letters_unroutable", "Dead letters that came to no queue", fates["undelivered"]),
        ("refused", "Copies of messages that full queues refused", fates["refused"]),
        ("lost", "Messages that the disk did not give back", fates["lost"]),
    )
    return [
        *dead,
        *[counter(f"flintmq_messages_{name}_total", text, value) for name, text, value in counts],
        counter(
            "flintmq_firehose_dropped_total", "Copies that the firehose had no room for", fates["untraced"]
        ),
        counter("flintmq_events_dropped_total", "Events that there was no room for", fates["untold_events"]),
    ]


def memory_family(now: Totals) -> Family:
    """What the memory of the broker is used for, about; `other` is what is left of the resident memory."""
    broker = now.broker
    uses: dict[str, int] = {
        "messages_ready": now.sum("ready_bytes"),
        "messages_unacked": now.sum("unacked_bytes"),
        "output": broker["output_bytes"],
        "journal": broker.get("journal_waiting_bytes", 0),
        "routes": ROUTE_BYTES * broker["routes"],
    }
    uses["other"] = max(0, broker.get("memory-bytes", 0) - sum(uses.values()))
    samples = [(written({"use": use}), size) for use, size in uses.items()]
    return Family("flintmq_memory_bytes", "gauge", "Memory in bytes by what it is used for", samples)


def oldest_age_s(now: Totals) -> float:
    """Of the message that has waited longest in any queue."""
    times = [counts["oldest_ms"] for counts in now.hosts.values() if counts["oldest_ms"]]
    return max(0, now.broker["now_ms"] - min(times)) / 1000 if times else 0.0


def churn_families(now: Totals) -> list[Family]:
    churned = (
        ("channels_opened", "Total number of channels opened"),
        ("channels_closed", "Total number of channels closed"),
        ("queues_declared", "Total number of queues declared"),
        ("queues_created", "Total number of queues created"),
        ("queues_deleted", "Total number of queues deleted"),
    )
    counted = (
        ("connections", "Connections currently open"),
        ("channels", "Channels currently open"),
        ("consumers", "Consumers currently connected"),
        ("queues", "Queues available"),
    )
    return [
        *[counter(f"rabbitmq_{name}_total", text, now.sum(name)) for name, text in churned],
        *[gauge(f"rabbitmq_{name}", text, now.sum(name)) for name, text in counted],
        gauge("flintmq_exchanges", "Exchanges", now.sum("exchanges")),
        gauge("flintmq_bindings", "Bindings", now.sum("bindings")),
    ]


def global_families(now: Totals) -> list[Family]:
    """What was done since the broker started, of all virtual hosts together."""
    done = stats(now, tuple(now.hosts))
    by_protocol = [
        counter(f"rabbitmq_global_{name}", text, done[count], protocol="amqp091")
        for name, text, count in GLOBAL_COUNTERS
    ]
    kind = "rabbit_classic_queue"
    by_queue = [
        counter(f"rabbitmq_global_{name}", text, done[count], protocol="amqp091", queue_type=kind)
        for name, text, count in GLOBAL_QUEUE_COUNTERS
    ]
    consumers = gauge("rabbitmq_global_consumers", "Consumers", now.sum("consumers"), protocol="amqp091")
    return [*by_protocol, *by_queue, consumers]


def summed_families(now: Totals) -> list[Family]:
    """The sums over queues and channels."""
    done = stats(now, tuple(now.hosts))
    ready, unacked = now.sum("ready"), now.sum("unacked")
    return [
        gauge("rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers", ready),
        gauge(
            "rabbitmq_queue_messages_unacked",
            "Messages delivered to consumers but not yet acknowledged",
            unacked,
        ),
        gauge(
            "rabbitmq_queue_messages",
            "Sum of ready and unacknowledged messages - total queue depth",
            ready + unacked,
        ),
        gauge("rabbitmq_queue_consumers", "Consumers on a queue", now.sum("consumers")),
        gauge("flintmq_queue_messages_delayed", DELAYED, now.sum("delayed")),
        gauge("flintmq_queue_oldest_message_age_seconds", OLDEST, oldest_age_s(now)),
        gauge("rabbitmq_channel_consumers", "Consumers on a channel", now.sum("consumers")),
        gauge("rabbitmq_channel_messages_unacked", "Delivered but not yet acknowledged messages", unacked),
        *[counter(f"rabbitmq_channel_{name}", text, done[count]) for name, text, count in CHANNEL_COUNTERS],
    ]


async def pipeline_families(call: Call) -> list[Family]:
    """How pipelines do, where the settings say where they tell it."""
    if call.context.pipelines is None:
        return []
    found = await asyncio.to_thread(status.read_all, call.context.pipelines)
    shown = found[:PIPELINES_MAX]
    flows = [
        (written({"pipeline": each.name, "flow": name}), flow)
        for each in shown
        for name, flow in list(each.flows.items())[:FLOWS_MAX]
    ]
    running = [
        (written({"pipeline": each.name, "state": each.state}), int(each.state in LIVELY)) for each in shown
    ]
    return [
        Family("flintmq_pipeline_up", "gauge", "is 1 while the pipeline runs", running),
        Family(
            "flintmq_pipeline_lag_seconds",
            "gauge",
            "How far a flow is behind its source in time",
            [(labels, flow.lag_s) for labels, flow in flows if flow.lag_s is not None],
        ),
        Family(
            "flintmq_pipeline_lag_rows",
            "gauge",
            "Rows that a flow has yet to read",
            [(labels, flow.lag_rows) for labels, flow in flows if flow.lag_rows is not None],
        ),
        Family(
            "flintmq_pipeline_rows_total",
            "counter",
            "Rows that a flow has read since its run began",
            [(labels, flow.rows) for labels, flow in flows],
        ),
    ]


# Object by object


def queue_families(hosts: QueuesByHost, now_ms: int, prefix: str = "rabbitmq_queue_") -> Iterator[Family]:
    pairs = ((vhost, row) for vhost, rows in hosts for row in rows)
    labelled = Once(pairs, lambda pair: (written({"vhost": pair[0], "queue": pair[1].name}), pair[1]))

    def family(name: str, kind: str, text: str, value: Callable[[QueueRow], float]) -> Family:
        return Family(name, kind, text, ((labels, value(row)) for labels, row in labelled))

    for name, text, value in QUEUE_GAUGES:
        yield family(prefix + name, "gauge", text, value)
    text = "Total number of messages published to queues"
    yield family(prefix + "messages_published_total", "counter", text, lambda row: row.entered)
    yield family("flintmq_queue_messages_delayed", "gauge", DELAYED, lambda row: row.delayed)
    acked = shapes.QUEUE_STATS["ack"]
    yield family("flintmq_queue_messages_acked_total", "counter", "Messages acknowledged", acked)
    text = "Timestamp of the first message in the queue, if any"
    times = ((labels, row.oldest_ms // 1000) for labels, row in labelled if row.oldest_ms)
    yield Family(prefix + "head_message_timestamp", "gauge", text, times)
    ages = ((labels, max(0, now_ms - row.oldest_ms) / 1000) for labels, row in labelled if row.oldest_ms)
    yield Family("flintmq_queue_oldest_message_age_seconds", "gauge", OLDEST, ages)
    for name, text in QUEUE_FATES:
        yield family(f"flintmq_queue_messages_{name}_total", "counter", text, attrgetter(name))


def connection_families(rows: Iterable[ConnectionRow], prefix: str) -> Iterator[Family]:
    labelled = Once(
        rows, lambda row: (written({"connection": shapes.connection_name(row), "vhost": row.vhost}), row)
    )

    def described(name: str, kind: str, text: str, key: str) -> Family:
        values = ((labels, row.described.get(key, 0)) for labels, row in labelled)
        return Family(prefix + name, kind, text, values)

    text = "Total number of bytes received on a connection"
    yield described("incoming_bytes_total", "counter", text, "received")
    text = "Total number of bytes sent on a connection"
    yield described("outgoing_bytes_total", "counter", text, "sent")
    text = "Number of bytes waiting to be sent on a connection"
    yield described("pending_packets", "gauge", text, "pending")
    channels = ((labels, row.channels) for labels, row in labelled)
    yield Family(prefix + "channels", "gauge", "Channels on a connection", channels)


CHANNEL_GAUGES = (
    ("consumers", "Consumers on a channel", "consumers"),
    ("messages_unacked", "Delivered but not yet acknowledged messages", "unacked"),
    ("messages_unconfirmed", "Published but not yet confirmed messages", "unconfirmed"),
    ("prefetch", "Total limit of unacknowledged messages for all consumers", "global_prefetch_count"),
)


def channel_families(
    rows: Iterable[ChannelRow], connections: dict[Any, ConnectionRow], prefix: str
) -> Iterator[Family]:
    def labelled_counts(row: ChannelRow) -> tuple[str, dict[str, int]]:
        name = f"{shapes.ends_of(connections.get(row.connection))['name']} ({row.number})"
        gauges = {name: getattr(row, field) for name, _, field in CHANNEL_GAUGES}
        return written({"channel": name}), gauges | shapes.channel_stats(row)

    labelled = Once(rows, labelled_counts)

    def family(name: str, kind: str, text: str, count: str) -> Family:
        return Family(prefix + name, kind, text, ((labels, counts[count]) for labels, counts in labelled))

    for name, text, _ in CHANNEL_GAUGES:
        yield family(name, "gauge", text, name)
    for name, text, count in CHANNEL_COUNTERS:
        yield family(name, "counter", text, count)


async def queue_rows(call: Call, wanted: list[str]) -> QueuesByHost:
    async def rows(vhost: str) -> tuple[str, Iterable[QueueRow]]:
        return vhost, (await call.context.snapshots.queues(vhost).current()).values()

    return await call.context.of_hosts(lambda vhost: not wanted or vhost in wanted, rows)


async def admit(call: Call) -> None:
    """This machine may look; others log in."""
    if is_loopback(peer_of(call.request)):
        return
    identity = await call.context.identities.of(call.request, False)
    if not identity.has("monitoring"):
        raise NotAuthorised("Not monitor user")


async def text_of_sums(families: Iterable[Family]) -> Response:
    """Some hundred lines, whole: to stream them would take as long as to write them."""
    octets = [chunk async for chunk in exposition(families)]
    return Response(b"".join(octets), headers={"content-type": TYPE})


def text(families: Iterable[Family]) -> Response:
    return StreamingResponse(exposition(families), headers={"content-type": TYPE})


@endpoint("GET", "/metrics", ANYBODY)
async def metrics(call: Call) -> Response:
    """Metrics for Prometheus, summed over all objects."""
    await admit(call)
    now = await call.context.samples.current(FRESH_S)
    return await text_of_sums(
        [
            *node_families(call, now),
            *churn_families(now),
            *global_families(now),
            *summed_families(now),
            *await pipeline_families(call),
        ]
    )


@endpoint("GET", "/metrics/per-object", ANYBODY)
async def metrics_per_object(call: Call) -> Response:
    """Metrics for Prometheus, of each object by itself."""
    await admit(call)
    now = await call.context.samples.current(FRESH_S)
    queues = await queue_rows(call, [])
    connections = await call.context.snapshots.connections.current()
    channels = await call.context.snapshots.channels.current()
    pipelines = await pipeline_families(call)
    return text(
        chain(
            node_families(call, now),
            churn_families(now),
            global_families(now),
            queue_families(queues, now.broker["now_ms"]),
            connection_families(connections.values(), "rabbitmq_connection_"),
            channel_families(channels.values(), connections, "rabbitmq_channel_"),
            pipelines,
        )
    )


@endpoint("GET", "/metrics/detailed", ANYBODY, query=("vhost", "family"))
async def metrics_detailed(call: Call) -> Response:
    """The chosen families of metrics, of each object by itself."""
    await admit(call)
    wanted = call.request.query_params.getlist("family")
    hosts = call.request.query_params.getlist("vhost")
    families: list[Iterable[Family]] = []
    prefix = "rabbitmq_detailed_"
    if any(name.startswith("queue_") for name in wanted):
        now = await call.context.samples.current(FRESH_S)
        queues = await queue_rows(call, hosts)
        families.append(queue_families(queues, now.broker["now_ms"], f"{prefix}queue_"))
    connections = await call.context.snapshots.connections.current()
    shown = {number: row for number, row in connections.items() if not hosts or row.vhost in hosts}
    if any(name.startswith("connection_") for name in wanted):
        families.append(connection_families(shown.values(), f"{prefix}connection_"))
    if any(name.startswith("channel_") for name in wanted):
        channels = await call.context.snapshots.channels.current()
        rows = [row for row in channels.values() if not hosts or row.vhost in hosts]
        families.append(channel_families(rows, shown, f"{prefix}channel_"))
    if any(name.startswith("node_") for name in wanted):
        families.append(node_families(call, await call.context.samples.current(FRESH_S)))
    if any(name.startswith("pipeline_") for name in wanted):
        families.append(await pipeline_families(call))
    return text(chain.from_iterable(families))
