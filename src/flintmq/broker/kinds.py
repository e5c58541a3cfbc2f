"""The exchange types that can be declared, by name."""

from __future__ import annotations

from flintmq.broker.deduplicating_exchange import DeduplicatingExchange
from flintmq.broker.delayed_exchange import DelayedExchange
from flintmq.broker.exchange import STANDARD_KINDS, Exchange
from flintmq.broker.lossy_exchange import LossyExchange
from flintmq.broker.recent_history_exchange import RecentHistoryExchange
from flintmq.broker.selector_exchange import SELECTOR_KINDS
from flintmq.broker.spreading_exchanges import ConsistentHashExchange, RandomExchange

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
