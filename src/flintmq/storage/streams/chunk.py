"""The octets of a stream's log: chunks, and the messages in them.

    0      4         5    6        8              16      20       24           32          40      48
    +------+---------+----+--------+--------------+-------+--------+------------+-----------+-------+-----
    | FLSC | version | 0  | filter | first offset | count | octets | first time | last time | epoch |
    |      |   u8    |    | octets |     u64      |  u32  |  u32   |   ms u64   |  ms u64   |  u64  |
    +------+---------+----+--------+--------------+-------+--------+------------+-----------+-------+-----
    48                56              60             64
    +-----------------+---------------+--------------+--------+----------------------+------------+
    | safe before u64 | crc of filter | crc of 0..59 | filter | messages (`octets`)  | pad to 8   |
    |                 | and messages  |              |        |                      |            |
    +-----------------+---------------+--------------+--------+----------------------+------------+

    message
    0      4             8         16           18            20       24
    +------+-------------+---------+------------+-------------+--------+-------+--------+--------+------+
    | size | header size | time ms | route size | filter size | traits | route | filter | header | body |
    | u32  |     u32     |   u64   |    u16     |    u16      |  u32   |       | value  |        |      |
    +------+-------------+---------+------------+-------------+--------+-------+--------+--------+------+

A chunk is what one group commit took from one stream, or as much as a chunk may hold. `safe before`: what
lies before this offset was promised when the chunk was written, so recovery can tell a torn end from
damage. `filter` is a Bloom filter of the filter values in the chunk; 0xFFFF as filter size: a message
without one. All is little-endian; nothing is changed once it is written.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache

from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.streams import stream_octets

MAGIC = b"FLSC"
VERSION = 1

# A chunk of so many octets is full: some 4,000 small messages, decoded in about a millisecond.
CHUNK_OCTETS = 262_144
# One message alone may be larger. Its chunk is held in memory whole: some at a time, not thousands.
MESSAGE_OCTETS_MAX = 67_108_864
FILTER_OCTETS_MIN = 16
FILTER_OCTETS_MAX = 255
FILTER_VALUE_OCTETS_MAX = 255
# As many bits of the filter are set for each value: of 128 bits, with 20 values in a chunk, one in 25 of
# the chunks is read in vain.
FILTER_HASHES = 4

_HEAD = struct.Struct("<4sBBHQIIQQQQII")
_PROVEN = struct.Struct("<I")


class ChunkHead:
    """What the first 64 octets of a chunk say."""

    def __init__(
        self,
        filter_octets: int,
        first_offset: int,
        count: int,
        octets: int,
        first_time_ms: int,
        last_time_ms: int,
        epoch: int,
        safe_before: int,
        content_crc: int,
    ) -> None:
        self.filter_octets = filter_octets
        self.first_offset = first_offset
        self.count = count
        self.octets = octets
        self.first_time_ms = first_time_ms
        self.last_time_ms = last_time_ms
        self.epoch = epoch
        self.safe_before = safe_before
        self.content_crc = content_crc

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.count

    @property
    def size(self) -> int:
        """Of the whole chunk in its file."""
        return padded(stream_octets.CHUNK_HEAD + self.filter_octets + self.octets)

    def encode(self) -> bytes:
        octets = _HEAD.pack(
            MAGIC,
            VERSION,
            0,
            self.filter_octets,
            self.first_offset,
            self.count,
            self.octets,
            self.first_time_ms,
            self.last_time_ms,
            self.epoch,
            self.safe_before,
            self.content_crc,
            0,
        )
        return octets[:-4] + _PROVEN.pack(layout.crc_read(0, octets, 0, stream_octets.CHUNK_HEAD - 4))


def decode_head(octets: bytes, at: int) -> ChunkHead | None:
    """The head at `at`; None if there is no true one. A newer format is a fault."""
    if len(octets) - at < stream_octets.CHUNK_HEAD or not octets.startswith(MAGIC, at):
        return None
    if layout.get_u32(octets, at + 60) != layout.crc_read(0, octets, at, at + 60):
        return None
    _, version, _, filter_octets, first, count, size, first_ms, last_ms, epoch, safe, crc, _ = (
        _HEAD.unpack_from(octets, at)
    )
    if version > VERSION:
        raise StorageFault(
            f"a chunk of a stream has format {version}, this FlintMQ knows up to {VERSION}: "
            "start the newer FlintMQ that wrote it; nothing was changed"
        )
    return ChunkHead(filter_octets, first, count, size, first_ms, last_ms, epoch, safe, crc)


def padded(size: int) -> int:
    return (size + 7) & ~7


class Chunk:
    """A whole and true chunk in memory; `messages` is for those who have decoded it, to share."""

    __slots__ = ("at", "end_offset", "first_offset", "head", "messages", "octets")

    def __init__(self, octets: bytes, at: int, head: ChunkHead) -> None:
        self.octets = octets
        self.at = at  # where in `octets` it begins
        self.head = head
        self.first_offset = head.first_offset
        self.end_offset = head.end_offset
        self.messages: object = None

    def messages_at(self) -> int:
        return self.at + stream_octets.CHUNK_HEAD + self.head.filter_octets

    def messages_end(self) -> int:
        return self.messages_at() + self.head.octets

    def may_hold(self, values: tuple[bytes, ...]) -> bool:
        """Whether a message with one of these filter values may be in it."""
        size = self.head.filter_octets
        if not size:
            return True
        start = self.at + stream_octets.CHUNK_HEAD
        return any(
            all(self.octets[start + (bit >> 3)] & 1 << (bit & 7) for bit in filter_bits(value, size))
            for value in values
        )


def checked_chunk(octets: bytes, at: int) -> Chunk | None:
    """The chunk at `at`, None if no whole and true one is there."""
    head = decode_head(octets, at)
    if head is None or not head.count or at + head.size > len(octets):
        return None
    start = at + stream_octets.CHUNK_HEAD
    end = start + head.filter_octets + head.octets
    if layout.crc_read(0, octets, start, end) != head.content_crc:
        return None
    if not well_formed(octets, start + head.filter_octets, end, head.count):
        return None
    return Chunk(octets, at, head)


def well_formed(octets: bytes, at: int, end: int, count: int) -> bool:
    """Do the sizes of the messages add up? After this nobody need check them again."""
    left = count
    while left:
        if end - at < stream_octets.MESSAGE_HEAD:
            return False
        size = layout.get_u32(octets, at)
        if size < stream_octets.MESSAGE_HEAD or size > end - at:
            return False
        sizes = layout.get_u32(octets, at + 16)
        filter_size = sizes >> 16
        if filter_size == stream_octets.NO_FILTER:
            filter_size = 0
        # One by one: the sum of three may be more than 32 bits hold.
        room = size - stream_octets.MESSAGE_HEAD - filter_size
        route_size = sizes & 0xFFFF
        header_size = layout.get_u32(octets, at + 4)
        if room < route_size or room - route_size < header_size:
            return False
        if not route_fits(octets, at + stream_octets.MESSAGE_HEAD, route_size) or header_size < 14:
            return False
        at += size
        left -= 1
    return at == end


def route_fits(octets: bytes, at: int, size: int) -> bool:
    """Is it two short strings?"""
    if size < 2:
        return False
    first = layout.get_u8(octets, at)
    if first + 2 > size:
        return False
    return first + 2 + layout.get_u8(octets, at + 1 + first) == size


@lru_cache(maxsize=4096)
def filter_bits(value: bytes, filter_octets: int) -> tuple[int, ...]:
    """The bits of a filter of this size that a value sets."""
    digest = hashlib.blake2b(value, digest_size=4 * FILTER_HASHES).digest()
    return tuple([each % (8 * filter_octets) for each in struct.unpack(f"<{FILTER_HASHES}I", digest)])


class ChunkBuilder:
    """The chunk that is being filled."""

    __slots__ = ("buffer", "capacity", "count", "fill", "filter_octets", "first_time_ms", "last_time_ms")

    def __init__(self, filter_octets: int) -> None:
        self.filter_octets = filter_octets
        self.buffer = bytearray(4096)
        self.capacity = 4096
        self.last_time_ms = 0
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.first_time_ms = 0
        self.fill = stream_octets.CHUNK_HEAD + self.filter_octets
        self.buffer[stream_octets.CHUNK_HEAD : self.fill] = bytes(self.filter_octets)

    def append(
        self,
        time_ms: int,
        route: bytes,
        content: bytes,
        header_size: int,
        traits: int,
        filter_value: bytes | None,
    ) -> int:
        """Adds a message; how many octets the chunk has now."""
        filter_size = 0 if filter_value is None else len(filter_value)
        size = stream_octets.MESSAGE_HEAD + len(route) + filter_size + len(content)
        if self.fill + size + 8 > self.capacity:
            self.grow(size + 8)
        # Time never goes back in a log, whatever the clock does: readers search by it.
        if time_ms > self.last_time_ms:
            self.last_time_ms = time_ms
        if self.count == 0:
            self.first_time_ms = self.last_time_ms
        buffer = self.buffer
        at = self.fill
        layout.put_u32(buffer, at, size)
        layout.put_u32(buffer, at + 4, header_size)
        layout.put_u64(buffer, at + 8, self.last_time_ms)
        layout.put_u32(
            buffer,
            at + 16,
            len(route) | (stream_octets.NO_FILTER if filter_value is None else filter_size) << 16,
        )
        layout.put_u32(buffer, at + 20, traits)
        at = stream_octets.put_part(buffer, at + stream_octets.MESSAGE_HEAD, route, 0, len(route))
        if filter_value is not None:
            at = stream_octets.put_part(buffer, at, filter_value, 0, filter_size)
            self.note_filter(filter_value)
        self.fill = stream_octets.put_part(buffer, at, content, 0, len(content))
        self.count += 1
        return self.fill

    def note_filter(self, value: bytes) -> None:
        for bit in filter_bits(value, self.filter_octets):
            self.buffer[stream_octets.CHUNK_HEAD + (bit >> 3)] |= 1 << (bit & 7)

    def grow(self, size: int) -> None:
        capacity = max(2 * self.capacity, self.fill + size)
        grown = bytearray(capacity)
        grown[: self.fill] = memoryview(self.buffer)[: self.fill]
        self.buffer = grown
        self.capacity = capacity

    def finish(self, first_offset: int, epoch: int, safe_before: int) -> Chunk:
        """The chunk as it goes to the disk; the next one begins."""
        head = ChunkHead(
            self.filter_octets,
            first_offset,
            self.count,
            self.fill - stream_octets.CHUNK_HEAD - self.filter_octets,
            self.first_time_ms,
            self.last_time_ms,
            epoch,
            safe_before,
            layout.crc_written(0, self.buffer, stream_octets.CHUNK_HEAD, self.fill),
        )
        self.buffer[: stream_octets.CHUNK_HEAD] = head.encode()
        end = padded(self.fill)
        self.buffer[self.fill : end] = bytes(end - self.fill)
        octets = bytes(memoryview(self.buffer)[:end])
        if self.capacity > 4 * CHUNK_OCTETS:
            # One large message must not keep its memory for good.
            self.buffer = bytearray(4096)
            self.capacity = 4096
        self.clear()
        return Chunk(octets, 0, head)
