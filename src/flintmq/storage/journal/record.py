"""The octets of one record.

    0        4        8                16     17      18       20       24
    +--------+--------+----------------+------+-------+--------+--------+--------------+------+
    | crc32c | length |    sequence    | kind | flags |   0    | count  | body         | pad  |
    +--------+--------+----------------+------+-------+--------+--------+--------------+------+
             |<-------------------- crc covers, `length` minus 4 ------------------->|
    |<------------------------------- length ---------------------------------->| to 8 octets

    ENTRY       count owners, each u32; header length u32; header; payload
    MOVED       the entry's own sequence u64; then as ENTRY
    SETTLE      count runs: owner u32, how many u32, first sequence u64
    COMMIT      first sequence u64; the count records from there on are one group
    PUT         key of count octets; value
    DELETE      key of count octets
    CHECKPOINT  first sequence u64; values older than that are void
    BATCH       everything before this sequence u64 was synced when the batch began
    PAD         nothing; covers octets that recovery has set aside
    END         nothing; the last record of a full segment

The crc continues from a seed that is the crc of the segment's number: a record that lies in a
recycled file from an earlier life never checks. A torn write looks like a record whose crc does
not check, or like what was in the file before: zeros, or records under another seed.
"""

from __future__ import annotations

import struct

from flintmq.errors import StorageFault
from flintmq.storage import layout

# A record's length is u32; this leaves room for the owners and the head below 4 GiB, and larger
# bodies go to a spool long before.
RECORD_OCTETS_MAX = 1 << 30


def seed_of(segment: int) -> int:
    """The crc from which every record of a segment continues."""
    octets = struct.pack("<Q", segment)
    return layout.crc_read(0, octets, 0, 8)


def padded(length: int) -> int:
    return (length + 7) & ~7


def entry_length(kind: int, owners: int, header: int, payload: int) -> int:
    length = layout.RECORD_HEAD + 4 * owners + 4 + header + payload
    if kind == layout.MOVED:
        length += 8
    if length > RECORD_OCTETS_MAX:
        raise StorageFault(f"an entry of {length} octets is too large for the journal: spool its payload")
    return length


def write_head(
    buffer: bytearray, at: int, length: int, sequence: int, kind: int, flags: int, count: int
) -> int:
    """All of the head but the crc; returns where the body goes."""
    layout.put_u32(buffer, at + 4, length)
    layout.put_u64(buffer, at + 8, sequence)
    layout.put_u32(buffer, at + 16, kind | flags << 8)
    layout.put_u32(buffer, at + 20, count)
    return at + layout.RECORD_HEAD


def seal(buffer: bytearray, at: int, length: int, seed: int) -> int:
    """Pad and checksum a record whose octets are in place; returns where the next one goes."""
    end = at + padded(length)
    layout.put_zeros(buffer, at + length, end - at - length)
    layout.put_u32(buffer, at, layout.crc_written(seed, buffer, at + 4, at + length))
    return end


def write_entry(
    buffer: bytearray,
    at: int,
    seed: int,
    length: int,
    sequence: int,
    kind: int,
    flags: int,
    original: int,
    owners: tuple[int, ...],
    header: bytes,
    payload: bytes,
) -> int:
    """Returns where the next record goes; the room is the caller's to check."""
    body = write_head(buffer, at, length, sequence, kind, flags, len(owners))
    if kind == layout.MOVED:
        layout.put_u64(buffer, body, original)
        body += 8
    for owner in owners:
        layout.put_u32(buffer, body, owner)
        body += 4
    layout.put_u32(buffer, body, len(header))
    layout.put_octets(buffer, body + 4, header)
    layout.put_octets(buffer, body + 4 + len(header), payload)
    return seal(buffer, at, length, seed)


def checked_length(octets: bytes, at: int, end: int, seed: int) -> int:
    """The length of the record at `at`, or 0 if there is no whole and true one before `end`."""
    if end - at < layout.RECORD_HEAD:
        return 0
    length = layout.get_u32(octets, at + 4)
    if length < layout.RECORD_HEAD or length > end - at:
        return 0
    if layout.get_u32(octets, at) != layout.crc_read(seed, octets, at + 4, at + length):
        return 0
    return length


def entry_body(octets: bytes, at: int) -> int:
    """Where the owners of an ENTRY or MOVED record begin."""
    if layout.get_u8(octets, at + 16) == layout.MOVED:
        return at + layout.RECORD_HEAD + 8
    return at + layout.RECORD_HEAD


def entry_owners(octets: bytes, at: int) -> tuple[int, ...]:
    count = layout.get_u32(octets, at + 20)
    body = entry_body(octets, at)
    if count == 1:
        return (layout.get_u32(octets, body),)
    return struct.unpack_from(f"<{count}I", octets, body)


def entry_header_at(octets: bytes, at: int) -> int:
    """Where the header's length lies; the header follows, then the payload."""
    return entry_body(octets, at) + 4 * layout.get_u32(octets, at + 20)


def well_formed(octets: bytes, at: int, length: int) -> bool:
    """Do the counts of a checked record agree with its length? A checksum does not promise that."""
    kind = layout.get_u8(octets, at + 16)
    count = layout.get_u32(octets, at + 20)
    body = length - layout.RECORD_HEAD
    if kind == layout.ENTRY or kind == layout.MOVED:
        fixed = 4 * count + (12 if kind == layout.MOVED else 4)
        if fixed > body or count == 0:
            return False
        return layout.get_u32(octets, entry_header_at(octets, at)) <= body - fixed
    if kind == layout.SETTLE:
        return body == count * layout.RUN_OCTETS
    if kind == layout.PUT or kind == layout.DELETE:
        return count <= body
    if kind == layout.COMMIT or kind == layout.CHECKPOINT or kind == layout.BATCH:
        return body == 8
    return kind == layout.PAD or kind == layout.END
