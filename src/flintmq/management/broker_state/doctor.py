"""What is wrong with the broker: the checks of `flintmq doctor`, on what this process knows anyway.

Two looks are compared. The first is a reference to rows of an earlier snapshot, the second is what snapshots
have now: the broker is asked for little more, the first messages of the longest queues. A snapshot that takes
long is taken seldom: looks are told apart by the times at which their snapshots were taken. A program that
works on a message for ten seconds is not told as stuck: looks are further apart than those of the command.
What was found is told again for some seconds, however many ask, and for longer where it takes long.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import marshal
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flintmq.clock import Clock
from flintmq.diagnosis import TROUBLE
from flintmq.diagnosis.checks import BROKER_CHECKS, CHECKS, HOST_CHECKS, Finding, placed
from flintmq.diagnosis.evidence import ELSEWHERE, THIS_MACHINE, Evidence, Head, Look, death_in
from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.broker_link import BrokerLink, unless_gone
from flintmq.management.broker_state.client_watch import Past
from flintmq.management.broker_state.queue_policies import QueuePolicies
from flintmq.management.broker_state.samples import Samples, Totals
from flintmq.management.broker_state.snapshots import Snapshots
from flintmq.snapshot_rows import ChannelRow, ConsumerRow, QueueRow

# A first look is at least so much older than the last one.
APART_S = 10.0
# What was found is told again for so long, or for so many times as long as it took, but no longer than that.
FRESH_S = 5.0
SELDOM = 10
FRESH_S_MAX = 20.0
# One that takes longer is made while the last one is told.
QUICK_S = 0.3
# Virtual hosts that are looked at, those with the most messages first.
HOSTS_MAX = 200
# Queues that are looked into, of all virtual hosts: each a message read from memory or disk.
PEEKED_MAX = 100
# Findings of one kind that are told; the rest is counted.
TOLD_MAX = 10
# The URL of the command says this one unless it names another.
DEFAULT_HOST = "/"

LETTERS, LIFETIME = b"x-dead-letter-exchange", b"x-message-ttl"

log = logging.getLogger("flintmq.management")


@dataclass(frozen=True)
class Diagnosis:
    """What one examination has found."""

    time_s: float
    took_s: float
    seconds: float  # between the looks; 0 while there is one
    hosts: int
    hosts_unseen: int
    findings: list[Finding]


class Doctor:
    """One for the process."""

    def __init__(
        self,
        link: BrokerLink,
        snapshots: Snapshots,
        samples: Samples,
        queue_policies: Callable[[str], Awaitable[QueuePolicies]],
        clock: Clock,
    ) -> None:
        self.link = link
        self.snapshots = snapshots
        self.samples = samples
        self.queue_policies = queue_policies
        self.clock = clock
        # Rows of earlier snapshots.
        self.queues: dict[str, Past[QueueRow]] = {}  # by virtual host
        self.channels: Past[ChannelRow] = Past(APART_S)
        self.consumers: Past[ConsumerRow] = Past(APART_S)
        self.latest: Diagnosis | None = None
        self.examining: asyncio.Task[Diagnosis] | None = None
        self.changes = 0  # over HTTP
        # What the broker has said of the default password, and for which login of its user.
        self.guest_login, self.guest_gets_in = "", False
        # When each finding that there is was seen first.
        self.seen_s: dict[tuple[str | None, ...], float] = {}

    async def watch(self) -> None:
        """Notes for ever what snapshots have."""
        while True:
            self.note()
            await asyncio.sleep(APART_S)

    def note(self) -> None:
        snapshots = self.snapshots
        hosts = {host: snapshot for (kind, host), snapshot in snapshots.of_hosts.items() if kind == "queues"}
        self.queues = {host: self.queues.get(host) or Past(APART_S) for host in hosts}
        for host, snapshot in hosts.items():
            self.queues[host].add(snapshot.taken_s, snapshot.rows)
        # Rows of clients that hold nothing have nothing to tell later.
        channels = {key: row for key, row in snapshots.channels.rows.items() if row.unacked}
        self.channels.add(snapshots.channels.taken_s, channels)
        consumers = {key: row for key, row in snapshots.consumers.rows.items() if row.unacked}
        self.consumers.add(snapshots.consumers.taken_s, consumers)

    async def current(self) -> Diagnosis:
        """What is wrong, now or some seconds ago."""
        latest = self.latest
        if latest is not None:
            fresh_s = min(max(FRESH_S, SELDOM * latest.took_s), FRESH_S_MAX)
            if self.clock.monotonic_s() - latest.time_s < fresh_s:
                return latest
        if self.examining is None or self.examining.done():
            self.examining = asyncio.get_running_loop().create_task(self.examine())
            self.examining.add_done_callback(self.examined)
        if latest is not None and latest.took_s > QUICK_S:
            return latest
        return await asyncio.shield(self.examining)

    def examined(self, examining: asyncio.Task[Diagnosis]) -> None:
        """An examination that nobody waits for may have failed: whoever asks next waits for a new one, and is
        told if that fails too."""
        if not examining.cancelled() and (error := examining.exception()) is not None:
            log.error("the broker could not be examined: %s", error)
            self.latest = None

    def forget(self) -> None:
        """Something was changed over HTTP: whoever asks next is to hear of it."""
        self.latest = None
        self.examining = None
        self.changes += 1

    async def examine(self) -> Diagnosis:
        began_s, changes = self.clock.monotonic_s(), self.changes
        totals = await self.samples.current()
        busy = sorted(
            (name for name, counts in totals.hosts.items() if counts["queues"] or counts["connections"]),
            key=lambda name: -totals.hosts[name]["ready"],
        )
        evidences = await self.gathered(totals, busy[:HOSTS_MAX])
        of_broker = self.of_broker(totals, evidences)
        of_broker.guest_from = await self.place_of_guest()
        findings = await asyncio.to_thread(found_in, of_broker, evidences)
        now_s = self.clock.monotonic_s()
        self.remember(findings, now_s)
        seconds = evidences[0].seconds if evidences else 0.0
        unseen = len(busy[HOSTS_MAX:])
        found = Diagnosis(now_s, now_s - began_s, seconds, len(evidences), unseen, findings)
        if changes == self.changes:
            self.latest = found
        return found

    def remember(self, findings: Iterable[Finding], now_s: float) -> None:
        before = self.seen_s
        self.seen_s = {identity_of(each): before.get(identity_of(each), now_s) for each in findings}

    # Evidence

    async def gathered(self, totals: Totals, hosts: list[str]) -> list[Evidence]:
        """The evidence of each virtual host."""
        snapshots = self.snapshots
        connections = by_host(await snapshots.connections.current())
        channels = by_host(await snapshots.channels.current())
        channels_before = self.channels.before(snapshots.channels.taken_s)
        consumers = by_host(await snapshots.consumers.current())
        consumers_before = self.consumers.before(snapshots.consumers.taken_s)
        info, wall_ms = self.told(totals)
        found: list[Evidence] = []
        for host in hosts:
            with unless_gone():
                snapshot = snapshots.queues(host)
                queues: Any = await snapshot.current()
                queues_before = self.queues[host].before(snapshot.taken_s) if host in self.queues else None
                clients = (each.get(host, {}) for each in (connections, channels, consumers))
                evidence = Evidence(host, Look(info, wall_ms), Look(info, wall_ms, queues, *clients), 0.0)
                if queues_before and channels_before and consumers_before:
                    evidence.first = first_look(
                        evidence.last, queues_before, channels_before, consumers_before
                    )
                    evidence.seconds = queues_before[0]
                await asyncio.to_thread(study_queues, evidence, await self.queue_policies(host))
                if wanted := evidence.exchanges_to_find():
                    known = await snapshots.exchanges(host).current()
                    evidence.missing_exchanges = {name for name in wanted if name not in known}
                found.append(evidence)
        await self.look_into(found)
        return found

    def told(self, totals: Totals) -> tuple[dict[str, Any], int]:
        """What broker.info would say, and the time on the wall when it did."""
        age_s = self.clock.monotonic_s() - totals.time_s
        info = {**totals.broker, "now-ms": totals.broker["now_ms"]}
        return info, self.clock.wall_ms() - round(1000 * age_s)

    async def look_into(self, evidences: list[Evidence]) -> None:
        """Asks for the first messages of the longest queues, with consumers and without."""
        chosen: dict[int, list[str]] = {}
        for kind in (0, 1):  # with consumers, without
            longest = [
                (-evidence.last.queues[name].ready, at, name)
                for at, evidence in enumerate(evidences)
                for name in evidence.longest[kind]
            ]
            for _, at, name in heapq.nsmallest(PEEKED_MAX, longest):
                chosen.setdefault(at, []).append(name)
        for at, names in chosen.items():
            evidence = evidences[at]
            arguments: dict[str, Any] = {"virtual-host": evidence.virtual_host, "queues": names}
            with unless_gone():
                reply = await self.link.ask("management.queue-heads", arguments)
                evidence.heads = {
                    name: Head(arrived_ms, death_in(shapes.wire_table(headers)), lifetime_ms >= 0)
                    for name, arrived_ms, lifetime_ms, headers in marshal.loads(reply.body)
                }

    async def place_of_guest(self) -> str:
        """From where guest gets in with the password guest. The broker hashes it once for each change."""
        reply = await self.link.ask("management.default-password", {"known": self.guest_login})
        if "in-force" in reply.results:
            self.guest_gets_in = bool(reply.results["in-force"])
        self.guest_login = str(reply.results["login"])
        if not self.guest_gets_in:
            return ""
        return THIS_MACHINE if reply.results["loopback-only"] else ELSEWHERE

    def of_broker(self, totals: Totals, evidences: list[Evidence]) -> Evidence:
        """The evidence of the whole broker: its longest queues, and all connections."""
        info, wall_ms = self.told(totals)
        look = Look(info, wall_ms)
        look.queues = {name: each.last.queues[name] for each in evidences for name in each.to_peek(3)}
        look.connections = {
            number: row for each in evidences for number, row in each.last.connections.items()
        }
        return Evidence("", look, look, 0.0)

    # Telling

    def shown(self, diagnosis: Diagnosis) -> dict[str, Any]:
        """As JSON has it."""
        now_ms, now_s = self.clock.wall_ms(), self.clock.monotonic_s()

        def moment(time_s: float) -> int:
            return now_ms - round(1000 * (now_s - time_s))

        counted: Counter[str] = Counter()
        told: list[dict[str, Any]] = []
        for finding in diagnosis.findings:
            counted[finding.kind] += 1
            if counted[finding.kind] <= TOLD_MAX:
                seen_s = self.seen_s.get(identity_of(finding), diagnosis.time_s)
                told.append({**asdict(finding), "first_seen_ms": moment(seen_s)})
        return {
            "status": "trouble" if diagnosis.findings else "ok",
            "exit_status": TROUBLE if diagnosis.findings else 0,
            "looked_ms": moment(diagnosis.time_s),
            "seconds": round(diagnosis.seconds, 1),
            "checks": len(CHECKS),
            "virtual_hosts": diagnosis.hosts,
            "virtual_hosts_unseen": diagnosis.hosts_unseen,
            "findings": told,
            "counts": dict(counted),
        }


def by_host(rows: Mapping[Hashable, Any]) -> dict[str, dict[Any, Any]]:
    found: dict[str, dict[Any, Any]] = {}
    for key, row in rows.items():
        found.setdefault(row.vhost, {})[key] = row
    return found


def first_look(last: Look, *before: tuple[float, Mapping[Any, Any]]) -> Look:
    """What was known of queues, channels and consumers before."""
    queues, channels, consumers = (rows for _, rows in before)
    return Look(last.info, last.wall_ms, queues, channels=channels, consumers=consumers)


def study_queues(evidence: Evidence, policies: QueuePolicies) -> None:
    """Goes through all queues of a virtual host, which may be very many."""
    queues: Any = evidence.last.queues
    evidence.letter_exchanges, evidence.timed = letters_of(queues, policies)
    _ = evidence.longest  # is remembered


def letters_of(queues: Mapping[str, QueueRow], policies: QueuePolicies) -> tuple[dict[str, str], set[str]]:
    """Queues by name: where each sends dead letters, and those with a time to live."""
    exchanges: dict[str, str] = {}
    timed: set[str] = set()
    for name, row in queues.items():
        definition = policies.of(row).definition
        arguments = (
            shapes.table(row.arguments) if LETTERS in row.arguments or LIFETIME in row.arguments else {}
        )
        exchange = arguments.get("x-dead-letter-exchange", definition.get("dead-letter-exchange"))
        if isinstance(exchange, str):
            exchanges[name] = exchange
        if "x-message-ttl" in arguments or "message-ttl" in definition:
            timed.add(name)
    return exchanges, timed


def found_in(broker: Evidence, hosts: list[Evidence]) -> list[Finding]:
    """All findings, those that are urgent first."""
    findings = [finding for check in BROKER_CHECKS for finding in check(broker)]
    for evidence in hosts:
        host = evidence.virtual_host
        for check in HOST_CHECKS:
            findings += (placed(found, host, is_own=host == DEFAULT_HOST) for found in check(evidence))
    findings.sort(key=lambda finding: not finding.is_urgent)
    return findings


def identity_of(finding: Finding) -> tuple[str | None, ...]:
    """What makes two findings of different looks the same one."""
    return finding.kind, finding.virtual_host, finding.object_type, finding.object_name
