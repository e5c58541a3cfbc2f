"""The frames of AMQP/Fast 0.9, which have no end octet.

    | type 1 | channel 1 | size 2 | body ... |                                        sections 3.12.4, 3.13.1
    | 9 | 0 | 0 2 | type 1 | flags 1 | channel 2 | size 8 | body ... |                section 3.12.11

The second form is a meta frame and the extended frame behind it: for bodies of 64 KiB or more, and channels
above 255. The size is that of the body; so is the limit that the peers agree on (section 3.12.3).
"""

from __future__ import annotations

from struct import Struct

from flintmq.errors import ConnectionFault
from flintmq.wire import amqp

# Class 1, instance 1, version 0.9 (section 3.10.2). An AMQP 0-9 client says the same.
OPENING = b"AMQP\x01\x01\x00\x09"
# What all versions of AMQP/Fast begin with.
PROTOCOL = OPENING[:6]

METHOD = 1
HEADER = 2
BODY = 3
OOB_METHOD = 4
OOB_HEADER = 5
OOB_BODY = 6
TRACE = 7
HEARTBEAT = 8
META = 9

HEAD_OCTETS = 4
EXTENDED_OCTETS = 16  # with the meta frame
CHANNEL_MAX_NORMAL = 255
SIZE_MAX_NORMAL = 65_535

HEARTBEAT_FRAME = bytes((HEARTBEAT, 0, 0, 0))
META_FRAME = bytes((META, 0, 0, 0))

_NORMAL = Struct(">BBH")
_EXTENDED = Struct(">BBHQ")


def head_of(kind: int, channel: int, size: int) -> bytes:
    """What goes before a body of so many octets."""
    if channel <= CHANNEL_MAX_NORMAL and size <= SIZE_MAX_NORMAL:
        return _NORMAL.pack(kind, channel, size)
    return META_FRAME + _EXTENDED.pack(kind, 0, channel, size)


def framed(kind: int, channel: int, body: bytes) -> bytes:
    return head_of(kind, channel, len(body)) + body


def read_head(octets: bytes | bytearray, at: int, end: int) -> tuple[int, int, int, int] | None:
    """Type, channel, size and where the body begins, of the frame at `at`; None if its head is not whole."""
    if end - at < HEAD_OCTETS:
        return None
    kind, channel, size = _NORMAL.unpack_from(octets, at)
    if kind != META:
        return kind, channel, size, at + HEAD_OCTETS
    if channel or size:
        raise ConnectionFault(amqp.FRAME_ERROR, "a meta frame has channel 0 and size 0")
    if end - at < EXTENDED_OCTETS:
        return None
    kind, flags, channel, size = _EXTENDED.unpack_from(octets, at + HEAD_OCTETS)
    if kind == META:
        raise ConnectionFault(amqp.FRAME_ERROR, "a meta frame follows a meta frame")
    if flags:
        raise ConnectionFault(amqp.FRAME_ERROR, f"the flags of an extended frame are {flags:#04x}, not 0")
    return kind, channel, size, at + EXTENDED_OCTETS
