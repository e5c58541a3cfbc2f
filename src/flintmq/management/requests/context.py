"""What all requests share: the way to the broker, snapshots, samples, logins, and who this node is."""

from __future__ import annotations

import asyncio
import platform
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from flintmq.clock import Clock
from flintmq.management.broker_state.broker_link import BrokerLink, unless_gone
from flintmq.management.broker_state.client_watch import ClientWatch
from flintmq.management.broker_state.doctor import Doctor
from flintmq.management.broker_state.queue_history import QueueHistory
from flintmq.management.broker_state.queue_policies import PolicyRow, QueuePolicies
from flintmq.management.broker_state.samples import Samples
from flintmq.management.broker_state.snapshots import Snapshots
from flintmq.management.requests.bodies import Bodies
from flintmq.management.requests.identities import Identities

# Policies are asked for anew when they are older than this.
POLICIES_S = 1.0
# Tables of arguments of which it is known what they are sorted by: some 200 octets each.
ORDERS_MAX = 200_000
# Queues of which is known since when nothing has happened in them.
IDLE_MAX = 200_000

Found = TypeVar("Found")


@dataclass(frozen=True)
class Listening:
    """Where the broker and this process listen."""

    amqp: list[dict[str, Any]]
    http: list[dict[str, Any]]


class ArgumentOrders:
    """What tables of arguments are sorted by in the column that was asked for last: where each queue has a
    table of its own, to decode all of them takes as long as a page may take."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.known: dict[bytes, Any] = {}

    def of(self, path: list[str]) -> dict[bytes, Any]:
        """By the octets of the table. A request that still uses what it was given before keeps that."""
        if path != self.path or len(self.known) >= ORDERS_MAX:
            self.path, self.known = path, {}
        return self.known


class Context:
    """One for the process."""

    def __init__(self, link: BrokerLink, listening: Listening, pipelines: Path | None = None) -> None:
        self.link = link
        self.pipelines = pipelines  # where pipelines tell how they do, if that is known
        self.clock = Clock()
        self.listening = listening
        self.snapshots = Snapshots(link, self.clock)
        self.samples = Samples(link, self.clock)
        self.queue_history = QueueHistory(self.snapshots, self.hosts, self.clock)
        self.client_watch = ClientWatch(link, self.snapshots, self.hosts, self.clock)
        self.doctor = Doctor(link, self.snapshots, self.samples, self.queue_policies, self.clock)
        self.identities = Identities(link, self.clock)
        self.bodies = Bodies()
        self.argument_orders = ArgumentOrders()
        self.log_file: str | None = None
        self.audit_file: str | None = None
        self.reading = asyncio.Lock()  # of logs
        self.host = socket.gethostname() or platform.node() or "localhost"
        self.node = f"flintmq@{self.host}"
        self.is_secure = any(each.get("protocol") == "https" for each in listening.http)
        self.changes = 0  # over HTTP
        # By virtual host and whether they are those of operators: how many changes there had been, and when.
        self._policies: dict[tuple[str, bool], tuple[int, float, list[PolicyRow]]] = {}
        self._queue_policies: dict[str, QueuePolicies] = {}  # by virtual host
        self._idle: dict[tuple[str, str], tuple[Any, str]] = {}
        self._filters: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def changed(self, of_messages: bool = False) -> None:
        """Something was changed over HTTP. What takes long to find out is told of messages as it was: they
        change all the time, and who publishes over HTTP must not have the broker count 100,000 queues."""
        self.snapshots.changed(of_messages)
        if not of_messages or not self.samples.took_s:
            self.samples.forget()
        if not of_messages:
            self.identities.forget()
            self.doctor.forget()
            self.changes += 1

    def filter_of(self, user: str) -> asyncio.Lock:
        """Held while a pattern is searched for in names: each user has one such search at a time."""
        return self._filters.setdefault(user, asyncio.Lock())

    async def hosts(self) -> list[str]:
        """The names of all virtual hosts."""
        return list(await self.described_hosts())

    async def described_hosts(self) -> dict[str, dict[str, Any]]:
        """All virtual hosts by name: the rows of vhost.list."""
        rows = await self.rows("vhost.list")
        found = {row["virtual-host"]: row for row in rows if row["state"] == "running"}
        self.forget_others(frozenset(found))
        return found

    async def of_hosts(
        self, is_wanted: Callable[[str], bool], one: Callable[[str], Awaitable[Found]]
    ) -> list[Found]:
        """What `one` finds in each virtual host that is wanted. One that is deleted meanwhile is left out."""
        found: list[Found] = []
        for host in await self.hosts():
            if is_wanted(host):
                with unless_gone():
                    found.append(await one(host))
        return found

    def forget_others(self, hosts: frozenset[str]) -> None:
        """Forgets what is known of all but these virtual hosts."""
        self.snapshots.forget_hosts(hosts)
        for gone in self._queue_policies.keys() - hosts:
            del self._queue_policies[gone]
        for key in [key for key in self._policies if key[0] not in hosts]:
            del self._policies[key]

    async def rows(self, service: str, arguments: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """All rows of a list service, page after page, for the process itself."""
        given: dict[str, Any] = {"limit": 1000, **(arguments or {})}
        found: list[dict[str, Any]] = []
        while True:
            results: Any = (await self.link.ask(service, given)).results
            found += results["rows"]
            if "next" not in results:
                return found
            given["after"] = results["next"]

    async def policies(self, virtual_host: str, is_operator: bool) -> list[PolicyRow]:
        """Those of a virtual host, the one that counts most first."""
        changes, now_s = self.changes, self.clock.monotonic_s()
        known = self._policies.get((virtual_host, is_operator))
        if known is not None and known[0] == changes and now_s - known[1] < POLICIES_S:
            return known[2]
        service = "operator-policy.list" if is_operator else "policy.list"
        rows = await self.rows(service, {"virtual-host": virtual_host})
        rows.sort(key=lambda row: (-row["priority"], row["name"]))
        if known is not None and [policy.row for policy in known[2]] == rows:
            found = known[2]  # the very same list: what was found out with it holds
        else:
            found = [PolicyRow(row) for row in rows]
        self._policies[virtual_host, is_operator] = (changes, now_s, found)
        return found

    async def queue_policies(self, virtual_host: str) -> QueuePolicies:
        """Which policies hold for the queues of a virtual host."""
        policies = await self.policies(virtual_host, False)
        operator_policies = await self.policies(virtual_host, True)
        known = self._queue_policies.get(virtual_host)
        if (
            known is None
            or known.policies is not policies
            or known.operator_policies is not operator_policies
        ):
            known = self._queue_policies[virtual_host] = QueuePolicies(policies, operator_policies)
        return known

    def idle_since(self, virtual_host: str, name: str, signature: Any, now_ms: int) -> str | None:
        """Since when a queue looks as it does; None when it did otherwise the last time."""
        known = self._idle.get((virtual_host, name))
        if known is not None and known[0] == signature:
            return known[1]
        if len(self._idle) >= IDLE_MAX:
            self._idle.clear()
        self._idle[virtual_host, name] = (signature, written(now_ms))
        return None

    def known_idle(self, virtual_host: str, name: str) -> str:
        known = self._idle.get((virtual_host, name))
        return "" if known is None else known[1]


def written(time_ms: int) -> str:
    """As RabbitMQ writes times: 2026-01-31 12:00:00, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
