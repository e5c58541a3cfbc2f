"""The numbers of the journal's format, and little-endian octet access.

A twin: the compiled build takes the inline bodies of layout.pxd instead of this file.
All integers on disk are little-endian and unsigned. Every record starts at a multiple of 8.
"""

from __future__ import annotations

import struct
from typing import Final

from flintmq.storage import crc32c

FORMAT_VERSION: Final = 1
SEGMENT_HEAD: Final = 64
RECORD_HEAD: Final = 24
RUN_OCTETS: Final = 16

# Kinds of records.
ENTRY: Final = 1
MOVED: Final = 2
SETTLE: Final = 3
COMMIT: Final = 4
PUT: Final = 5
DELETE: Final = 6
CHECKPOINT: Final = 7
BATCH: Final = 8
PAD: Final = 9
END: Final = 10
KIND_MAX: Final = 10

# Flags of a record.
GROUPED: Final = 1
SPOOLED: Final = 2
FLAGS_MAX: Final = 3

# The index: a chunk is 2**12 slots, folded when no more than one slot in eight lives, so that the
# work of folding is paid by the seven that died.
CHUNK_BITS: Final = 12
CHUNK_SLOTS: Final = 4096
FOLD_LIVE_MAX: Final = 512
MASK_BITS: Final = 32

# What became of an entry when an owner let go.
UNKNOWN: Final = 0
PARTLY: Final = 1
DEAD: Final = 2

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ZEROS = bytes(8)


def put_u32(buffer: bytearray, at: int, value: int) -> None:
    _U32.pack_into(buffer, at, value)


def put_u64(buffer: bytearray, at: int, value: int) -> None:
    _U64.pack_into(buffer, at, value)


def put_octets(buffer: bytearray, at: int, octets: bytes) -> None:
    buffer[at : at + len(octets)] = octets


def put_zeros(buffer: bytearray, at: int, count: int) -> None:
    """At most 7: the padding behind a record."""
    buffer[at : at + count] = _ZEROS[:count]


def get_u8(octets: bytes, at: int) -> int:
    return octets[at]


def get_u32(octets: bytes, at: int) -> int:
    value: int = _U32.unpack_from(octets, at)[0]
    return value


def get_u64(octets: bytes, at: int) -> int:
    value: int = _U64.unpack_from(octets, at)[0]
    return value


def crc_written(seed: int, buffer: bytearray, start: int, end: int) -> int:
    """CRC32C, continued from `seed`, of octets in a batch buffer."""
    return crc32c.extend(seed, memoryview(buffer)[start:end].tobytes())


def crc_read(seed: int, octets: bytes, start: int, end: int) -> int:
    """CRC32C, continued from `seed`, of octets read from the disk."""
    return crc32c.extend(seed, octets[start:end])
