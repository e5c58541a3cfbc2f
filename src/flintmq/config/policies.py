"""Rules for queues and exchanges by their names: [[policies]] and [[operator_policies]]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from flintmq import checks
from flintmq.checks import Unfit
from flintmq.config.tables import NO_TABLE, Document, Section, listed
from flintmq.errors import ConfigFault
from flintmq.patterns.name_pattern import NamePattern, PatternFault

POLICY_TARGETS = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")


def name_pattern(value: object) -> str:
    if not isinstance(value, str):
        raise checks.expected("a regular expression")
    try:
        NamePattern(value)
    except PatternFault as fault:
        raise checks.expected(f"a regular expression ({fault})") from None
    return value


def policy_definition(value: object) -> Mapping[str, Any]:
    """What a policy asks for; which keys there are is known to the broker."""
    if not isinstance(value, dict) or not value:
        raise checks.expected("a table with at least one key")
    for key, each in value.items():
        if not isinstance(each, (str, int)):
            raise Unfit("expected text, a whole number, or true or false", f".{key}", each)
    return MappingProxyType(value)


class PolicySettings(Section):
    """[[policies]], [[operator_policies]]: rules for queues and exchanges by the pattern of their names."""

    name: Annotated[str, checks.text()] = ""
    pattern: Annotated[str, name_pattern] = ""
    definition: Annotated[Mapping[str, Any], policy_definition] = NO_TABLE
    virtual_host: Annotated[str, checks.text()] = "/"
    priority: Annotated[int, checks.whole(-(2**31), 2**31 - 1)] = 0
    apply_to: Annotated[str, checks.one_of(*POLICY_TARGETS, quote='"')] = "all"


def read_policies(document: Document, name: str, virtual_hosts: Sequence[str]) -> tuple[PolicySettings, ...]:
    policies = listed(PolicySettings, document, name, ("name", "pattern", "definition"), virtual_hosts)
    for index, policy in enumerate(policies):
        if any(
            (each.name, each.virtual_host) == (policy.name, policy.virtual_host) for each in policies[:index]
        ):
            raise ConfigFault(
                f"{name}[{index}]: there is a policy '{policy.name}' already; give each its own name"
            )
    return policies
