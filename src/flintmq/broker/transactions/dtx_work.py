"""The channel's side of distributed transactions: what it publishes and settles goes to the branch at hand.

Between dtx-demarcation.start and end there is one branch; outside of that a channel in dtx mode works as
any other, and what it does takes effect at once. When the channel closes, what it did in branches that
are not prepared is lost, and these branches with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.transactions.dtx_branch import Settlement
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.transactions.dtx_branch import Branch
    from flintmq.broker.transactions.dtx_branches import Branches


class DtxWork:
    """One channel in dtx mode."""

    __slots__ = ("branch", "branches", "channel", "involved", "is_closed", "origin", "settled_tags")

    def __init__(self, channel: Channel, branches: Branches) -> None:
        self.channel = channel
        self.branches = branches
        self.origin = channel.origin
        self.branch: Branch | None = None  # it works in now
        self.involved: dict[Branch, None] = {}  # branches not prepared that it has worked in
        self.settled_tags: set[int] = set()  # in branches that are not prepared
        self.is_closed = False

    def publish(self, message: Message, flags: int) -> None:
        store = self.channel.store
        try:
            if self.branch is not None:
                self.branches.publish(self.branch, self, message, flags)
            else:
                router = self.channel.router
                route = router.route_of(message.route)
                router.check_way(route, message, self.channel)  # else it would count as accepted on its way
                self.channel.forward(message, route, flags)
        finally:
            if store is not None and message.traits & traits.SPOOLED:
                store.forget_arrived(message)

    def without_settled(self, deliveries: list[Delivery]) -> list[Delivery]:
        return [delivery for delivery in deliveries if delivery.tag not in self.settled_tags]

    def ack(self, deliveries: list[Delivery]) -> None:
        if self.branch is None:
            self.channel.discard(deliveries)
        else:
            self.branches.settle(self.branch, self, Settlement.ACK, deliveries)

    def reject(self, deliveries: list[Delivery], requeue: bool) -> None:
        if self.branch is not None:
            settlement = Settlement.REQUEUE if requeue else Settlement.REJECT
            self.branches.settle(self.branch, self, settlement, deliveries)
        elif requeue:
            self.channel.requeue(deliveries)
        else:
            self.channel.refuse(deliveries)

    def close(self) -> None:
        """The channel closes."""
        self.is_closed = True
        self.branch = None
        self.branches.lose(self)
        self.settled_tags.clear()
