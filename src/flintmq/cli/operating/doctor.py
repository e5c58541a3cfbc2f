"""`flintmq doctor`: what is wrong with a running broker, why, and what to do next.

The doctor looks twice, some seconds apart, at each virtual host, and has `flintmq.diagnosis` check what it
has seen. The management process does the same from its snapshots (management/broker_state/doctor.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flintmq.cli.operating import running_broker
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.tables import printable
from flintmq.clock import Clock
from flintmq.diagnosis.checks import BROKER_CHECKS, CHECKS, HOST_CHECKS, Finding, placed
from flintmq.diagnosis.evidence import ELSEWHERE, THIS_MACHINE, Evidence, Head, Look, death_in

if TYPE_CHECKING:
    from flintmq.client import Connection

Row = dict[str, Any]

SECONDS = 2.0
# Findings of one kind that are told one by one; the rest is counted.
TOLD_MAX = 10
# Virtual hosts that are looked at, each over a connection of its own.
HOSTS_MAX = 200
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
RED, YELLOW, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"


class QueueSeen(NamedTuple):
    name: str
    durable: bool
    is_stream: bool
    consumers: int
    ready: int
    unacked: int
    delayed: int
    delayed_returns: int
    entered: int
    leases: int
    oldest_ms: int

    @classmethod
    def of(cls, row: Row) -> QueueSeen:
        return cls(
            row["name"],
            row["durable"],
            row["type"] == "stream",
            row["consumers"],
            row["messages-ready"],
            row["messages-unacked"],
            row.get("messages-delayed", 0),
            row.get("messages-delayed-returns", 0),
            row["messages-entered"],
            row.get("leases", 0),
            row.get("oldest-ms", 0),
        )


class ConnectionSeen(NamedTuple):
    number: int
    name: str
    user: str
    peer_address: str
    blocked: str

    @classmethod
    def of(cls, row: Row) -> ConnectionSeen:
        return cls(row["number"], row["connection-name"], row["user"], row["peer-address"], row["blocked"])


class ChannelSeen(NamedTuple):
    connection: int
    number: int
    consumers: int
    unacked: int
    flowing: bool
    acks: int
    unrouted: int
    oldest_unacked: int
    oldest_unacked_queue: str

    @classmethod
    def of(cls, row: Row) -> ChannelSeen:
        return cls(
            row["connection"],
            row["channel"],
            row["consumers"],
            row["unacked"],
            row["flow"],
            row["acks"],
            row["unrouted"],
            row["oldest-unacked"],
            row["oldest-unacked-queue"],
        )


class ConsumerSeen(NamedTuple):
    connection: int
    channel: int
    tag: str
    queue: str
    prefetch_count: int
    unacked: int

    @classmethod
    def of(cls, row: Row) -> ConsumerSeen:
        return cls(
            row["connection"],
            row["channel"],
            row["consumer-tag"],
            row["queue"],
            row["prefetch-count"],
            row["unacked"],
        )


@dataclass(kw_only=True)
class Visit(Evidence):
    """The evidence of one virtual host, with the connection that it was gathered over."""

    connection: Connection


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser, "this one alone, instead of all that the user may enter")
    tables.add_options(parser)
    parser.add_argument(
        "--seconds",
        type=tables.amount,
        default=SECONDS,
        metavar="S",
        help=f"between the two looks ({SECONDS:g})",
    )
    parser.epilog = f"Status {statuses.TROUBLE} if something is wrong, 0 if not."
    parser.set_defaults(run=doctor)


def doctor(options: argparse.Namespace) -> int:
    clock = Clock()
    with ExitStack() as stack:
        own = stack.enter_context(running_broker.connected(options))
        connections = [own]
        unseen: list[str] = []
        if options.virtual_host is None:
            connections += others(own, stack, unseen)
        evidences = gathered(connections, options.seconds, clock)
        findings = [finding for check in BROKER_CHECKS for finding in check(evidences[0])]
        for evidence in evidences:
            found = [finding for check in HOST_CHECKS for finding in check(evidence)]
            is_own = evidence is evidences[0]
            findings += [placed(finding, evidence.virtual_host, is_own=is_own) for finding in found]
    findings.sort(key=lambda finding: not finding.is_urgent)
    if options.json:
        tables.print_json([asdict(finding) for finding in findings])
    else:
        for line in told(findings, tables.is_coloured(sys.stdout)):
            print(line)
        if not findings:
            hosts = "" if len(evidences) == 1 else f" in {len(evidences)} virtual hosts"
            print(f"nothing is wrong: {len(CHECKS)} checks over {options.seconds:g} s{hosts}")
    if unseen:
        names = ", ".join(printable(name) for name in unseen[:TOLD_MAX])
        print(
            f"flintmq: {len(unseen)} virtual hosts were not looked at, such as {names}, as user "
            f"{printable(own.settings.user)!r} may not enter them: flintmq permissions set",
            file=sys.stderr,
        )
    return statuses.TROUBLE if findings else 0


def others(own: Connection, stack: ExitStack, unseen: list[str]) -> list[Connection]:
    """Connections to the other virtual hosts; `unseen` gets those that the user may not enter."""
    from flintmq.client import ConnectFailed, ServiceError, connect

    try:
        rows = list(running_broker.rows_of(own, "vhost.list"))
    except ServiceError:
        return []  # who may not see which there are looks at the one of the URL
    names = [row["virtual-host"] for row in rows if row["state"] == "running"]
    names = [name for name in names if name != own.settings.virtual_host]
    unseen += names[HOSTS_MAX:]
    found: list[Connection] = []
    for name in names[:HOSTS_MAX]:
        try:
            found.append(stack.enter_context(connect(own.settings, virtual_host=name)))
        except ConnectFailed as error:
            if error.code != 530:
                raise
            unseen.append(name)
    return found


def told(findings: list[Finding], coloured: bool) -> Iterator[str]:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
        if counts[finding.kind] > TOLD_MAX:
            continue
        word = "TROUBLE" if finding.is_urgent else "WARNING"
        if coloured:
            word = f"{RED if finding.is_urgent else YELLOW}{word}{PLAIN}"
        yield f"{word}  {finding.kind}: {printable(finding.seen)}"
        yield f"  why:   {printable(finding.cause)}"
        yield f"  next:  {printable(finding.next_step)}"
    for kind, count in counts.items():
        if count > TOLD_MAX:
            yield f"and {count - TOLD_MAX} more of {kind}; --json has them all"


def gathered(connections: list[Connection], seconds: float, clock: Clock) -> list[Visit]:
    """What there is in the virtual host of each connection."""
    begun_s = clock.monotonic_s()
    first = [looked(connection, clock)[0] for connection in connections]
    guest_from = place_of_guest(connections[0])
    clock.sleep(max(0.0, seconds - (clock.monotonic_s() - begun_s)))
    span_s = clock.monotonic_s() - begun_s
    return [
        visited(connection, before, span_s, guest_from, clock)
        for connection, before in zip(connections, first, strict=True)
    ]


def looked(connection: Connection, clock: Clock) -> tuple[Look, list[Row]]:
    """A look, and the rows of the queues, which tell more."""
    look = Look(connection.request("broker.info").results, clock.wall_ms())
    rows = running_broker.rows_of
    queues = list(rows(connection, "queue.list"))
    look.queues = {row["name"]: QueueSeen.of(row) for row in queues}
    look.connections = {row["number"]: ConnectionSeen.of(row) for row in rows(connection, "connection.list")}
    look.channels = {
        (row["connection"], row["channel"]): ChannelSeen.of(row) for row in rows(connection, "channel.list")
    }
    look.consumers = {
        (row["connection"], row["channel"], row["consumer-tag"]): ConsumerSeen.of(row)
        for row in rows(connection, "consumer.list")
        if row["queue"] != DIRECT_REPLY_TO
    }
    return look, queues


def visited(connection: Connection, first: Look, seconds: float, guest_from: str, clock: Clock) -> Visit:
    """The second look, and closer ones."""
    last, queues = looked(connection, clock)
    host = connection.settings.virtual_host
    visit = Visit(host, first, last, seconds, guest_from=guest_from, connection=connection)
    name = "dead-letter-exchange"
    visit.letter_exchanges = {row["name"]: row[name] for row in queues if name in row}
    visit.timed = {row["name"] for row in queues if "message-ttl-ms" in row or "oldest-lifetime-ms" in row}
    heads = ((name, head_of(connection, name)) for name in visit.to_peek())
    visit.heads = {name: head for name, head in heads if head is not None}
    visit.missing_exchanges = {name for name in visit.exchanges_to_find() if is_missing(connection, name)}
    return visit


def head_of(connection: Connection, queue: str) -> Head | None:
    """The first message of a queue; None where there is none, or this user may not read it."""
    from flintmq.client import ServiceError
    from flintmq.wire.tables import decode_table

    try:
        glance = connection.browse(queue).peek(limit=1, columns=("headers",))
    except ServiceError:
        return None
    for row in glance.columns.rows():
        octets = bytes(row["headers"])
        headers = decode_table(octets, 0, len(octets))[0] if octets else {}
        return Head(0, death_in(headers), has_lifetime=False)  # queue.list has told both of them
    return None


def is_missing(connection: Connection, exchange: str) -> bool:
    from flintmq.client import ServiceError

    try:
        connection.request("binding.list", {"source": exchange, "limit": 1})
    except ServiceError as error:
        return error.code == 404  # another one is of no concern to this user
    return False


def place_of_guest(connection: Connection) -> str:
    """From where the password that everybody knows is good. The broker is asked: a failed login would be
    logged, and count towards a ban. It tells those who monitor; others are told nothing of it."""
    from flintmq.client import ServiceError

    try:
        if not connection.request("user.default-password").results["in-force"]:
            return ""
    except ServiceError as error:
        if error.code not in (403, 404):  # 404: an older broker
            raise
        return ""
    return THIS_MACHINE if connection.settings.host in LOCAL_HOSTS else ELSEWHERE
