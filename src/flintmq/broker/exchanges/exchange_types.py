"""The exchange types that can be declared, by name."""

from __future__ import annotations

from flintmq.broker.exchanges.deduplicating_exchange import DeduplicatingExchange
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.exchange import STANDARD_KINDS, Exchange
from flintmq.broker.exchanges.lossy_exchange import LossyExchange
from flintmq.broker.exchanges.recent_history_exchange import RecentHistoryExchange
from flintmq.broker.exchanges.selector_exchange import SELECTOR_KINDS
from flintmq.broker.exchanges.spreading_exchanges import ConsistentHashExchange, RandomExchange

EXTENSION_KINDS: tuple[type[Exchange], ...] = (
    ConsistentHashExchange,
    DeduplicatingExchange,
    DelayedExchange,
    LossyExchange,
    RandomExchange,
    RecentHistoryExchange,
)

KINDS: dict[str, type[Exchange]] = {
    **STANDARD_KINDS,
    **SELECTOR_KINDS,
    **{kind.type: kind for kind in EXTENSION_KINDS},
}
