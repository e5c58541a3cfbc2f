"""Contents of the file class on one channel: one that comes in, one that goes out.

    client                                broker
    file.open(identifier, size) -------->
                                <-------- file.open-ok(staged)          what is there already
    file.stage + header + rest  -------->                               IncomingFile, to the staging store
    file.publish(identifier)    -------->                               staged_publish.py

    file.open(identifier, size) <--------                               OutgoingFile, begun by FileTerms
    file.open-ok(staged)        -------->
                                <-------- file.stage + header + rest
                                <-------- file.deliver(identifier)

The body size in the header of a stage is that of the rest, which is what follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ChannelFault, ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.store.staging import StagedContent, Staging
    from flintmq.wire.stream import Body

# Written and synced at a time.
PART_BYTES = 1_048_576
# Of the properties that a channel keeps of contents until they are published; those of one in any case.
PROPERTIES_BYTES_MAX = 131_072


class IncomingFile:
    """What comes of a content by one file.stage: gathered to parts, and written one after the other."""

    def __init__(self, staging: Staging, content: StagedContent, wait: Callable[[Chore], None]) -> None:
        self.staging = staging
        self.content = content
        self.wait = wait  # has the connection wait until this work is done
        self.gathered = bytearray()
        self.is_waiting = False
        content.writer = self
        content.error = None  # of a stage before this one

    def append(self, octets: bytes) -> None:
        """The next of the body."""
        self.gathered += octets
        if len(self.gathered) < PART_BYTES or self.is_waiting:
            return
        if self.content.writing:
            self.is_waiting = True
            self.wait(self.written(False))
        else:
            self.check()
            self.write()

    def discard(self) -> None:
        """The rest will not come: what is gathered is sent again one day."""
        self.gathered.clear()

    def write(self) -> None:
        """The next part is on its way to the disk."""
        if self.content.writer is not self:
            text = f"content '{self.content.identifier}' was opened once more: this stage of it is over"
            raise ChannelFault(amqp.PRECONDITION_FAILED, text)
        part = bytes(self.gathered[:PART_BYTES])
        del self.gathered[:PART_BYTES]
        try:
            self.staging.append(self.content, self.content.staged, part)
        except ServiceFault as fault:
            raise refused(fault) from fault

    def written(self, is_whole: bool) -> Chore:
        """Writes until little is gathered; if that was all, until nothing is and all is noted."""
        try:
            while True:
                while self.content.writing:
                    yield self.content.when_idle
                self.check()
                if len(self.gathered) < PART_BYTES and not (is_whole and self.gathered):
                    return
                self.write()
        finally:
            self.is_waiting = False

    def check(self) -> None:
        error = self.content.error
        if error is not None:
            text = f"the content cannot be staged, what came before is kept: {error.strerror or error}"
            raise ChannelFault(amqp.RESOURCE_ERROR, text)


class RestOfBody:
    """A body from some octet on, see wire/stream.py."""

    __slots__ = ("body", "octets", "start")

    def __init__(self, body: Body, start: int) -> None:
        self.body = body
        self.start = start
        self.octets = body.octets - start

    def read(self, at: int, count: int) -> bytes:
        return self.body.read(self.start + at, count)

    def close(self) -> None:
        self.body.close()


class OutgoingFile:
    """A delivery that waits for the client to say how much of the content it has."""

    __slots__ = ("body", "consumer", "header", "identifier", "redelivered", "route", "tag")

    def __init__(
        self,
        consumer: Consumer,
        tag: int,
        redelivered: bool,
        route: bytes,
        identifier: str,
        header: bytes,
        body: Body,
    ) -> None:
        self.consumer = consumer
        self.tag = tag
        self.redelivered = redelivered
        self.route = route
        self.identifier = identifier
        self.header = header
        self.body = body


class FileTransfers:
    """Those of one channel."""

    __slots__ = ("abandoned", "incoming", "opened", "outgoing", "properties")

    def __init__(self) -> None:
        self.opened: StagedContent | None = None  # what the next file.stage is of
        self.incoming: IncomingFile | None = None
        self.properties: dict[
            str, bytes
        ] = {}  # of contents that were staged here, as a basic header has them
        self.outgoing: OutgoingFile | None = None
        self.abandoned = 0  # answers to come of a client that was asked for what nobody sends any more

    def keep_properties(self, identifier: str, properties: bytes) -> None:
        self.properties.pop(identifier, None)
        self.properties[identifier] = properties
        while len(self.properties) > 1 and sum(map(len, self.properties.values())) > PROPERTIES_BYTES_MAX:
            del self.properties[next(iter(self.properties))]

    def abandon(self) -> OutgoingFile | None:
        """Nothing is sent of the content that the client was told of."""
        outgoing, self.outgoing = self.outgoing, None
        if outgoing is not None:
            self.abandoned += 1
            outgoing.body.close()
        return outgoing

    def close(self) -> None:
        """The channel ends."""
        self.abandon()
        self.opened = self.incoming = None
        self.properties.clear()


def transfers_of(channel: Channel) -> FileTransfers:
    """Those of a channel, begun when it uses the file class for the first time."""
    found: FileTransfers | None = channel.files
    if found is None:
        found = channel.files = FileTransfers()
    return found


def refused(fault: ServiceFault) -> ChannelFault:
    """What the staging store refuses closes the channel."""
    return ChannelFault(fault.code, fault.text)
