"""The one model of administration, behind every way to ask for it.

    services over AMQP --+
    HTTP ----------------+--> Administration --> users, virtual hosts ... --> journal
    the command line ----+                  \\-> live connections

A change is checked, written and in force when the call returns. What is left to do afterwards, such as
closing the connections of a user that was deleted, is done in portions (queues/chores.py). Who may ask for
what is checked before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING

from flintmq.auth.passwords import PasswordHash, hash_password
from flintmq.broker.administration.accounts import Accounts
from flintmq.broker.administration.grants import Grants
from flintmq.broker.administration.limits import USER, AdministeredLimits
from flintmq.broker.administration.parameters import Parameters
from flintmq.broker.administration.records import FoundRecords, Records
from flintmq.broker.administration.topic_grants import TopicGrants
from flintmq.broker.administration.virtual_hosts import VirtualHosts
from flintmq.errors import ConnectionFault, ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.auth.user import User
    from flintmq.broker.broker import Broker
    from flintmq.broker.channels.client_connection import ClientConnection
    from flintmq.broker.queues.chores import Chore, Wait
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.config import Config

log = logging.getLogger("flintmq.administration")

# Connections that one step closes: some 50 microseconds each, with a few channels.
CLOSED_AT_ONCE = 8
# Whoever has asked for the end of the own connection hears the answer before.
ASKER_MS = 1

# Makes a hash and calls back with it, or with None where that failed.
Hashing = Callable[[bytes, Callable[[PasswordHash | None], None]], None]


def hash_at_once(password: bytes, done: Callable[[PasswordHash | None], None]) -> None:
    done(hash_password(password))


class Administration:
    """What administrators of one broker may change."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.records = Records(broker.store)
        self.accounts = Accounts(broker.config, broker.users, self.records, broker.clock)
        self.virtual_hosts = VirtualHosts(broker, self.records, self.host_closed, self.host_forgotten)
        self.grants = Grants(self.accounts, self.records, self.virtual_hosts.require, self.rights_changed)
        self.topic_grants = TopicGrants(
            self.accounts, self.grants, self.records, self.virtual_hosts.require, self.rights_changed
        )
        self.limits = AdministeredLimits(
            self.accounts, broker.clients, self.records, self.virtual_hosts.require
        )
        self.parameters = Parameters(self.records, self.virtual_hosts.require)
        self.policies = broker.policies
        # A hash takes tens of milliseconds: a server has another thread make it.
        self.hashing: Hashing = hash_at_once

    def restore(self, found: FoundRecords) -> None:
        """What recovery has found, before there are queues; `resume` comes behind them."""
        self.virtual_hosts.restore(found)
        self.accounts.restore(found)
        self.grants.restore(found)
        self.topic_grants.restore(found)
        self.limits.restore(found)
        self.parameters.restore(found)

    def resume(self) -> None:
        """Goes on with what the last life has not finished."""
        self.virtual_hosts.resume()

    def rights_changed(self, virtual_host: str) -> None:
        """What channels have found out about permissions there may be wrong now."""
        host = self.broker.virtual_hosts.get(virtual_host)
        if host is not None:
            host.router.rights_changed()

    def reconfigure(self, old: Config, new: Config, users: Mapping[str, User]) -> None:
        """The settings have changed: `users` are those that they name now."""
        self.accounts.config = new
        for name in old.users.keys() - new.users.keys():
            if not self.accounts.life_of(name) and self.accounts.users.get(name) is not None:
                self.drop_user(name, f"user '{name}' is no longer in the settings", 0)
        for name, given in new.users.items():
            if old.users.get(name) != given:
                self.grants.keep_others(old, users[name])
                self.accounts.lives.pop(name, None)
                self.accounts.users.put(users[name])
                for virtual_host in self.broker.virtual_hosts:
                    self.rights_changed(virtual_host)

    # Users

    def delete_user(self, name: str, asker: int = 0) -> None:
        """Takes the user away, with its permissions; its connections are closed, that of the asker last."""
        user = self.accounts.find(name)
        virtual_hosts, places = list(user.permissions), list(user.topic_permissions)
        self.accounts.forget(name)
        log.info("user %r was deleted", name)
        self.limits.forget((USER, name))
        self.drop_user(name, f"user '{name}' was deleted", asker)
        self.broker.pass_work.chores.begin(self.grants.forget_user(name, virtual_hosts))
        self.broker.pass_work.chores.begin(self.topic_grants.forget_user(name, places))

    def drop_user(self, name: str, why: str, asker: int) -> None:
        """The user may do nothing from now on, whatever the journal says."""
        virtual_hosts = list(self.accounts.find(name).permissions)
        self.accounts.users.delete(name)
        for virtual_host in virtual_hosts:
            self.rights_changed(virtual_host)
        clients = self.broker.clients.of_user(name)
        self.broker.pass_work.chores.begin(self.closed(clients, why, asker))

    # Virtual hosts

    def host_closed(self, host: VirtualHost, asker: int) -> Chore:
        """Closes the connections of a virtual host that was deleted."""
        why = f"virtual host '{host.name}' was deleted"
        yield from self.closed(self.broker.clients.of_host(host), why, asker)

    def host_forgotten(self, host: VirtualHost) -> Chore:
        """What was administered for a virtual host that was deleted."""
        yield from self.grants.forget_host(host.name)
        yield from self.topic_grants.forget_host(host.name)
        yield from self.limits.forget_host(host.name)
        yield from self.policies.forget_host(host)
        yield from self.parameters.forget_host(host.name)

    # Connections

    def closed(self, clients: Iterable[ClientConnection], why: str, asker: int) -> Chore:
        """Closes the connections with 320."""
        last: ClientConnection | None = None
        for at, client in enumerate(clients, 1):
            if client.number == asker:
                last = client
            else:
                self.close(client, why)
            if at % CLOSED_AT_ONCE == 0:
                yield None
        if last is not None:
            yield self.answered()
            self.close(last, why)

    def close(self, client: ClientConnection, why: str) -> None:
        try:
            client.close(ConnectionFault(amqp.CONNECTION_FORCED, why))
        except Exception:  # the others are to be closed all the same
            log.exception("a bug leaves connection %d open", client.number)

    def answered(self) -> Wait:
        """What a chore waits for to let an answer leave."""
        timetable = self.broker.timetable

        def wait(go_on: Callable[[], None]) -> None:
            timetable.at(timetable.now_ms() + ASKER_MS, go_on)

        return wait

    def hashed(self, password: bytes) -> Generator[Wait, None, PasswordHash]:
        """For a chore that waits for the hash of a password: `hash = yield from hashed(...)`."""
        made: list[PasswordHash | None] = []

        def wait(go_on: Callable[[], None]) -> None:
            def done(found: PasswordHash | None) -> None:
                made.append(found)
                go_on()

            self.hashing(password, done)

        yield wait
        found = made[0]
        if found is None:
            raise ServiceFault(amqp.INTERNAL_ERROR, "the password could not be hashed")
        return found
