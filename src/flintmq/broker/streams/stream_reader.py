"""A consumer's place in a stream: which messages come next, and which of them it wants.

    cursor (storage) -> chunk -> ChunkMessages, decoded once for all who read it -> StreamReader, one each

A message that leaves carries its offset as the header `x-stream-offset`. Filters are looked up per chunk
(a Bloom filter, so that most of what is not wanted is never decoded) and then compared for each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.messages.message import Message
from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.streams import stream_octets
from flintmq.storage.streams.chunk import Chunk
from flintmq.storage.streams.cursor import StreamCursor
from flintmq.wire import stamp, traits

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.storage.streams.log import StreamLog

# Of the content header: 12 octets, then the property flags.
FLAGS_AT = 12
PROPERTIES_AT = 14
# So many octets that are read and checked, and messages that are decoded, take as long as handing out one
# message; as powers of two.
READ_SHIFT = 12
DECODED_SHIFT = 2


class ChunkMessages:
    """The messages of a chunk, as they are delivered."""

    __slots__ = ("filters", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.filters: list[bytes | None] = []  # of each; empty where none has any


def decoded(chunk: Chunk) -> ChunkMessages:
    """The messages of the chunk; the work is done by whoever asks first."""
    if chunk.messages is None:
        found = ChunkMessages()
        decode(chunk.octets, chunk.messages_at(), chunk.messages_end(), chunk.first_offset, found)
        chunk.messages = found
    return chunk.messages  # type: ignore[return-value]


def decode(octets: bytes, at: int, end: int, offset: int, found: ChunkMessages) -> None:
    """Fills `found`. That the sizes add up was checked with the checksum of the chunk."""
    route = b""
    while at < end:
        size = layout.get_u32(octets, at)
        header_size = layout.get_u32(octets, at + 4)
        sizes = layout.get_u32(octets, at + 16)
        route_size = sizes & 0xFFFF
        filter_size = sizes >> 16
        start = at + stream_octets.MESSAGE_HEAD
        if not stream_octets.is_same(octets, start, start + route_size, route):
            route = stream_octets.part(octets, start, start + route_size)
        start += route_size
        if filter_size != stream_octets.NO_FILTER:
            while len(found.filters) < len(found.messages):
                found.filters.append(None)
            found.filters.append(stream_octets.part(octets, start, start + filter_size))
            start += filter_size
        table_at = start + PROPERTIES_AT
        flags = layout.get_u8(octets, start + FLAGS_AT)
        if flags & 0x80:  # content-type
            table_at += 1 + layout.get_u8(octets, table_at)
        if flags & 0x40 and table_at < at + size:  # content-encoding
            table_at += 1 + layout.get_u8(octets, table_at)
        table_end = table_at
        if flags & 0x20 and table_at + 4 <= at + size:
            # In two steps: a sum of C's 32 bits would wrap.
            table_end += 4
            table_end += (
                layout.get_u8(octets, table_at) << 24
                | layout.get_u8(octets, table_at + 1) << 16
                | layout.get_u8(octets, table_at + 2) << 8
                | layout.get_u8(octets, table_at + 3)
            )
        if table_end > start + header_size:
            raise StorageFault(f"the header of offset {offset} of a stream is not one")
        content = stamp.stamped(octets, start, table_at, table_end, at + size, offset)
        message = Message.create(
            route,
            content,
            header_size + (stamp.ENTRY_BYTES if table_end > table_at else stamp.TABLE_BYTES),
            layout.get_u32(octets, at + 20) | traits.HAS_HEADERS,
            0,
        )
        found.messages.append(message)
        at += size
        offset += 1
    if found.filters:
        while len(found.filters) < len(found.messages):
            found.filters.append(None)


class StreamReader:
    """Where a consumer is."""

    __slots__ = (
        "chunk_offset",
        "consumer",
        "cursor",
        "filters",
        "found",
        "index",
        "is_failing",
        "load_cost",
        "match_unfiltered",
        "start",
        "wanted",
    )

    def __init__(
        self,
        consumer: Consumer,
        log: StreamLog,
        offset: int,
        wanted: tuple[bytes, ...] | None,
        match_unfiltered: bool,
    ) -> None:
        self.consumer = consumer
        self.cursor = StreamCursor(log, offset)
        self.start = offset  # chunks may begin before it
        self.wanted = wanted  # the filter values; None: all messages
        self.match_unfiltered = match_unfiltered
        self.found: list[Message] = []
        self.filters: list[bytes | None] = []
        self.chunk_offset = 0
        self.index = 0
        self.load_cost = 0  # of the last chunk, as so many messages that are handed out
        self.is_failing = False  # the disk has failed it, which was told

    def peek(self) -> Message | None:
        """The next message in memory that it wants; None: `load` more."""
        while self.index < len(self.found):
            if self.wanted is None or self.wants():
                return self.found[self.index]
            self.index += 1
        return None

    def wants(self) -> bool:
        value = self.filters[self.index] if self.filters else None
        if value is None:
            return self.match_unfiltered
        return self.wanted is not None and value in self.wanted

    def offset(self) -> int:
        """Of the message that `peek` gave."""
        return self.chunk_offset + self.index

    def load(self) -> bool:
        """The next chunk; False when there is none yet."""
        chunk = self.cursor.next()
        if chunk is None:
            self.found = []
            self.index = 0
            return False
        self.chunk_offset = chunk.first_offset
        self.index = 0
        self.load_cost = 1
        if chunk.messages is None:
            self.load_cost += chunk.head.size >> READ_SHIFT
        if self.wanted is not None and not self.match_unfiltered and not chunk.may_hold(self.wanted):
            self.found = []
            return True
        if chunk.messages is None:
            self.load_cost += (chunk.end_offset - chunk.first_offset) >> DECODED_SHIFT
        messages = decoded(chunk)
        self.found = messages.messages
        self.filters = messages.filters
        if self.start > self.chunk_offset:
            self.index = min(self.start - self.chunk_offset, len(self.found))
        return True
