"""What there will be when an import is done, so that all of it can be checked before any of it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker import policies as policies_of
from flintmq.broker.administration import parameters as parameters_of
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.broker.virtual_host import PREDECLARED
from flintmq.checks import Unfit

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.wire.tables import FieldValue

Place = tuple[str, str]  # virtual host, name

PREDECLARED_TYPES = {name: kind for name, kind, _ in PREDECLARED}
INTERNAL = frozenset(name for name, _, is_internal in PREDECLARED if is_internal)


class Draft:
    """The broker as it is, and what the import adds to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.users: set[str] = set()
        self.hosts: set[str] = set()
        self.exchanges: dict[Place, Exchange] = {}  # made for this alone, and in no virtual host
        self.queues: set[Place] = set()
        self.queues_added: dict[str, int] = {}
        self.exchanges_added: dict[str, int] = {}
        self.bindings: dict[str, set[tuple[str, ...]]] = {}  # by virtual host
        self.policies: dict[str, set[tuple[str, bool]]] = {}  # by virtual host
        self.parameters: set[parameters_of.Key] = set()

    def require_user(self, name: str) -> None:
        if name not in self.users and self.broker.users.get(name) is None:
            raise Unfit(f"no user '{name}', here or in the definitions")

    def require_host(self, name: str) -> None:
        if name not in self.hosts and name not in self.broker.virtual_hosts:
            raise Unfit(f"no virtual host '{name}', here or in the definitions")

    def host(self, name: str) -> VirtualHost | None:
        """The virtual host, if there is one already."""
        return self.broker.virtual_hosts.get(name)

    def exchange(self, place: Place) -> Exchange | None:
        """The exchange, there or to come; a new virtual host has those that each has."""
        host = self.host(place[0])
        if host is not None and place[1] in host.exchanges:
            return host.exchanges[place[1]]
        kind = PREDECLARED_TYPES.get(place[1]) if place[0] in self.hosts else None
        if kind is not None and place not in self.exchanges:
            self.exchanges[place] = EXCHANGE_TYPES[kind](
                place[1], durable=True, internal=place[1] in INTERNAL
            )
        return self.exchanges.get(place)

    def has_queue(self, place: Place) -> bool:
        host = self.host(place[0])
        return place in self.queues or (host is not None and host.lookup_queue(place[1]) is not None)

    def add_queue(self, place: Place) -> None:
        """Raises if it would be one too many."""
        host = self.host(place[0])
        self.queues.add(place)
        if host is not None and place[1] in host.queues:
            return
        added = self.queues_added.get(place[0], 0) + 1
        limit = self.broker.config.limits.queues_per_virtual_host_max
        most = self.broker.administration.limits.queues_max(place[0], limit)
        if added + (0 if host is None else len(host.queues)) > most:
            raise Unfit(f"virtual host '{place[0]}' may have {most} queues at most")
        self.queues_added[place[0]] = added

    def add_exchange(self, place: Place, made: Exchange) -> None:
        """Raises if it would be one too many."""
        host = self.host(place[0])
        added = self.exchanges_added.get(place[0], 0) + 1
        most = self.broker.config.limits.exchanges_per_virtual_host_max
        if added + (len(PREDECLARED) if host is None else len(host.exchanges)) > most:
            raise Unfit(f"virtual host '{place[0]}' may have {most} exchanges at most")
        self.exchanges_added[place[0]] = added
        self.exchanges[place] = made

    def add_binding(self, virtual_host: str, *ends: str) -> None:
        """One that is not there yet; raises if it would be one too many."""
        host = self.host(virtual_host)
        added = self.bindings.setdefault(virtual_host, set())
        most = self.broker.config.limits.bindings_per_virtual_host_max
        if ends not in added and len(added) + (0 if host is None else host.binding_count) >= most:
            raise Unfit(f"virtual host '{virtual_host}' may have {most} bindings at most")
        added.add(ends)

    def add_policy(self, place: Place, is_operator: bool) -> None:
        """Raises if it would be one too many."""
        policies, added = self.broker.policies, self.policies.setdefault(place[0], set())
        policy = (place[1], is_operator)
        if policy not in added and policies.find(*place, is_operator) is None:
            policies_of.check_count(place[0], policies.count(place[0]) + len(added) + 1)
            added.add(policy)

    def add_parameter(self, key: parameters_of.Key, value: FieldValue) -> None:
        """Raises if it cannot be set, or would be one too many."""
        parameters = self.broker.administration.parameters
        parameters.check(*key, value)
        if key not in parameters.values and key not in self.parameters:
            parameters_of.check_count(len(parameters.values) + len(self.parameters) + 1)
            self.parameters.add(key)
