"""The checks: each is a function from the evidence to findings.

A check names what is seen, why it is so, and what to do next; `docs/command-line.md` has the list.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from flintmq import amounts
from flintmq.diagnosis.evidence import THIS_MACHINE, ChannelKey, ConsumerSeen, Evidence, text

CLOCK_S_MAX = 5.0
CERTIFICATE_DAYS = 30
# The disk is almost full when it has less than so many times what stops publishers.
DISK_TIMES = 4
# So many of the possible connections are open.
CONNECTIONS_SHARE = 0.9
# A message that has died so often in one queue goes round.
LOOP_DEATHS = 20
# Commands that a finding may advise and that are about one virtual host.
OF_A_HOST = re.compile(r"flintmq (bindings|peek|move|requeue|declare exchange|policies set)\b")
# Messages acked while an older one of the same channel was not: then that was forgotten.
FORGOTTEN_ACKS = 100
# Deliveries that one channel gave back between the looks: then it does so with whatever it is handed.
GIVEN_BACK = 10
# So many messages wait for a retry, and came back so often on the average: then they fail each time.
RETRYING = 10
RETURNS_EACH = 3
# Messages of a queue without a consumer are abandoned after this time: programs that fetch now and then have
# come by.
ABANDONED_MS = 3_600_000
# What to do with messages that no try gets through.
LIMITED_TRIES = (
    "limit the tries and keep what is left: flintmq policies set tries PATTERN "
    '\'{"delivery-limit": 20, "dead-letter-exchange": EXCHANGE}\''
)


@dataclass(frozen=True)
class Finding:
    """One trouble: its kind, what is seen, why it is so, and what to do next."""

    kind: str
    seen: str
    cause: str
    next_step: str
    is_urgent: bool = False
    virtual_host: str | None = None  # None: of the whole broker
    # What it is about: queue, exchange, connection (by its number), or nothing of these.
    object_type: str = ""
    object_name: str = ""
    since_ms: int | None = None  # since when it is so, where the broker tells


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


# The checks


def memory(evidence: Evidence) -> Iterator[Finding]:
    info = evidence.last.info
    for alarm in info.get("alarms", ()):
        if alarm["resource"] == "memory":
            queues = [row for row in evidence.last.queues.values() if row.ready and not row.is_stream]
            longest = sorted(queues, key=lambda row: -row.ready)[:3]
            names = ", ".join(f"{row.name} ({row.ready:,})" for row in longest)
            yield Finding(
                "memory alarm",
                f"publishers are blocked: {alarm['reason']}",
                f"the broker uses {amounts.size(info['memory-bytes'])} of the "
                f"{amounts.size(info['memory-bytes-high'])} that it may use",
                (f"drain the longest queues: {names}; or " if names else "")
                + "raise the limit: flintmq ctl set_vm_memory_high_watermark absolute SIZE until the next "
                "restart, memory_high_bytes in [limits] of the settings for good",
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
                f"the journal takes {amounts.size(info['disk-bytes'])} of that disk",
                "make room on the disk, drain durable queues, or "
                + (
                    "lower the limit: flintmq ctl set_disk_free_limit SIZE until the next restart, "
                    "disk_free_bytes_min in [limits] of the settings for good"
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
            f"{amounts.size(free)} are free",
            f"the journal takes {amounts.size(info['disk-bytes'])}, and publishers are blocked below "
            f"{amounts.size(least)}",
            "make room on the disk or drain durable queues before publishers are blocked",
        )


def connections(evidence: Evidence) -> Iterator[Finding]:
    counts = evidence.last.info.get("strangers", {})
    count, most = counts.get("connections", 0), counts.get("connections-max", 0)
    if most and count >= CONNECTIONS_SHARE * most:
        held = Counter(row.user for row in evidence.last.connections.values()).most_common(3)
        place = f" in {evidence.virtual_host}" if evidence.virtual_host else ""
        yield Finding(
            "almost no connections left",
            f"{count:,} of {most:,} connections are open",
            f"most of those{place} are of "
            + ", ".join(f"{user} ({number:,})" for user, number in held)
            + f"; {counts.get('refused-full', 0):,} were refused since the start",
            "look for clients that do not close their connections: flintmq connections; or raise "
            "connections_max in [limits], and the open files that the system allows: LimitNOFILE=, ulimit -n",
        )


def blocked(evidence: Evidence) -> Iterator[Finding]:
    for number, row in evidence.last.connections.items():
        if row.blocked:
            yield Finding(
                "blocked publisher",
                f"nothing is read from {evidence.whose(number)}",
                row.blocked,
                "see to the alarm; the connection goes on by itself when the alarm ends",
                is_urgent=True,
                object_type="connection",
                object_name=str(number),
            )


def growth(evidence: Evidence) -> Iterator[Finding]:
    for name, row in evidence.last.queues.items():
        if row.consumers or not row.ready or row.is_stream:  # a stream keeps messages for readers to come
            continue
        came, went = evidence.came(name), evidence.went(name)
        if came <= went:
            continue
        yield Finding(
            "queue grows without a consumer",
            f"queue {name!r} has {row.ready:,} messages",
            f"{came:,} came in {evidence.seconds:.1f} s, {went:,} went, and it has no consumer",
            f"start its consumer; or take the binding away: flintmq bindings --destination {word(name)}; "
            "or limit it by a policy with max-length or message-ttl",
            object_type="queue",
            object_name=name,
        )


def abandoned(evidence: Evidence) -> Iterator[Finding]:
    """Messages that nobody takes, of queues that do not grow either."""
    now_ms = evidence.last.info["now-ms"]
    for name, row in evidence.last.queues.items():
        if row.consumers or not row.ready or row.is_stream or row.leases:
            continue  # those with leases are read in batches now and then
        since_ms = evidence.oldest_ms(row)
        if not since_ms or now_ms - since_ms < ABANDONED_MS:
            continue
        if evidence.went(name) or evidence.came(name):
            continue
        if evidence.sends_on(name) or name in evidence.unread_letters:
            continue  # sent on in time, or told as dead letters
        waited = amounts.age(now_ms - since_ms)
        none_went = f", and none of them went in {evidence.seconds:.1f} s" if evidence.seconds else ""
        yield Finding(
            "messages wait for nobody",
            f"{row.ready:,} messages wait in queue {name!r}, the first for {waited}",
            f"the queue has no consumer{none_went}",
            f"start its consumer; flintmq peek {word(name)} shows what waits",
            object_type="queue",
            object_name=name,
            since_ms=since_ms,
        )


def slow_consumers(evidence: Evidence) -> Iterator[Finding]:
    for name, row in evidence.last.queues.items():
        if not row.consumers or not row.ready:
            continue
        came, went = evidence.came(name), evidence.went(name)
        if not went or came < 2 * went or row.ready < came:
            continue
        yield Finding(
            "consumers are too slow",
            f"queue {name!r} has {row.ready:,} messages",
            f"{came:,} came in {evidence.seconds:.1f} s, and {row.consumers} consumer(s) took {went:,}",
            "start more consumers, or make each faster: raise the prefetch, ack several at once",
            object_type="queue",
            object_name=name,
        )


def unacked(evidence: Evidence) -> Iterator[Finding]:
    """Consumers that have settled nothing between the looks."""
    for key, row in evidence.last.consumers.items():
        old = evidence.first.consumers.get(key)
        queue = evidence.last.queues.get(row.queue)
        if old is None or queue is None or not row.unacked or row.unacked != old.unacked:
            continue
        if evidence.before(row.queue) is None:
            continue  # nobody knows what has left the queue
        if evidence.is_blocked(row.connection):
            continue  # nobody knows what it has acked
        if evidence.went(row.queue) or has_acked(evidence, row, queue.is_stream):
            continue  # somebody acks, and nobody can tell who
        if evidence.has_retried(row.queue):
            continue  # somebody rejects; messages that fail each time are a finding of their own
        who = f"consumer {row.tag!r} on {evidence.whose(row.connection)}"
        if returned := given_back(evidence, row):
            yield poisoned(row, who, returned, evidence.seconds)
            continue
        is_full = row.prefetch_count and row.unacked >= row.prefetch_count
        if is_full and queue.ready:
            yield Finding(
                "consumer takes nothing",
                f"{queue.ready:,} messages wait in queue {row.queue!r}, and {who} takes none",
                f"it holds {row.unacked:,} unacked messages, all that its prefetch of "
                f"{row.prefetch_count:,} allows, and acked none in {evidence.seconds:.1f} s",
                "find out what the consumer waits for; "
                f"flintmq close {row.connection} gives its messages back to others",
                object_type="connection",
                object_name=str(row.connection),
            )
        else:
            where = f" of queue {row.queue!r}"
            yield stuck(where, row.unacked, who, row.connection, "the consumer", evidence.seconds)
    yield from fetched(evidence)


def has_acked(evidence: Evidence, consumer: ConsumerSeen, of_stream: bool) -> bool:
    """Whether the channel of a consumer has acked between the looks.

    No message leaves a stream by an ack. Of other queues this is asked where the channel has this consumer
    alone: rows of queues may be older than those of channels, and then do not show yet what was acked.
    """
    at = consumer.connection, consumer.channel
    old, now = evidence.first.channels.get(at), evidence.last.channels.get(at)
    if old is None or now is None or not (of_stream or now.consumers == 1):
        return False
    return now.acks != old.acks


def given_back(evidence: Evidence, consumer: ConsumerSeen) -> int:
    """Deliveries of the consumer's channel that went back to the queue between the looks, if many did.

    The queue has got rid of nothing meanwhile. So a channel whose oldest unacked delivery is another one than
    before, and that acked nothing, has given back those in between.
    """
    at = consumer.connection, consumer.channel
    old, now = evidence.first.channels.get(at), evidence.last.channels.get(at)
    if old is None or now is None or now.acks != old.acks:
        return 0
    if not old.oldest_unacked or {row.oldest_unacked_queue for row in (old, now)} != {consumer.queue}:
        return 0
    returned = now.oldest_unacked - old.oldest_unacked
    return returned if returned >= GIVEN_BACK else 0


def poisoned(consumer: ConsumerSeen, who: str, returned: int, seconds: float) -> Finding:
    queue = consumer.queue
    return Finding(
        "messages given back again and again",
        f"{who} gives back what queue {queue!r} hands to it",
        f"{returned:,} deliveries in {seconds:.1f} s went back to the queue, and none was acked: the program "
        "rejects with requeue what it cannot handle, and gets the same messages again",
        f"flintmq peek {word(queue)} shows them; have the program reject without requeue, or {LIMITED_TRIES}",
        object_type="queue",
        object_name=queue,
    )


def retrying(evidence: Evidence) -> Iterator[Finding]:
    """Messages that fail each time, and wait for their next try."""
    for name, row in evidence.last.queues.items():
        if row.delayed < RETRYING or row.delayed_returns < RETURNS_EACH * row.delayed:
            continue
        yield Finding(
            "messages fail each retry",
            f"{row.delayed:,} messages of queue {name!r} wait for a retry",
            f"on the average each has come back {row.delayed_returns / row.delayed:.1f} times: the program "
            "rejects them, or goes away with them, whenever it gets them",
            f"look into the log of the program for why it fails; what it can never handle: {LIMITED_TRIES}",
            object_type="queue",
            object_name=name,
        )


def fetched(evidence: Evidence) -> Iterator[Finding]:
    """Messages taken by basic.get and never settled, on channels that acked nothing between the looks."""
    of_consumers: Counter[ChannelKey] = Counter()
    for row in evidence.last.consumers.values():
        of_consumers[row.connection, row.channel] += row.unacked
    for at, channel in evidence.last.channels.items():
        old = evidence.first.channels.get(at)
        taken = channel.unacked - of_consumers[at]
        if old is None or (old.unacked, old.acks) != (channel.unacked, channel.acks):
            continue  # a program that works holds as many at each look, and has acked those before
        if taken > 0 and not evidence.is_blocked(at[0]):
            who = f"channel {at[1]} of {evidence.whose(at[0])}"
            queue = channel.oldest_unacked_queue
            where = f", the oldest of queue {queue!r}," if queue and not channel.consumers else ""
            yield stuck(where, taken, who, at[0], "basic.get", evidence.seconds)


def forgotten(evidence: Evidence) -> Iterator[Finding]:
    """A message that stays unacked while its channel acks later ones."""
    for at, row in evidence.last.channels.items():
        old = evidence.first.channels.get(at)
        tag = row.oldest_unacked
        if old is None or not tag or old.oldest_unacked != tag:
            continue
        acks = row.acks - old.acks
        if acks >= FORGOTTEN_ACKS:
            yield Finding(
                "message forgotten",
                f"a message of queue {row.oldest_unacked_queue!r}, delivery tag {tag}, is held unacked by "
                f"channel {at[1]} of {evidence.whose(at[0])}",
                f"the channel acked {acks:,} others in {evidence.seconds:.1f} s, and not this one, which is "
                "the oldest",
                "look for a way through the program that neither acks nor rejects; "
                f"flintmq close {at[0]} gives the message back to the queue",
                object_type="connection",
                object_name=str(at[0]),
            )


def stuck(where: str, count: int, who: str, connection: int, how: str, seconds: float) -> Finding:
    return Finding(
        "messages stuck unacked",
        f"{count:,} messages{where} are held unacked by {who}",
        f"they were handed out to {how}, and none was acked in {seconds:.1f} s",
        "look whether the program hangs or has forgotten to ack; "
        f"flintmq close {connection} gives the messages back to the queue",
        object_type="connection",
        object_name=str(connection),
    )


def unroutable(evidence: Evidence) -> Iterator[Finding]:
    for (connection, channel), row in evidence.last.channels.items():
        if row.unrouted:
            yield Finding(
                "unroutable messages",
                f"{row.unrouted:,} messages went nowhere, of channel {channel} of "
                f"{evidence.whose(connection)}",
                "no queue is bound for the exchange and routing key that they were published with, "
                "and no alternate exchange took them",
                "compare with: flintmq bindings; publish with the flag mandatory to have them returned, or "
                "give the exchange an alternate-exchange",
                object_type="connection",
                object_name=str(connection),
            )


def dead_letters(evidence: Evidence) -> Iterator[Finding]:
    for name, death in evidence.unread_letters.items():
        count = evidence.last.queues[name].ready
        yield Finding(
            "dead letters pile up",
            f"{count:,} dead letters wait in queue {name!r}, and nobody reads them",
            f"the first of them died in queue {text(death.get('queue'))!r}: {text(death.get('reason'))}"
            f", {death.get('count', 1)} time(s)",
            f"flintmq peek {word(name)} shows them; when the cause is mended, "
            f"flintmq requeue {word(name)} has them tried again",
            object_type="queue",
            object_name=name,
            since_ms=evidence.oldest_ms(evidence.last.queues[name]) or None,
        )


def loops(evidence: Evidence) -> Iterator[Finding]:
    """Messages that a consumer rejects, and that their dead letter exchange brings back."""
    for name, death in evidence.first_deaths(has_consumers=True).items():
        count = death.get("count", 1)
        if isinstance(count, int) and count >= LOOP_DEATHS:
            yield Finding(
                "dead letters go round",
                f"the first message of queue {name!r} has died {count:,} times",
                f"it died in queue {text(death.get('queue'))!r} ({text(death.get('reason'))}), and each time "
                "its dead letter exchange brought it back",
                f"flintmq peek {word(name)} shows it; have the consumer put aside what it cannot do, or lead "
                "the dead letters to a queue that nobody rejects from",
                object_type="queue",
                object_name=name,
            )


def lost_letters(evidence: Evidence) -> Iterator[Finding]:
    """Queues whose dead letters go to an exchange that is not there."""
    for exchange, names in evidence.queues_by_missing_exchange.items():
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        yield Finding(
            "dead letters are lost",
            f"queue {names[0]!r}{more} would send dead letters to exchange {exchange!r}",
            "there is no such exchange: what expires, is rejected or overflows is dropped",
            f"flintmq declare exchange {word(exchange)} fanout, and bind a queue to it",
            is_urgent=True,
            object_type="queue",
            object_name=names[0],
        )


def word(name: str) -> str:
    """A name as a shell takes it for one word."""
    return "'" + name.replace("'", "'\"'\"'") + "'"


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


def log_file(evidence: Evidence) -> Iterator[Finding]:
    if why := evidence.last.info.get("log-fault"):
        yield Finding(
            "log is not in its file",
            why,
            "SIGHUP was to open the file of [log] again; the log goes on in the one that was open before",
            "make the directory of the file, or the room or permission that it lacks, and send SIGHUP again",
            is_urgent=True,
        )


def default_password(evidence: Evidence) -> Iterator[Finding]:
    if evidence.guest_from:
        yield Finding(
            "default password",
            f"user 'guest' gets in with the password 'guest' from {evidence.guest_from}",
            "it is the password that every broker begins with",
            "flintmq users add NAME --tags administrator --all-permissions, then as that user: "
            "flintmq users delete guest",
            is_urgent=evidence.guest_from != THIS_MACHINE,
        )


def clocks(evidence: Evidence) -> Iterator[Finding]:
    look = evidence.last
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
    if "disk-bytes" in evidence.last.info:
        return
    if durable := [name for name, row in evidence.last.queues.items() if row.durable]:
        yield Finding(
            "durable queues in memory",
            f"{len(durable):,} durable queues, such as {durable[0]!r}, are lost when the broker ends",
            "the broker runs without a data directory",
            "start it with --data DIR, or set directory in [storage]",
        )


def stopped_flow(evidence: Evidence) -> Iterator[Finding]:
    for (connection, channel), row in evidence.last.channels.items():
        if not row.flowing and row.consumers:
            yield Finding(
                "consumer has stopped the flow",
                f"channel {channel} of {evidence.whose(connection)} gets no deliveries",
                "the client has sent channel.flow with active=false",
                f"the client has to send it again with active=true; or: flintmq close {connection}",
                object_type="connection",
                object_name=str(connection),
            )


Check = Callable[[Evidence], Iterator[Finding]]
# Of the whole broker, and of each virtual host.
BROKER_CHECKS: tuple[Check, ...] = (
    memory,
    disk,
    connections,
    certificate,
    log_file,
    default_password,
    clocks,
)
HOST_CHECKS: tuple[Check, ...] = (
    blocked,
    growth,
    abandoned,
    slow_consumers,
    unacked,
    retrying,
    forgotten,
    unroutable,
    dead_letters,
    loops,
    lost_letters,
    memory_only,
    stopped_flow,
)
CHECKS = BROKER_CHECKS + HOST_CHECKS
