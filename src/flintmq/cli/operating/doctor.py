"""`flintmq doctor`: what is wrong with a running broker, why, and what to do next.

The doctor looks twice, some seconds apart, and compares: a queue that is long is no trouble, one that grows
while nobody consumes is. Each check is a function from the Evidence to Findings.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.queues import gone_of
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.tables import printable
from flintmq.clock import Clock

if TYPE_CHECKING:
    from flintmq.client import Connection

Row = dict[str, Any]

SECONDS = 2.0
CLOCK_S_MAX = 5.0
CERTIFICATE_DAYS = 30
# The disk is almost full when it has less than so many times what stops publishers.
DISK_TIMES = 4
# So many of the possible connections are open.
CONNECTIONS_SHARE = 0.9
# Queues that are looked into for dead letters: one message of each.
PEEKED_MAX = 100
# Exchanges for dead letters that are looked for: a request for each.
LETTER_EXCHANGES_MAX = 100
# A message that has died so often in one queue goes round.
LOOP_DEATHS = 20
# Findings of one kind that are told one by one; the rest is counted.
TOLD_MAX = 10
# Virtual hosts that are looked at, each over a connection of its own.
HOSTS_MAX = 200
# Commands that a finding may advise and that are about one virtual host.
OF_A_HOST = re.compile(r"flintmq (bindings|peek|move|requeue|declare exchange|policies set)\b")
# Messages acked while an older one of the same channel was not: then that was forgotten.
FORGOTTEN_ACKS = 100
# Deliveries that one channel gave back between the looks: then it does so with whatever it is handed.
GIVEN_BACK = 10
# Messages of a queue without a consumer are abandoned after this time: programs that fetch now and then have
# come by.
ABANDONED_MS = 3_600_000
DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
RED, YELLOW, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"


@dataclass(frozen=True)
class Finding:
    """One trouble: its kind, what is seen, why it is so, and what to do next."""

    kind: str
    seen: str
    cause: str
    next_step: str
    is_urgent: bool = False
    virtual_host: str | None = None  # None: of the whole broker


@dataclass
class Look:
    """What the broker says at one moment."""

    info: Row
    wall_ms: int
    queues: dict[str, Row] = field(default_factory=dict)
    connections: dict[int, Row] = field(default_factory=dict)
    channels: dict[tuple[int, int], Row] = field(default_factory=dict)
    consumers: list[Row] = field(default_factory=list)


@dataclass
class Evidence:
    """Two looks, and the connection for closer ones."""

    connection: Connection
    first: Look
    last: Look
    seconds: float
    guest_gets_in: bool

    def whose(self, connection: int) -> str:
        """A connection in words."""
        row = self.last.connections.get(connection)
        if row is None:
            return f"connection {connection}"
        name = f" ({row['connection-name']})" if row["connection-name"] else ""
        return f"connection {connection}{name} of user {row['user']!r} at {row['peer-address']}"

    @cached_property
    def unread_letters(self) -> dict[str, Row]:
        """Queues without a consumer whose first message died in another queue, and how that was."""
        return {
            row["name"]: death
            for row, death in first_deaths(self, has_consumers=False)
            if text(death.get("queue")) != row["name"]  # sent back to where it died, to be tried again
            and not sends_on(row)
        }

    def came(self, name: str) -> int:
        """Messages that came to a queue between the looks."""
        before = self.first.queues.get(name)
        now = self.last.queues[name]
        return int(now["messages-entered"] - before["messages-entered"]) if before else 0

    def went(self, name: str) -> int:
        """Messages that a queue has got rid of between the looks."""
        before = self.first.queues.get(name)
        return gone_of(self.last.queues[name]) - gone_of(before) if before else 0


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
            host = evidence.connection.settings.virtual_host
            findings += [placed(finding, host, is_own=evidence is evidences[0]) for finding in found]
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


def placed(finding: Finding, host: str, *, is_own: bool) -> Finding:
    """A finding of a virtual host; one that is not that of the URL is named."""
    if is_own:
        return replace(finding, virtual_host=host)
    option = f"-V {word(host)}"
    return replace(
        finding,
        virtual_host=host,
        seen=f"virtual host {host!r}: {finding.seen}",
        next_step=OF_A_HOST.sub(lambda found: f"{found[0]} {option}", finding.next_step),
    )


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


def gathered(connections: list[Connection], seconds: float, clock: Clock) -> list[Evidence]:
    """What there is in the virtual host of each connection."""
    begun_s = clock.monotonic_s()
    first = [looked(connection, clock) for connection in connections]
    guest = guest_gets_in(connections[0])
    clock.sleep(max(0.0, seconds - (clock.monotonic_s() - begun_s)))
    span_s = clock.monotonic_s() - begun_s
    return [
        Evidence(connection, before, looked(connection, clock), span_s, guest)
        for connection, before in zip(connections, first, strict=True)
    ]


def looked(connection: Connection, clock: Clock) -> Look:
    look = Look(connection.request("broker.info").results, clock.wall_ms())
    rows = running_broker.rows_of
    look.queues = {row["name"]: row for row in rows(connection, "queue.list")}
    look.connections = {row["number"]: row for row in rows(connection, "connection.list")}
    look.channels = {(row["connection"], row["channel"]): row for row in rows(connection, "channel.list")}
    look.consumers = [row for row in rows(connection, "consumer.list") if row["queue"] != DIRECT_REPLY_TO]
    return look


def guest_gets_in(connection: Connection) -> bool:
    """Whether the password that everybody knows is good. The broker is asked: a failed login would be logged,
    and count towards a ban. It tells those who monitor; others are told nothing of it."""
    from flintmq.client import ServiceError

    try:
        return bool(connection.request("user.default-password").results["in-force"])
    except ServiceError as error:
        if error.code not in (403, 404):  # 404: an older broker
            raise
        return False


# The checks


def memory(evidence: Evidence) -> Iterator[Finding]:
    info = evidence.last.info
    for alarm in info.get("alarms", ()):
        if alarm["resource"] == "memory":
            longest = sorted(evidence.last.queues.values(), key=lambda row: -row["messages-ready"])[:3]
            names = ", ".join(
                f"{row['name']} ({row['messages-ready']:,})" for row in longest if row["messages-ready"]
            )
            yield Finding(
                "memory alarm",
                f"publishers are blocked: {alarm['reason']}",
                f"the broker uses {tables.size(info['memory-bytes'])} of the "
                f"{tables.size(info['memory-bytes-high'])} that it may use",
                (f"drain the longest queues: {names}; " if names else "")
                + "or raise memory_high_bytes in [limits] of the settings",
                is_urgent=True,
            )


def disk(evidence: Evidence) -> Iterator[Finding]:
    info = evidence.last.info
    alarms = [each for each in info.get("alarms", ()) if each["resource"] == "disk"]
    free, least = info.get("disk-bytes-free"), info.get("disk-bytes-free-min", 0)
    for alarm in alarms:
        is_low = "disk_free_bytes_min" in alarm["reason"]
        if is_low or os.strerror(errno.ENOSPC) in alarm["reason"]:
            yield Finding(
                "disk full",
                f"publishers are blocked: {alarm['reason']}",
                f"the journal takes {tables.size(info['disk-bytes'])} of that disk",
                "make room on the disk, drain durable queues, or "
                + (
                    "lower disk_free_bytes_min in [limits]"
                    if is_low
                    else "move the data directory: the journal writes files of a fixed size, and a lower "
                    "disk_free_bytes_min does not help"
                ),
                is_urgent=True,
            )
        else:
            yield Finding(
                "journal trouble",
                f"publishers are blocked: {alarm['reason']}",
                "the disk does not take what the journal writes",
                "look at the broker's log and at the disk (dmesg), then: flintmq journal check DIR",
                is_urgent=True,
            )
    for why in info.get("unreadable", ()):
        yield Finding(
            "messages cannot be read",
            why,
            "the queues whose messages lie in that file wait, and try again every few seconds",
            "look at the disk (dmesg), or put the file back; stop the broker only if it stays away: a start "
            "takes what it does not find as lost",
            is_urgent=True,
        )
    if not alarms and free is not None and least and free < DISK_TIMES * least:
        yield Finding(
            "disk almost full",
            f"{tables.size(free)} are free",
            f"the journal takes {tables.size(info['disk-bytes'])}, and publishers are blocked below "
            f"{tables.size(least)}",
            "make room on the disk or drain durable queues before publishers are blocked",
        )


def connections(evidence: Evidence) -> Iterator[Finding]:
    counts = evidence.last.info.get("strangers", {})
    count, most = counts.get("connections", 0), counts.get("connections-max", 0)
    if most and count >= CONNECTIONS_SHARE * most:
        held = Counter(row["user"] for row in evidence.last.connections.values()).most_common(3)
        yield Finding(
            "almost no connections left",
            f"{count:,} of {most:,} connections are open",
            f"most of those in {evidence.connection.settings.virtual_host} are of "
            + ", ".join(f"{user} ({number:,})" for user, number in held)
            + f"; {counts.get('refused-full', 0):,} were refused since the start",
            "look for clients that do not close their connections: flintmq connections; or raise "
            "connections_max in [limits], and the open files that the system allows: LimitNOFILE=, ulimit -n",
        )


def blocked(evidence: Evidence) -> Iterator[Finding]:
    for number, row in evidence.last.connections.items():
        if row["blocked"]:
            yield Finding(
                "blocked publisher",
                f"nothing is read from {evidence.whose(number)}",
                row["blocked"],
                "see to the alarm; the connection goes on by itself when the alarm ends",
                is_urgent=True,
            )


def growth(evidence: Evidence) -> Iterator[Finding]:
    for name, row in evidence.last.queues.items():
        came, went = evidence.came(name), evidence.went(name)
        if row["consumers"] or came <= went or not row["messages-ready"]:
            continue
        yield Finding(
            "queue grows without a consumer",
            f"queue {name!r} has {row['messages-ready']:,} messages",
            f"{came:,} came in {evidence.seconds:.1f} s, {went:,} went, and it has no consumer",
            f"start its consumer; or take the binding away: flintmq bindings --destination {word(name)}; "
            "or limit it by a policy with max-length or message-ttl",
        )


def abandoned(evidence: Evidence) -> Iterator[Finding]:
    """Messages that nobody takes, of queues that do not grow either."""
    for name, row in evidence.last.queues.items():
        age_ms = row.get("oldest-age-ms") or 0
        if row["consumers"] or age_ms < ABANDONED_MS or not row["messages-ready"] or row["type"] == "stream":
            continue
        if evidence.went(name) or evidence.came(name):
            continue
        if row.get("leases") or sends_on(row) or name in evidence.unread_letters:
            continue  # read in batches now and then, sent on in time, or told as dead letters
        yield Finding(
            "messages wait for nobody",
            f"{row['messages-ready']:,} messages wait in queue {name!r}, the first for {tables.age(age_ms)}",
            f"the queue has no consumer, and none of them went in {evidence.seconds:.1f} s",
            f"start its consumer; flintmq peek {word(name)} shows what waits",
        )


def sends_on(row: Row) -> bool:
    """Whether a queue delays messages: the first leaves when its time is over, as a dead letter."""
    return "dead-letter-exchange" in row and ("message-ttl-ms" in row or "oldest-lifetime-ms" in row)


def slow_consumers(evidence: Evidence) -> Iterator[Finding]:
    for name, row in evidence.last.queues.items():
        came, went = evidence.came(name), evidence.went(name)
        if not row["consumers"] or not went or came < 2 * went or row["messages-ready"] < came:
            continue
        yield Finding(
            "consumers are too slow",
            f"queue {name!r} has {row['messages-ready']:,} messages",
            f"{came:,} came in {evidence.seconds:.1f} s, and {row['consumers']} consumer(s) took {went:,}",
            "start more consumers, or make each faster: raise the prefetch, ack several at once",
        )


def unacked(evidence: Evidence) -> Iterator[Finding]:
    """Consumers that have settled nothing between the looks."""
    before = {key_of(row): row for row in evidence.first.consumers}
    for row in evidence.last.consumers:
        old = before.get(key_of(row))
        queue = evidence.last.queues.get(row["queue"])
        if old is None or queue is None or not row["unacked"] or row["unacked"] != old["unacked"]:
            continue
        if evidence.went(row["queue"]):
            continue  # somebody acks, and nobody can tell who
        who = f"consumer {row['consumer-tag']!r} on {evidence.whose(row['connection'])}"
        if returned := given_back(evidence, row):
            yield poisoned(row["queue"], who, returned, evidence.seconds)
            continue
        is_full = row["prefetch-count"] and row["unacked"] >= row["prefetch-count"]
        if is_full and queue["messages-ready"]:
            yield Finding(
                "consumer takes nothing",
                f"{queue['messages-ready']:,} messages wait in queue {row['queue']!r}, and {who} takes none",
                f"it holds {row['unacked']:,} unacked messages, all that its prefetch of "
                f"{row['prefetch-count']:,} allows, and acked none in {evidence.seconds:.1f} s",
                "find out what the consumer waits for; "
                f"flintmq close {row['connection']} gives its messages back to others",
            )
        else:
            yield stuck(
                row["queue"], row["unacked"], who, row["connection"], "the consumer", evidence.seconds
            )
    yield from fetched(evidence)


def given_back(evidence: Evidence, consumer: Row) -> int:
    """Deliveries of the consumer's channel that went back to the queue between the looks, if many did.

    The queue has got rid of nothing meanwhile. So a channel whose oldest unacked delivery is another one than
    before, and that acked nothing, has given back those in between.
    """
    at = consumer["connection"], consumer["channel"]
    old, now = evidence.first.channels.get(at), evidence.last.channels.get(at)
    if old is None or now is None or now["acks"] != old["acks"]:
        return 0
    if not old["oldest-unacked"] or {row["oldest-unacked-queue"] for row in (old, now)} != {
        consumer["queue"]
    }:
        return 0
    returned = int(now["oldest-unacked"] - old["oldest-unacked"])
    return returned if returned >= GIVEN_BACK else 0


def poisoned(queue: str, who: str, returned: int, seconds: float) -> Finding:
    return Finding(
        "messages given back again and again",
        f"{who} gives back what queue {queue!r} hands to it",
        f"{returned:,} deliveries in {seconds:.1f} s went back to the queue, and none was acked: the program "
        "rejects with requeue what it cannot handle, and gets the same messages again",
        f"flintmq peek {word(queue)} shows them; have the program reject without requeue, or limit the tries "
        'and keep what is left: flintmq policies set tries PATTERN \'{"delivery-limit": 20, '
        '"dead-letter-exchange": EXCHANGE}\'',
    )


def fetched(evidence: Evidence) -> Iterator[Finding]:
    """Messages taken by basic.get and never settled."""
    of_consumers: dict[tuple[int, int], int] = {}
    for row in evidence.last.consumers:
        at = row["connection"], row["channel"]
        of_consumers[at] = of_consumers.get(at, 0) + row["unacked"]
    for at, row in evidence.last.channels.items():
        old = evidence.first.channels.get(at)
        taken = row["unacked"] - of_consumers.get(at, 0)
        if taken > 0 and old is not None and old["unacked"] == row["unacked"]:
            who = f"channel {at[1]} of {evidence.whose(at[0])}"
            yield stuck("", taken, who, at[0], "basic.get", evidence.seconds)


def forgotten(evidence: Evidence) -> Iterator[Finding]:
    """A message that stays unacked while its channel acks later ones."""
    for at, row in evidence.last.channels.items():
        old = evidence.first.channels.get(at)
        tag = row["oldest-unacked"]
        if old is None or not tag or old["oldest-unacked"] != tag:
            continue
        acks = row["acks"] - old["acks"]
        if acks >= FORGOTTEN_ACKS:
            yield Finding(
                "message forgotten",
                f"a message of queue {row['oldest-unacked-queue']!r}, delivery tag {tag}, is held unacked by "
                f"channel {at[1]} of {evidence.whose(at[0])}",
                f"the channel acked {acks:,} others in {evidence.seconds:.1f} s, and not this one, which is "
                "the oldest",
                "look for a way through the program that neither acks nor rejects; "
                f"flintmq close {at[0]} gives the message back to the queue",
            )


def stuck(queue: str, count: int, who: str, connection: int, how: str, seconds: float) -> Finding:
    where = f" of queue {queue!r}" if queue else ""
    return Finding(
        "messages stuck unacked",
        f"{count:,} messages{where} are held unacked by {who}",
        f"they were handed out to {how}, and none was acked in {seconds:.1f} s",
        "look whether the program hangs or has forgotten to ack; "
        f"flintmq close {connection} gives the messages back to the queue",
    )


def key_of(row: Row) -> tuple[int, int, str]:
    return row["connection"], row["channel"], row["consumer-tag"]


def unroutable(evidence: Evidence) -> Iterator[Finding]:
    for (connection, channel), row in evidence.last.channels.items():
        if row["unrouted"]:
            yield Finding(
                "unroutable messages",
                f"{row['unrouted']:,} messages went nowhere, of channel {channel} of "
                f"{evidence.whose(connection)}",
                "no queue is bound for the exchange and routing key that they were published with, "
                "and no alternate exchange took them",
                "compare with: flintmq bindings; publish with the flag mandatory to have them returned, or "
                "give the exchange an alternate-exchange",
            )


def dead_letters(evidence: Evidence) -> Iterator[Finding]:
    for name, death in evidence.unread_letters.items():
        count = evidence.last.queues[name]["messages-ready"]
        yield Finding(
            "dead letters pile up",
            f"{count:,} dead letters wait in queue {name!r}, and nobody reads them",
            f"the first of them died in queue {text(death.get('queue'))!r}: {text(death.get('reason'))}"
            f", {death.get('count', 1)} time(s)",
            f"flintmq peek {word(name)} shows them; when the cause is mended, "
            f"flintmq requeue {word(name)} has them tried again",
        )


def loops(evidence: Evidence) -> Iterator[Finding]:
    """Messages that a consumer rejects, and that their dead letter exchange brings back."""
    for row, death in first_deaths(evidence, has_consumers=True):
        name, count = row["name"], death.get("count", 1)
        if isinstance(count, int) and count >= LOOP_DEATHS:
            yield Finding(
                "dead letters go round",
                f"the first message of queue {name!r} has died {count:,} times",
                f"it died in queue {text(death.get('queue'))!r} ({text(death.get('reason'))}), and each time "
                "its dead letter exchange brought it back",
                f"flintmq peek {word(name)} shows it; have the consumer put aside what it cannot do, or lead "
                "the dead letters to a queue that nobody rejects from",
            )


def lost_letters(evidence: Evidence) -> Iterator[Finding]:
    """Queues whose dead letters go to an exchange that is not there."""
    from flintmq.client import ServiceError

    queues_by_exchange: dict[str, list[str]] = {}
    for name, row in evidence.last.queues.items():
        if exchange := row.get("dead-letter-exchange"):
            queues_by_exchange.setdefault(exchange, []).append(name)
    for exchange, names in list(queues_by_exchange.items())[:LETTER_EXCHANGES_MAX]:
        try:
            evidence.connection.request("binding.list", {"source": exchange, "limit": 1})
        except ServiceError as error:
            if error.code != 404:
                continue  # of no concern to this user
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            yield Finding(
                "dead letters are lost",
                f"queue {names[0]!r}{more} would send dead letters to exchange {exchange!r}",
                "there is no such exchange: what expires, is rejected or overflows is dropped",
                f"flintmq declare exchange {word(exchange)} fanout, and bind a queue to it",
                is_urgent=True,
            )


def first_deaths(evidence: Evidence, *, has_consumers: bool) -> Iterator[tuple[Row, Row]]:
    """The longest queues whose first message is a dead letter, and how that died last."""
    from flintmq.client import ServiceError

    waiting = [
        row
        for row in evidence.last.queues.values()
        if row["messages-ready"] and bool(row["consumers"]) is has_consumers
    ]
    waiting.sort(key=lambda row: -row["messages-ready"])
    for row in waiting[:PEEKED_MAX]:
        try:
            glance = evidence.connection.browse(row["name"]).peek(limit=1, columns=("headers",))
        except ServiceError:
            continue  # a stream, or one that this user may not read
        death = next((death_of(found) for found in glance.columns.rows()), None)
        if death is not None:
            yield row, death


def word(name: str) -> str:
    """A name as a shell takes it for one word."""
    return "'" + name.replace("'", "'\"'\"'") + "'"


def death_of(row: Row) -> Row | None:
    """The first of the x-death headers."""
    from flintmq.wire.tables import decode_table

    octets = bytes(row["headers"])
    if not octets:
        return None
    headers, _ = decode_table(octets, 0, len(octets))
    deaths: Any = headers.get("x-death")
    return deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else None


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def certificate(evidence: Evidence) -> Iterator[Finding]:
    for row in evidence.last.info.get("certificates", ()):
        days = row["days-left"]
        if days < CERTIFICATE_DAYS:
            when = f"ended {-days} day(s) ago" if days < 0 else f"ends in {days} day(s)"
            yield Finding(
                "certificate ends",
                f"the certificate {row['certificate']} {when}",
                "clients that check it cannot connect over TLS any more after that",
                "put a new certificate in its place: the broker reads it within a minute, or at SIGHUP",
                is_urgent=days < 0,
            )


def default_password(evidence: Evidence) -> Iterator[Finding]:
    if evidence.guest_gets_in:
        host = evidence.connection.settings.host
        is_near = host in ("localhost", "127.0.0.1", "::1")
        place = "this machine" if is_near else "elsewhere"
        yield Finding(
            "default password",
            f"user 'guest' gets in with the password 'guest' from {place}",
            "it is the password that every broker begins with",
            "flintmq users add NAME --tags administrator --all-permissions, then as that user: "
            "flintmq users delete guest",
            is_urgent=not is_near,
        )


def clocks(evidence: Evidence) -> Iterator[Finding]:
    look = evidence.first
    ahead_s = (look.info["now-ms"] - look.wall_ms) / 1000
    if abs(ahead_s) > CLOCK_S_MAX:
        way = "ahead of" if ahead_s > 0 else "behind"
        yield Finding(
            "clocks differ",
            f"the clock of the broker is {abs(ahead_s):.1f} s {way} that of this machine",
            "one of the two machines does not keep the time",
            "look at timedatectl or chronyc on both: timestamps, TTLs by date and certificates depend on it",
        )


def memory_only(evidence: Evidence) -> Iterator[Finding]:
    durable = [name for name, row in evidence.last.queues.items() if row["durable"]]
    if durable and "disk-bytes" not in evidence.last.info:
        yield Finding(
            "durable queues in memory",
            f"{len(durable):,} durable queues, such as {durable[0]!r}, are lost when the broker ends",
            "the broker runs without a data directory",
            "start it with --data DIR, or set directory in [storage]",
        )


def stopped_flow(evidence: Evidence) -> Iterator[Finding]:
    for (connection, channel), row in evidence.last.channels.items():
        if not row["flow"] and row["consumers"]:
            yield Finding(
                "consumer has stopped the flow",
                f"channel {channel} of {evidence.whose(connection)} gets no deliveries",
                "the client has sent channel.flow with active=false",
                f"the client has to send it again with active=true; or: flintmq close {connection}",
            )


Check = Callable[[Evidence], Iterator[Finding]]
# Of the whole broker, and of each virtual host.
BROKER_CHECKS: tuple[Check, ...] = (memory, disk, connections, certificate, default_password, clocks)
HOST_CHECKS: tuple[Check, ...] = (
    blocked,
    growth,
    abandoned,
    slow_consumers,
    unacked,
    forgotten,
    unroutable,
    dead_letters,
    loops,
    lost_letters,
    memory_only,
    stopped_flow,
)
CHECKS = BROKER_CHECKS + HOST_CHECKS
