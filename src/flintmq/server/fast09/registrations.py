"""What a registration of a queue with a proxy is as a binding (section 3.15.3.3).

    first proxy of the queue     a plain binding: what is sent there comes to the queue
    the same proxy again         one more of these: any that fits is enough
    a further proxy              a chained binding (x-via), which narrows what comes by the first: AND

The document names no arguments. `destination` is the name or pattern for proxies that look at it, the name of
the queue if it is not given; `selector` is the condition of a selector proxy. The properties that prop-test
and prop-wild look at are the arguments themselves, as in a binding of these exchanges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.broker.exchanges.binding import VIA
from flintmq.broker.exchanges.chains import via_of
from flintmq.errors import ChannelFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.exchanges.binding import Binding
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.queue import Queue
    from flintmq.wire.tables import FieldTable

DESTINATION = "destination"
SELECTOR = "selector"
# Exchanges whose bindings have a key that is the name, or the pattern of names, of a destination.
BY_DESTINATION = ("direct", "topic")


def entries_of(queue: Queue) -> list[str]:
    """The proxies by which messages come to a queue: those with plain bindings, the first one first."""
    found = []
    for source in queue.sources:
        newest: Binding | None = source.newest_to(queue)
        if newest is not None and not newest.is_chained():
            found.append(source.name)
    return found


def key_and_arguments(proxy: Exchange, name: str, arguments: FieldTable) -> tuple[str, FieldTable]:
    """The routing key and the arguments of the binding that a registration of the queue `name` is."""
    rest = dict(arguments)
    key = ""
    if proxy.type in BY_DESTINATION:
        destination: Any = rest.pop(DESTINATION, name)
        if not isinstance(destination, str) or len(destination.encode()) > amqp.SHORTSTR_BYTES_MAX:
            raise ChannelFault(
                amqp.PRECONDITION_FAILED, f"argument '{DESTINATION}' is a text of 255 octets at most"
            )
        key = destination
    elif proxy.type == "x-selector" and SELECTOR in rest:
        rest["x-selector"] = rest.pop(SELECTOR)
    return key, rest


def chained(proxy: Exchange, queue: Queue, arguments: FieldTable) -> FieldTable:
    """The arguments with what makes it a condition on top of other proxies, if the queue has some."""
    entries = entries_of(queue)
    if VIA in arguments or not entries or proxy.name in entries:
        return arguments
    return {**arguments, VIA: [*entries]}


def registered(proxy: Exchange, queue: Queue, key: str, arguments: FieldTable) -> FieldTable:
    """The arguments of the binding that is there for such a registration, plain or chained.

    Those given if there is none: then nothing is unbound.
    """
    newest = proxy.newest_to(queue)
    if newest is None or not newest.is_chained() or VIA in arguments:
        return arguments
    return {**arguments, VIA: [*via_of(newest.arguments)]}
