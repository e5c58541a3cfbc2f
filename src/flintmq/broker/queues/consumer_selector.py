"""Late bindings: the argument x-selector of basic.consume, with which a consumer takes only some messages.

The consumers of a queue share what was decoded of the message that is being offered to them, so that its
headers are decoded once however many are asked. A message whose headers cannot be read has none here: it
was accepted when nobody needed to read them, and must not harm those who consume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.matching.condition import Condition
from flintmq.broker.matching.lookup import Lookup
from flintmq.broker.matching.selector_parser import parse_selector
from flintmq.broker.messages.message import Message
from flintmq.errors import ChannelFault, PeerFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.wire.tables import FieldTable


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

    __slots__ = ("condition", "recent")

    def __init__(self, condition: Condition, recent: LastLookup) -> None:
        self.condition = condition
        self.recent = recent

    def accepts(self, message: Message) -> bool:
        return self.condition.holds(self.recent.of(message))


def selection_of(arguments: FieldTable, consumers: list[Consumer]) -> ConsumerSelector | None:
    """The selection that basic.consume asks for, if any; `consumers` are those that the queue has already."""
    if "x-selector" not in arguments:
        return None
    text = arguments["x-selector"]
    if not isinstance(text, str):
        kind = type(text).__name__
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"expected a text as argument 'x-selector', found a value of type {kind}",
            60,
            20,
        )
    condition = parse_selector(text)
    for consumer in consumers:
        if consumer.selection is not None:
            return ConsumerSelector(condition, consumer.selection.recent)
    return ConsumerSelector(condition, LastLookup())
