"""Which policies hold for the queues of a virtual host, and what they come to together.

To match 100,000 names with patterns takes a second: what was found is remembered until a policy changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flintmq.management.broker_state import shapes
from flintmq.patterns.name_pattern import NamePattern, PatternFault

if TYPE_CHECKING:
    from flintmq.snapshot_rows import QueueRow

# What `apply-to` of a policy calls the queues of a type.
POLICY_TARGETS = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}
# Queues of one virtual host of which it is remembered: some 150 octets each.
REMEMBERED_MAX = 200_000


class PolicyRow:
    """A policy that can be asked whether it matches."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.name: str = row["name"]
        self.priority: int = row["priority"]
        self.apply_to: str = row["apply-to"]
        try:
            self.pattern: NamePattern | None = NamePattern(row["pattern"])
        except PatternFault:
            self.pattern = None

    def matches(self, name: str, kinds: tuple[str, ...]) -> bool:
        return self.apply_to in kinds and self.pattern is not None and self.pattern.matches(name)


@dataclass(frozen=True, eq=False)
class Effective:
    """The policies of queues, and the definition that they come to."""

    policy: str | None
    operator_policy: str | None
    definition: dict[str, Any]


NO_POLICY = Effective(None, None, {})


class QueuePolicies:
    """Of one virtual host; both lists have the policy that counts most first."""

    def __init__(self, policies: list[PolicyRow], operator_policies: list[PolicyRow]) -> None:
        self.policies = policies
        self.operator_policies = operator_policies
        # By the name of a queue: what its type follows from, and what holds for it.
        self.known: dict[str, tuple[bytes, bool, Effective]] = {}
        self.combined: dict[tuple[str | None, str | None], Effective] = {}  # by the names of both policies

    def of(self, row: QueueRow) -> Effective:
        """What holds for the queue."""
        known = self.known.get(row.name)
        if known is not None and known[0] == row.arguments and known[1] == row.is_stream:
            return known[2]
        if not self.policies and not self.operator_policies:
            return NO_POLICY
        if len(self.known) >= REMEMBERED_MAX:
            self.known.clear()
        found = self.choose(row.name, shapes.queue_type(row))
        self.known[row.name] = (row.arguments, row.is_stream, found)
        return found

    def choose(self, name: str, queue_type: str) -> Effective:
        kinds = ("all", "queues", POLICY_TARGETS[queue_type])
        chosen = next((each for each in self.policies if each.matches(name, kinds)), None)
        cap = next((each for each in self.operator_policies if each.matches(name, kinds)), None)
        names = (None if chosen is None else chosen.name, None if cap is None else cap.name)
        found = self.combined.get(names)
        if found is None:
            found = self.combined[names] = Effective(*names, shapes.plain(effective(chosen, cap)))
        return found


def effective(chosen: PolicyRow | None, cap: PolicyRow | None) -> dict[str, Any]:
    """The definition of the policy, of which the operator policy may take away."""
    definition = {} if chosen is None else dict(chosen.row["definition"])
    for name, value in ({} if cap is None else cap.row["definition"]).items():
        own = definition.get(name)
        both = isinstance(own, int) and isinstance(value, int)
        definition[name] = min(own, value) if both else value
    return definition
