"""The broker as a whole: overview, nodes, health checks, who one is, and how to log in from a browser."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from starlette.responses import Response

from flintmq import __version__
from flintmq.client.core.errors import ClientError, ConnectFailed
from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.samples import Totals, add_samples
from flintmq.management.requests.faults import BadRequest, NotAuthorised, NotFound, TooSlow
from flintmq.management.requests.identities import COOKIE, SESSION_S, peer_of
from flintmq.management.requests.listing import json_response
from flintmq.management.requests.routes import (
    ADMINISTRATOR,
    ANYBODY,
    MONITORING,
    SAMPLED,
    Call,
    endpoint,
    no_content,
    required,
    text_of,
)
from flintmq.snapshot_rows import COUNTED

# What FlintMQ's answers are like, for tools that look at the version before they ask for more.
RABBITMQ_VERSION = "3.10.8"
EXCHANGE_TYPES = (
    ("direct", "AMQP direct exchange, as per the AMQP specification"),
    ("fanout", "AMQP fanout exchange, as per the AMQP specification"),
    ("headers", "AMQP headers exchange, as per the AMQP specification"),
    ("topic", "AMQP topic exchange, as per the AMQP specification"),
    ("x-consistent-hash", "Consistent hashing exchange"),
    ("x-delayed-message", "Delayed message exchange"),
    ("x-random", "Random exchange"),
    ("x-recent-history", "Recent history exchange"),
    ("selector", "Selector exchange"),
)
CHURN = ("channel_closed", "channel_created", "queue_created", "queue_declared", "queue_deleted")
CHURN_NAMES = {
    "channel_closed": "channels_closed",
    "channel_created": "channels_opened",
    "queue_created": "queues_created",
    "queue_declared": "queues_declared",
    "queue_deleted": "queues_deleted",
}
ALIVENESS_QUEUE = "aliveness-test"
OBJECT = {"type": "object"}
# What somebody without a login may send, and in which time: a token in the place of a password is some KiB.
LOGIN_BYTES_MAX = 16_384
LOGIN_S_MAX = 10.0


def exchange_types() -> list[dict[str, Any]]:
    return [{"name": name, "description": text, "enabled": True} for name, text in EXCHANGE_TYPES]


def churn(now: Totals) -> dict[str, int]:
    """Counts of what came and went."""
    opened, open_now = now.broker["connections_made"], now.broker["connections_open"]
    return {
        **{name: now.sum(CHURN_NAMES[name]) for name in CHURN},
        "connection_created": opened,
        "connection_closed": max(0, opened - open_now),
    }


def depths(totals: Totals, hosts: tuple[str, ...]) -> dict[str, int]:
    summed = totals.summed(hosts)
    ready, unacked = summed.get("ready", 0), summed.get("unacked", 0)
    return {
        "messages": ready + unacked,
        "messages_delayed": summed.get("delayed", 0),
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }


def kept(totals: Totals, hosts: tuple[str, ...]) -> dict[str, int]:
    """Of the messages that are ready those of streams, which stay whoever reads them."""
    return {"messages": totals.summed(hosts).get("kept", 0)}


def stats(totals: Totals, hosts: tuple[str, ...]) -> dict[str, int]:
    return shapes.channel_stats(dict.fromkeys(COUNTED, 0) | totals.summed(hosts))


@endpoint("GET", "/api/overview", query=(*SAMPLED, "columns"))
async def overview(call: Call) -> dict[str, Any]:
    """The broker in numbers: messages, rates, objects; of the virtual hosts that the user may see."""
    context = call.context
    now = await context.samples.current()
    before = context.samples.before(now)
    seconds = 0.0 if before is None else now.time_s - before.time_s
    hosts = tuple(host for host in now.hosts if call.identity.sees(host))
    queue_totals = shapes.with_rates(
        depths(now, hosts), None if before is None else depths(before, hosts), seconds
    )
    message_stats = shapes.with_rates(
        stats(now, hosts), None if before is None else stats(before, hosts), seconds
    )
    stream_totals = shapes.with_rates(
        kept(now, hosts), None if before is None else kept(before, hosts), seconds
    )
    for prefix, found, counted in (
        ("msg_rates", message_stats, stats),
        ("lengths", queue_totals, depths),
        ("lengths", stream_totals, kept),
    ):
        age_s, incr_s = call.sampled(prefix)
        if age_s:
            points = context.samples.samples(age_s, incr_s)
            values = [counted(point, hosts) for point in points]
            add_samples(found, context.samples.timestamps(points), values)
    return {
        **versions(),
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [3600], "basic": [3600], "detailed": [600]},
        "exchange_types": exchange_types(),
        "cluster_name": now.broker["cluster_name"] or context.node,
        "release_series_support_status": "supported",
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": message_stats,
        "churn_rates": shapes.with_rates(churn(now), None if before is None else churn(before), seconds),
        "queue_totals": queue_totals,
        "stream_totals": {**stream_totals, "streams": now.summed(hosts).get("streams", 0)},
        "object_totals": {
            name: now.summed(hosts).get(name, 0)
            for name in ("channels", "connections", "consumers", "exchanges", "queues", "bindings")
        },
        "statistics_db_event_queue": 0,
        "node": context.node,
        "listeners": listeners(call) if call.identity.has(MONITORING) else [],
        "contexts": contexts(call) if call.identity.has(MONITORING) else [],
        "alarms": now.broker.get("alarms", []),
    }


def versions() -> dict[str, Any]:
    return {
        "management_version": RABBITMQ_VERSION,
        "product_version": __version__,
        "product_name": "FlintMQ",
        "rabbitmq_version": RABBITMQ_VERSION,
        "erlang_version": "",
        "erlang_full_version": f"Python {sys.version.split()[0]}",
        "flintmq_version": __version__,
    }


def listeners(call: Call) -> list[dict[str, Any]]:
    every = [*call.context.listening.amqp, *call.context.listening.http]
    return [{"node": call.context.node, **each, "socket_opts": {}} for each in every]


def contexts(call: Call) -> list[dict[str, Any]]:
    return [
        {
            "ssl_opts": [],
            "node": call.context.node,
            "description": "FlintMQ Management",
            "path": "/",
            "cowboy_opts": "[]",
            "ip": each["ip_address"],
            "port": str(each["port"]),
        }
        for each in call.context.listening.http
    ]


# Nodes


def node_row(call: Call, now: Totals, before: Totals | None) -> dict[str, Any]:
    broker = now.broker
    seconds = 0.0 if before is None else now.time_s - before.time_s
    alarms = {alarm["resource"] for alarm in broker.get("alarms", [])}
    files = open_files(broker["pid"])

    def gauges(totals: Totals) -> dict[str, int]:
        return {
            "mem_used": totals.broker.get("memory-bytes", 0),
            "fd_used": files[0],
            "sockets_used": totals.broker["connections_open"],
            "proc_used": totals.broker["connections_open"],
            "disk_free": totals.broker.get("disk-bytes-free", 0),
        }

    idle = dict.fromkeys(IDLE_COUNTS, 0)
    return {
        "partitions": [],
        "os_pid": str(broker["pid"]),
        "fd_total": files[1],
        "sockets_total": broker.get("strangers", {}).get("connections-max", files[1]),
        "mem_limit": broker.get("memory-bytes-high", 0),
        "mem_alarm": "memory" in alarms,
        "disk_free_limit": broker.get("disk-bytes-free-min", 0),
        "disk_free_alarm": "disk" in alarms,
        "proc_total": files[1],
        "rates_mode": "basic",
        "uptime": broker["now_ms"] - broker["started_ms"],
        "run_queue": 0,
        "processors": os.cpu_count() or 1,
        "exchange_types": exchange_types(),
        "auth_mechanisms": [
            {"name": "AMQPLAIN", "description": "QPid AMQPLAIN mechanism", "enabled": True},
            {"name": "PLAIN", "description": "SASL PLAIN authentication mechanism", "enabled": True},
        ],
        "applications": [{"name": "flintmq", "description": "FlintMQ", "version": __version__}],
        "contexts": contexts(call),
        "log_files": [] if call.context.log_file is None else [call.context.log_file],
        "audit_file": call.context.audit_file,
        "db_dir": broker.get("directory", ""),
        "config_files": [],
        "net_ticktime": 0,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "mem_calculation_strategy": "rss",
        "ra_open_file_metrics": {},
        "name": call.context.node,
        "type": "disc" if "directory" in broker else "ram",
        "running": True,
        "cluster_links": [],
        "metrics_gc_queue_length": {},
        **shapes.with_rates(gauges(now), None if before is None else gauges(before), seconds),
        **shapes.with_rates(churn(now), None if before is None else churn(before), seconds),
        **shapes.with_rates(idle, idle, 1.0),
    }


# What an Erlang node counts, and this one has no like of.
IDLE_COUNTS = (
    *("gc_num", "gc_bytes_reclaimed", "context_switches", "io_read_count", "io_read_bytes"),
    *("io_read_avg_time", "io_write_count", "io_write_bytes", "io_write_avg_time", "io_sync_count"),
    *("io_sync_avg_time", "io_seek_count", "io_seek_avg_time", "io_reopen_count", "mnesia_ram_tx_count"),
    *("mnesia_disk_tx_count", "msg_store_read_count", "msg_store_write_count"),
    *("queue_index_read_count", "queue_index_write_count"),
)


def open_files(pid: int) -> tuple[int, int]:
    """Descriptors of the broker: open ones, and how many there may be; nothing where the system hides it."""
    try:
        used = len(os.listdir(f"/proc/{pid}/fd"))
        with open(f"/proc/{pid}/limits") as limits:
            most = next(line.split()[3] for line in limits if line.startswith("Max open files"))
        return used, int(most) if most.isdecimal() else 0
    except (OSError, StopIteration):
        return 0, 0


async def node_rows(call: Call) -> list[dict[str, Any]]:
    now = await call.context.samples.current()
    return [node_row(call, now, call.context.samples.before(now))]


@endpoint("GET", "/api/nodes", MONITORING, query=("columns",))
async def nodes(call: Call) -> list[dict[str, Any]]:
    """The nodes: this one."""
    return await node_rows(call)


@endpoint("GET", "/api/nodes/{name}", MONITORING, query=("columns", "memory", "binary"))
async def node_one(call: Call) -> dict[str, Any]:
    """One node."""
    require_own_node(call)
    return (await node_rows(call))[0]


def require_own_node(call: Call) -> None:
    if call["name"] != call.context.node:
        raise NotFound


@endpoint("GET", "/api/nodes/{name}/memory", MONITORING)
async def node_memory(call: Call) -> dict[str, Any]:
    """What the node's memory is used for."""
    require_own_node(call)
    now = await call.context.samples.current()
    used = now.broker.get("memory-bytes", 0)
    # About: what the broker counts, under RabbitMQ's names where it has them. flintmq ctl has the same.
    uses = {
        "queue_procs": now.sum("ready_bytes"),
        "connection_channels": now.sum("unacked_bytes"),
        "connection_writers": now.broker["output_bytes"],
        "journal": now.broker.get("journal_waiting_bytes", 0),
    }
    uses["other_system"] = max(0, used - sum(uses.values()))
    return {
        "memory": {**uses, "total": {"rss": used, "allocated": used, "erlang": 0}, "strategy": "rss"},
    }


# Who, and what is here


@endpoint("GET", "/api/whoami")
async def whoami(call: Call) -> dict[str, Any]:
    """The user who asks."""
    return {"name": call.identity.user, "tags": list(call.identity.tags)}


@endpoint("GET", "/api/cluster-name")
async def cluster_name(call: Call) -> dict[str, Any]:
    """The name of the cluster, which is that of this node unless it was set."""
    now = await call.context.samples.current()
    return {"name": now.broker["cluster_name"] or call.context.node}


@endpoint("PUT", "/api/cluster-name", ADMINISTRATOR, body=OBJECT)
async def cluster_name_put(call: Call) -> Response:
    """Gives the cluster a name."""
    value = text_of(await call.json(), "name")
    await call.ask(
        "parameter.set",
        {"component": "global", "virtual-host": "", "name": "cluster_name", "value": value},
    )
    return no_content()


@endpoint("GET", "/api/extensions")
async def extensions(call: Call) -> list[dict[str, Any]]:
    """Extensions of the console."""
    return [{"javascript": "dispatcher.js"}]


@endpoint("GET", "/api/feature-flags", ADMINISTRATOR)
async def feature_flags(call: Call) -> list[dict[str, Any]]:
    """Features that can be switched on: all of them are."""
    return [
        {
            "name": name,
            "desc": text,
            "doc_url": "",
            "state": "enabled",
            "stability": "stable",
            "provided_by": "flintmq",
        }
        for name, text in (
            ("stream_queue", "Support queues of type `stream`"),
            ("user_limits", "Configure connection and channel limits for a user"),
        )
    ]


@endpoint("GET", "/api/auth", ANYBODY)
async def auth(call: Call) -> dict[str, Any]:
    """How to log in."""
    return {"oauth_enabled": False}


@endpoint("GET", "/api/auth/attempts/{node}", MONITORING)
async def auth_attempts(call: Call) -> list[dict[str, Any]]:
    """Logins over HTTP since this process runs."""
    identities = call.context.identities
    failed = identities.failures
    return [
        {
            "protocol": "http",
            "auth_attempts": identities.attempts,
            "auth_attempts_failed": failed,
            "auth_attempts_succeeded": identities.attempts - failed,
        }
    ]


@endpoint("POST", "/api/session", ANYBODY, body=OBJECT)
async def session_begin(call: Call) -> Response:
    """Logs in with `username` and `password`: a cookie, and the token for what changes something."""
    try:
        async with asyncio.timeout(LOGIN_S_MAX):
            body = await call.json(LOGIN_BYTES_MAX)
    except TimeoutError:
        raise TooSlow("the body did not come in time") from None
    required(body, "username", "password")
    name, password = text_of(body, "username"), text_of(body, "password")
    identities = call.context.identities
    identity = await identities.login(name, password.encode(), peer_of(call.request))
    if not identity.has("management"):
        raise NotAuthorised("Not management user")
    token, session = identities.begin_session(identity, name, password.encode())
    response = json_response({"name": identity.user, "tags": list(identity.tags), "csrf_token": session.csrf})
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=call.context.is_secure,
        path="/",
    )
    return response


@endpoint("GET", "/api/session")
async def session_of(call: Call) -> dict[str, Any]:
    """Who is logged in, and the token for what changes something."""
    session = call.context.identities.sessions.get(call.request.cookies.get(COOKIE, ""))
    if session is None:
        raise NotFound("no session: the request has other credentials")
    return {"name": session.user, "tags": list(call.identity.tags), "csrf_token": session.csrf}


@endpoint("DELETE", "/api/session")
async def session_end(call: Call) -> Response:
    """Logs out."""
    call.context.identities.sessions.pop(call.request.cookies.get(COOKIE, ""), None)
    response = no_content()
    response.delete_cookie(COOKIE, path="/")
    return response


# Health


@endpoint("GET", "/api/doctor", MONITORING)
async def doctor(call: Call) -> dict[str, Any]:
    """What is wrong, why, and what to do next: the findings of `flintmq doctor`, some seconds old at most."""
    examiner = call.context.doctor
    return examiner.shown(await examiner.current())


DAYS_OF = {"days": 1, "weeks": 7, "months": 30, "years": 365}


def failed(reason: str, **more: Any) -> Response:
    return json_response({"status": "failed", "reason": reason, **more}, 503)


async def alarms_check(call: Call) -> Any:
    now = await call.context.samples.current()
    alarms = now.broker.get("alarms", [])
    if alarms:
        reasons = "; ".join(f"{alarm['resource']}: {alarm['reason']}" for alarm in alarms)
        return failed(f"There are alarms in effect: {reasons}", alarms=alarms)
    return {"status": "ok"}


@endpoint("GET", "/api/health/checks/alarms")
async def health_alarms(call: Call) -> Any:
    """503 while there is an alarm."""
    return await alarms_check(call)


@endpoint("GET", "/api/health/checks/local-alarms")
async def health_local_alarms(call: Call) -> Any:
    """503 while there is an alarm on this node."""
    return await alarms_check(call)


@endpoint("GET", "/api/health/checks/certificate-expiration/{within}/{unit}")
async def health_certificates(call: Call) -> Any:
    """503 if a certificate expires within so many days, weeks, months or years."""
    within, days = call["within"], DAYS_OF.get(call["unit"])
    if days is None or not within.isascii() or not within.isdecimal():
        raise BadRequest("expected a number, and days, weeks, months or years")
    now = await call.context.samples.current()
    ending = [
        each for each in now.broker.get("certificates", []) if each["days-left"] < days * int(within[:6])
    ]
    if ending:
        told = ", ".join(f"{each['certificate']} ({each['days-left']} days)" for each in ending)
        return failed(f"Certificates expire within {within} {call['unit']}: {told}", expired=ending)
    return {"status": "ok"}


@endpoint("GET", "/api/health/checks/port-listener/{port}")
async def health_port(call: Call) -> Any:
    """503 unless something listens on this port."""
    if not call["port"].isdecimal():
        raise BadRequest("port must be a number")
    port = int(call["port"][:6])
    known = [each["port"] for each in (*call.context.listening.amqp, *call.context.listening.http)]
    if port in known:
        return {"status": "ok", "port": port}
    return failed("No active listener", missing=port, ports=sorted(set(known)))


@endpoint("GET", "/api/health/checks/protocol-listener/{protocol}")
async def health_protocol(call: Call) -> Any:
    """503 unless this protocol is listened for: amqp, amqp/ssl, http, https."""
    names = {"amqp091": "amqp", "amqps": "amqp/ssl", "amqp091/ssl": "amqp/ssl"}
    wanted = names.get(call["protocol"], call["protocol"])
    known = {each["protocol"] for each in (*call.context.listening.amqp, *call.context.listening.http)}
    if wanted in known:
        return {"status": "ok", "protocol": wanted}
    return failed("No active listener", missing=wanted, protocols=sorted(known))


@endpoint("GET", "/api/health/checks/virtual-hosts")
async def health_hosts(call: Call) -> Any:
    """503 if a virtual host does not run."""
    await call.context.hosts()
    return {"status": "ok"}


@endpoint("GET", "/api/health/checks/node-is-mirror-sync-critical")
async def health_mirrors(call: Call) -> Any:
    """Whether others would lose queues with this node: there are no mirrors."""
    return {"status": "ok", "reason": "single node cluster"}


@endpoint("GET", "/api/health/checks/node-is-quorum-critical")
async def health_quorum(call: Call) -> Any:
    """Whether others would lose a quorum with this node: it is alone."""
    return {"status": "ok", "reason": "single node cluster"}


@endpoint("GET", "/api/healthchecks/node")
async def health_node(call: Call) -> Any:
    """RabbitMQ's older check of the node."""
    return await alarms_check(call)


@endpoint("GET", "/api/healthchecks/node/{name}")
async def health_named_node(call: Call) -> Any:
    """The same check, of a node by its name."""
    require_own_node(call)
    return await alarms_check(call)


@endpoint("GET", "/api/aliveness-test/{vhost}")
async def aliveness(call: Call) -> Any:
    """Declares a queue, publishes to it and gets the message back."""
    try:
        async with (
            call.connection(publishes=True) as connection,
            connection.channel(confirm=True) as channel,
        ):
            await channel.queue(ALIVENESS_QUEUE)
            await channel.publish(b"test_message", routing_key=ALIVENESS_QUEUE)
            message = await channel.get(ALIVENESS_QUEUE, no_ack=True)
    except ConnectFailed:
        raise
    except ClientError as error:
        return failed(str(error))
    return {"status": "ok"} if message is not None else failed("the message did not come back")
