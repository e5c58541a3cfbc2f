"""Bulk reads of a stream: messages of many chunks laid out in the columns of wire/columns.py.

The messages are walked twice, first to count what each column takes, then to copy it: no object is made of
any of them. The sizes in a chunk were checked with its checksum.
"""

from __future__ import annotations

import struct

from flintmq.storage import layout
from flintmq.storage.streams import stream_octets
from flintmq.storage.streams.chunk import Chunk
from flintmq.storage.streams.cursor import StreamCursor
from flintmq.storage.streams.log import StreamLog
from flintmq.wire import columns

# The data of a column has starts of 32 bits, signed in Arrow.
COLUMN_OCTETS_MAX = (1 << 31) - 1
# What a message takes besides its octets: 8 each for offset and time, 4 for the start of each value.
ROW_OCTETS = 28

_HEAD = struct.Struct("<4sHHQQQ")
_ENTRY = struct.Struct("<HHIQQQ")


class Selection:
    """Which messages are wanted, and what they take of each column."""

    __slots__ = (
        "count",
        "end_at",
        "exchange_octets",
        "first_at",
        "key_octets",
        "limit",
        "octets",
        "property_octets",
        "value_octets",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit  # octets of all columns together
        self.octets = 0
        self.count = 0
        self.value_octets = 0
        self.key_octets = 0
        self.exchange_octets = 0
        self.property_octets = 0
        # Of the chunk measured last: its wanted messages.
        self.first_at = 0
        self.end_at = 0

    def measure(self, octets: bytes, at: int, end: int, skipped: int, wanted: int) -> int:
        """Leaves out `skipped` of the messages from `at` on, takes up to `wanted`; how many it took."""
        while skipped > 0 and at < end:
            at += layout.get_u32(octets, at)
            skipped -= 1
        self.first_at = at
        taken = 0
        while at < end and taken < wanted:
            size = layout.get_u32(octets, at)
            cost = size - stream_octets.MESSAGE_HEAD + ROW_OCTETS
            if self.octets + cost > self.limit and self.count:
                break
            self.octets += cost
            route_size = layout.get_u32(octets, at + 16) & 0xFFFF
            exchange_size = layout.get_u8(octets, at + stream_octets.MESSAGE_HEAD)
            self.exchange_octets += exchange_size
            self.key_octets += route_size - exchange_size - 2
            self.value_octets += size - value_start(octets, at)
            self.property_octets += layout.get_u32(octets, at + 4) - 12
            self.count += 1
            at += size
            taken += 1
        self.end_at = at
        return taken


def header_start(octets: bytes, at: int) -> int:
    """How far behind `at` the content header of the message lies."""
    sizes = layout.get_u32(octets, at + 16)
    filter_size = sizes >> 16
    if filter_size == stream_octets.NO_FILTER:
        filter_size = 0
    return stream_octets.MESSAGE_HEAD + (sizes & 0xFFFF) + filter_size


def value_start(octets: bytes, at: int) -> int:
    """How far behind `at` the body of the message lies."""
    return header_start(octets, at) + layout.get_u32(octets, at + 4)


class OctetColumn:
    """A column of values of any length; one that nobody wants has no place."""

    __slots__ = ("buffer", "data_at", "fill", "starts_at")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.starts_at = 0
        self.data_at = 0
        self.fill = 0

    def place(self, buffer: bytearray, starts_at: int, data_at: int) -> None:
        self.buffer = buffer
        self.starts_at = starts_at
        self.data_at = data_at

    def put(self, row: int, octets: bytes, start: int, end: int) -> int:
        if self.starts_at:
            stream_octets.put_part(self.buffer, self.data_at + self.fill, octets, start, end)
            self.fill += end - start
            layout.put_u32(self.buffer, self.starts_at + 4 * (row + 1), self.fill)
        return 0


class ColumnFilling:
    """All columns of a reply, filled chunk by chunk."""

    __slots__ = (
        "buffer",
        "count",
        "exchange",
        "headers",
        "key",
        "offsets_at",
        "properties",
        "times_at",
        "value",
    )

    def __init__(self, buffer: bytearray) -> None:
        self.buffer = buffer
        self.count = 0
        self.offsets_at = 0
        self.times_at = 0
        self.value = OctetColumn()
        self.key = OctetColumn()
        self.exchange = OctetColumn()
        self.headers = OctetColumn()
        self.properties = OctetColumn()

    def fill(self, octets: bytes, at: int, end: int, offset: int) -> int:
        """The messages at at..end; the first has this offset."""
        buffer = self.buffer
        row = self.count
        while at < end:
            size = layout.get_u32(octets, at)
            if self.offsets_at:
                layout.put_u64(buffer, self.offsets_at + 8 * row, offset)
            if self.times_at:
                layout.put_u64(buffer, self.times_at + 8 * row, layout.get_u64(octets, at + 8) * 1000)
            start = at + stream_octets.MESSAGE_HEAD + 1
            middle = start + layout.get_u8(octets, start - 1)
            self.exchange.put(row, octets, start, middle)
            self.key.put(row, octets, middle + 1, middle + 1 + layout.get_u8(octets, middle))
            body_at = at + value_start(octets, at)
            self.value.put(row, octets, body_at, at + size)
            if self.properties.starts_at or self.headers.starts_at:
                start = at + header_start(octets, at)
                self.properties.put(row, octets, start + 12, body_at)
                self.put_headers(row, octets, start, body_at)
            at += size
            row += 1
            offset += 1
        self.count = row
        return 0

    def put_headers(self, row: int, octets: bytes, start: int, end: int) -> int:
        """The table of the content header at start..end, with its length; nothing where there is none."""
        flags = layout.get_u8(octets, start + 12)
        at = start + 14
        if flags & 0x80:
            at += 1 + layout.get_u8(octets, at)
        if flags & 0x40 and at < end:
            at += 1 + layout.get_u8(octets, at)
        table_end = at
        if flags & 0x20 and at + 4 <= end:
            # In two steps: a sum of C's 32 bits would wrap.
            table_end += 4
            table_end += (
                layout.get_u8(octets, at) << 24
                | layout.get_u8(octets, at + 1) << 16
                | layout.get_u8(octets, at + 2) << 8
                | layout.get_u8(octets, at + 3)
            )
        if table_end > end or at > end:
            at = table_end = end
        return self.headers.put(row, octets, at, table_end)


def fetch(
    log: StreamLog, start: int, end: int, octets_max: int, wanted: tuple[int, ...]
) -> tuple[bytearray, int, int, int]:
    """Columns of the messages from offset `start` up to `end`: the octets, how many, the first, the next."""
    start = max(start, log.first)
    end = min(end, log.end)
    chosen: list[tuple[Chunk, int, int, int]] = []  # with its wanted messages, and the offset of the first
    selection = Selection(min(octets_max, COLUMN_OCTETS_MAX))
    cursor = StreamCursor(log, start)
    following = start
    while following < end:
        chunk = cursor.next()
        if chunk is None or chunk.first_offset >= end:
            following = end
            break
        first = max(following, chunk.first_offset)
        last = min(end, chunk.end_offset)
        taken = selection.measure(
            chunk.octets, chunk.messages_at(), chunk.messages_end(), first - chunk.first_offset, last - first
        )
        if taken:
            chosen.append((chunk, selection.first_at, selection.end_at, first))
            following = first + taken
        if first + taken < last:
            break  # it is full
    first_offset = chosen[0][3] if chosen else start
    buffer = lay_out(selection, wanted, first_offset, following, chosen)
    return buffer, selection.count, first_offset, following


def lay_out(
    selection: Selection,
    wanted: tuple[int, ...],
    first_offset: int,
    next_offset: int,
    chosen: list[tuple[Chunk, int, int, int]],
) -> bytearray:
    """The reply: head, directory, and the columns one behind the other."""
    count = selection.count
    data_octets = {
        columns.VALUE: selection.value_octets,
        columns.ROUTING_KEY: selection.key_octets,
        columns.EXCHANGE: selection.exchange_octets,
        # Header tables are part of the properties, so these bound them.
        columns.HEADERS: selection.property_octets,
        columns.PROPERTIES: selection.property_octets,
    }
    at = columns.HEAD_BYTES + len(wanted) * columns.ENTRY_BYTES
    places: list[tuple[int, int, int]] = []
    for column in wanted:
        data_at = padded(at + 4 * (count + 1)) if column in data_octets else at
        places.append((column, at, data_at))
        at = padded(data_at + data_octets.get(column, 8 * count))
    buffer = bytearray(at)
    filling = ColumnFilling(buffer)
    octet_columns = {
        columns.VALUE: filling.value,
        columns.ROUTING_KEY: filling.key,
        columns.EXCHANGE: filling.exchange,
        columns.HEADERS: filling.headers,
        columns.PROPERTIES: filling.properties,
    }
    for column, starts_at, data_at in places:
        if column == columns.OFFSET:
            filling.offsets_at = starts_at
        elif column == columns.TIMESTAMP:
            filling.times_at = starts_at
        else:
            octet_columns[column].place(buffer, starts_at, data_at)
    for chunk, start, end, offset in chosen:
        filling.fill(chunk.octets, start, end, offset)
    _HEAD.pack_into(buffer, 0, columns.MAGIC, columns.VERSION, len(wanted), count, first_offset, next_offset)
    entry_at = columns.HEAD_BYTES
    for column, starts_at, data_at in places:
        kind, size = columns.INT64, 8 * count
        if column in octet_columns:
            kind, size = columns.OCTETS, octet_columns[column].fill
        _ENTRY.pack_into(buffer, entry_at, column, kind, 0, starts_at, data_at, size)
        entry_at += columns.ENTRY_BYTES
    return buffer


def padded(at: int) -> int:
    return (at + 7) & ~7
