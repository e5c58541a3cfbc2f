"""Limits of virtual hosts and of users: how many connections, channels and queues, changed at run time.

They come on top of the limits of the settings. What is there when a limit is set stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from flintmq.broker.administration import records
from flintmq.broker.administration.faults import missing, unfit
from flintmq.errors import ConnectionFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Collection

    from flintmq.auth.user import User
    from flintmq.broker.administration.accounts import Accounts
    from flintmq.broker.administration.records import FoundRecords, Records
    from flintmq.broker.channels.client_connection import ClientConnection, Connections
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.administration")

HOST = "virtual-host"
USER = "user"
CONNECTIONS = "max-connections"
CHANNELS = "max-channels"
QUEUES = "max-queues"
# What there is a limit of, in a virtual host and for a user.
NAMES = {HOST: (CONNECTIONS, CHANNELS, QUEUES), USER: (CONNECTIONS, CHANNELS)}
LIMIT_MAX = 2**31 - 1

Owner = tuple[str, str]  # HOST or USER, and the name


class AdministeredLimits:
    """By virtual host or user: the limits that were set."""

    def __init__(
        self, accounts: Accounts, clients: Connections, written: Records, require_host: Callable[[str], None]
    ) -> None:
        self.accounts = accounts
        self.clients = clients
        self.records = written
        self.require_host = require_host
        self.of: dict[Owner, dict[str, int]] = {}

    def set(self, owner: Owner, name: str, limit: int) -> None:
        kind, owner_name = owner
        if kind == HOST:
            self.require_host(owner_name)
        else:
            self.accounts.find(owner_name)
        if name not in NAMES[kind]:
            raise unfit(f"limit '{name}': expected one of {', '.join(NAMES[kind])}")
        if not 0 <= limit <= LIMIT_MAX:
            raise unfit(f"{name}: expected a whole number from 0 to {LIMIT_MAX}")
        changed = {**self.of.get(owner, {}), name: limit}
        self.put(owner, changed)
        self.of[owner] = changed

    def clear(self, owner: Owner, name: str) -> None:
        known = self.of.get(owner, {})
        if name not in known:
            raise missing(f"limit of {owner[0]} '{owner[1]}'", name)
        left = {each: limit for each, limit in known.items() if each != name}
        if left:
            self.put(owner, left)
            self.of[owner] = left
        else:
            self.forget(owner)

    def put(self, owner: Owner, limits: dict[str, int]) -> None:
        life = self.accounts.life_of(owner[1]) if owner[0] == USER else 0
        self.records.put(records.LIMITS, identity_of(owner), {**limits, "life": life})

    def forget(self, owner: Owner) -> None:
        if self.of.pop(owner, None) is not None:
            self.records.delete(records.LIMITS, identity_of(owner))

    def forget_host(self, virtual_host: str) -> Iterator[None]:
        self.forget((HOST, virtual_host))
        yield

    # What they refuse

    def check_connection(self, user: User, host: VirtualHost) -> None:
        """Raises 530 if the connection would be one too many."""
        if self.of:
            self.check(CONNECTIONS, (USER, user.name), len(self.clients.by_user.get(user.name, ())))
            self.check(CONNECTIONS, (HOST, host.name), len(self.clients.by_host.get(host, ())))

    def check_channel(self, user: User, host: VirtualHost) -> None:
        """Raises 530 if the channel would be one too many."""
        if not self.of:
            return
        for owner, those in (
            ((USER, user.name), self.clients.by_user.get(user.name, {})),
            ((HOST, host.name), self.clients.by_host.get(host, {})),
        ):
            if CHANNELS in self.of.get(owner, {}):
                self.check(CHANNELS, owner, channels_of(those.values()))

    def check(self, name: str, owner: Owner, count: int) -> None:
        limit = self.of.get(owner, {}).get(name)
        if limit is not None and count >= limit:
            what = name.removeprefix("max-")
            raise ConnectionFault(
                amqp.NOT_ALLOWED, f"limit of {what} ({limit}) of {owner[0]} '{owner[1]}' is reached"
            )

    def queues_max(self, virtual_host: str, otherwise: int) -> int:
        """How many queues a virtual host may have, where the settings allow so many."""
        return min(otherwise, self.of.get((HOST, virtual_host), {}).get(QUEUES, otherwise))

    # Recovery

    def restore(self, found: FoundRecords) -> None:
        """After the users. Those of a user that was deleted leave the journal."""
        for identity, value in found.of(records.LIMITS):
            kind, name = identity.get("kind"), identity.get("name")
            if not isinstance(kind, str) or kind not in NAMES or not isinstance(name, str):
                log.error("limits of the journal are left out: the record of them is not well formed")
            elif kind == USER and value.get("life", 0) != self.accounts.life_of(name):
                self.records.delete(records.LIMITS, identity)
            else:
                limits = {each: value.get(each) for each in NAMES[kind]}
                self.of[kind, name] = {each: most for each, most in limits.items() if isinstance(most, int)}


def identity_of(owner: Owner) -> FieldTable:
    return {"kind": owner[0], "name": owner[1]}


def channels_of(clients: Collection[ClientConnection]) -> int:
    return sum([len(client.channels) for client in clients])
