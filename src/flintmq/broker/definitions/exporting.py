"""Definitions that go out: the broker as it is, in parts, each of which is a definitions file by itself.

    place --> rows behind it --> part: {"queues": [...]} --> place of the next part

A place is the section and what identifies the last row, so that parts can be asked for one after the other
while things come and go: what is there all the time is in exactly one part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from flintmq import __version__
from flintmq.broker.administration import limits as limits_of
from flintmq.broker.administration import parameters as parameters_of
from flintmq.broker.administration.host_metadata import HOST_COMPONENT, NO_METADATA, metadata_of
from flintmq.broker.definitions.account_entries import (
    GLOBAL_COMPONENT,
    KEYED_HASH,
    LIMITS_COMPONENT,
    OPERATOR_POLICY_COMPONENT,
    OWN_HASHING,
    has_keys,
    hashing_of,
    text_of,
)
from flintmq.broker.definitions.importing import OF_ALL, SECTIONS
from flintmq.broker.exchanges.system_exchange import FormerSystemExchange
from flintmq.broker.policies import Policy
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_rules import kind_of
from flintmq.broker.virtual_host import PREDECLARED_NAMES
from flintmq.checks import Unfit
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.wire.tables import FieldTable, FieldValue

# What files of this broker say which RabbitMQ they are like; its tools read that.
RABBITMQ_VERSION = "3.10.8"
PART_OCTETS = 65_536
# Rows of one step: some 10 microseconds each.
STEP = 32

Key = tuple[Any, ...]
Row = tuple[Key, dict[str, Any] | None]


class Export:
    """The definitions of a broker, or of the virtual host `within`."""

    def __init__(self, broker: Broker, within: str) -> None:
        self.broker = broker
        self.within = within
        self.notes: list[str] = []
        self.sections: dict[str, Callable[[Key], Iterator[Row]]] = {
            "users": self.users,
            "vhosts": self.virtual_hosts,
            "permissions": self.permissions,
            "topic_permissions": self.topic_permissions,
            "parameters": self.parameters,
            "global_parameters": self.global_parameters,
            "policies": self.policies,
            "exchanges": self.exchanges,
            "queues": self.queues,
            "bindings": self.bindings,
        }
        # As RabbitMQ has it, a file of one virtual host says nothing of users.
        left_out = {*OF_ALL, "permissions", "topic_permissions"} if within else set()
        self.names = [name for name in SECTIONS if name not in left_out]

    # Parts

    def part(self, after: str, octets_max: int = PART_OCTETS) -> Chore:
        """A chore that leaves the part in `document` and its end in `next`, empty behind the last."""
        section, key = self.place(after)
        self.document: dict[str, Any] = {} if after else self.head()
        self.next = ""
        size = 0
        for name in self.names[self.names.index(section) :]:
            rows = self.document.setdefault(name, [])
            while True:
                seen = 0
                for place, row in self.sections[name](key):
                    key, seen = place, seen + 1
                    if row is not None:
                        rows.append(row)
                        size += len(json.dumps(row))
                    if size >= octets_max:
                        self.next = json.dumps([name, *key])
                        return
                    if seen == STEP:
                        break
                else:
                    break
                yield None
            key = ()

    def place(self, after: str) -> tuple[str, Key]:
        if not after:
            return self.names[0], ()
        try:
            section, *key = json.loads(after)
            self.names.index(section)
            if not all(isinstance(each, str | int) for each in key):
                raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise ServiceFault(amqp.PRECONDITION_FAILED, "argument 'after': is no place") from None
        return section, tuple(key)

    def encoded(self) -> bytes:
        if self.notes:
            self.document["flintmq_notes"] = self.notes
        return json.dumps(self.document).encode()

    def head(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "rabbit_version": RABBITMQ_VERSION,
            "rabbitmq_version": RABBITMQ_VERSION,
            "product_name": "FlintMQ",
            "product_version": __version__,
            "rabbitmq_definition_format": "single_virtual_host" if self.within else "cluster",
        }
        if self.within:
            about["original_vhost_name"] = self.within
            about["metadata"] = dict(metadata_of(self.broker.administration.parameters, self.within))
        return {**about, **{name: [] for name in self.names}}

    def hosts(self, after: str = "") -> list[str]:
        """The names of the virtual hosts from one on."""
        if self.within:
            return [self.within] if self.within in self.broker.virtual_hosts else []
        return sorted(name for name in self.broker.virtual_hosts if name >= after)

    def placed(self, virtual_host: str, row: dict[str, Any]) -> dict[str, Any]:
        return row if self.within else {"vhost": virtual_host, **row}

    # Sections: the rows behind a key, each with its own key

    def users(self, after: Key) -> Iterator[Row]:
        for name in self.broker.users.names.after(text_at(after, 0) or None):
            user = self.broker.users.get(name)
            if user is None:
                continue
            written = text_of(user.password_hash)
            algorithm = hashing_of(written) if written else "rabbit_password_hashing_sha256"
            if algorithm == OWN_HASHING:
                self.notes.append(f"user '{name}': the hash of the password is one that RabbitMQ has not")
            row: dict[str, Any] = {
                "name": name,
                "password_hash": written,
                "hashing_algorithm": algorithm,
                "tags": [str(tag) for tag in sorted(user.tags)],
                "limits": dict(self.broker.administration.limits.of.get((limits_of.USER, name), {})),
            }
            if user.password_hash is not None and has_keys(user.password_hash):
                row[KEYED_HASH] = user.password_hash.text()
            yield (name,), row

    def virtual_hosts(self, after: Key) -> Iterator[Row]:
        last = text_at(after, 0)
        for name in self.hosts(last):
            if name > last:
                limits = self.broker.administration.limits.of.get((limits_of.HOST, name), {})
                row: dict[str, Any] = {"name": name, "limits": [list(pair) for pair in limits.items()]}
                metadata = dict(metadata_of(self.broker.administration.parameters, name))
                row["metadata"] = metadata or dict(NO_METADATA)
                yield (name,), row

    def permissions(self, after: Key) -> Iterator[Row]:
        model = self.broker.administration
        for name in self.users_from(after):
            for host, granted in model.permissions.of_user(model.accounts.find(name)):
                if (name, host) > after:
                    given = granted.settings
                    row = {"configure": given.configure, "write": given.write, "read": given.read}
                    yield (name, host), {"user": name, "vhost": host, **row}
            yield (name, LAST), None

    def users_from(self, after: Key) -> Iterator[str]:
        """The user at which the last row was, and those behind."""
        name = text_at(after, 0)
        if name and self.broker.users.get(name) is not None:
            yield name
        for each in self.broker.users.names.after(name or None):
            if self.broker.users.get(each) is not None:
                yield each

    def topic_permissions(self, after: Key) -> Iterator[Row]:
        model = self.broker.administration
        for name in self.users_from(after):
            for place, allowed in model.topic_permissions.of_user(model.accounts.find(name)):
                if (name, *place) > after:
                    row = {"exchange": place[1], "write": allowed.write, "read": allowed.read}
                    yield (name, *place), {"user": name, "vhost": place[0], **row}
            yield (name, LAST, LAST), None

    def parameters(self, after: Key) -> Iterator[Row]:
        """With limits and operator policies, which RabbitMQ keeps there; the few there are, in order."""
        found: dict[Key, FieldValue | dict[str, Any]] = {
            key: value
            for key, value in self.broker.administration.parameters.values.items()
            if key[0] != parameters_of.WHOLE_BROKER and key[1] != HOST_COMPONENT
        }
        for (kind, owner), limits in self.broker.administration.limits.of.items():
            if kind == limits_of.HOST and limits:
                found[owner, LIMITS_COMPONENT, "limits"] = dict(limits)
        for host in self.hosts():
            for policy in self.broker.policies.of(host, is_operator=True):
                found[host, OPERATOR_POLICY_COMPONENT, policy.name] = rules(policy)
        for key in sorted(each for each in found if each > after):
            host, component, name = key
            if not self.within or host == self.within:
                row = {"component": component, "name": name, "value": self.value(found[key], name)}
                yield key, self.placed(host, row)

    def global_parameters(self, after: Key) -> Iterator[Row]:
        values = self.broker.administration.parameters.values
        for key in sorted(each for each in values if each[0] == parameters_of.WHOLE_BROKER):
            if key[1:] > after:
                row: dict[str, Any] = {"name": key[2], "value": self.value(values[key], key[2])}
                yield key[1:], row if key[1] == GLOBAL_COMPONENT else {**row, "component": key[1]}

    def policies(self, after: Key) -> Iterator[Row]:
        for host in self.hosts(text_at(after, 0)):
            for policy in sorted(self.broker.policies.of(host), key=lambda each: each.name):
                if (host, policy.name) > after:
                    yield (host, policy.name), self.placed(host, {"name": policy.name, **rules(policy)})
            yield (host, LAST), None

    def exchanges(self, after: Key) -> Iterator[Row]:
        for name, host, exchange in self.exchanges_from(after, is_behind=True):
            if exchange.name in PREDECLARED_NAMES or isinstance(exchange, FormerSystemExchange):
                yield (name, exchange.name), None
                continue
            row = {
                "name": exchange.name,
                "type": exchange.type,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": self.table(exchange.arguments, f"exchange '{exchange.name}'"),
            }
            yield (host.name, exchange.name), self.placed(host.name, row)

    def exchanges_from(self, after: Key, is_behind: bool) -> Iterator[tuple[str, VirtualHost, Exchange]]:
        """The exchanges from that of a key on, in the order of names; behind that one if `is_behind`."""
        first = text_at(after, 1)
        for name in self.hosts(text_at(after, 0)):
            host = self.broker.virtual_hosts[name]
            is_first = name == text_at(after, 0)
            if is_first and not is_behind and first in host.exchanges:
                yield name, host, host.exchanges[first]
            for each in host.exchange_names.after(first if is_first and first else None):
                yield name, host, host.exchanges[each]

    def queues(self, after: Key) -> Iterator[Row]:
        for name in self.hosts(text_at(after, 0)):
            host = self.broker.virtual_hosts[name]
            last = text_at(after, 1) if name == text_at(after, 0) else ""
            for each in host.queue_names.after(last or None):
                queue = host.queues[each]
                if queue.exclusive or host.falling.is_gone(queue):
                    yield (name, each), None  # a connection's own
                    continue
                row = {
                    "name": each,
                    "type": kind_of(queue.arguments),
                    "durable": queue.durable,
                    "auto_delete": queue.auto_delete,
                    "arguments": self.table(queue.arguments, f"queue '{each}'"),
                }
                yield (name, each), self.placed(name, row)

    def bindings(self, after: Key) -> Iterator[Row]:
        for name, _, exchange in self.exchanges_from(after, is_behind=False):
            is_first = (name, exchange.name) == after[:2]
            number = after[2] if is_first and len(after) > 2 else 0
            for binding in exchange.bindings_after(number):
                key = (name, exchange.name, binding.number)
                destination: Any = binding.destination
                is_queue = isinstance(destination, Queue)
                if destination.deleted or (is_queue and destination.exclusive):
                    yield key, None
                    continue
                row = {
                    "source": exchange.name,
                    "destination": destination.name,
                    "destination_type": "queue" if is_queue else "exchange",
                    "routing_key": binding.routing_key,
                    "arguments": self.table(binding.arguments, f"binding of '{exchange.name}'"),
                }
                yield key, self.placed(name, row)
            yield (name, exchange.name, max(number, exchange.numbered)), None

    # Values

    def table(self, table: FieldTable, what: str) -> dict[str, Any]:
        return {name: self.value(value, f"{what}, '{name}'") for name, value in table.items()}

    def value(self, value: FieldValue | dict[str, Any], what: str) -> Any:
        """What JSON has for it; what it has no like of becomes text, which is told."""
        if isinstance(value, dict):
            return {name: self.value(each, what) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each, what) for each in value]
        if value is None or isinstance(value, str | bool | float):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, bytes | bytearray):
            shown = bytes(value).decode("utf-8", "surrogateescape")
        elif isinstance(value, datetime):
            shown = value.isoformat()
        elif isinstance(value, Decimal):
            shown = str(value)
        else:
            raise Unfit(f"{what}: a {type(value).__name__}")
        self.notes.append(f"{what}: JSON has no {type(value).__name__}; it is text in this file")
        return shown


# Behind all names of virtual hosts and exchanges.
LAST = chr(0x10FFFF) * 2


def text_at(key: Key, index: int) -> str:
    return key[index] if len(key) > index and isinstance(key[index], str) else ""


def rules(policy: Policy) -> dict[str, Any]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }
