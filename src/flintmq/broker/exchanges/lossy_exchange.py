"""x-lossy: loses messages on purpose, by chance, so that clients can be tried against loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.exchange import ROUTED, TAKEN
from flintmq.broker.exchanges.wrapping_exchange import WrappingExchange

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext


class LossyExchange(WrappingExchange):
    """Drops each message with the probability `x-drop-rate`; nobody hears of it."""

    __slots__ = ("drop_rate",)
    type = "x-lossy"
    needs_headers = True  # a route is not kept: chance decides for each message

    def prepare(self) -> None:
        super().prepare()
        self.drop_rate = arguments.checked(self.arguments, "x-drop-rate", checks.number(0, 1))

    def receive(self, context: RoutingContext) -> int:
        return TAKEN if self.loses() else ROUTED

    def loses(self) -> bool:
        """Whether chance will have it that the next message is lost; in a chain too, see chains.py."""
        return bool(self.router.chance().random() < self.drop_rate)
