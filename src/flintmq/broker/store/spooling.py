"""Messages too large for memory: the body lies in a file, written as it arrives and read as it leaves.

    body_begins -> IncomingSpool.append ... -> publish_spooled -> an entry of the journal, for durable queues
                                                               -> a hold of the store, for all others

The Message of it holds the header alone, and the trait SPOOLED. One file serves all its queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ChannelFault, StorageFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.store.store import Store
    from flintmq.storage.journal.journal import Journal
    from flintmq.storage.spool import Spool


class IncomingSpool:
    """A body that is coming in."""

    def __init__(self, journal: Journal) -> None:
        try:
            self.spool = journal.open_spool()
        except OSError as failure:
            raise no_room(f"cannot make a file for it: {failure.strerror or failure}") from failure

    def append(self, octets: bytes) -> None:
        try:
            self.spool.append(octets)
        except StorageFault as fault:
            raise no_room(str(fault)) from fault

    def discard(self) -> None:
        self.spool.discard()


class HeldSpool:
    """A spooled message of queues that the journal does not know; the file goes with the last of them."""

    __slots__ = ("message", "queues", "spool")

    def __init__(self, message: Message, spool: Spool, queues: int) -> None:
        self.message = message
        self.spool = spool
        self.queues = queues


class Sharing:
    """A message that shares the body of another one while it is put into queues."""

    __slots__ = ("message", "spool", "store")

    def __init__(self, store: Store, spool: Spool | None, message: Message) -> None:
        self.store = store
        self.spool = spool  # None: the body lies in memory, and there is nothing to share
        self.message = message

    def __enter__(self) -> None:
        if self.spool is not None:
            self.store.arrived[self.message] = self.spool.share()

    def __exit__(self, *_: object) -> None:
        self.store.forget_arrived(self.message)


def no_room(why: str) -> ChannelFault:
    return ChannelFault(amqp.RESOURCE_ERROR, f"the message cannot be stored: {why}", amqp.CLASS_BASIC, 40)
