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
    from collections.abc import Callable

    from flintmq.broker.messages.message import Message
    from flintmq.broker.store.store import Store
    from flintmq.storage.journal.journal import Journal
    from flintmq.storage.spool import Spool


# So much of a body is there when it gets a file: 2,047 channels of a connection hold 16 MiB. A large body is
# easily announced, and where thousands of files have just gone a file system takes long to make the next.
HELD_BYTES_MAX = 8192


class IncomingSpool:
    """A body that is coming in; `opened` is called when it gets its file."""

    def __init__(self, journal: Journal, opened: Callable[[], None]) -> None:
        self.journal = journal
        self.opened = opened
        self.held = bytearray()  # what has come of it before it has a file
        self.file: Spool | None = None

    def append(self, octets: bytes) -> None:
        if self.file is None and len(self.held) + len(octets) < HELD_BYTES_MAX:
            self.held += octets
            return
        try:
            self.spool().append(octets)
        except StorageFault as fault:
            raise no_room(str(fault)) from fault

    def spool(self) -> Spool:
        """The file with all that has come so far."""
        if self.file is not None:
            return self.file
        try:
            self.file = self.journal.open_spool()
        except OSError as failure:
            raise no_room(f"cannot make a file for it: {failure.strerror or failure}") from failure
        self.opened()
        held, self.held = self.held, bytearray()
        if held:
            self.append(bytes(held))
        return self.file

    def discard(self) -> None:
        self.held.clear()
        if self.file is not None:
            self.file.discard()


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
