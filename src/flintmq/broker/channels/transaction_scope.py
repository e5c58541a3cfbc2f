"""What a channel asks of its transaction, whether that is of the tx class or of the dtx classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery


class TransactionScope(Protocol):
    """Takes what the channel publishes and settles."""

    def publish(self, message: Message, flags: int) -> None:
        """The user may send it, and its exchange is there."""

    def without_settled(self, deliveries: list[Delivery]) -> list[Delivery]:
        """The deliveries that the transaction has not settled already."""

    def ack(self, deliveries: list[Delivery]) -> None:
        """basic.ack"""

    def reject(self, deliveries: list[Delivery], requeue: bool) -> None:
        """basic.reject and basic.nack"""

    def close(self) -> None:
        """The channel closes."""
