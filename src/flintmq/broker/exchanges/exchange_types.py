"""The exchange types that can be declared, by name."""

from __future__ import annotations

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
