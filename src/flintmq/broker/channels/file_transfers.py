"""Contents of the file class on one channel: one that comes in, one that goes out.

    client                                broker
    file.open(identifier, size) -------->
                                <-------- file.open-ok(staged)          what is there already
    file.stage + header + block -------->                               IncomingFile, to the staging store
    ... once more from file.open, for as long as something is missing
    file.publish(identifier)    -------->                               staged_publish.py

    file.open(identifier, size) <--------                               OutgoingFile, begun by FileTerms
    file.open-ok(staged)        -------->
                                <-------- file.stage + header + block   BlockOfFile
    ... once more from file.open, for as long as something is missing
                                <-------- file.deliver(identifier)

The body size in the header of a stage is that of the block that follows. Each open-ok tells the sender that
the block before it has arrived. So a sender that waits for it never sends more than one block twice. The
broker does so; a client may also send all that is missing as one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ChannelFault, ServiceFault
from flintmq.wire import amqp
from flintmq.wire.fields import encode_shortstr

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.store.staging import StagedContent, Staging
    from flintmq.wire.stream import Body

# Written and synced at a time.
PART_BYTES = 1_048_576
# Sent to a client at a time: what a break of the connection may cost. A round trip of 10 ms for each block
# leaves 100 MiB a second.
BLOCK_BYTES = 1_048_576
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


class BlockOfFile:
    """Some octets of an outgoing file, see wire/stream.py."""

    __slots__ = ("octets", "outgoing", "start")

    def __init__(self, outgoing: OutgoingFile, start: int, octets: int) -> None:
        outgoing.holders += 1
        self.outgoing = outgoing
        self.start = start
        self.octets = octets

    def read(self, at: int, count: int) -> bytes:
        return self.outgoing.body.read(self.start + at, count)

    def close(self) -> None:
        self.outgoing.release()


class OutgoingFile:
    """A delivery that waits for the client to say how much of the content it has."""

    __slots__ = ("body", "consumer", "header", "holders", "identifier", "redelivered", "route", "tag")

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
        self.holders = 1  # the channel; each block that is on its way is one more

    def release(self) -> None:
        """One holder less: the last one closes the body, which a block may still be read from until then."""
        self.holders -= 1
        if not self.holders:
            self.body.close()

    def open_payload(self) -> bytes:
        """The file.open that asks the client how much it has."""
        payload = amqp.FILE_OPEN.to_bytes(4, "big") + encode_shortstr(self.identifier)
        return payload + self.body.octets.to_bytes(8, "big")


class FileTransfers:
    """The transfers of one channel."""

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
            outgoing.release()
        return outgoing

    def close(self) -> None:
        """The channel ends."""
        self.abandon()
        self.opened = self.incoming = None
        self.properties.clear()


def transfers_of(channel: Channel) -> FileTransfers:
    """The transfers of a channel, made when it uses the file class for the first time."""
    found: FileTransfers | None = channel.files
    if found is None:
        found = channel.files = FileTransfers()
    return found


def refused(fault: ServiceFault) -> ChannelFault:
    """What the staging store refuses closes the channel."""
    return ChannelFault(fault.code, fault.text)
