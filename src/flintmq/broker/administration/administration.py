"""The one model of administration, behind every way to ask for it.

    services over AMQP --+
    HTTP ----------------+--> Administration --> users, virtual hosts ... --> journal
    the command line ----+                  \\-> live connections

A change is checked, written and in force when the call returns. What is left to do afterwards, such as
closing the connections of a user that was deleted, is done in portions (scheduling/chores.py). Who may ask
for what is checked before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from flintmq.auth.passwords import PasswordHash
from flintmq.broker.administration.administrator_access import AdministratorAccess
from flintmq.broker.administration.changes import Changes
from flintmq.broker.administration.limits import USER, AdministeredLimits
from flintmq.broker.administration.parameters import Parameters
from flintmq.broker.administration.permissions import AdministeredPermissions
from flintmq.broker.administration.records import FoundRecords, Records
from flintmq.broker.administration.topic_permissions import AdministeredTopicPermissions
from flintmq.broker.administration.users import AdministeredUsers
from flintmq.broker.administration.virtual_hosts import VirtualHosts
from flintmq.config import ALL_PERMISSIONS, DefaultUser
from flintmq.errors import ConnectionFault, ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.auth.user import User
    from flintmq.broker.administration.topic_permissions import Place
    from flintmq.broker.broker import Broker
    from flintmq.broker.channels.client_connection import ClientConnection
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.config import Config

log = logging.getLogger("flintmq.administration")

# Connections that one step closes: some 50 microseconds each, with a few channels.
CLOSED_AT_ONCE = 8
# Whoever has asked for the end of the own connection hears the answer before.
ASKER_MS = 1

# Makes a hash and calls back with it, or with None where that failed.
Hashing = Callable[[bytes, Callable[[PasswordHash | None], None]], None]


class Administration:
    """What administrators of one broker may change."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.records = Records(broker.store)
        self.changes = Changes()
        self.accounts = AdministeredUsers(broker.config, broker.users, self.records, broker.clock)
        self.virtual_hosts = VirtualHosts(self)
        self.permissions = AdministeredPermissions(
            self.accounts, self.records, self.virtual_hosts.require, self.rights_changed
        )
        self.topic_permissions = AdministeredTopicPermissions(self.permissions)
        self.limits = AdministeredLimits(
            self.accounts,
            broker.clients,
            self.records,
            self.virtual_hosts.find,
            broker.pass_work.chores.begin,
        )
        self.administrator_access = AdministratorAccess(broker.users, broker.virtual_hosts, self.limits)
        self.parameters = Parameters(self.records, self.virtual_hosts.require)
        self.policies = broker.policies
        # A hash takes tens of milliseconds: a server has another thread make it.
        self.hashing: Hashing = self.hash_at_once

    def hash_at_once(self, password: bytes, done: Callable[[PasswordHash | None], None]) -> None:
        done(self.broker.users.policy.hash(password))

    def restore(self, found: FoundRecords) -> None:
        """What recovery has found, before there are queues; `resume` comes behind them."""
        self.virtual_hosts.restore(found)
        self.virtual_hosts.unserved |= found.named_hosts() - self.broker.virtual_hosts.keys()
        self.accounts.restore(found)
        self.permissions.restore(found)
        self.topic_permissions.restore(found)
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
                self.limits.set_aside((USER, name))
        for name, given in new.users.items():
            if old.users.get(name) == given:
                continue
            if isinstance(given, DefaultUser):
                self.let_in(name, given.permissions.keys() - old.users[name].permissions.keys())
            elif self.accounts.life_of(name):
                self.take_over(users[name])
            else:
                self.permissions.keep_others(old, users[name])
                self.accounts.users.put(users[name])
            for virtual_host in self.broker.virtual_hosts:
                self.rights_changed(virtual_host)

    def let_in(self, name: str, virtual_hosts: Iterable[str]) -> None:
        """Settings that name no users name new virtual hosts: guest, if it is there, may use them."""
        if self.accounts.users.get(name) is not None and not self.accounts.life_of(name):
            for virtual_host in virtual_hosts:
                self.accounts.users.grant(name, virtual_host, ALL_PERMISSIONS)

    def take_over(self, user: User) -> None:
        """The settings name a user whom somebody has added at run time: it is another one from now on.

        Its connections are closed and its permissions are gone, for good. What narrows it down stays.
        """
        name = user.name
        before = self.accounts.find(name)
        virtual_hosts = list(before.permissions)
        user.topic_permissions = before.topic_permissions
        with self.records.grouped():
            self.accounts.give_up(name)
            self.topic_permissions.keep(user)
            self.limits.keep((USER, name))
        self.drop_user(name, f"user '{name}' is set by the settings now", 0)
        self.accounts.users.put(user)
        self.broker.pass_work.chores.begin(self.user_forgotten(name, virtual_hosts, []))

    # Users

    def delete_user(self, name: str, asker: int = 0) -> None:
        """Takes the user away, with its permissions; its connections are closed, that of the asker last."""
        user = self.accounts.find(name)
        virtual_hosts, places = list(user.permissions), list(user.topic_permissions)
        self.accounts.forget(name)
        self.limits.set_aside((USER, name))
        self.drop_user(name, f"user '{name}' was deleted", asker)
        self.broker.pass_work.chores.begin(self.user_forgotten(name, virtual_hosts, places))

    def user_forgotten(self, name: str, virtual_hosts: list[str], places: list[Place]) -> Chore:
        """What the journal holds of a user that is gone. What a bug leaves there the next start takes out."""
        for work in (
            self.permissions.forget_user(name, virtual_hosts),
            self.topic_permissions.forget_user(name, places),
            self.limits.forget_user(name),
            self.contents_forgotten(None, name),
        ):
            try:
                yield from work
            except Exception:
                log.exception("a bug leaves something of user %r in the journal until the next start", name)

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
        yield from self.permissions.forget_host(host.name)
        yield from self.topic_permissions.forget_host(host.name)
        yield from self.limits.forget_host(host.name)
        yield from self.policies.forget_host(host)
        yield from self.parameters.forget_host(host.name)
        yield from self.contents_forgotten(host.name, None)

    def contents_forgotten(self, virtual_host: str | None, user: str | None) -> Iterator[None]:
        """What was staged there, or by that user."""
        self.broker.clients.forget_kept(virtual_host, user)
        staging = self.broker.staging
        return iter(()) if staging is None else staging.forget_all(virtual_host, user)

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
            client.peer.close_connection(ConnectionFault(amqp.CONNECTION_FORCED, why))
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
