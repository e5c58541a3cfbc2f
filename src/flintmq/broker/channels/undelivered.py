"""Messages that come back to their publisher after they have waited in a queue: nobody has taken them.

The queue has the argument x-return-undelivered, and the message a header of the same name: the number of the
channel that its publisher wants to hear of it on. A message of which a dead letter goes on is not returned,
nor is one whose publisher has closed that channel, has gone, or does not read what it is sent.

    basic.return  | 313 | EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT | ...     it died in its queue
                  | 312 | QUEUE_DELETED | ...                                 its queue was deleted
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.errors import PeerFault
from flintmq.wire import amqp, headers, traits

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.channels.client_connection import ClientConnection
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore

RETURN_UNDELIVERED = "x-return-undelivered"
_HEADER_OCTETS = RETURN_UNDELIVERED.encode()
# Those that have a method for it. In AMQP/Fast what comes back is a fault of what is being sent.
TELLING = (amqp.VERSION_0_8, amqp.VERSION_0_9, amqp.VERSION_0_9_1)
# Messages of a deleted queue that one step returns: some 5 microseconds each.
RETURNED = 256

Find = Callable[[int], "ClientConnection | None"]


def give_back(find: Find, virtual_host: object, message: Message, code: int, text: str) -> None:
    """Returns the message to its publisher, if that wants to hear of it."""
    channel = asking_channel(find, virtual_host, message)
    if channel is not None and not channel.output.ended and not channel.output.is_full():
        channel.send_back(message, code, text)  # whatever the channel is publishing just now


def asking_channel(find: Find, virtual_host: object, message: Message) -> Channel | None:
    """The channel on which the publisher of the message wants to have it back."""
    if not message.traits & traits.HAS_HEADERS or not message.origin:
        return None
    try:
        number, _ = headers.read_header(message.content, message.header_size, _HEADER_OCTETS)
    except PeerFault:  # headers that nobody can read ask for nothing
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    client = find(message.origin)
    if client is None or client.virtual_host is not virtual_host or client.version not in TELLING:
        return None
    return client.channels.get(number)


def died(find: Find, virtual_host: object, messages: list[Message], reason: str) -> None:
    """Gives messages that have died in their queue back to their publishers."""
    for message in messages:
        give_back(find, virtual_host, message, amqp.NO_CONSUMERS, reason.upper())


def of_deleted(find: Find, virtual_host: object, queue: Queue) -> Chore:
    """What a deleted queue has is returned, in portions, and then let go."""
    try:
        while True:
            for _ in range(RETURNED):
                delivery = queue.draw()
                if delivery is None:
                    return
                if delivery.message is not None:
                    give_back(find, virtual_host, delivery.message, amqp.NO_ROUTE, "QUEUE_DELETED")
                    queue.settle(delivery.message)
            yield None
    finally:
        queue.purge()  # what waits for its next try, or what a bug has left
