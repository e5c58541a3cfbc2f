"""What a virtual host refuses to declare or to share, in the words that clients of RabbitMQ know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.matching.field_equality import table_form
from flintmq.broker.queue_templates import TEMPLATE
from flintmq.broker.queues.deduplication import DEDUPLICATED
from flintmq.broker.queues.queue_rules import ARGUMENTS, CLASSIC
from flintmq.errors import ChannelFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.queue import Queue
    from flintmq.wire.tables import FieldTable


def reserved_name(kind: str, name: str, class_id: int, method_id: int) -> ChannelFault:
    text = f"{kind} name '{name}' contains reserved prefix 'amq.*'"
    return ChannelFault(amqp.ACCESS_REFUSED, text, class_id, method_id)


def check_exclusive_use(queue: Queue, consumer: Consumer, virtual_host: str) -> None:
    """Raises 403, or 405 in other classes than basic, where a consumer would have to be the only one."""
    what = f"queue '{queue.name}' in vhost '{virtual_host}'"
    code = amqp.RESOURCE_LOCKED if consumer.content_class else amqp.ACCESS_REFUSED
    # An exclusive consumer is the only one: it is enough to look at the first.
    if queue.consumers and (consumer.exclusive or queue.consumers[0].exclusive):
        raise ChannelFault(code, f"{what} in exclusive use")
    consumers_max = None if queue.rules is None else queue.rules.settings.consumers_max
    if consumers_max is not None and len(queue.consumers) >= consumers_max:
        raise ChannelFault(code, f"{what} has {consumers_max} consumers, as many as it may have")
    choice = None if queue.rules is None else queue.rules.choice
    if consumer.exclusive and choice is not None and choice.single_active:
        raise ChannelFault(code, f"{what} has a single active consumer: none can be exclusive")


# Equivalence: who declares what is there already must mean the same. As in RabbitMQ, arguments that nobody
# here knows mean nothing, so they need not be the same.
EXCHANGE_ARGUMENTS = frozenset(
    (
        "alternate-exchange",
        "hash-header",
        "hash-property",
        "x-cache-size",
        "x-cache-ttl",
        "x-copies",
        "x-delayed-type",
        "x-drop-rate",
        "x-recent-history-length",
        "x-routing-type",
        "x-transform",
    )
)
QUEUE_ARGUMENTS = frozenset(
    (
        *ARGUMENTS,
        DEDUPLICATED,
        TEMPLATE,
        "x-max-age",
        "x-stream-filter-size-bytes",
        "x-stream-max-segment-size-bytes",
    )
)


def compare_exchange(
    existing: Exchange,
    what: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: FieldTable,
) -> None:
    compare("type", what, kind, existing.type, 40)
    compare("durable", what, durable, existing.durable, 40)
    compare("auto_delete", what, auto_delete, existing.auto_delete, 40)
    compare("internal", what, internal, existing.internal, 40)
    known = None if existing.compares_all else EXCHANGE_ARGUMENTS
    compare_arguments(what, arguments, existing.arguments, 40, known)


def compare_queue(
    existing: Queue, what: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: FieldTable
) -> None:
    if exclusive != existing.exclusive:
        raise inequivalent("exclusive", what, exclusive, existing.exclusive, 50, amqp.RESOURCE_LOCKED)
    compare("durable", what, durable, existing.durable, 50)
    compare("auto_delete", what, auto_delete, existing.auto_delete, 50)
    received, current = without_default_type(arguments), without_default_type(existing.arguments)
    compare_arguments(what, received, current, 50, QUEUE_ARGUMENTS)


def without_default_type(arguments: FieldTable) -> FieldTable:
    """A classic queue may say so or not: it is the same queue."""
    return {name: value for name, value in arguments.items() if (name, value) != ("x-queue-type", CLASSIC)}


def compare(argument: str, what: str, received: object, current: object, class_id: int) -> None:
    """Raises 406 unless a declared property is what it was."""
    if received != current:
        raise inequivalent(argument, what, received, current, class_id)


def compare_arguments(
    what: str, received: FieldTable, current: FieldTable, class_id: int, known: frozenset[str] | None
) -> None:
    """Raises 406 unless the known arguments, all if None, are what they were."""
    names = {*received, *current}
    for name in sorted(names if known is None else names & known):
        one, other = received.get(name), current.get(name)
        if table_form({name: one}) != table_form({name: other}):
            raise inequivalent(name, what, one, other, class_id)


def inequivalent(
    argument: str,
    what: str,
    received: object,
    current: object,
    class_id: int,
    code: int = amqp.PRECONDITION_FAILED,
) -> ChannelFault:
    texts = [
        ("none" if v is None else str(v).lower() if isinstance(v, bool) else f"{v}")
        for v in (received, current)
    ]
    return ChannelFault(
        code,
        f"inequivalent arg '{argument}' for {what}: "
        f"received '{texts[0][:64]}' but current is '{texts[1][:64]}'",
        class_id,
        10,
    )
