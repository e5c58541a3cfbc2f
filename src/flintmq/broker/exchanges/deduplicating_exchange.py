"""x-message-deduplication: drops a message whose like it has seen before, see queues/deduplication.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.exchange import ROUTED, TAKEN
from flintmq.broker.exchanges.wrapping_exchange import WrappingExchange
from flintmq.broker.queues.deduplication import Cache, value_of

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.store.publisher import PublisherConfirms

# A value is some 200 octets with its place in the cache: 200 MB at the worst.
CACHE_SIZE_MAX = 1_000_000
TTL_MS_MAX = 1 << 40


class DeduplicatingExchange(WrappingExchange):
    """Remembers `x-cache-size` values, each for `x-cache-ttl` ms, or as long as the message's own says."""

    __slots__ = ("cache", "ttl_ms")
    type = "x-message-deduplication"

    def prepare(self) -> None:
        super().prepare()
        self.cache = Cache(arguments.checked(self.arguments, "x-cache-size", checks.whole(1, CACHE_SIZE_MAX)))
        self.ttl_ms = arguments.checked(self.arguments, "x-cache-ttl", checks.whole(0, TTL_MS_MAX), 0)

    def receive(self, context: RoutingContext) -> int:
        headers = context.headers()
        value = value_of(headers)
        if value is None:
            return ROUTED
        own_ms = headers.get("x-cache-ttl")
        is_right = isinstance(own_ms, int) and not isinstance(own_ms, bool) and 0 < own_ms <= TTL_MS_MAX
        ttl_ms = own_ms if is_right and isinstance(own_ms, int) else self.ttl_ms
        now_ms = self.router.pass_work.timetable.now_ms()
        if not self.cache.has_seen(value, now_ms, ttl_ms):
            return ROUTED
        if context.channel is not None:
            self.confirm_with_first(context.channel.confirms)
        return TAKEN

    def confirm_with_first(self, confirms: PublisherConfirms) -> None:
        """A duplicate is confirmed when all that came before is safe, and so the message that it is like."""
        router: Router = self.router
        if router.store is not None:
            confirms.note_kept(router.store.last())
        if router.streams is not None:
            router.streams.note(confirms)

    def take_back(self, context: RoutingContext, is_unrouted: bool) -> None:
        self.cache.forget(value_of(context.headers()))
