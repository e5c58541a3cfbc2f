"""The name of a branch of a distributed transaction, as X/Open XA has it.

    0        4      5      6
    +--------+------+------+----------------------+----------------------+
    | format |  g   |  b   | global id, g octets  | branch id, b octets  |      g 1..64, b 0..64
    +--------+------+------+----------------------+----------------------+

So it travels in the xid argument, a long string, of dtx-demarcation and dtx-coordination. In services and
for people it is text: the format in decimal, then both ids in hexadecimal, with colons between them.
"""

from __future__ import annotations

import struct

from flintmq.errors import ChannelFault
from flintmq.field_tuple import FieldTuple
from flintmq.wire import amqp

_HEAD = struct.Struct(">IBB")
ID_OCTETS_MAX = 64
# XA: a format of -1 means that there is no xid.
FORMAT_NULL = 0xFFFFFFFF
# 10 digits, two colons, and two ids of 64 octets in hexadecimal.
TEXT_OCTETS_MAX = 10 + 2 + 4 * ID_OCTETS_MAX


class Xid(FieldTuple):
    """Equal if all of it is equal."""

    format: int
    global_id: bytes
    branch_id: bytes

    def octets(self) -> bytes:
        return (
            _HEAD.pack(self.format, len(self.global_id), len(self.branch_id))
            + self.global_id
            + self.branch_id
        )

    def __str__(self) -> str:
        return f"{self.format}:{self.global_id.hex()}:{self.branch_id.hex()}"


def xid_of(octets: bytes) -> Xid:
    """From the xid argument of a method."""
    if len(octets) < _HEAD.size:
        raise malformed(f"an xid has at least {_HEAD.size + 1} octets, this one {len(octets)}")
    form, global_size, branch_size = _HEAD.unpack_from(octets)
    if len(octets) != _HEAD.size + global_size + branch_size:
        raise malformed(
            f"the lengths in an xid of {len(octets)} octets say {_HEAD.size} + {global_size} + {branch_size}"
        )
    middle = _HEAD.size + global_size
    return checked(Xid(form, octets[_HEAD.size : middle], octets[middle:]))


def xid_of_text(text: str) -> Xid:
    """The reverse of str(xid)."""
    parts = text.split(":")
    if len(text) > TEXT_OCTETS_MAX or len(parts) != 3:
        raise malformed(f"'{text[:80]}' is not format:global id:branch id")
    try:
        form = int(parts[0]) if parts[0].isascii() and parts[0].isdigit() else -1
        found = Xid(form, bytes.fromhex(parts[1]), bytes.fromhex(parts[2]))
    except ValueError:
        raise malformed(f"'{text[:80]}' has ids that are not hexadecimal") from None
    return checked(found)


def xid_of_identifier(identifier: str) -> Xid:
    """The dtx class of 0-8 and 0-9 names a transaction by a short string: its octets fill both ids."""
    octets = identifier.encode("utf-8", "surrogateescape")
    if not 0 < len(octets) <= 2 * ID_OCTETS_MAX:
        raise malformed(f"a dtx-identifier has 1 to {2 * ID_OCTETS_MAX} octets, this one {len(octets)}")
    return Xid(0, octets[:ID_OCTETS_MAX], octets[ID_OCTETS_MAX:])


def checked(xid: Xid) -> Xid:
    if not 0 <= xid.format < FORMAT_NULL:
        raise malformed("the format of an xid is a number from 0 to 4294967294")
    if not 0 < len(xid.global_id) <= ID_OCTETS_MAX:
        raise malformed(
            f"the global id of an xid has 1 to {ID_OCTETS_MAX} octets, this one {len(xid.global_id)}"
        )
    if len(xid.branch_id) > ID_OCTETS_MAX:
        raise malformed(
            f"the branch id of an xid has at most {ID_OCTETS_MAX} octets, this one {len(xid.branch_id)}"
        )
    return xid


def malformed(why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"not an xid: {why}")
