"""Policies: rules for queues and exchanges by the pattern of their names, changed without touching them.

    name of a queue --matches--> the policy of the highest priority            at most one
                    --matches--> the operator policy of the highest priority   at most one, caps numbers

Those of the configuration are there from the start and cannot be changed meanwhile; others come by `put`,
are journalled as topology, and hold for what exists as well as for what is declared later.

Which ones hold for a name is decided in portions where many patterns have to be looked for in it. Whoever
declares a queue of that name waits meanwhile, as for a back end that is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from flintmq.auth import AnswerPending
from flintmq.broker import policy_enforcement
from flintmq.broker.queues.queue_rules import (
    ARGUMENTS,
    CLASSIC,
    QUORUM,
    STREAM,
    Given,
    check_definition,
)
from flintmq.checks import NAME_OCTETS_MAX, Unfit, octets_of, suggestion
from flintmq.config.policies import POLICY_TARGETS
from flintmq.errors import ConfigFault
from flintmq.patterns.name_pattern import NamePattern, PatternFault

if TYPE_CHECKING:
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.config import Config
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.policies")

# Decisions kept about exchanges, which unroutable messages ask for: a name has 255 octets at most.
DECISIONS_MAX = 1024
# Of a virtual host, operator policies among them.
POLICIES_MAX = 1000
# Letters of a name times places of machines that are looked at in one go. A letter that a machine has not met
# before takes 50 nanoseconds for each of its places: this is half a millisecond.
LOOKS_MAX = 10_000

KIND_OF = {"classic_queues": CLASSIC, "quorum_queues": QUORUM, "streams": STREAM}

# Keys that RabbitMQ knows and that ask nothing of a queue here, or something of a stream.
OTHER_KEYS = frozenset(
    {
        "federation-upstream",
        "federation-upstream-set",
        "ha-mode",
        "ha-params",
        "ha-promote-on-failure",
        "ha-promote-on-shutdown",
        "ha-sync-batch-size",
        "ha-sync-mode",
        "initial-cluster-size",
        "max-age",
        "max-in-memory-bytes",
        "stream-filter-size-bytes",
        "stream-max-segment-size-bytes",
        "target-group-size",
    }
)
KEYS = frozenset(
    {name[2:] for name, argument in ARGUMENTS.items() if argument.in_policies}
    | OTHER_KEYS
    | {"alternate-exchange"}
)
# An operator's policy limits what others may have; it does not send their messages elsewhere.
OPERATOR_KEYS = frozenset(
    {"consumer-timeout", "delivery-limit", "expires", "max-length", "max-length-bytes", "message-ttl"}
    | {"overflow", "max-consumers", "max-in-memory-bytes", "max-in-memory-length", "target-group-size"}
)


class Policy:
    """Checked when it is made: `Unfit` says what is wrong with it."""

    def __init__(
        self,
        virtual_host: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "all",
        is_operator: bool = False,
        is_configured: bool = False,
    ) -> None:
        self.virtual_host = virtual_host
        self.name = name
        self.pattern = pattern
        self.definition = definition
        self.priority = priority
        self.apply_to = apply_to
        self.is_operator = is_operator
        self.is_configured = is_configured
        self.check()
        self.expression = expression_of(pattern)
        self.given: Given = check_definition(definition)

    def check(self) -> None:
        if not 0 < octets_of(self.name) <= NAME_OCTETS_MAX:
            raise Unfit(f"name: expected text of 1 to {NAME_OCTETS_MAX} octets")
        if type(self.priority) is not int or not -(2**31) <= self.priority < 2**31:
            raise Unfit("priority: expected a whole number of 32 bits")
        if self.apply_to not in POLICY_TARGETS or (self.is_operator and self.apply_to == "exchanges"):
            raise Unfit(f"apply-to: expected one of {', '.join(POLICY_TARGETS)}")
        known = OPERATOR_KEYS if self.is_operator else KEYS
        for key, value in self.definition.items():
            if key not in known:
                meant = suggestion(key, known) or f"; known are {', '.join(sorted(known))}"
                raise Unfit(f"'{key}': no such key{meant}")
            if key == "alternate-exchange" and not isinstance(value, str):
                raise Unfit("'alternate-exchange': expected text")
        if not self.definition:
            raise Unfit("definition: expected at least one key")

    def said(self) -> tuple[object, ...]:
        """What was given: policies that say the same are equal."""
        place = (self.virtual_host, self.name, self.is_operator, self.is_configured)
        return (*place, self.pattern, self.definition, self.priority, self.apply_to)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.said() == other.said()

    def may_match_queue(self, name: str, kind: str) -> bool:
        """False if the pattern need not even be looked for."""
        is_meant = self.apply_to in ("all", "queues") or KIND_OF.get(self.apply_to) == kind
        return is_meant and self.expression.may_match(name)

    def looks(self, name: str) -> int:
        """What it takes at most to look for the pattern in the name."""
        return self.expression.places * (1 + len(name))

    def matches_exchange(self, name: str) -> bool:
        return self.apply_to in ("all", "exchanges") and self.expression.matches(name)


def expression_of(pattern: str) -> NamePattern:
    try:
        return NamePattern(pattern)
    except PatternFault as fault:
        raise Unfit(f"pattern: expected a regular expression ({fault})") from None


class Decision:
    """Which policies hold for the queues of a name and kind: found out in portions."""

    def __init__(self, policies: Policies, virtual_host: str, name: str, kind: str) -> None:
        self.key = virtual_host, name, kind
        self.what = f"which policies hold for queue '{name}'"
        self.is_made = False
        self._policies = policies
        self._told: list[Callable[[], None]] = []

    def tell(self, callback: Callable[[], None]) -> None:
        """Calls back when it is made."""
        self._told.append(callback)

    def make(self) -> Iterator[None]:
        """The portions."""
        virtual_host, name, kind = self.key
        policies = self._policies
        changes = policies.changes
        looks = 0
        found: list[Policy | None] = []
        for those in (policies.of(virtual_host), policies.of(virtual_host, is_operator=True)):
            found.append(None)
            for policy in those:
                if not policy.may_match_queue(name, kind):
                    continue
                if looks > LOOKS_MAX:
                    looks = 0
                    yield
                looks += policy.looks(name)
                if policy.expression.matches(name):
                    found[-1] = policy
                    break
        if changes == policies.changes:  # else whoever waits asks again
            policies.decide(self.key, found)
        self.is_made = True
        told, self._told = self._told, []
        for callback in told:
            callback()


class Policies:
    """The policies of all virtual hosts."""

    def __init__(self, virtual_hosts: Mapping[str, VirtualHost], store: Store | None) -> None:
        self.virtual_hosts = virtual_hosts
        self.store = store
        # By virtual host; the best first.
        self.ordinary: dict[str, list[Policy]] = {}
        self.operators: dict[str, list[Policy]] = {}
        # By virtual host and exchange, as far as was asked since the last change.
        self.decided: dict[tuple[str, str], Policy | None] = {}
        # The same by virtual host, queue and kind, where it took portions: ordinary and operator policy.
        self.decided_queues: dict[tuple[str, str, str], list[Policy | None]] = {}
        self.changes = 0
        # Over the queues of a virtual host, while policies are put into force for them.
        self.rounds: dict[VirtualHost, policy_enforcement.Round] = {}

    def changed(self) -> None:
        """What was decided may be wrong now."""
        self.changes += 1
        self.decided.clear()
        self.decided_queues.clear()

    def configure(self, config: Config) -> None:
        """Takes those of the configuration."""
        for policy in configured_policies(config):
            self.insert(policy)

    def reconfigure(self, configured: list[Policy]) -> None:
        """Replaces the policies of the configuration; policies that were set at run time stay."""
        for kept in (self.ordinary, self.operators):
            for those in kept.values():
                those[:] = [policy for policy in those if not policy.is_configured]
        for policy in configured:
            self.insert(policy)
        self.changed()
        for host in self.virtual_hosts.values():
            policy_enforcement.reapply(host)

    # What holds

    def of(self, virtual_host: str, is_operator: bool = False) -> list[Policy]:
        """All of one virtual host, the best first."""
        return list((self.operators if is_operator else self.ordinary).get(virtual_host, ()))

    def find(self, virtual_host: str, name: str, is_operator: bool = False) -> Policy | None:
        for policy in self.of(virtual_host, is_operator):
            if policy.name == name:
                return policy
        return None

    def count(self, virtual_host: str) -> int:
        """How many there are, operator policies among them."""
        return len(self.ordinary.get(virtual_host, ())) + len(self.operators.get(virtual_host, ()))

    def of_queue(self, virtual_host: str, name: str, kind: str, is_operator: bool = False) -> Policy | None:
        """The one that holds for a queue."""
        decided = self.decided_queues.get((virtual_host, name, kind))
        if decided is not None:
            return decided[is_operator]
        for policy in (self.operators if is_operator else self.ordinary).get(virtual_host, ()):
            if policy.may_match_queue(name, kind) and policy.expression.matches(name):
                return policy
        return None

    def decide(self, key: tuple[str, str, str], found: list[Policy | None]) -> None:
        if len(self.decided_queues) >= DECISIONS_MAX:
            del self.decided_queues[next(iter(self.decided_queues))]
        self.decided_queues[key] = found

    def decision(self, virtual_host: str, name: str, kind: str) -> Decision | None:
        """How to find out which hold for a queue, if that takes portions and has not been found out."""
        if (virtual_host, name, kind) in self.decided_queues:
            return None
        those = chain(self.ordinary.get(virtual_host, ()), self.operators.get(virtual_host, ()))
        looks = sum(policy.looks(name) for policy in those if policy.may_match_queue(name, kind))
        return Decision(self, virtual_host, name, kind) if looks > LOOKS_MAX else None

    def wait_for_decision(self, host: VirtualHost, name: str, kind: str) -> None:
        """AnswerPending, where the policies of a queue that is to be declared take portions to find out."""
        decision = self.decision(host.name, name, kind)
        if decision is not None:
            host.pass_work.chores.begin(decision.make())
            if not decision.is_made:
                raise AnswerPending(decision)

    def of_exchange(self, virtual_host: str, name: str) -> Policy | None:
        """The one that holds for an exchange."""
        those = self.ordinary.get(virtual_host)
        if not those:
            return None
        key = (virtual_host, name)
        if key not in self.decided:
            if len(self.decided) >= DECISIONS_MAX:
                self.decided.clear()
            self.decided[key] = next((policy for policy in those if policy.matches_exchange(name)), None)
        return self.decided[key]

    def given(self, virtual_host: str, name: str, kind: str) -> list[Given]:
        """What policies ask of a queue, in the order of `queue_rules.combine`."""
        found = (
            self.of_queue(virtual_host, name, kind),
            self.of_queue(virtual_host, name, kind, is_operator=True),
        )
        return [policy.given for policy in found if policy is not None]

    def alternate_exchange(self, virtual_host: str, name: str) -> str | None:
        policy = self.of_exchange(virtual_host, name)
        return None if policy is None else policy.definition.get("alternate-exchange")

    # Changes

    def put(
        self,
        virtual_host: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "all",
        is_operator: bool = False,
    ) -> Policy:
        """Sets or replaces a policy, and puts it into force; Unfit says what is wrong with it."""
        host = self.virtual_hosts.get(virtual_host)
        if host is None:
            raise Unfit(f"no virtual host '{virtual_host}'")
        policy = Policy(virtual_host, name, pattern, dict(definition), priority, apply_to, is_operator)
        self.refuse_configured(virtual_host, name, is_operator)
        if self.find(virtual_host, name, is_operator) is None:
            check_count(virtual_host, self.count(virtual_host) + 1)
        if host.topology is not None:
            host.topology.put_policy(policy)
        self.insert(policy)
        policy_enforcement.reapply(host)
        return policy

    def delete(self, virtual_host: str, name: str, is_operator: bool = False) -> bool:
        """Takes a policy out of force; False when there is none of that name."""
        policy = self.find(virtual_host, name, is_operator)
        if policy is None:
            return False
        self.refuse_configured(virtual_host, name, is_operator)
        host = self.virtual_hosts[virtual_host]
        if host.topology is not None:
            host.topology.delete_policy(policy)
        (self.operators if is_operator else self.ordinary)[virtual_host].remove(policy)
        self.changed()
        policy_enforcement.reapply(host)
        return True

    def forget_host(self, host: VirtualHost) -> Iterator[None]:
        """The virtual host is gone, and its policies with it, but for those of the settings."""
        for kept in (self.ordinary, self.operators):
            those = kept.get(host.name, [])
            for policy in [each for each in those if not each.is_configured]:
                if host.topology is not None:
                    host.topology.delete_policy(policy)
                those.remove(policy)
                yield
            if not those:
                kept.pop(host.name, None)
        self.changed()

    def refuse_configured(self, virtual_host: str, name: str, is_operator: bool) -> None:
        present = self.find(virtual_host, name, is_operator)
        if present is not None and present.is_configured:
            raise Unfit(f"'{name}' is set by the broker's settings: change it there")

    def insert(self, policy: Policy) -> None:
        """In its order; one of the same name makes room."""
        those = (self.operators if policy.is_operator else self.ordinary).setdefault(policy.virtual_host, [])
        those[:] = [each for each in those if each.name != policy.name]
        those.append(policy)
        those.sort(key=_order)
        self.changed()

    def restore(self, identity: FieldTable, value: FieldTable) -> None:
        """One that recovery found, before there are queues."""
        host, name = identity.get("virtual-host"), identity.get("name")
        is_operator = identity.get("operator") is True
        if not isinstance(host, str) or not isinstance(name, str) or host not in self.virtual_hosts:
            log.warning("policy %r of virtual host %r is left out: it is not configured", name, host)
            return
        present = self.find(host, name, is_operator)
        if present is not None:
            log.warning("policy %r is set by the configuration: the one set at run time is left out", name)
            return
        pattern, definition = value.get("pattern"), value.get("definition")
        priority, apply_to = value.get("priority"), value.get("apply-to")
        if not (isinstance(pattern, str) and isinstance(definition, dict) and isinstance(priority, int)):
            log.error("policy %r is left out: it is not well formed", name)
            return
        try:
            self.insert(Policy(host, name, pattern, definition, priority, str(apply_to), is_operator))
        except Unfit as unfit:
            log.error("policy %r is left out: %s", name, unfit)


def check_count(virtual_host: str, count: int) -> None:
    """Raises unless a virtual host may have so many."""
    if count > POLICIES_MAX:
        raise Unfit(
            f"virtual host '{virtual_host}' may have {POLICIES_MAX} policies and operator policies at most"
        )


def configured_policies(config: Config) -> list[Policy]:
    """The policies of the configuration; a ConfigFault says which one is wrong."""
    found: list[Policy] = []
    for where, settings, is_operator in (
        ("policies", config.policies, False),
        ("operator_policies", config.operator_policies, True),
    ):
        for index, each in enumerate(settings):
            try:
                policy = Policy(
                    each.virtual_host,
                    each.name,
                    each.pattern,
                    dict(each.definition),
                    each.priority,
                    each.apply_to,
                    is_operator,
                    is_configured=True,
                )
            except Unfit as unfit:
                raise ConfigFault(f'{where}[{index}], "{each.name}": {unfit}') from None
            found.append(policy)
    return found


def _order(policy: Policy) -> tuple[int, str]:
    return -policy.priority, policy.name
