"""Queue namespaces: types of queues that keep their names apart, such as "replies" and "subscriptions".

    queue "7" with the argument x-namespace "replies"  ->  the queue "replies:7"

The broker puts the namespace before the name and knows the queue by both together, in every other method
and for permissions. queue.declare, queue.bind, queue.unbind and basic.consume take the argument. declare-ok
has the name as the client gave it, since some clients wait for just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker.exchanges import arguments as arguments_of

if TYPE_CHECKING:
    from flintmq.wire.tables import FieldTable

NAMESPACE = "x-namespace"
SEPARATOR = ":"


def qualified(name: str, arguments: FieldTable) -> tuple[str, FieldTable]:
    """The whole name of a queue, and the arguments that are left."""
    if NAMESPACE not in arguments:
        return name, arguments
    namespace = arguments_of.checked(arguments, NAMESPACE, checks.any_text, "")
    if not namespace or SEPARATOR in namespace:
        raise arguments_of.wrong(NAMESPACE, f"text without '{SEPARATOR}'")
    whole = f"{namespace}{SEPARATOR}{name}"
    if checks.octets_of(whole) > checks.NAME_OCTETS_MAX:
        raise arguments_of.wrong(NAMESPACE, f"at most {checks.NAME_OCTETS_MAX} octets together with the name")
    rest = dict(arguments)
    del rest[NAMESPACE]
    return whole, rest
