"""The exchange types that can be declared, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.exchanges.deduplicating_exchange import DeduplicatingExchange
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.exchange import STANDARD_TYPES, Exchange
from flintmq.broker.exchanges.lossy_exchange import LossyExchange
from flintmq.broker.exchanges.recent_history_exchange import RecentHistoryExchange
from flintmq.broker.exchanges.selector_exchange import SELECTOR_TYPES
from flintmq.broker.exchanges.spreading_exchanges import (
    ConsistentHashExchange,
    RandomExchange,
    SeveralExchange,
)
from flintmq.broker.exchanges.system_exchange import SystemExchange
from flintmq.broker.exchanges.transform_exchange import TransformExchange

if TYPE_CHECKING:
    from flintmq.wire.tables import FieldTable

EXTENSION_TYPES: tuple[type[Exchange], ...] = (
    ConsistentHashExchange,
    DeduplicatingExchange,
    DelayedExchange,
    LossyExchange,
    RandomExchange,
    RecentHistoryExchange,
    SeveralExchange,
    SystemExchange,
    TransformExchange,
)

EXCHANGE_TYPES: dict[str, type[Exchange]] = {
    **STANDARD_TYPES,
    **SELECTOR_TYPES,
    **{kind.type: kind for kind in EXTENSION_TYPES},
}

# The names that AMQP/Fast 0.9 has for types, as classes of its proxies; fanout is called so on both sides.
PROXY_CLASSES = {
    "dest-name": "direct",
    "dest-wild": "topic",
    "prop-test": "headers",
    "prop-wild": "x-prop-wild",
    "selector": "x-selector",
    "lossy": "x-lossy",
}
# A lossy proxy is asserted without arguments. It loses every second message.
LOSSY_ARGUMENTS: FieldTable = {"x-drop-rate": 0.5}


def known_type(kind: str, arguments: FieldTable) -> tuple[str, FieldTable]:
    """The type that a name means, and the arguments with what the name implies."""
    if kind in EXCHANGE_TYPES or kind not in PROXY_CLASSES:
        return kind, arguments
    return PROXY_CLASSES[kind], {**LOSSY_ARGUMENTS, **arguments} if kind == "lossy" else arguments
