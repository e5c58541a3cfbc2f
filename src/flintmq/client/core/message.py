"""A message as it was received: its body, what was said about it, and how to settle it.

Properties and names stay octets until they are asked for: a consumer that reads bodies alone decodes
nothing else.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flintmq.client.core.errors import ClientError
from flintmq.errors import PeerFault
from flintmq.wire import amqp
from flintmq.wire.properties import BasicProperties, decode_basic_properties

if TYPE_CHECKING:
    from flintmq.client.core.channel import ChannelCore
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.client")

_MULTIPLE = 1
_REQUEUE = 2


class Message:
    """One delivery. `ack`, `nack` and `reject` are False when its connection is gone: it comes again."""

    __slots__ = (
        "body",
        "channel",
        "consumer_octets",
        "decoded",
        "delivery_tag",
        "epoch",
        "property_octets",
        "redelivered",
        "route",
        "settled",
    )

    body: bytes
    delivery_tag: int
    redelivered: bool
    channel: ChannelCore
    epoch: int
    consumer_octets: bytes
    route: bytes
    property_octets: bytes
    decoded: BasicProperties | None
    settled: bool

    @staticmethod
    def create(
        channel: ChannelCore,
        epoch: int,
        consumer_octets: bytes,
        delivery_tag: int,
        redelivered: bool,
        route: bytes,
        property_octets: bytes,
        body: bytes,
    ) -> Message:
        message = Message.__new__(Message)
        message.channel = channel
        message.epoch = epoch
        message.consumer_octets = consumer_octets
        message.delivery_tag = delivery_tag
        message.redelivered = redelivered
        message.route = route
        message.property_octets = property_octets
        message.body = body
        message.decoded = None
        message.settled = False
        return message

    @property
    def exchange(self) -> str:
        return self.route[1 : 1 + self.route[0]].decode("utf-8", "surrogateescape")

    @property
    def routing_key(self) -> str:
        return self.route[2 + self.route[0] :].decode("utf-8", "surrogateescape")

    @property
    def consumer_tag(self) -> str:
        """Empty for a message of `get`."""
        return self.consumer_octets[1:].decode("utf-8", "surrogateescape")

    @property
    def properties(self) -> BasicProperties:
        if self.decoded is None:
            try:
                self.decoded = decode_basic_properties(self.property_octets, 0, len(self.property_octets))
            except PeerFault as fault:
                raise ClientError(f"the properties of a message are damaged: {fault.text}") from None
        return self.decoded

    @property
    def headers(self) -> FieldTable:
        return self.properties.headers or {}

    @property
    def is_lost(self) -> bool:
        """Whether its connection or channel is gone: it cannot be settled here, and comes again."""
        return self.epoch != self.channel.epoch

    def ack(self, multiple: bool = False) -> bool:
        """The message is done with; with `multiple` all delivered before it on its channel too."""
        self.settled = True
        return self.channel.settle(self, amqp.BASIC_ACK, _MULTIPLE if multiple else 0)

    def nack(self, multiple: bool = False, requeue: bool = True) -> bool:
        """The message could not be handled: requeued, or dead-lettered (dropped) without `requeue`."""
        flags = (_MULTIPLE if multiple else 0) | (_REQUEUE if requeue else 0)
        self.settled = True
        return self.channel.settle(self, amqp.BASIC_NACK, flags)

    def reject(self, requeue: bool = False) -> bool:
        """As nack, for brokers that know nothing else."""
        self.settled = True
        return self.channel.settle(self, amqp.BASIC_REJECT, 1 if requeue else 0)

    def process(self, *, requeue: bool = False, reject_on_redelivered: bool = False) -> Processing:
        """A context, for `with` and `async with` alike: settles the message at its end, if nobody has.

        An ack; or, when an exception leaves it, a reject: back to the queue with `requeue`, unless the
        message was redelivered and `reject_on_redelivered` says that once is enough. Where the connection
        was lost meanwhile, neither counts, and the message comes again: the log has a warning.
        """
        return Processing(self, requeue, reject_on_redelivered)

    def __reduce__(self) -> tuple[Any, ...]:
        """What was said travels; the right to settle it does not."""
        return detached, (
            self.consumer_octets,
            self.delivery_tag,
            self.redelivered,
            self.route,
            self.property_octets,
            self.body,
        )

    def __repr__(self) -> str:
        return (
            f"<Message {self.delivery_tag} from {self.exchange!r} {self.routing_key!r}, "
            f"{len(self.body)} octets>"
        )


class Processing:
    """The context of a message's handling."""

    def __init__(self, message: Message, requeue: bool, reject_on_redelivered: bool) -> None:
        self.message = message
        self.requeue = requeue and not (reject_on_redelivered and message.redelivered)

    def __enter__(self) -> Message:
        return self.message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.message.settled:
            return
        if error is None:
            if not self.message.ack():
                self._comes_again("handled", "acked")
            return
        # A handler that is stopped from outside has not failed: another one shall try.
        requeue = self.requeue or not isinstance(error, Exception)
        try:
            if not self.message.reject(requeue=requeue) and not requeue:
                self._comes_again("refused", "rejected")
        except ClientError as second:
            error.add_note(f"and rejecting the message failed: {second}")

    def _comes_again(self, done: str, settled: str) -> None:
        log.warning(
            "%r was %s, but its connection or channel was lost before it could be %s: the broker delivers "
            "it again",
            self.message,
            done,
            settled,
        )

    async def __aenter__(self) -> Message:
        return self.message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class Detached:
    """In the place of the channel of a message that came from another process."""

    epoch = -1  # no life of a channel

    def settle(self, message: Message, code: int, flags: int) -> bool:
        raise ClientError("the message was delivered in another process: settle it there")


DETACHED: Any = Detached()


def detached(
    consumer_octets: bytes,
    tag: int,
    redelivered: bool,
    route: bytes,
    properties: bytes,
    body: bytes,
) -> Message:
    """A message that was pickled."""
    return Message.create(DETACHED, 0, consumer_octets, tag, redelivered, route, properties, body)


def received(
    channel: ChannelCore,
    epoch: int,
    tag: int,
    redelivered: bool,
    route: bytes,
    properties: bytes,
    body: bytes,
    consumer_octets: bytes = b"\x00",
) -> Message:
    """A message that came by no consumer: that of a get, or one returned; or by a transfer."""
    return Message.create(channel, epoch, consumer_octets, tag, redelivered, route, properties, body)
