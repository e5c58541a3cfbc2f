"""Limits of virtual hosts and of users, changed at run time: connections, channels, queues, messages.

They come on top of the limits of the settings. What is there when a limit is set stays. Connections that are
open hear of new limits of their messages in portions, soon.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from flintmq.broker.administration import records
from flintmq.broker.administration.faults import missing, unfit
from flintmq.broker.administration.publish_rate import PublishRate
from flintmq.broker.channels.client_connection import count_up
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.auth.user import User
    from flintmq.broker.administration.records import FoundRecords, Records
    from flintmq.broker.administration.users import AdministeredUsers
    from flintmq.broker.channels.client_connection import Connections
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.administration")

HOST = "virtual-host"
USER = "user"
CONNECTIONS = "max-connections"
CHANNELS = "max-channels"
QUEUES = "max-queues"
MESSAGE_SIZE = "max-message-size"  # octets of a body
PUBLISH_RATE = "max-publish-rate"  # messages in a second
# What there is a limit of, in a virtual host and for a user.
NAMES = (CONNECTIONS, CHANNELS, QUEUES, MESSAGE_SIZE, PUBLISH_RATE)
# Those that each connection knows for itself.
OF_MESSAGES = (MESSAGE_SIZE, PUBLISH_RATE)
LIMIT_MAX = 2**31 - 1
UNLIMITED = -1  # as RabbitMQ has it
# Connections that one step tells of new limits: half a microsecond each.
TOLD_AT_ONCE = 256

Owner = tuple[str, str]  # HOST or USER, and the name


class AdministeredLimits:
    """By virtual host or user: the limits that were set."""

    def __init__(
        self,
        accounts: AdministeredUsers,
        clients: Connections,
        written: Records,
        host_named: Callable[[str], VirtualHost],
        begin_chore: Callable[[Chore], None],
    ) -> None:
        self.accounts = accounts
        self.clients = clients
        self.records = written
        self.host_named = host_named
        self.begin_chore = begin_chore
        self.of: dict[Owner, dict[str, int]] = {}
        self.rates: dict[Owner, PublishRate] = {}
        self.queues_of: dict[str, int] = {}  # by user: how many there are that the user has declared

    def check_known(self, owner: Owner, name: str, limit: int) -> None:
        """Raises unless the limit can be set."""
        kind, owner_name = owner
        if kind == HOST:
            self.host_named(owner_name)
        else:
            self.accounts.find(owner_name)
        check_range(name, limit)

    def set(self, owner: Owner, name: str, limit: int) -> None:
        self.check_known(owner, name, limit)
        changed = {**self.of.get(owner, {}), name: limit}
        self.put(owner, changed)
        self.of[owner] = changed
        self.changed(owner, name)

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
        self.changed(owner, name)

    def lift(self, owner: Owner, name: str) -> None:
        """There is no such limit from now on, whether there was one or not."""
        self.check_known(owner, name, 0)
        if name in self.of.get(owner, {}):
            self.clear(owner, name)

    def changed(self, owner: Owner, name: str) -> None:
        """Connections that are open keep limits of messages by themselves: they are told."""
        if name == PUBLISH_RATE:
            rate = self.of.get(owner, {}).get(name)
            if rate is None:
                self.rates.pop(owner, None)
            else:
                self.rates[owner] = PublishRate(rate)
        if name in OF_MESSAGES:
            self.begin_chore(self.told(owner))

    def told(self, owner: Owner) -> Iterator[None]:
        kind, name = owner
        host = self.host_named(name) if kind == HOST else None
        clients = self.clients.of_user(name) if host is None else self.clients.of_host(host)
        for at, client in enumerate(clients, 1):
            client.peer.limit_messages()
            if at % TOLD_AT_ONCE == 0:
                yield

    def put(self, owner: Owner, limits: dict[str, int]) -> None:
        life = self.accounts.life_of(owner[1]) if owner[0] == USER else 0
        self.records.put(records.LIMITS, identity_of(owner), {**limits, "life": life})

    def keep(self, owner: Owner) -> None:
        """The settings have taken the user over: what limits it limits theirs."""
        if owner in self.of:
            self.put(owner, self.of[owner])

    def set_aside(self, owner: Owner) -> None:
        """The settings name the user no longer: the journal keeps its limits until they do again."""
        self.rates.pop(owner, None)
        self.of.pop(owner, None)

    def forget(self, owner: Owner) -> None:
        if owner in self.of:
            self.records.delete(records.LIMITS, identity_of(owner))
            self.set_aside(owner)

    def forget_user(self, name: str) -> Iterator[None]:
        """The user is gone; a new one of that name may have been given limits meanwhile."""
        owner = (USER, name)
        return self.records.forget(records.LIMITS, [identity_of(owner)], lambda _: owner in self.of)

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
        if self.of:
            self.check(CHANNELS, (USER, user.name), self.clients.channels_of_user.get(user.name, 0))
            self.check(CHANNELS, (HOST, host.name), self.clients.channels_of_host.get(host, 0))

    def check_queue(self, user: str) -> None:
        """Raises 406 if the user would have declared one queue too many, in all virtual hosts together."""
        limit = self.of.get((USER, user), {}).get(QUEUES)
        if limit is not None and self.queues_of.get(user, 0) >= limit:
            text = f"queue limit of user '{user}' ({limit}) is reached ({QUEUES})"
            raise ChannelFault(amqp.PRECONDITION_FAILED, text)

    def count_queue(self, user: str, more: int) -> None:
        """The user has declared a queue, or one of the user's was deleted."""
        count_up(self.queues_of, user, more)

    def message_bytes_max(self, user: str, virtual_host: str, otherwise: int) -> int:
        """How large a message may be, where the settings allow so much."""
        if not self.of:
            return otherwise
        for owner in ((USER, user), (HOST, virtual_host)):
            otherwise = min(otherwise, self.of.get(owner, {}).get(MESSAGE_SIZE, otherwise))
        return otherwise

    def rates_of(self, user: str, virtual_host: str) -> tuple[PublishRate, ...]:
        """What counts the messages that the user publishes there; nearly always nothing does."""
        if not self.rates:
            return ()
        found = [self.rates.get(owner) for owner in ((USER, user), (HOST, virtual_host))]
        return tuple([rate for rate in found if rate is not None])

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
            if not isinstance(kind, str) or kind not in (HOST, USER) or not isinstance(name, str):
                log.error("limits of the journal are left out: the record of them is not well formed")
                continue
            limits = {each: most for each in NAMES if isinstance(most := value.get(each), int)}
            if kind == HOST or value.get("life", 0) == self.accounts.life_of(name):
                if kind == HOST or self.accounts.users.get(name) is not None:
                    self.of[kind, name] = limits
            elif self.accounts.is_taken_over(name, value):
                self.put((kind, name), limits)
                self.of[kind, name] = limits
            else:
                self.records.delete(records.LIMITS, identity)
        for owner, limits in self.of.items():
            if PUBLISH_RATE in limits:
                self.rates[owner] = PublishRate(limits[PUBLISH_RATE])


def check_range(name: str, limit: int) -> None:
    """Raises unless there is such a limit, and it may be so high."""
    if name not in NAMES:
        raise unfit(f"limit '{name}': expected one of {', '.join(NAMES)}")
    least = 1 if name == PUBLISH_RATE else 0  # who may publish nothing has no permission to
    if not least <= limit <= LIMIT_MAX:
        raise unfit(f"{name}: expected a whole number from {least} to {LIMIT_MAX}")


def identity_of(owner: Owner) -> FieldTable:
    return {"kind": owner[0], "name": owner[1]}
