"""Late bindings: filters of a consumer, or of basic.get, with which it takes only some messages.

The consumers of a queue share what was decoded of the message that is being offered to them, so that its
headers are decoded once however many are asked. A message whose headers cannot be read has none here: it
was accepted when nobody needed to read them, and must not harm those who consume. A filter does not take a
message that would take it too long (Lookup.spend).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.matching import late_binding
from flintmq.broker.matching.condition import Condition
from flintmq.broker.matching.lookup import Lookup
from flintmq.broker.messages.message import Message
from flintmq.errors import PeerFault

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.wire.tables import FieldTable

# In units of 40 nanoseconds: any condition, and so many octets of its text.
COST_MIN = 4
COST_OCTETS = 2
COST_OF_STEP = 2
OCTETS_OF_COST = 16


class LastLookup:
    """The message that was asked about last."""

    __slots__ = ("lookup", "message")

    def __init__(self) -> None:
        self.message: Message | None = None
        self.lookup: Lookup | None = None

    def of(self, message: Message) -> Lookup:
        lookup = self.lookup
        if lookup is None or self.message is not message:
            lookup = Lookup.create(message, message.routing_key())
            try:
                lookup.headers()
            except PeerFault:
                lookup.ignore_headers()
            self.message = message
            self.lookup = lookup
        return lookup


class ConsumerSelector:
    """What one consumer accepts."""

    __slots__ = ("condition", "cost", "cost_min", "recent")

    def __init__(self, condition: Condition, recent: LastLookup) -> None:
        self.condition = condition
        self.recent = recent
        # What to ask it takes, as PassWork.offered counts: a text of 2,000 octets takes some 50 microseconds.
        self.cost_min = COST_MIN + len(repr(condition.form)) // COST_OCTETS
        self.cost = self.cost_min  # of the last question

    def accepts(self, message: Message) -> bool:
        lookup = self.recent.of(message)
        lookup.steps = 0
        try:
            is_taken = self.condition.holds(lookup)
        except PeerFault:
            is_taken = False
        self.cost = self.cost_min + COST_OF_STEP * lookup.steps
        return is_taken

    def octets(self) -> int:
        """As many octets are looked at in the time that the last question took."""
        return self.cost * OCTETS_OF_COST


def selection_of(
    arguments: FieldTable, consumers: list[Consumer], pass_work: PassWork
) -> ConsumerSelector | None:
    """The selection that basic.consume asks for, if any; `consumers` are those that the queue has already."""
    condition = late_binding.condition_of(arguments, pass_work)
    if condition is None:
        return None
    for consumer in consumers:
        if consumer.selection is not None:
            return ConsumerSelector(condition, consumer.selection.recent)
    return ConsumerSelector(condition, LastLookup())


def selector_of(condition: Condition) -> ConsumerSelector:
    """For a reader that shares nothing with others."""
    return ConsumerSelector(condition, LastLookup())
